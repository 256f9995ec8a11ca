"""How much of which effect a dispatcher may send now: places, rates, pauses of a failing provider, and fair shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.core.states import AttemptOutcome
from counterfoil.storage.scripts.outbox import Lane

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from counterfoil.effects import Effect
    from counterfoil.providing import Provider
    from counterfoil.storage.script import Row

BREAKS_AFTER = 20
"""Attempts in a row of which none succeeded: then the provider is left alone for a while. Fewer may be a handful of bad
messages, which back off by themselves and must not hold good ones up."""
FIRST_BREAK_S, LONGEST_BREAK_S = 1.0, 60.0
FIRST_POLL_S, LONGEST_POLL_S = 0.05, 1.0
"""How long after an empty search the next one follows, longer each time; whoever enqueues in this process wakes us."""
FOREVER = float("inf")
RESCAN_S = 1.0
"""How often a search begins at the beginning: for retries, and for rows that were committed late."""


@dataclass(slots=True)
class Gate:
    """What one provider takes, from all of its effects together: so many at once, and so many in a time."""

    places: int | None = None
    rate: float | None = None
    taken: int = 0
    _tokens: float = 0.0
    _filled_at: float | None = None

    @classmethod
    def of(cls, provider: Provider) -> Gate:
        """Return the gate of a provider as it is declared."""
        return cls(provider.concurrency, provider.sends_per_second)

    def room(self, now: float) -> float:
        """Return how many more it takes now."""
        free = FOREVER if self.places is None else self.places - self.taken
        return min(free, self._allowance(now))

    def ready_at(self, now: float) -> float:
        """Return from when on it takes one more; never by itself where all places are taken."""
        if self.places is not None and self.taken >= self.places:
            return FOREVER
        if self.rate is None or self._allowance(now) >= 1:
            return now
        return now + (1 - self._tokens) / self.rate

    def enter(self) -> None:
        """Take a place."""
        self.taken += 1
        self._tokens -= 1

    def leave(self) -> None:
        """Give a place back."""
        self.taken -= 1

    def _allowance(self, now: float) -> float:
        """Return how many sends the rate allows: no more than a second's worth, and one at least is ever kept."""
        if self.rate is None:
            return FOREVER
        passed = 0.0 if self._filled_at is None else now - self._filled_at
        start = 1.0 if self._filled_at is None else self._tokens
        self._tokens, self._filled_at = min(start + passed * self.rate, max(1.0, self.rate)), now
        return int(self._tokens)


@dataclass(slots=True)
class Breaker:
    """Leaves a provider alone that keeps failing: nothing is claimed meanwhile, so that no attempt is counted."""

    failures: int = 0
    closed_until: float = 0.0
    _pause: float = FIRST_BREAK_S

    def room(self, now: float, taken: int) -> float:
        """Return how many may be tried: all, none during a break, and one to see after it."""
        if self.failures < BREAKS_AFTER:
            return FOREVER
        return 0 if now < self.closed_until or taken else 1

    def ready_at(self, now: float, taken: int) -> float:
        """Return from when on one more may be tried; never by itself while one is tried after a break."""
        if self.failures < BREAKS_AFTER:
            return now
        return FOREVER if taken else max(now, self.closed_until)

    def hear(self, outcome: AttemptOutcome, now: float) -> None:
        """Learn how an attempt ended; a refusal is an answer, so the provider is there."""
        if outcome in {AttemptOutcome.SUCCEEDED, AttemptOutcome.REFUSED}:
            self.failures, self._pause = 0, FIRST_BREAK_S
            return
        self.failures += 1
        if self.failures >= BREAKS_AFTER:
            self.closed_until = now + self._pause
            self._pause = min(self._pause * 2, LONGEST_BREAK_S)


