"""Durations: `timedelta` or text such as `"30s"` and `"1h30m"`, to whole milliseconds; and times as text."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from counterfoil.errors import InvalidDuration

Duration = str | timedelta
"""What a duration is given as."""

_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_FORM = re.compile(r"(?:[0-9]+(?:ms|[wdhms]))+")
_PART = re.compile(r"([0-9]+)(ms|[wdhms])")
_LONGEST = 36_525 * _UNITS["d"]  # a century: beyond it is a typing error, and added to a date it leaves the calendar
_MOST_CHARS = 64  # reading a number from text takes time that grows with the square of its length
_MILLISECOND = timedelta(milliseconds=1)
_ADVICE = 'write a timedelta or text such as "20ms", "30s", "1h30m", "7d"'


def milliseconds(value: str | timedelta, what: str = "duration") -> int:
    """Return a duration in milliseconds.

    Args:
        value: Whole numbers with units w, d, h, m, s, ms, each once and the longest first; or a `timedelta`.
        what: What the duration is for, named in the error.

    Raises:
        InvalidDuration: a bare number, an unknown form, a negative or longer than a century.
    """
    if isinstance(value, timedelta):
        total = _of_timedelta(value, what)
    elif isinstance(value, str):
        total = _of_text(value, what)
    else:
        raise InvalidDuration(f"{what} is of type {type(value).__name__}, which has no unit; {_ADVICE}")
    if total > _LONGEST:
        raise InvalidDuration(f"{what} is longer than a century; {_ADVICE}")
    return total


def duration_text(total: int) -> str:
    """Return milliseconds in the form that `milliseconds` reads; zero is `0s`."""
    parts = []
    for unit, size in _UNITS.items():
        count, total = divmod(total, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _of_timedelta(value: timedelta, what: str) -> int:
    total, rest = divmod(value, _MILLISECOND)
    if total < 0:
        raise InvalidDuration(f"{what} is negative; {_ADVICE}")
    if rest:
        raise InvalidDuration(f"{what} is not a whole number of milliseconds, which is what is stored; round it")
    return total


def _of_text(value: str, what: str) -> int:
    parts = _PART.findall(value) if len(value) <= _MOST_CHARS and _FORM.fullmatch(value) else []
    sizes = [_UNITS[unit] for _, unit in parts]
    if not parts or any(left <= right for left, right in pairwise(sizes)):
        raise InvalidDuration(f"{what} is {value[:_MOST_CHARS]!r}, which is not a duration; {_ADVICE}")
    return sum(int(count) * size for (count, _), size in zip(parts, sizes, strict=True))


def utc_text(ms: int) -> str:
    """Return a time as people read it, in UTC and to the second."""
    return datetime.fromtimestamp(ms / _UNITS["s"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
