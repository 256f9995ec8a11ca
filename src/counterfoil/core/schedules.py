"""When a recurring timer is due next: by an interval or by local time, with a rule for periods that were missed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from counterfoil.core.durations import duration_text

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LOOKED_AT = len(WEEKDAYS) + 1
"""Days among which each weekday is found, also where the first of them is over."""


class Missed(StrEnum):
    """What becomes of periods that nobody was there for."""

    ONCE = "once"
    ALL = "all"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """A period in milliseconds, counted from `start`, or from when the timer was first asked for."""

    period: int
    start: int | None = None

    @property
    def name(self) -> str:
        """Return what a wait for it is called."""
        return f"every {duration_text(self.period)}"

    def after(self, moment: int, anchor: int) -> int:
        """Return the first time after a moment; one of the times is the anchor, and none is before it."""
        return anchor if moment < anchor else anchor + ((moment - anchor) // self.period + 1) * self.period

    def until(self, moment: int, anchor: int) -> int:
        """Return the last time that is not after a moment, which is after the anchor."""
        return anchor + (moment - anchor) // self.period * self.period


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """A local time of day in its zone, on these weekdays.

    A time that the clocks skip comes as much later; of one that they show twice, the first counts.
    """

    at: time
    zone: ZoneInfo
    days: frozenset[int]
    start: int | None = None

    @property
    def name(self) -> str:
        """Return what a wait for it is called."""
        days = "" if len(self.days) == len(WEEKDAYS) else f" {','.join(WEEKDAYS[day] for day in sorted(self.days))}"
        return f"at {self.at.isoformat('auto')} {self.zone.key}{days}"

    def after(self, moment: int, _: int) -> int:
        """Return the first time after a moment."""
        return min(found for found in self._around(moment, range(-1, _LOOKED_AT + 1)) if found > moment)

    def until(self, moment: int, _: int) -> int:
        """Return the last time that is not after a moment."""
        return max(found for found in self._around(moment, range(-_LOOKED_AT, 2)) if found <= moment)

    def _around(self, moment: int, days: range) -> list[int]:
        today = datetime.fromtimestamp(moment / 1000, UTC).astimezone(self.zone).date()
        near = [today + timedelta(days=day) for day in days]
        return [
            int(datetime.combine(day, self.at, self.zone).timestamp() * 1000)
            for day in near
            if day.weekday() in self.days
        ]


Schedule = Every | Daily


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """When a timer was due last, and when it was over: later, where nobody was there."""

    due_at: int
    ended_at: int


def decide_next(schedule: Schedule, last: Last | None, *, missed: Missed, now: int) -> int:
    """Decide when a timer is due next, which may be over already.

    With `once`, what came late stands for all that was missed until then, and if more was missed since, one time more
    is due at once. With `all`, each missed time is due, one after the other. With `skip`, none is.
    """
    anchor = _anchor(schedule, last, now)
    if last is None:
        behind = anchor - 1 if schedule.start is not None or isinstance(schedule, Daily) else anchor
    else:
        behind = last.due_at if missed is Missed.ALL else max(last.due_at, last.ended_at)
    following = schedule.after(behind, anchor)
    if following > now or missed is Missed.ALL:
        return following
    return schedule.after(now, anchor) if missed is Missed.SKIP else schedule.until(now, anchor)


def _anchor(schedule: Schedule, last: Last | None, now: int) -> int:
    if schedule.start is not None:
        return schedule.start
    return now if last is None else last.due_at


def is_over_for_good(schedule: Schedule, found: Last, *, missed: Missed) -> bool:
    """Say whether a time that came late is one of those that are skipped: the next one had come by then."""
    return missed is Missed.SKIP and schedule.after(found.due_at, _anchor(schedule, found, 0)) <= found.ended_at
