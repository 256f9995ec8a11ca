"""What a caller of `perform` may do, given the operation's row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from counterfoil.core.approvals import Gate, is_open
from counterfoil.core.leases import is_over
from counterfoil.core.machine import sources
from counterfoil.core.states import (
    CLOSED_UNSENT,
    OPERATION,
    TERMINAL,
    AttemptOutcome,
    CaseKind,
    OperationEvent,
    OperationState,
    Sender,
)
from counterfoil.core.unknown import (
    UNPERMITTED,
    PersonDecides,
    Resend,
    Times,
    UnknownPlan,
    all_under_key,
    decide_unknown,
)

if TYPE_CHECKING:
    from counterfoil.model import ProviderFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An operation's row as far as decisions need it, with the database's time of reading."""

    effect: str
    effect_version: int
    sender: Sender
    state: OperationState
    identity: bytes
    content: bytes
    attempt: int
    fence: int
    version: int
    holder: str | None
    claimed_at: int
    lease_until: int
    attempt_deadline: int
    first_attempt_at: int
    facts: ProviderFacts
    now: int
    is_purged: bool = False
    decide_by: int | None = None
    """Until when somebody may decide whether it is sent, while it waits for that."""
    approved_until: int | None = None
    """Until when it may be sent; None: nobody asked."""

    @property
    def times(self) -> Times:
        """Return the times that bear on an unknown outcome."""
        return Times(first_attempt_at=self.first_attempt_at, attempt_deadline=self.attempt_deadline, now=self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the caller asks for."""

    effect: str
    effect_version: int
    identity: bytes
    known_dead: str | None = None
    """A holder whose process is certainly gone: its lease no longer counts."""
    gate: Gate | None = None
    """Whether it may be sent only with a decision."""


@dataclass(frozen=True, slots=True)
class MayClaim:
    """Nothing is in the way: take the claim."""


@dataclass(frozen=True, slots=True)
class AlreadySettled:
    """It is settled (succeeded or failed): answer from the row."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another caller holds it until `until`, since `age` milliseconds."""

    holder: str
    until: int
    age: int


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Its outcome is unknown; `expired` says that the row must first be moved there."""

    plan: UnknownPlan
    expired: bool


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Same id, other arguments."""


@dataclass(frozen=True, slots=True)
class WrongEffect:
    """Same id, another effect."""

    stored: str


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """An unsettled row goes only to the effect version that began it."""

    stored: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Rejected, cancelled or expired: nothing was sent and nothing will be."""

    state: OperationState


@dataclass(frozen=True, slots=True)
class AwaitsApproval:
    """Somebody is asked whether it may be sent; `is_over` says that nobody decided in time."""

    is_over: bool


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """It may not be sent without a decision, and there is none that holds now."""


@dataclass(frozen=True, slots=True)
class Ungranted:
    """The program is strict, and nobody granted this very operation."""


@dataclass(frozen=True, slots=True)
class PastRetention:
    """It is settled, and its receipt's detail was purged: only when and how it ended is known."""


@dataclass(frozen=True, slots=True)
class NotCallers:
    """It waits for the dispatcher, or for a person; a caller may not send it."""

    state: OperationState
    sender: Sender


ClaimDecision = (
    MayClaim
    | AlreadySettled
    | PastRetention
    | Held
    | Unsettled
    | Mismatch
    | WrongEffect
    | OtherVersion
    | Closed
    | AwaitsApproval
    | NeedsApproval
    | Ungranted
    | NotCallers
)


def decide_claim(row: Snapshot, wanted: Wanted) -> ClaimDecision:
    """Decide what a caller may do; identity comes before state, so that nobody reads another operation's answer."""
    if row.effect != wanted.effect:
        return WrongEffect(row.effect)
    if row.identity != wanted.identity:
        return Mismatch()
    if row.state in CLOSED_UNSENT:
        return Closed(row.state)
    if row.state in TERMINAL:
        return PastRetention() if row.is_purged else AlreadySettled()
    if row.effect_version != wanted.effect_version:
        return OtherVersion(row.effect_version)
    return _decide_open(row, wanted)


def _decide_open(row: Snapshot, wanted: Wanted) -> ClaimDecision:
    permitted = is_open(row.approved_until, now=row.now, gated=wanted.gate is not None)
    match row.state:
        case OperationState.AWAITING_APPROVAL:
            return AwaitsApproval(row.decide_by is not None and row.decide_by <= row.now)
        case OperationState.PENDING if row.sender is Sender.CALLER:
            return MayClaim() if permitted else NeedsApproval()
        case OperationState.IN_FLIGHT if not is_over(row.lease_until, row.now) and row.holder != wanted.known_dead:
            return Held(row.holder or "", row.lease_until, row.now - row.claimed_at)
        case OperationState.IN_FLIGHT:
            return Unsettled(_plan(row, permitted=permitted), expired=True)
        case OperationState.UNKNOWN:
            return Unsettled(_plan(row, permitted=permitted), expired=False)
        case _:
            return NotCallers(row.state, row.sender)


def _plan(row: Snapshot, *, permitted: bool) -> UnknownPlan:
    """Say what may be done with an unknown outcome: to be sent again, it must be permitted still."""
    plan = decide_unknown(row.facts, row.times)
    return PersonDecides(UNPERMITTED) if isinstance(plan, Resend) and not permitted else plan


# --- a worker that comes back late -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettlesIt:
    """The late result belongs to the attempt in question and settles the operation."""

    case: CaseKind | None = None


@dataclass(frozen=True, slots=True)
class SameEffect:
    """The operation was settled by other means for this very effect; compare and keep the evidence."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another attempt has begun or won; keep the evidence, tell the worker, and open `case` if two effects may be."""

    case: CaseKind | None


@dataclass(frozen=True, slots=True)
class NothingToAdd:
    """The late worker does not know the outcome either."""


LateDecision = SettlesIt | SameEffect | Superseded | NothingToAdd

_TOLD_OTHERWISE: Final = sources(OPERATION, OperationEvent.PROVED_HAPPENED) - {
    OperationState.UNKNOWN,
    OperationState.PENDING,
}


def decide_late(
    row: Snapshot, *, attempt: int, outcome: AttemptOutcome, counted: AttemptOutcome | None = None
) -> LateDecision:
    """Decide what a result means that arrives after its claim was lost.

    Late proof that the effect happened wins over every state that says it did not, and then opens a case. It does not
    where the attempt counted as unknown still, and the operation waits to be sent again under a key that makes both one
    effect: nobody was told anything else.

    Args:
        row: The operation.
        attempt: Which attempt the result is of.
        outcome: The result.
        counted: What was known of that attempt until now.
    """
    same = row.attempt == attempt
    match outcome:
        case AttemptOutcome.SUCCEEDED:
            return _late_success(row, same=same, counted=counted)
        case AttemptOutcome.NOT_SENT | AttemptOutcome.REFUSED:
            return SettlesIt() if same and row.state is OperationState.UNKNOWN else Superseded(None)
        case AttemptOutcome.UNKNOWN | AttemptOutcome.RUNNING:
            return NothingToAdd()


def _late_success(row: Snapshot, *, same: bool, counted: AttemptOutcome | None) -> LateDecision:
    if row.state in _TOLD_OTHERWISE:
        return SettlesIt(CaseKind.POSSIBLE_DOUBLE_EFFECT)
    match row.state:
        case OperationState.PENDING:
            is_open = counted is AttemptOutcome.UNKNOWN
            return SettlesIt(_double(row) if is_open else CaseKind.POSSIBLE_DOUBLE_EFFECT)
        case OperationState.UNKNOWN:
            return SettlesIt(None if same else _double(row))
        case OperationState.SUCCEEDED if same:
            return SameEffect()
        case _:
            return Superseded(None if same else _double(row))


def _double(row: Snapshot) -> CaseKind | None:
    """Return the case to open where two attempts may be two effects.

    Under one key they are one, if all were sent while the provider honours it. A late worker may have sent at any time
    until now, so that it is now that must lie inside the key's lifetime.
    """
    one = all_under_key(row.facts, first_attempt_at=row.first_attempt_at, now=row.now)
    return None if one else CaseKind.POSSIBLE_DOUBLE_EFFECT
