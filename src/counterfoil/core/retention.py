"""How long what is known of a settled operation is kept, and what of it may go at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from counterfoil.core.leases import is_over
from counterfoil.core.outbox import longest_retry
from counterfoil.core.states import CLOSED_UNSENT, ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from counterfoil.core.outbox import Terms
    from counterfoil.core.states import OperationState, WorkflowStatus
    from counterfoil.model import ProviderFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How long each class is kept after an operation is settled, in milliseconds; None is for ever."""

    payload: int | None = None
    receipt: int | None = None
    tombstone: int | None = None

    @property
    def shortest(self) -> int | None:
        """Return the shortest of them."""
        return min(
            (period for period in (self.payload, self.receipt, self.tombstone) if period is not None), default=None
        )

    def over(self, usual: Periods) -> Periods:
        """Return these, and the usual ones where these say nothing, as long as the classes allow.

        A receipt takes its payload along, and a tombstone both.
        """
        own = (self.payload, self.receipt, self.tombstone)
        payload, receipt, tombstone = (
            _within(period, own[:rank], own[rank + 1 :]) if own[rank] is None else own[rank]
            for rank, period in enumerate((usual.payload, usual.receipt, usual.tombstone))
        )
        return Periods(payload=payload, receipt=receipt, tombstone=tombstone)


def _within(period: int | None, smaller: tuple[int | None, ...], larger: tuple[int | None, ...]) -> int | None:
    """Return a period that is at least as long as those of smaller classes and no longer than those of larger ones."""
    if period is None:
        return None
    longer = max((period, *(each for each in smaller if each is not None)))
    return min((longer, *(each for each in larger if each is not None)))


class Drop(StrEnum):
    """What goes: each takes the ones before it along."""

    NOTHING = "nothing"
    PAYLOAD = "payload"
    RECEIPT = "receipt"
    TOMBSTONE = "tombstone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is there still of a settled operation, and the times that its periods are counted from."""

    state: OperationState
    settled_at: int
    first_attempt_at: int
    key_lifetime: int | None
    has_payload: bool
    is_purged: bool


def decide_purge(kept: Kept, periods: Periods, now: int) -> Drop:
    """Decide what of a settled operation goes; where nothing was ever sent, there is no receipt that could go."""
    if _is_over(kept, periods.tombstone, now):
        return Drop.TOMBSTONE
    ended = _is_over(kept, periods.receipt, now)
    if ended and not kept.is_purged and kept.state not in CLOSED_UNSENT:
        return Drop.RECEIPT
    over = ended or (periods.payload is not None and is_over(kept.settled_at + periods.payload, now))
    return Drop.PAYLOAD if over and kept.has_payload else Drop.NOTHING


def _is_over(kept: Kept, period: int | None, now: int) -> bool:
    """Say whether a period has ended; whatever it is, the answer outlives the provider's memory of its key."""
    if period is None:
        return False
    forgotten = kept.first_attempt_at + (kept.key_lifetime or 0)
    return is_over(max(kept.settled_at + period, forgotten), now)


def is_long_ended(status: WorkflowStatus, moved_at: int, period: int, now: int) -> bool:
    """Say whether a workflow ended so long ago that what it waited for and was told is kept no longer.

    One that failed or is parked has not ended: a person may let it go on.
    """
    return status in ENDED and is_over(moved_at + period, now)


@dataclass(frozen=True, slots=True)
class TooShort:
    """A class would go while a repeat may still come: how long it is kept, and how long it must be, and why."""

    name: str
    period: int
    needed: int
    why: str


def too_short(periods: Periods, facts: ProviderFacts, terms: Terms) -> Iterator[TooShort]:
    """Name what would be forgotten while an operation may still be tried again, or while its provider knows its key."""
    if facts.transactional:  # sent by no dispatcher, under no key
        return
    needed = [(longest_retry(terms, facts.time_limit), "its retries may take so long")]
    if facts.key_lifetime is not None:
        needed.append((facts.key_lifetime, "so long its provider honours a key"))
    for name, period in (("receipt", periods.receipt), ("tombstone", periods.tombstone)):
        for least, why in needed:
            if period is not None and period < least:
                yield TooShort(name, period, least, why)
