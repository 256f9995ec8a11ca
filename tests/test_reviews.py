"""A person's verdict: one wins, it moves the operation with it, and the next call is answered accordingly."""

import threading
from collections import Counter
from collections.abc import Iterator
from inspect import getdoc, signature
from typing import Any

import pytest

from counterfoil import Case, Counterfoil, NotSent, effect
from counterfoil.aio.operations import AsyncOperations
from counterfoil.aio.reviews import AsyncReviews
from counterfoil.core.states import CaseKind, EvidenceKind, OperationState
from counterfoil.errors import (
    CaseNotFound,
    EffectRefused,
    InvalidArguments,
    InvalidId,
    OperationInProgress,
    OperationNotFound,
    OutcomeUnknown,
    ReceiptUnreadable,
    SyncOnEventLoop,
    TenantMissing,
    VerdictConflict,
    VerdictIncomplete,
)
from counterfoil.model import OperationKey
from counterfoil.operations import Operations
from counterfoil.reviewing import ruling
from counterfoil.reviews import Reviews
from counterfoil.storage.script import Script, one_row
from counterfoil.storage.scripts.moves import Outcome, columns, key_params, open_case
from counterfoil.storage.scripts.reviews import find_ruling
from tests.colours import COLOURS, Coloured

TENANT = "team-A"
sent: Counter[str] = Counter()


@effect("review.ticket", key="{request_id}/ticket")
def ticket(call: Any, *, title: str) -> dict[str, Any]:
    sent[call.operation_id] += 1
    if title == "lost" and call.attempt == 1:
        raise OSError("the wire broke")
    if title == "later":
        raise NotSent("not now")
    return {"id": sent[call.operation_id]}


@pytest.fixture(params=COLOURS)
def each(request: pytest.FixtureRequest, url: str) -> Iterator[Coloured]:
    sent.clear()
    made = Coloured(request.param, url)
    yield made
    made.close()


def lose(each: Coloured, request_id: str = "r-1") -> Case:
    with pytest.raises(OutcomeUnknown) as caught:
        each.call("perform", ticket, tenant=TENANT, request_id=request_id, title="lost")
    case, _ = each.call("review.show", caught.value.case_id, tenant=TENANT)
    found: Case = case
    return found


def again(each: Coloured, request_id: str = "r-1") -> Any:
    return each.call("perform", ticket, tenant=TENANT, request_id=request_id, title="lost")


def resolve(each: Coloured, case: Case, verdict: str, **more: Any) -> Case:
    given = {"tenant": TENANT, "by": "mei", "expect_version": case.version} | more
    done: Case = each.call("review.resolve", case.case_id, verdict=verdict, **given)
    return done


def state(each: Coloured, request_id: str = "r-1") -> str:
    detail = each.call("operations.get", f"{request_id}/ticket", tenant=TENANT)
    found: str = detail.operation.state
    return found


# --- each verdict ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "value"),
    [('{"id": 981}', {"id": 981}), (" [1, 2.5]", [1, 2.5]), ('"TICKET-981"', "TICKET-981")],
)
def test_evidence_that_is_json_is_also_the_receipts_value(each: Coloured, evidence: str, value: Any) -> None:
    case = resolve(each, lose(each), "happened", evidence=evidence, reason="in the gateway's log")
    assert (case.state, case.verdict, case.verdict_by, case.version) == ("resolved", "happened", "mei", 2)
    receipt = again(each)
    assert receipt.value == value
    assert receipt.evidence == {"by": "mei", "reason": "in the gateway's log", "evidence": value}
    detail = each.call("operations.get", "r-1/ticket", tenant=TENANT)
    assert detail.operation.settled_by == "verdict"
    assert [(a.attempt, a.outcome) for a in detail.attempts] == [(1, "succeeded")]
    assert [(e.kind, e.given_by) for e in detail.evidence] == [(EvidenceKind.VERDICT, "mei")]
    assert sent == {"r-1/ticket": 1}


@pytest.mark.parametrize("value", [{"id": 981}, "TICKET-981", 17, None, float("inf")])
def test_a_value_beside_the_evidence_is_what_the_receipt_holds(each: Coloured, value: Any) -> None:
    resolve(each, lose(each), "happened", evidence='{"log": 3}', value=value)
    receipt = again(each)
    assert receipt.value == value
    assert receipt.evidence == {"by": "mei", "reason": "", "evidence": {"log": 3}, "value": value}


