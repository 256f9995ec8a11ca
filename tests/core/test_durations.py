"""Durations come with a unit or are refused."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.durations import duration_text, milliseconds
from counterfoil.errors import InvalidDuration

CENTURY = 36_525 * 86_400_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("20ms", 20),
        ("30s", 30_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1h30m", 5_400_000),
        ("1m500ms", 60_500),
        ("90m", 5_400_000),
        ("0s", 0),
        (timedelta(hours=1, milliseconds=1), 3_600_001),
        (timedelta(0), 0),
        ("36525d", CENTURY),
    ],
)
def test_durations_are_whole_milliseconds(value: str | timedelta, expected: int) -> None:
    assert milliseconds(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(30, 30.0, True, False, None, b"30s", ["30s"]),
        *("30", "", "s", "-5s", "+5s", "1.5h", "30 s", " 30s", "30s\n", "30S", "1h1h", "30m1h", "1y", "1e3s", "٣s"),
        *("36526d", "9" * 40 + "d", "9" * 5000 + "s"),
        *(timedelta(seconds=-1), timedelta(microseconds=1), timedelta(days=36_526)),
    ],
)
def test_anything_else_is_refused_with_what_to_write(value: Any) -> None:
    with pytest.raises(InvalidDuration, match="time_limit"):
        milliseconds(value, "time_limit")


def test_a_refusal_shows_the_text_and_a_form() -> None:
    with pytest.raises(InvalidDuration, match=r'time_limit is \'1.5h\'.*"30s", "1h30m"'):
        milliseconds("1.5h", "time_limit")
    with pytest.raises(InvalidDuration, match="time_limit is of type int, which has no unit"):
        milliseconds(30, "time_limit")  # type: ignore[arg-type]


@given(st.integers(min_value=0, max_value=CENTURY))
def test_the_text_of_a_duration_reads_back(total: int) -> None:
    assert milliseconds(duration_text(total)) == total


@given(st.integers(min_value=0, max_value=CENTURY))
def test_text_and_timedelta_agree(total: int) -> None:
    assert milliseconds(timedelta(milliseconds=total)) == milliseconds(f"{total}ms")


@given(st.text(max_size=8))
def test_no_text_fails_in_another_way(text: str) -> None:
    with suppress(InvalidDuration):
        assert milliseconds(text) >= 0
