"""The answer comes first, five lines always, and the command at the end goes on from here."""

from dataclasses import replace

import pytest

from counterfoil.core.explain import ANSWERS, age_text, answer, explain
from counterfoil.core.states import CaseKind, CaseState, OperationState
from counterfoil.model import Origin, ProviderFacts, Trusted
from counterfoil.shown import Approval, Case, Operation, OperationDetail

NOW = 1_767_225_700_000
OPERATION = Operation(
    seq=1, tenant="team-A", operation_id="r-1/ticket", effect="ticket.create", effect_version=1, state="unknown",
    sender="caller", fingerprint="jcs1:00", attempt=1, version=2, holder=None, claimed_at=NOW - 40_000, lease_until=0,
    attempt_deadline=NOW - 20_000, first_attempt_at=NOW - 40_000, created_at=NOW - 40_000, updated_at=NOW,
    settled_at=None, settled_by=None, error_class="httpx.ReadTimeout", error_text=None,
    trusted=Trusted(tenant="team-A"), origin=Origin(), facts=ProviderFacts(), now=NOW,
)  # fmt: skip
CASE = Case(case_id="case-7", tenant="team-A", operation_id="r-1/ticket", kind=CaseKind.UNKNOWN_OUTCOME,
            state=CaseState.OPEN, version=3, opened_at=NOW, reason="lost")  # fmt: skip
DAY = 86_400_000


def lines(operation: Operation, *cases: Case) -> tuple[str, ...]:
    detail = OperationDetail(operation=operation, attempts=(), evidence=(), cases=cases, receipt=None)
    return explain(detail, NOW).lines


@pytest.mark.parametrize("state", OperationState)
def test_every_state_is_explained_in_five_lines_with_its_answer_first(state: OperationState) -> None:
    until = NOW + 1000 if state is OperationState.IN_FLIGHT else 0
    told = lines(replace(OPERATION, state=state, holder="h" if until else None, lease_until=until, settled_at=NOW))
    assert len(told) == 5
    assert told[0].startswith(f"{ANSWERS[state]} r-1/ticket is ticket.create v1 of tenant team-A.")
    assert all(line and line[0].isupper() | line.startswith("h ") for line in told[1:])
    assert told[4].startswith("Run: counterfoil ")


def test_an_unknown_outcome_says_what_settles_it() -> None:
    facts = OPERATION.facts
    keyed, queryable = replace(facts, key_lifetime=DAY), replace(facts, queryable=True, lookup_lag=60_000)
    silent = replace(facts, queryable=True)
    safe = lines(replace(OPERATION, facts=keyed))[3]
    assert safe.startswith("Running it again is safe until 2026-01-01 23:59:30 UTC: that sends it again under the key")
    assert safe.endswith("Call perform again with the same arguments.")
    of_thread = lines(replace(OPERATION, facts=keyed, origin=Origin(thread_id="t-1")))[3]
    assert of_thread.endswith("cf.run(graph, None, tenant='team-A', thread_id='t-1').")
    assert "asks the provider. A no counts from " in lines(replace(OPERATION, facts=queryable))[3]
    assert lines(replace(OPERATION, facts=replace(queryable, lookup_lag=0)))[3] == "The next perform asks the provider."
    assert "its no proves nothing" in lines(replace(OPERATION, facts=silent))[3]
    assert "A person decides." in lines(OPERATION)[3]
    assert "key lifetime is over" in lines(replace(OPERATION, facts=keyed, first_attempt_at=NOW - DAY))[3]


def test_the_command_carries_the_case_and_its_version() -> None:
    assert lines(OPERATION, CASE)[4].startswith("Run: counterfoil review resolve case-7 --expect-version 3 (--happened")
    double = replace(CASE, kind=CaseKind.POSSIBLE_DOUBLE_EFFECT)
    told = lines(replace(OPERATION, state=OperationState.SUCCEEDED, settled_at=NOW, settled_by="lookup"), double)
    assert told[0].startswith("It happened, perhaps twice.")
    assert told[4].endswith("--noted --reason TEXT")