@pytest.mark.parametrize("evidence", ["ticket 17", "7", "null", "NaN", "case {17}", "TICKET-981"])
def test_evidence_in_words_gives_no_value_until_a_person_does(each: Coloured, evidence: str) -> None:
    first = resolve(each, lose(each), "happened", evidence=evidence)
    receipt = again(each)
    assert receipt.evidence["evidence"] == evidence
    with pytest.raises(ReceiptUnreadable, match=r"--happened --value JSON .* counterfoil explain r-1/ticket"):
        _ = receipt.value
    done = resolve(each, first, "happened", value={"id": 17}, by="bo", reason="asked the gateway")
    assert (done.state, done.verdict_by, done.version) == ("resolved", "mei", 3)
    assert again(each).value == {"id": 17}
    detail = each.call("operations.get", "r-1/ticket", tenant=TENANT)
    assert [(e.answer, e.given_by) for e in detail.evidence] == [
        ("happened", "mei"),
        ("value given: asked the gateway", "bo"),
    ]
    assert detail.evidence[1].value["value"] == {"id": 17}
    assert sent == {"r-1/ticket": 1}


def test_a_value_is_given_once_and_only_by_who_saw_that_it_lacks(each: Coloured) -> None:
    first = resolve(each, lose(each), "happened", evidence="ticket 17")
    refused: list[dict[str, Any]] = [
        {"verdict": "happened", "evidence": "ticket 18"},
        {"verdict": "did_not_happen_retry", "reason": "no"},
        {"verdict": "noted"},
        {"verdict": "happened", "value": 1, "expect_version": 1},
    ]
    for more in refused:
        with pytest.raises(VerdictConflict):
            resolve(each, first, **more)
    second = resolve(each, first, "happened", value=17)
    for case in (first, second):
        with pytest.raises(VerdictConflict, match="already resolved by mei"):
            resolve(each, case, "happened", value=18)
    assert again(each).value == 17


def test_a_verdict_that_gave_a_value_takes_no_other(each: Coloured) -> None:
    done = resolve(each, lose(each), "happened", value=None)
    with pytest.raises(VerdictConflict, match="already resolved by mei"):
        resolve(each, done, "happened", value=18)
    assert again(each).value is None


def test_a_verdict_whose_commit_nobody_heard_of_is_found_by_what_it_kept(each: Coloured) -> None:
    store = each.desk.store

    def stored(case: Case, version: int, **given: Any) -> bool:
        made = {"verdict": "happened", "reason": "", "evidence": None, "value": ..., "by": "mei"} | given
        asked = ruling(case.case_id, tenant=TENANT, expect_version=version, **made)
        return store.read(lambda: find_ruling(TENANT, int(case.case_id.removeprefix("case-")), asked)) is not None

    case = lose(each)
    assert not stored(case, 1, evidence="ticket 17")
    resolve(each, case, "happened", evidence="ticket 17")
    assert stored(case, 1, evidence="ticket 17")
    assert not stored(case, 1, evidence="ticket 17", by="bo")
    assert not stored(case, 1, verdict="did_not_happen_retry", reason="no")
    assert not stored(case, 2, value=17)
    resolve(each, case, "happened", value=17, expect_version=2)
    assert stored(case, 2, value=17)
    assert not stored(case, 2, value=18)


def test_did_not_happen_retry_sends_once_more(each: Coloured) -> None:
    resolve(each, lose(each), "did_not_happen_retry", reason="the queue is empty")
    assert state(each) == OperationState.PENDING
    assert again(each).value == {"id": 2}
    assert again(each).value == {"id": 2}
    assert sent == {"r-1/ticket": 2}


def test_did_not_happen_close_refuses_from_then_on(each: Coloured) -> None:
    resolve(each, lose(each), "did_not_happen_close", reason="the customer withdrew")
    with pytest.raises(EffectRefused, match="closed by mei: the customer withdrew"):
        again(each)
    assert sent == {"r-1/ticket": 1}


def test_noted_closes_a_case_and_leaves_the_operation_alone(each: Coloured) -> None:
    receipt = each.call("perform", ticket, tenant=TENANT, request_id="r-1", title="x")
    case = open_by_hand(each, CaseKind.POSSIBLE_DOUBLE_EFFECT)
    assert resolve(each, case, "noted", reason="the provider merged them").verdict == "noted"
    assert each.call("perform", ticket, tenant=TENANT, request_id="r-1", title="x").value == receipt.value


def open_by_hand(each: Coloured, kind: CaseKind, state: OperationState | None = None) -> Case:
    key = OperationKey(tenant=TENANT, operation_id="r-1/ticket")

    def script() -> Script[None]:
        row = yield from one_row("get_operation", **key_params(key))
        assert row is not None
        if state is not None:
            outcome = columns(state, Outcome(outcome="not_sent"), EvidenceKind.REPLY)  # type: ignore[arg-type]
            yield from one_row("settle_if_unmoved", **key_params(key), version=row["version"], **outcome)
        yield from open_case(key, row, kind, "by hand")

    each.desk.store.write(script)
    found: Case = each.call("review.list", tenant=TENANT).items[0]
    return found