@dataclass(slots=True)
class EffectLane:
    """One effect that this process can send."""

    effect: Effect[Any]
    gate: Gate
    breaker: Breaker = field(default_factory=Breaker)
    taken: int = 0
    is_busy: bool = True
    poll_at: float = 0.0
    _poll: float = FIRST_POLL_S
    _since: int = 0
    _rescan_at: float = 0.0

    @property
    def name(self) -> tuple[str, int]:
        """Return the effect's name and version."""
        return (self.effect.name, self.effect.version)

    def ready_at(self, now: float) -> float:
        """Return when its next search is due."""
        return max(self.poll_at, self.gate.ready_at(now), self.breaker.ready_at(now, self.taken))

    def room(self, now: float) -> float:
        """Return how many of its intents may be claimed now."""
        return min(self.gate.room(now), self.breaker.room(now, self.taken))

    def wake(self) -> None:
        """Search at once: something was enqueued."""
        self.is_busy, self.poll_at, self._poll = True, 0.0, FIRST_POLL_S

    def search(self, limit: int, now: float) -> Lane:
        """Return what is to be claimed."""
        if now >= self._rescan_at:
            self._since, self._rescan_at = 0, now + RESCAN_S
        effect = self.effect
        return Lane(effect=effect.name, effect_version=effect.version, limit=limit, since=self._since)

    def found(self, claimed: Sequence[Row], now: float) -> None:
        """Learn what a search found."""
        self.is_busy = bool(claimed)
        if claimed:
            self._since, self._poll, self.poll_at = claimed[-1]["due_at"], FIRST_POLL_S, 0.0
            return
        self._since = 0
        self.poll_at = now + self._poll
        self._poll = min(self._poll * 2, LONGEST_POLL_S)

    def enter(self) -> None:
        """Take a place for an attempt."""
        self.taken += 1
        self.gate.enter()

    def leave(self, outcome: AttemptOutcome | None, now: float) -> None:
        """Give the place back; None says that the effect did not begin."""
        self.taken -= 1
        self.gate.leave()
        if outcome is not None:
            self.breaker.hear(outcome, now)


class Lanes:
    """All effects that this process can send, in fair turns."""

    def __init__(self, effects: Iterable[Effect[Any]]) -> None:
        gates: dict[int, Gate] = {}
        self._lanes: dict[tuple[str, int], EffectLane] = {}
        for effect in effects:
            gate = gates.setdefault(id(effect.provider), Gate.of(effect.provider))
            self._lanes[effect.name, effect.version] = EffectLane(effect, gate)
        self._first = 0

    def all_idle(self, now: float) -> bool:
        """Say whether no search of late found anything, but where a provider is left alone for a while."""
        return not any(lane.is_busy and lane.breaker.room(now, 0) for lane in self._lanes.values())

    def wake(self) -> None:
        """Search all of them at once."""
        for lane in self._lanes.values():
            lane.wake()

    def next_poll(self, now: float) -> float:
        """Return when the next search is due."""
        return min((lane.ready_at(now) for lane in self._lanes.values()), default=FOREVER)

    def due(self, now: float) -> list[EffectLane]:
        """Return those whose next search is due, and that have room."""
        return [lane for lane in self._lanes.values() if lane.poll_at <= now and lane.room(now) >= 1]

    def searches(self, places: int, now: float) -> list[tuple[EffectLane, Lane]]:
        """Return what to claim for so many free places: those with work share them, and each begins in turn."""
        due = [lane for lane in self._turned() if lane.poll_at <= now and lane.room(now) >= 1]
        busy = sum(lane.is_busy for lane in due) or 1
        share, searches, promised = max(1, places // busy), [], Counter[int]()
        for lane in due:
            room = lane.room(now) - promised[id(lane.gate)]
            limit = int(min(share if lane.is_busy else 1, room, places))
            if limit >= 1:
                places -= limit
                promised[id(lane.gate)] += limit
                searches.append((lane, lane.search(limit, now)))
        return searches

    def _turned(self) -> list[EffectLane]:
        """Return the lanes, another one first each time."""
        lanes = list(self._lanes.values())
        self._first = (self._first + 1) % max(1, len(lanes))
        return lanes[self._first :] + lanes[: self._first]