def test_a_claim_that_ran_out_is_not_called_running() -> None:
    over = replace(OPERATION, state=OperationState.IN_FLIGHT, holder="host:1", lease_until=NOW)
    told = lines(over)
    assert told[0].startswith("We do not know.")
    assert "held it until" in told[2]
    assert told[4] == "Run: counterfoil review open r-1/ticket --tenant team-A"
    assert answer(over, (), NOW) == "We do not know."
    assert answer(replace(over, lease_until=NOW + 1), (), NOW) == "It is running."


def test_a_command_can_be_pasted_into_a_shell() -> None:
    told = lines(replace(OPERATION, state=OperationState.PENDING, operation_id="it's; rm -rf $HOME"))
    assert told[4] == """Run: counterfoil ops show 'it'"'"'s; rm -rf $HOME' --tenant team-A"""


def test_an_id_that_looks_like_an_option_is_no_option() -> None:
    assert lines(replace(OPERATION, operation_id="--help"))[-1].endswith("show --tenant team-A -- --help")


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0s"), (999, "0s"), (59_999, "59s"), (61_000, "1m"), (3_661_000, "1h1m"), (90_000_000, "1d")]
)
def test_ages_are_short(ms: int, text: str) -> None:
    assert age_text(ms) == text


ASKED = Approval(
    approval_id="approval-9", tenant="team-A", operation_id="r-1/ticket", effect="ticket.create", effect_version=1,
    state="pending", fingerprint="jcs1:00", requested_by="bot", requested_at=NOW, decide_by=NOW + DAY, edited_by=None,
    follows=None, followed_by=None, decided_by=None, reason=None, decided_at=None, valid_until=None, spent_at=None,
    now=NOW,
)  # fmt: skip


def asked_about(state: OperationState, approval: Approval = ASKED, now: int = NOW, **more: object) -> tuple[str, ...]:
    operation = replace(OPERATION, state=state, attempt=0, error_class=None, settled_at=NOW, **more)  # type: ignore[arg-type]
    detail = OperationDetail(
        operation=operation, attempts=(), evidence=(), cases=(), receipt=None, approvals=(approval,)
    )
    return explain(detail, now).lines


def test_what_waits_for_a_person_names_the_approval_and_its_command() -> None:
    told = asked_about(OperationState.AWAITING_APPROVAL)
    assert told[0].startswith("It did not happen.")
    assert told[1] == "It needs a person's approval before it is sent: asked by bot at 2026-01-01 00:01:40 UTC."
    assert told[3] == "A person decides about approval-9, until 2026-01-02 00:01:40 UTC; after that it is over."
    assert told[4] == "Run: counterfoil approvals show approval-9 --tenant team-A"
    assert "Nobody decided about approval-9" in asked_about(OperationState.AWAITING_APPROVAL, now=NOW + DAY)[3]


def test_what_a_person_decided_is_told_with_who_and_why() -> None:
    no = replace(ASKED, state="rejected", decided_by="ada", decided_at=NOW, reason="not this one")
    assert "rejected by ada: not this one" in asked_about(OperationState.REJECTED, no)[1]
    edited = replace(no, state="edited", followed_by="r-1/ticket~edit-1", reason="")
    assert asked_about(OperationState.CANCELLED, edited)[1].endswith("edited by ada; r-1/ticket~edit-1 follows it.")
    yes = replace(no, state="approved", valid_until=NOW + DAY)
    assert asked_about(OperationState.PENDING, yes)[1].startswith("ada approved it at")
    assert "asked about again" in asked_about(OperationState.PENDING, yes, now=NOW + DAY)[3]


def test_a_decision_that_ran_out_lets_nobody_send_a_lost_one_again() -> None:
    keyed = replace(OPERATION.facts, key_lifetime=3 * DAY)
    yes = replace(ASKED, state="approved", decided_by="ada", decided_at=NOW, valid_until=NOW + 1000)
    assert "safe until" in asked_about(OperationState.UNKNOWN, yes, facts=keyed)[3]
    assert "its approval ran out" in asked_about(OperationState.UNKNOWN, yes, now=NOW + 1000, facts=keyed)[3]