@pytest.mark.parametrize(
    ("verdict", "after"),
    [("happened", "succeeded"), ("did_not_happen_retry", "pending"), ("did_not_happen_close", "failed")],
)
def test_a_parked_operation_is_requeued_closed_or_known_to_have_happened(
    each: Coloured, verdict: str, after: str
) -> None:
    with pytest.raises(Exception, match="provably did not happen"):
        each.call("perform", ticket, tenant=TENANT, request_id="r-1", title="later")
    case = open_by_hand(each, CaseKind.DEAD_LETTER, OperationState.PARKED)
    resolve(each, case, verdict, reason="seen", evidence="T-1")
    assert state(each) == after


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "more", "lacks"),
    [
        ("happened", {"reason": "I think so"}, "evidence"),
        ("happened", {"evidence": "  "}, "evidence"),
        ("did_not_happen_retry", {"evidence": "x"}, "a reason"),
        ("did_not_happen_close", {"reason": " "}, "a reason"),
        ("happened", {"evidence": "x", "by": ""}, "by"),
        ("perhaps", {}, "no verdict 'perhaps'"),
        ("happened", {"evidence": '{"id": 7'}, r"begins like JSON and is not: .* at line 1, column 9"),
        ("happened", {"evidence": '"by telephone" said Ada'}, r"Extra data at line 1, column 16"),
        ("happened", {"evidence": "[NaN]"}, "NaN is not a number in JSON"),
        ("happened", {"evidence": '{"id": 1e999}'}, "too large"),
        ("happened", {"evidence": f"[{'9' * 5000}]"}, "too long"),
        ("happened", {"evidence": "[" * 100_000}, "nested too deeply"),
        ("happened", {"evidence": "[" * 200 + "]" * 200}, "cannot be stored"),
        ("happened", {"value": object()}, "cannot be stored: a value of type object"),
        ("did_not_happen_retry", {"reason": "no", "value": 1}, "takes no value"),
    ],
)
def test_a_verdict_needs_what_it_rests_on(each: Coloured, verdict: str, more: dict[str, Any], lacks: str) -> None:
    case = lose(each)
    with pytest.raises(VerdictIncomplete, match=lacks):
        resolve(each, case, verdict, **more)
    assert state(each) == OperationState.UNKNOWN


def test_the_second_verdict_is_told_who_was_first(each: Coloured) -> None:
    case = lose(each)
    resolve(each, case, "happened", evidence="T-1")
    with pytest.raises(VerdictConflict, match=r"already resolved by mei at .* as happened") as caught:
        resolve(each, case, "did_not_happen_retry", reason="no", by="bo")
    assert (caught.value.facts["verdict"], caught.value.facts["verdict_by"]) == ("happened", "mei")
    assert sent == {"r-1/ticket": 1}


def test_a_case_at_another_version_is_read_again_first(each: Coloured) -> None:
    with pytest.raises(VerdictConflict, match="at version 1, and was judged as it stood at version 7"):
        resolve(each, lose(each), "happened", evidence="T-1", expect_version=7)
    assert state(each) == OperationState.UNKNOWN


def test_a_settled_operations_case_takes_only_noted(each: Coloured) -> None:
    each.call("perform", ticket, tenant=TENANT, request_id="r-1", title="x")
    case = open_by_hand(each, CaseKind.CONTRADICTING_RECEIPTS)
    with pytest.raises(VerdictConflict, match="takes noted, not happened"):
        resolve(each, case, "happened", evidence="T-1")


def test_an_open_question_cannot_just_be_noted(each: Coloured) -> None:
    with pytest.raises(VerdictConflict, match="takes happened, did_not_happen_retry, did_not_happen_close"):
        resolve(each, lose(each), "noted")


def test_another_tenants_case_looks_unknown(each: Coloured) -> None:
    case = lose(each)
    for name in (case.case_id, "case-99", "no-case", "case-٣"):
        with pytest.raises(CaseNotFound):
            each.call("review.show", name, tenant="team-B")
        with pytest.raises(CaseNotFound):
            resolve(each, case, "happened", evidence="T-1", tenant="team-B")
    with pytest.raises(TenantMissing):
        each.call("review.list", tenant="")
    assert each.call("review.list", tenant="team-B").items == ()


def test_a_state_that_does_not_exist_is_named(each: Coloured) -> None:
    with pytest.raises(InvalidArguments, match="open, resolved, settled"):
        each.call("review.list", tenant=TENANT, state="lost")


# --- an attempt under way --------------------------------------------------------------------------------------------


