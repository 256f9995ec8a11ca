"""What may become of an intent that a dispatcher sends: when it goes, how often it is tried, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from counterfoil.core.machine import sources
from counterfoil.core.states import OPERATION, AttemptOutcome, OperationEvent, OperationState, Sender

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ATTEMPTS: Final = 20
"""Tries unless another number is asked for: with the pauses below, they take about nine hours."""
FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 3_600_000
"""The pause after a try doubles from the first to the longest; the database takes up to half of it off at random."""
LONGEST_WAIT_MS: Final = 86_400_000
"""How long a provider's own wish to wait is heeded: a day."""
PATIENCE_MS: Final = 5_000
"""How long after its claim an effect may still begin. A worker claims for free places alone and begins at once; one
that was stopped in between must find its claims gone. The attempt's deadline is counted from the end of it: no look-up
may prove an effect absent that has yet to begin."""

_DOUBLINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms an intent is sent; milliseconds. `due_at` is a time since the epoch, or 0 for now."""

    delay: int = 0
    due_at: int = 0
    stream: str | None = None
    max_attempts: int = MAX_ATTEMPTS
    time_to_live: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How often an operation was tried, and how often a dispatcher may; None is without end, as for a caller."""

    sender: Sender
    attempt: int
    max_attempts: int | None

    @property
    def used_up(self) -> bool:
        """Say whether no try is left."""
        return self.sender is Sender.DISPATCHER and self.max_attempts is not None and self.attempt >= self.max_attempts


def decide_unsent(tries: Tries) -> OperationEvent:
    """Decide what follows an attempt that provably did not happen: another one, or a dead letter."""
    return OperationEvent.TRIES_USED_UP if tries.used_up else OperationEvent.NOT_SENT


def decide_absent(tries: Tries) -> OperationEvent:
    """Decide what follows proof that an unknown outcome did not happen: another attempt, or a dead letter."""
    return OperationEvent.TRIES_USED_UP if tries.used_up else OperationEvent.PROVED_ABSENT


def longest_retry(terms: Terms, time_limit: int) -> int:
    """Return how long an intent may be tried: all of its attempts with the pauses in between, or its time to live."""
    if terms.time_to_live is not None:
        return terms.time_to_live + time_limit
    doubling = min(terms.max_attempts - 1, _DOUBLINGS)
    pauses = sum(map(pause, range(1, doubling + 1))) + (terms.max_attempts - 1 - doubling) * LONGEST_PAUSE_MS
    return pauses + terms.max_attempts * time_limit


def pause(attempt: int) -> int:
    """Return the pause after an attempt, before the database takes some of it off."""
    return min(FIRST_PAUSE_MS << min(max(attempt - 1, 0), _DOUBLINGS), LONGEST_PAUSE_MS)


# --- what people do with an intent -----------------------------------------------------------------------------------


class Act(StrEnum):
    """What a person does with an intent, by the name under which it is recorded."""

    REQUEUE = "requeue"
    SKIP = "skip"
    CANCEL = "cancel"
    RETRY = "retry"


EVENTS: Final[Mapping[Act, OperationEvent]] = {
    Act.REQUEUE: OperationEvent.REQUEUED,
    Act.SKIP: OperationEvent.SKIPPED,
    Act.CANCEL: OperationEvent.CANCELLED,
}
"""What an act does to its operation; to retry moves no state, it only makes the next attempt due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An operation as an act meets it; `outcomes` are those of its attempts."""

    sender: Sender
    state: OperationState
    attempt: int
    outcomes: tuple[AttemptOutcome, ...] = ()

    @property
    def provably_unsent(self) -> bool:
        """Say whether each attempt that was made is known to have done nothing."""
        return len(self.outcomes) == self.attempt and set(self.outcomes) <= {AttemptOutcome.NOT_SENT}


@dataclass(frozen=True, slots=True)
class Permitted:
    """The act may be done."""


@dataclass(frozen=True, slots=True)
class WrongState:
    """The operation is in a state that the act does not take."""


@dataclass(frozen=True, slots=True)
class MayHaveHappened:
    """An attempt may have reached the provider, so that nobody can say that the operation was not sent."""


@dataclass(frozen=True, slots=True)
class NotBackingOff:
    """No dispatcher waits to try it again: it was never tried, or its caller sends it."""


ActDecision = Permitted | WrongState | MayHaveHappened | NotBackingOff


def decide_act(act: Act, seen: Standing) -> ActDecision:
    """Decide whether a person may do this with an operation."""
    if act is Act.RETRY:
        return _decide_retry(seen)
    if act is Act.CANCEL and seen.state in {OperationState.IN_FLIGHT, OperationState.UNKNOWN}:
        return MayHaveHappened()
    if seen.state not in sources(OPERATION, EVENTS[act]):
        return WrongState()
    return MayHaveHappened() if act is Act.CANCEL and not seen.provably_unsent else Permitted()


def _decide_retry(seen: Standing) -> ActDecision:
    if seen.state is not OperationState.PENDING:
        return WrongState()
    return Permitted() if seen.sender is Sender.DISPATCHER and seen.attempt else NotBackingOff()
