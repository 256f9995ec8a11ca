"""Every kind of case in every state of its operation takes some verdict, and every verdict is legal in the tables."""

from dataclasses import replace
from itertools import product

import pytest

from counterfoil.core.machine import advance, legal
from counterfoil.core.reconcile import (
    JUDGING,
    MOVES,
    AlreadyClosed,
    GivesValue,
    Judged,
    Moves,
    NotPermitted,
    OnlyNoted,
    StillRunning,
    decide_verdict,
    permitted,
)
from counterfoil.core.states import OPERATION, TERMINAL, CaseKind, CaseState, OperationState, Verdict

EVERYTHING = list(product(CaseKind, OperationState))


def judged(kind: CaseKind, state: OperationState, *, lease: int = 0, case: CaseState = CaseState.OPEN) -> Judged:
    return Judged(kind=kind, case_state=case, state=state, lease_until=lease, now=100)


@pytest.mark.parametrize(("kind", "state"), EVERYTHING)
def test_exactly_the_permitted_verdicts_are_taken(kind: CaseKind, state: OperationState) -> None:
    allowed = permitted(kind, state)
    assert allowed
    for verdict in Verdict:
        decision = decide_verdict(judged(kind, state), verdict)
        if verdict in allowed:
            assert isinstance(decision, Moves | OnlyNoted)
        else:
            assert decision == NotPermitted(allowed)


@pytest.mark.parametrize("state", MOVES)
def test_moves_are_legal_and_lead_where_the_verdict_says(state: OperationState) -> None:
    assert set(MOVES[state]) == set(Verdict) - {Verdict.NOTED}
    assert set(MOVES[state].values()) <= legal(OPERATION, state)
    after = {verdict: advance(OPERATION, state, event) for verdict, event in MOVES[state].items()}
    assert after == {
        Verdict.HAPPENED: OperationState.SUCCEEDED,
        Verdict.DID_NOT_HAPPEN_RETRY: OperationState.PENDING,
        Verdict.DID_NOT_HAPPEN_CLOSE: OperationState.FAILED,
    }


@pytest.mark.parametrize("kind", CaseKind)
def test_an_attempt_under_way_is_not_judged(kind: CaseKind) -> None:
    running = judged(kind, OperationState.IN_FLIGHT, lease=101)
    over = judged(kind, OperationState.IN_FLIGHT, lease=100)
    if kind in JUDGING:
        assert decide_verdict(running, Verdict.HAPPENED) == StillRunning(101)
        decision = decide_verdict(over, Verdict.HAPPENED)
        assert isinstance(decision, Moves)
        assert decision.lost_first
    else:
        assert decide_verdict(running, Verdict.NOTED) == OnlyNoted()


@pytest.mark.parametrize(("kind", "state"), EVERYTHING)
@pytest.mark.parametrize("case", [CaseState.RESOLVED, CaseState.SETTLED])
def test_a_closed_case_takes_nothing(kind: CaseKind, state: OperationState, case: CaseState) -> None:
    assert all(decide_verdict(judged(kind, state, case=case), verdict) == AlreadyClosed() for verdict in Verdict)


def test_a_closed_case_takes_the_value_that_its_verdict_did_not_give() -> None:
    lacking = replace(
        judged(CaseKind.UNKNOWN_OUTCOME, OperationState.SUCCEEDED, case=CaseState.RESOLVED), lacks_value=True
    )
    for verdict, has_value in product(Verdict, (False, True)):
        takes = verdict is Verdict.HAPPENED and has_value
        assert decide_verdict(lacking, verdict, has_value=has_value) == (GivesValue() if takes else AlreadyClosed())


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_no_verdict_reopens_a_settled_operation(state: OperationState) -> None:
    assert {permitted(kind, state) for kind in CaseKind} == {(Verdict.NOTED,)}
