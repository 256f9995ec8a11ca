"""Which event answers a wait, and what becomes of an event when it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.states import ENDED, InboxState, WorkflowStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a wait asks for: an event's name, and what it must be about; None of a timer."""

    event: str | None
    subject: str | None
    match: Mapping[str, Any]
    due_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """An event of the inbox that nobody has taken, as far as a wait needs it."""

    seq: int
    subject: str | None
    payload: Any
    received_at: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The wait is answered by this event."""

    seq: int


@dataclass(frozen=True, slots=True)
class TimeOver:
    """The wait's time was over before such an event came."""


@dataclass(frozen=True, slots=True)
class StillOpen:
    """Nothing has come yet."""


WaitDecision = Answer | TimeOver | StillOpen


def decide_wait(asked: Asked, inbox: Sequence[Offered], *, now: int) -> WaitDecision:
    """Decide what a wait is answered with: the first event that fits and came in time, whoever looks when.

    Times are those of the database, so that the answer is the same if the worker that asks was away meanwhile.
    """
    for event in inbox:
        if (
            asked.event is not None
            and _fits(asked, event)
            and (asked.due_at is None or event.received_at < asked.due_at)
        ):
            return Answer(event.seq)
    return TimeOver() if asked.due_at is not None and now >= asked.due_at else StillOpen()


def _fits(asked: Asked, event: Offered) -> bool:
    if asked.subject is not None and event.subject != asked.subject:
        return False
    if not asked.match:
        return True
    payload = event.payload
    return isinstance(payload, dict) and all(
        name in payload and _are_equal(payload[name], value) for name, value in asked.match.items()
    )


def _are_equal(given: Any, wanted: Any) -> bool:
    """Compare as fingerprints do: 1 is 1.0 and not true."""
    return isinstance(given, bool) is isinstance(wanted, bool) and bool(given == wanted)


def decide_arrival(status: WorkflowStatus | None, *, sequence: int | None, newest: int | None) -> InboxState:
    """Decide what becomes of an event that comes.

    Args:
        status: The workflow's, or None if it was not started yet.
        sequence: The event's number among those of its subject.
        newest: The highest number of its subject until now.
    """
    if sequence is not None and newest is not None and sequence < newest:
        return InboxState.SUPERSEDED
    return InboxState.TOO_LATE if status in ENDED else InboxState.KEPT