def test_an_attempt_under_way_cannot_be_judged_and_one_whose_claim_ran_out_can(each: Coloured) -> None:
    operation = each.abandon(ticket, tenant=TENANT, request_id="r-1", title="lost")
    with pytest.raises(OperationInProgress, match="nobody can judge"):
        each.call("review.open", operation, tenant=TENANT)
    each.clock.advance("31s")
    case = each.call("review.open", operation, tenant=TENANT)
    assert (case.kind, case.version, state(each)) == (CaseKind.UNKNOWN_OUTCOME, 1, OperationState.UNKNOWN)
    assert each.call("review.open", operation, tenant=TENANT) == case
    resolve(each, case, "did_not_happen_retry", reason="the process died before it sent")
    assert again(each).value == {"id": 1}


def test_a_case_that_stayed_open_while_the_next_attempt_hangs(each: Coloured) -> None:
    operation = each.abandon(ticket, tenant=TENANT, request_id="r-1", title="lost")
    case = open_by_hand(each, CaseKind.UNKNOWN_OUTCOME)
    with pytest.raises(OperationInProgress):
        resolve(each, case, "happened", evidence="T-1")
    each.clock.advance("31s")
    resolve(each, case, "happened", value="T-1")
    assert each.call("operations.get", operation, tenant=TENANT).receipt.value == "T-1"
    assert each.call("review.list", tenant=TENANT).items == ()


def test_there_is_nothing_to_open_about_a_settled_or_unknown_operation(each: Coloured) -> None:
    each.call("perform", ticket, tenant=TENANT, request_id="r-1", title="x")
    with pytest.raises(VerdictConflict, match="no outcome to judge"):
        each.call("review.open", "r-1/ticket", tenant=TENANT)
    with pytest.raises(OperationNotFound):
        each.call("review.open", "r-2/ticket", tenant=TENANT)


# --- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rival", ["threads", "two-counterfoils"])
def test_of_twenty_reviewers_one_wins_and_the_others_learn_who(url: str, rival: str) -> None:
    sent.clear()
    first = Coloured("sync", url)
    case = lose(first)
    others = [first] if rival == "threads" else [first, Coloured("sync", url)]
    start, outcomes = threading.Barrier(20), []

    def judge(number: int) -> None:
        start.wait()
        try:
            done = resolve(others[number % len(others)], case, "happened", by=f"p{number}", value=f"T-{number}")
        except VerdictConflict as conflict:
            outcomes.append(("lost", conflict.facts["verdict_by"]))
        else:
            outcomes.append(("won", done.verdict_by))

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((_, winner),) = [each for each in outcomes if each[0] == "won"]
    assert Counter(outcomes) == {("won", winner): 1, ("lost", winner): 19}
    assert again(first).value == f"T-{str(winner)[1:]}"
    for each in others:
        each.close()


# --- lists, text, parity ---------------------------------------------------------------------------------------------


def test_cases_are_paged_from_the_oldest(each: Coloured) -> None:
    ids = [lose(each, f"r-{number}").case_id for number in range(5)]
    first = each.call("review.list", tenant=TENANT, limit=3)
    rest = each.call("review.list", tenant=TENANT, limit=3, after=first.next)
    assert [case.case_id for case in (*first.items, *rest.items)] == ids
    assert rest.next is None
    case, _ = each.call("review.show", ids[0], tenant=TENANT)
    resolve(each, case, "happened", evidence="T")
    assert [c.case_id for c in each.call("review.list", tenant=TENANT).items] == ids[1:]
    assert [c.case_id for c in each.call("review.list", tenant=TENANT, state="resolved").items] == ids[:1]
    assert [c.case_id for c in each.call("review.list", tenant=TENANT, state=None).items] == ids


def test_any_text_can_be_evidence_and_reason(each: Coloured) -> None:
    hostile = "\0 \udcff \x1b[31m 票 " + "x" * 5000
    lost = lose(each)
    with pytest.raises(InvalidId):
        resolve(each, lost, "happened", evidence=hostile, reason=hostile, by=hostile[:500])
    case = resolve(each, lost, "happened", evidence=hostile, reason=hostile, by="\x1b[31m 票")
    assert case.verdict_reason is not None
    assert case.verdict_reason.startswith("\\0 \\udcff")
    assert again(each).evidence["evidence"] == hostile


async def test_a_verdict_is_not_given_by_blocking_the_event_loop(url: str) -> None:
    with Counterfoil.open(url) as cf, pytest.raises(SyncOnEventLoop):
        cf.review.resolve("case-1", tenant=TENANT, verdict="noted", by="mei", expect_version=1)


@pytest.mark.parametrize(("one", "other"), [(Reviews, AsyncReviews), (Operations, AsyncOperations)])
def test_both_colours_have_the_same_methods(one: type, other: type) -> None:
    names = {name for name in vars(one) if not name.startswith("_")}
    assert names == {name for name in vars(other) if not name.startswith("_")}
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert str(signature(mine)) == str(signature(theirs)), name
        assert (getdoc(mine) or "")[:20] == (getdoc(theirs) or "")[:20], name
