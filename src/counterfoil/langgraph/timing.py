"""Times and schedules as a step gives them, checked before anything is stored."""

from __future__ import annotations

from datetime import datetime, time
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from counterfoil.core.durations import milliseconds
from counterfoil.core.schedules import WEEKDAYS, Daily, Every, Missed, Schedule
from counterfoil.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.durations import Duration

LATEST_YEAR = 9000
"""Beyond it a zone may leave the calendar, which ends with 9999."""


def moment(when: object, asked: str) -> int:
    """Return a time in milliseconds UTC.

    Raises:
        InvalidArguments: it has no zone, or is no time.
    """
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidArguments(
            f"{asked} takes a datetime with its zone, not {when!r}: without one it would be another time on another"
            " machine."
        )
    if when.year > LATEST_YEAR:
        raise InvalidArguments(f"{asked} takes no time after the year {LATEST_YEAR}: nobody will be there.")
    return int(when.timestamp() * 1000)


def missed_policy(missed: str) -> Missed:
    """Return the rule for missed periods.

    Raises:
        InvalidArguments: there is no such rule.
    """
    if missed not in set(Missed):
        raise InvalidArguments(f"There is no rule {missed!r} for missed periods. There are: {', '.join(Missed)}.")
    return Missed(missed)


def scheduled(
    *,
    every: Duration | None,
    at: str | None,
    zone: str | None,
    days: Sequence[str] | None,
    start: datetime | None,
) -> Schedule:
    """Return a schedule by period or by local time.

    Raises:
        InvalidArguments: it is neither or both, or a part of it makes no sense.
    """
    begin = None if start is None else moment(start, "sleep_until_next(start=...)")
    if every is not None and at is None and zone is None and days is None:
        return _every(milliseconds(every, "every"), begin)
    if every is None and at is not None and zone is not None:
        return Daily(at=_time(at), zone=_zone(zone), days=_days(days), start=begin)
    raise InvalidArguments(
        'sleep_until_next takes either every="1h", or at="09:00" with zone="Europe/Berlin", and days=("mon", ...) with'
        " the latter."
    )


def _every(period: int, start: int | None) -> Every:
    if period < 1:
        raise InvalidArguments("every is no time at all: a timer that is due at once, again and again, never ends.")
    return Every(period=period, start=start)


def _time(at: str) -> time:
    try:
        found = time.fromisoformat(at)
    except (TypeError, ValueError):
        found = None
    if found is None or found.tzinfo is not None:
        raise InvalidArguments(f"at is a local time of day such as '09:00', not {at!r}; its zone is said by zone.")
    return found


def _zone(zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise InvalidArguments(
            f"There is no zone {zone!r} on this machine. Write one such as 'Europe/Berlin'; where the system has none,"
            " install tzdata."
        ) from error


def _days(days: Sequence[str] | None) -> frozenset[int]:
    known = WEEKDAYS if days is None else days
    if isinstance(known, str) or not known or not set(known) <= set(WEEKDAYS):
        raise InvalidArguments(f"days are some of {', '.join(WEEKDAYS)}, not {days!r}.")
    return frozenset(WEEKDAYS.index(day) for day in known)
