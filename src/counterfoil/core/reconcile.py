"""Which verdicts a person may give on a case, and what each does to its operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from counterfoil.core.leases import is_over
from counterfoil.core.machine import legal
from counterfoil.core.states import OPERATION, CaseKind, CaseState, OperationEvent, OperationState, Verdict
from counterfoil.model import VALUE_NOT_GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from counterfoil.shown import Case, OperationDetail

JUDGING: Final = frozenset({CaseKind.UNKNOWN_OUTCOME, CaseKind.DEAD_LETTER})
"""Cases whose verdict settles or frees the operation; the others are about one that is settled, and are only noted."""

MOVES: Final[Mapping[OperationState, Mapping[Verdict, OperationEvent]]] = {
    OperationState.UNKNOWN: {
        Verdict.HAPPENED: OperationEvent.PROVED_HAPPENED,
        Verdict.DID_NOT_HAPPEN_RETRY: OperationEvent.PROVED_ABSENT,
        Verdict.DID_NOT_HAPPEN_CLOSE: OperationEvent.CLOSED,
    },
    OperationState.PARKED: {
        Verdict.HAPPENED: OperationEvent.PROVED_HAPPENED,
        Verdict.DID_NOT_HAPPEN_RETRY: OperationEvent.REQUEUED,
        Verdict.DID_NOT_HAPPEN_CLOSE: OperationEvent.SKIPPED,
    },
}
"""What each verdict does to an operation in a state that a person can judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a verdict needs to know of the case and its operation; times by the database's clock.

    `lacks_value` says that this case's verdict settled the operation and gave its receipt no value.
    """

    kind: CaseKind
    case_state: CaseState
    state: OperationState
    lease_until: int
    now: int
    lacks_value: bool = False


@dataclass(frozen=True, slots=True)
class Moves:
    """The verdict moves the operation; `lost_first` says that its claim ran out and was never recorded as lost."""

    event: OperationEvent
    lost_first: bool = False


@dataclass(frozen=True, slots=True)
class OnlyNoted:
    """The verdict closes the case and leaves the operation as it is."""


@dataclass(frozen=True, slots=True)
class GivesValue:
    """The verdict stands already and only lacked a value for the receipt, which this one gives."""


@dataclass(frozen=True, slots=True)
class AlreadyClosed:
    """The case does not wait any more: another verdict or evidence was first."""


@dataclass(frozen=True, slots=True)
class StillRunning:
    """An attempt is under way whose claim holds until `until`: nobody can know its outcome yet."""

    until: int


@dataclass(frozen=True, slots=True)
class NotPermitted:
    """A case of this kind takes other verdicts."""

    permitted: tuple[Verdict, ...]


VerdictDecision = Moves | OnlyNoted | GivesValue | AlreadyClosed | StillRunning | NotPermitted


def permitted(kind: CaseKind, state: OperationState) -> tuple[Verdict, ...]:
    """Return the verdicts that a case of this kind takes while its operation is in this state."""
    if kind not in JUDGING:
        return (Verdict.NOTED,)
    judged = OperationState.UNKNOWN if state is OperationState.IN_FLIGHT else state
    possible = legal(OPERATION, judged)
    found = tuple(verdict for verdict, event in MOVES.get(judged, {}).items() if event in possible)
    return found or (Verdict.NOTED,)


def lacks_value(marker: str | None, case_state: CaseState, verdict: str | None) -> bool:
    """Say whether a case's verdict settled its operation and gave the receipt no value."""
    return marker == VALUE_NOT_GIVEN and case_state is CaseState.RESOLVED and verdict == Verdict.HAPPENED


def decide_verdict(seen: Judged, verdict: Verdict, *, has_value: bool = False) -> VerdictDecision:
    """Decide what a verdict does; an attempt under way cannot be judged, one whose claim ran out can.

    A closed case takes one thing more: the value that its verdict did not give.
    """
    if seen.case_state is not CaseState.OPEN:
        return GivesValue() if seen.lacks_value and has_value and verdict is Verdict.HAPPENED else AlreadyClosed()
    in_flight = seen.state is OperationState.IN_FLIGHT
    if in_flight and seen.kind in JUDGING and not is_over(seen.lease_until, seen.now):
        return StillRunning(seen.lease_until)
    if verdict not in (allowed := permitted(seen.kind, seen.state)):
        return NotPermitted(allowed)
    if verdict is Verdict.NOTED:
        return OnlyNoted()
    judged = OperationState.UNKNOWN if in_flight else seen.state
    return Moves(MOVES[judged][verdict], lost_first=in_flight)


def case_without_value(detail: OperationDetail) -> Case | None:
    """Return the case whose verdict settled an operation without a value for its receipt."""
    marker = None if detail.receipt is None else detail.receipt.marker
    lacking = (case for case in detail.cases if lacks_value(marker, CaseState(case.state), case.verdict))
    return next(lacking, None)


def open_case(cases: Iterable[Case]) -> Case | None:
    """Return the oldest case that still waits; one about an unknown outcome comes first."""
    waiting = [case for case in cases if CaseState(case.state) is CaseState.OPEN]
    return min(waiting, key=lambda case: (CaseKind(case.kind) not in JUDGING, case.opened_at), default=None)
