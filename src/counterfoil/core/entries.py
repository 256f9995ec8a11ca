"""How often a workflow is entered without getting on, when it is tried again, and when it is left to a person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from counterfoil.core.states import WorkflowStatus

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 300_000
"""Pauses before the next try of a workflow whose node raised: doubled each time."""
DEFAULT_TRIES = 10
"""Entries in a row that got no further, after which a workflow is parked: about ten minutes of trying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """How often a workflow was entered since it last got on; `mark` is the newest checkpoint as of the last entry.

    Each checkpoint that a run stores, also one of a child graph, sets the tries to none.
    """

    tries: int
    mark: int

    def entered(self, newest: int) -> Entries:
        """Return what the next entry makes of it: a new checkpoint since the last one says that it got on."""
        return Entries(tries=self.tries + 1 if newest == self.mark else 1, mark=newest)

    def failed(self, newest: int) -> Entries:
        """Return what an entry that failed makes of it: if it got on, it is the first at the place that it got to."""
        return Entries(tries=max(self.tries, 1) if newest == self.mark else 1, mark=newest)


class Readiness(Enum):
    """Whether a workflow can be entered now: its time has come, or its run died."""

    NO = auto()
    DUE = auto()
    LOST = auto()


def is_waiting(status: WorkflowStatus) -> bool:
    """Say whether a workflow in this status is entered when its time has come."""
    return status in {WorkflowStatus.ACCEPTED, WorkflowStatus.WAITING}


def readiness(status: WorkflowStatus, *, due_at: int | None, lease_until: int, now: int) -> Readiness:
    """Say whether a workflow can be entered now."""
    if is_waiting(status) and due_at is not None and due_at <= now:
        return Readiness.DUE
    is_held = due_at is not None and due_at > now  # it was just found not to fit
    is_lost = status is WorkflowStatus.RUNNING and lease_until <= now and not is_held
    return Readiness.LOST if is_lost else Readiness.NO


def is_poison(entries: Entries, newest: int, *, most: int) -> bool:
    """Say whether a workflow whose last run died without a word has had all of its tries."""
    return entries.entered(newest).tries > most


def pause_after(tries: int) -> int:
    """Return how long a workflow waits before its next try, in milliseconds."""
    return min(FIRST_PAUSE_MS << min(tries - 1, 20), LONGEST_PAUSE_MS) if tries > 0 else FIRST_PAUSE_MS
