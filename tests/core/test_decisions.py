"""What may be done, as a function of a row, a declaration and the time: each row of the tables of DESIGN section 1."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.effects import (
    AlreadySettled,
    AwaitsApproval,
    Closed,
    Held,
    MayClaim,
    Mismatch,
    NeedsApproval,
    NotCallers,
    NothingToAdd,
    OtherVersion,
    SameEffect,
    SettlesIt,
    Snapshot,
    Superseded,
    Unsettled,
    Wanted,
    WrongEffect,
    decide_claim,
    decide_late,
)
from counterfoil.core.states import CLOSED_UNSENT, AttemptOutcome, CaseKind, OperationState, Sender
from counterfoil.core.unknown import (
    KEY_MARGIN_MS,
    AskAgainAt,
    AskProvider,
    Happened,
    PersonDecides,
    ProvedAbsent,
    Resend,
    Times,
    decide_answer,
    decide_unknown,
    still_holding,
)
from counterfoil.model import Absent, CannotTell, Found, ProviderFacts

HOUR = 3_600_000
OPAQUE = ProviderFacts()
KEYED = ProviderFacts(key_lifetime=HOUR)
QUERYABLE = ProviderFacts(queryable=True, lookup_lag=10_000)
BOTH = ProviderFacts(key_lifetime=HOUR, queryable=True, lookup_lag=10_000)
LAGLESS = ProviderFacts(queryable=True, retry_on_absent=False)
REVIEWED = ProviderFacts(queryable=True, lookup_lag=10_000, retry_on_absent=False)

DOUBLE = CaseKind.POSSIBLE_DOUBLE_EFFECT
S, A = OperationState, AttemptOutcome


def row(**given: Any) -> Snapshot:
    plain = Snapshot(
        effect="e",
        effect_version=1,
        sender=Sender.CALLER,
        state=S.PENDING,
        identity=b"i",
        content=b"c",
        attempt=1,
        fence=1,
        version=1,
        holder=None,
        claimed_at=0,
        lease_until=0,
        attempt_deadline=30_000,
        first_attempt_at=0,
        facts=OPAQUE,
        now=0,
    )
    return replace(plain, **given)


WANTED = Wanted(effect="e", effect_version=1, identity=b"i")


def held(**given: Any) -> Snapshot:
    return row(**{"state": S.IN_FLIGHT, "holder": "h", "claimed_at": 0, "lease_until": 10_000, **given})


NEITHER = "the provider neither honours a key nor can be asked"
CLAIMS: list[tuple[Snapshot, Any]] = [
    (row(), MayClaim()),
    (row(effect="other"), WrongEffect("other")),
    (row(effect="other", identity=b"x"), WrongEffect("other")),
    (row(identity=b"x"), Mismatch()),
    (row(effect_version=2), OtherVersion(2)),
    (row(sender=Sender.DISPATCHER), NotCallers(S.PENDING, Sender.DISPATCHER)),
    (row(state=S.AWAITING_APPROVAL, decide_by=1, approved_until=0), AwaitsApproval(is_over=False)),
    (row(state=S.AWAITING_APPROVAL, decide_by=1, approved_until=0, now=1), AwaitsApproval(is_over=True)),
    (row(approved_until=10, now=9), MayClaim()),
    (row(approved_until=10, now=10), NeedsApproval()),
    (row(state=S.PARKED), NotCallers(S.PARKED, Sender.CALLER)),
    (held(now=9_999), Held("h", 10_000, 9_999)),
    (
        held(now=10_000),
        Unsettled(PersonDecides(NEITHER), expired=True),
    ),
    (held(now=10_000, facts=KEYED), Unsettled(Resend(HOUR - 30_000 - KEY_MARGIN_MS), expired=True)),
    (held(now=10_000, facts=QUERYABLE), Unsettled(AskProvider(10_000), expired=True)),
    (row(state=S.UNKNOWN), Unsettled(PersonDecides(NEITHER), expired=False)),
    (row(state=S.UNKNOWN, facts=BOTH), Unsettled(AskProvider(0), expired=False)),
]


@pytest.mark.parametrize(("seen", "decision"), CLAIMS)
def test_what_a_caller_may_do(seen: Snapshot, decision: object) -> None:
    assert decide_claim(seen, WANTED) == decision


@pytest.mark.parametrize("state", OperationState)
def test_identity_comes_before_state_in_every_state(state: OperationState) -> None:
    seen = row(state=state, holder="h", lease_until=99)
    assert decide_claim(replace(seen, identity=b"x"), WANTED) == Mismatch()
    assert decide_claim(replace(seen, effect="other"), WANTED) == WrongEffect("other")


@pytest.mark.parametrize("state", [S.SUCCEEDED, S.FAILED])
def test_a_settled_operation_answers_every_version(state: OperationState) -> None:
    assert decide_claim(row(state=state, effect_version=7), WANTED) == AlreadySettled()


@pytest.mark.parametrize("state", sorted(CLOSED_UNSENT))
def test_a_closed_operation_is_never_sent(state: OperationState) -> None:
    assert decide_claim(row(state=state, effect_version=7), WANTED) == Closed(state)


def test_a_dead_holders_lease_does_not_count_and_a_living_ones_does() -> None:
    assert isinstance(decide_claim(held(now=1), replace(WANTED, known_dead="h")), Unsettled)
    assert isinstance(decide_claim(held(now=1), replace(WANTED, known_dead="other")), Held)


# --- what may be done about an unknown outcome ------------------------------------------------------------------------


def times(now: int) -> Times:
    return Times(first_attempt_at=0, attempt_deadline=30_000, now=now)


LAST = HOUR - 30_000 - KEY_MARGIN_MS  # the key's lifetime, less the time limit and the margin
UNKNOWN: list[tuple[ProviderFacts, int, type]] = [
    (OPAQUE, 0, PersonDecides),
    (KEYED, 0, Resend),
    (KEYED, LAST - 1, Resend),
    (KEYED, LAST, PersonDecides),
    (QUERYABLE, 0, AskProvider),
    (QUERYABLE, 10**15, AskProvider),
    (BOTH, 0, AskProvider),
    (LAGLESS, 0, AskProvider),
]


@pytest.mark.parametrize(("facts", "now", "plan"), UNKNOWN)
def test_what_comes_first_with_an_unknown_outcome(facts: ProviderFacts, now: int, plan: type) -> None:
    assert isinstance(decide_unknown(facts, times(now)), plan)


ANSWERS: list[tuple[Any, ProviderFacts, int, Any]] = [
    (Found(1), QUERYABLE, 0, Happened(Found(1))),
    (Found(1), LAGLESS, 0, Happened(Found(1))),
    (Absent(), QUERYABLE, 40_000, AskAgainAt(40_001)),
    (Absent(), QUERYABLE, 40_001, ProvedAbsent(retry=True)),
    (Absent(), REVIEWED, 40_001, PersonDecides("it is absent; retry is not declared")),
    (Absent(), BOTH, 40_000, Resend(LAST)),
    (Absent(), BOTH, LAST, ProvedAbsent(retry=True)),
    (CannotTell(), BOTH, 0, Resend(LAST)),
    (CannotTell(), BOTH, LAST, PersonDecides("the provider cannot tell")),
    (CannotTell("no access"), QUERYABLE, 0, PersonDecides("the provider cannot tell: no access")),
]


@pytest.mark.parametrize(("answer", "facts", "now", "plan"), ANSWERS)
def test_what_a_look_ups_answer_means(answer: Any, facts: ProviderFacts, now: int, plan: object) -> None:
    assert decide_answer(answer, asked_at=now, facts=facts, times=times(now)) == plan


def test_a_no_without_a_lag_proves_nothing_ever() -> None:
    plan = decide_answer(Absent(), asked_at=10**15, facts=LAGLESS, times=times(10**15))
    assert isinstance(plan, PersonDecides)


def test_a_no_counts_from_when_it_was_asked_for_not_from_when_it_came() -> None:
    plan = decide_answer(Absent(), asked_at=40_000, facts=QUERYABLE, times=times(50_000))
    assert plan == AskAgainAt(40_001)


DECLARED = st.builds(
    ProviderFacts,
    key_lifetime=st.none() | st.integers(31_000, 10 * HOUR),
    key_length=st.sampled_from([32, 64]),
    queryable=st.booleans(),
    lookup_lag=st.none() | st.integers(0, HOUR),
    retry_on_absent=st.booleans(),
    time_limit=st.integers(1, 60_000),
)
MOMENTS = st.builds(
    Times,
    first_attempt_at=st.integers(0, HOUR),
    attempt_deadline=st.integers(HOUR, 2 * HOUR),
    now=st.integers(0, 20 * HOUR),
)


@given(facts=DECLARED, moments=MOMENTS, answer=st.sampled_from([Absent(), CannotTell(), Found()]))
def test_nothing_is_sent_again_without_a_key_or_a_proof(facts: ProviderFacts, moments: Times, answer: Any) -> None:
    plans = [
        decide_unknown(facts, moments),
        decide_answer(answer, asked_at=moments.now, facts=facts, times=moments),
    ]
    for plan in plans:
        match plan:
            case Resend():
                assert facts.key_lifetime is not None
                assert moments.now + facts.time_limit < moments.first_attempt_at + facts.key_lifetime
            case ProvedAbsent():
                assert answer == Absent()
                assert facts.lookup_lag is not None
                assert moments.now > moments.attempt_deadline + facts.lookup_lag
                assert facts.retry_on_absent


@given(begun=DECLARED, now=DECLARED)
def test_a_changed_declaration_never_makes_a_key_last_longer(begun: ProviderFacts, now: ProviderFacts) -> None:
    held = still_holding(begun, now)
    assert replace(held, key_lifetime=None) == replace(now, key_lifetime=None)
    if held.key_lifetime is not None:
        assert begun.key_lifetime is not None
        assert begun.key_length == now.key_length
        assert held.key_lifetime == min(begun.key_lifetime, now.key_lifetime or 0)


# --- late workers -----------------------------------------------------------------------------------------------------

SUCCESS = A.SUCCEEDED
LATE: list[tuple[OperationState, int, AttemptOutcome, ProviderFacts, object]] = [
    # its own attempt
    (S.UNKNOWN, 1, SUCCESS, OPAQUE, SettlesIt()),
    (S.UNKNOWN, 1, A.NOT_SENT, OPAQUE, SettlesIt()),
    (S.UNKNOWN, 1, A.REFUSED, OPAQUE, SettlesIt()),
    (S.UNKNOWN, 1, A.UNKNOWN, OPAQUE, NothingToAdd()),
    (S.SUCCEEDED, 1, SUCCESS, OPAQUE, SameEffect()),
    (S.SUCCEEDED, 1, A.NOT_SENT, OPAQUE, Superseded(None)),
    (S.SUCCEEDED, 1, A.REFUSED, OPAQUE, Superseded(None)),
    (S.SUCCEEDED, 1, A.UNKNOWN, OPAQUE, NothingToAdd()),
    (S.PENDING, 1, SUCCESS, OPAQUE, SettlesIt(DOUBLE)),
    (S.FAILED, 1, SUCCESS, OPAQUE, SettlesIt(DOUBLE)),
    (S.PARKED, 1, SUCCESS, OPAQUE, SettlesIt(DOUBLE)),
    (S.CANCELLED, 1, SUCCESS, OPAQUE, SettlesIt(DOUBLE)),
    (S.EXPIRED, 1, SUCCESS, OPAQUE, SettlesIt(DOUBLE)),
    (S.PENDING, 1, A.NOT_SENT, OPAQUE, Superseded(None)),
    (S.FAILED, 1, A.REFUSED, OPAQUE, Superseded(None)),
    # another attempt has begun
    (S.IN_FLIGHT, 2, SUCCESS, OPAQUE, Superseded(DOUBLE)),
    (S.IN_FLIGHT, 2, SUCCESS, KEYED, Superseded(None)),
    (S.IN_FLIGHT, 2, A.NOT_SENT, OPAQUE, Superseded(None)),
    (S.IN_FLIGHT, 2, A.UNKNOWN, OPAQUE, NothingToAdd()),
    (S.SUCCEEDED, 2, SUCCESS, OPAQUE, Superseded(DOUBLE)),
    (S.SUCCEEDED, 2, SUCCESS, KEYED, Superseded(None)),
    (S.UNKNOWN, 2, SUCCESS, OPAQUE, SettlesIt(DOUBLE)),
    (S.UNKNOWN, 2, SUCCESS, KEYED, SettlesIt(None)),
    (S.UNKNOWN, 2, A.NOT_SENT, OPAQUE, Superseded(None)),
    (S.UNKNOWN, 2, A.REFUSED, OPAQUE, Superseded(None)),
    (S.PENDING, 2, SUCCESS, KEYED, SettlesIt(DOUBLE)),
    (S.FAILED, 2, SUCCESS, KEYED, SettlesIt(DOUBLE)),
]


@pytest.mark.parametrize(("state", "attempt", "outcome", "facts", "decision"), LATE)
def test_what_a_late_result_means(
    state: OperationState, attempt: int, outcome: AttemptOutcome, facts: ProviderFacts, decision: object
) -> None:
    assert decide_late(row(state=state, attempt=attempt, facts=facts), attempt=1, outcome=outcome) == decision


@pytest.mark.parametrize(
    ("facts", "counted", "kind"),
    [(KEYED, A.UNKNOWN, None), (KEYED, A.NOT_SENT, DOUBLE), (OPAQUE, A.UNKNOWN, DOUBLE), (OPAQUE, A.NOT_SENT, DOUBLE)],
)
def test_what_waits_to_be_sent_again_under_its_key_needs_no_case(
    facts: ProviderFacts, counted: AttemptOutcome, kind: object
) -> None:
    seen = row(state=S.PENDING, attempt=1, facts=facts)
    assert decide_late(seen, attempt=1, outcome=SUCCESS, counted=counted) == SettlesIt(kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [S.IN_FLIGHT, S.SUCCEEDED, S.UNKNOWN])
def test_a_key_makes_one_effect_of_two_sends_only_as_long_as_it_lives(state: OperationState) -> None:
    for now, kind in ((HOUR - 1, None), (HOUR, DOUBLE)):
        decision = decide_late(row(state=state, attempt=2, facts=KEYED, now=now), attempt=1, outcome=SUCCESS)
        assert decision in {Superseded(kind), SettlesIt(kind)}


@pytest.mark.parametrize("state", OperationState)
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("outcome", AttemptOutcome)
def test_every_late_result_has_an_answer(state: OperationState, attempt: int, outcome: AttemptOutcome) -> None:
    decide_late(row(state=state, attempt=attempt), attempt=1, outcome=outcome)
