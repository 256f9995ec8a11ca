"""When a recurring timer is due next, and what becomes of periods that were missed."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from counterfoil.core.schedules import Daily, Every, Last, Missed, decide_next, is_over_for_good

HOUR = 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")
ALL_DAYS = frozenset(range(7))


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def last(due: int, ended: int | None = None) -> Last:
    return Last(due_at=due, ended_at=due if ended is None else ended)


@pytest.mark.parametrize("missed", Missed)
def test_a_period_counts_from_the_first_question_and_keeps_its_rhythm(missed: Missed) -> None:
    every = Every(period=HOUR)
    assert decide_next(every, None, missed=missed, now=7) == HOUR + 7
    late = last(HOUR + 7, HOUR + 60_000)
    assert decide_next(every, late, missed=missed, now=HOUR + 120_000) == 2 * HOUR + 7


def test_a_start_that_is_over_or_still_to_come() -> None:
    for missed, due in ((Missed.ONCE, 72 * HOUR), (Missed.ALL, 0), (Missed.SKIP, 73 * HOUR)):
        assert decide_next(Every(period=HOUR, start=0), None, missed=missed, now=72 * HOUR + 5) == due
        assert decide_next(Every(period=HOUR, start=9 * HOUR), None, missed=missed, now=5) == 9 * HOUR


def test_after_three_days_away() -> None:
    """The timer was due at 1:00, and somebody came at 73:30."""
    every, found, now = Every(period=HOUR, start=HOUR), last(HOUR, 73 * HOUR + 30), 73 * HOUR + 60
    assert decide_next(every, found, missed=Missed.ONCE, now=now) == 74 * HOUR  # the late one stood for all
    assert decide_next(every, found, missed=Missed.ALL, now=now) == 2 * HOUR
    assert decide_next(every, found, missed=Missed.SKIP, now=now) == 74 * HOUR
    assert is_over_for_good(every, found, missed=Missed.SKIP)
    assert not is_over_for_good(every, last(HOUR, 2 * HOUR - 1), missed=Missed.SKIP)
    assert not is_over_for_good(every, found, missed=Missed.ONCE)


def test_work_that_takes_longer_than_a_period_is_followed_by_one_catch_up() -> None:
    every, found, now = Every(period=HOUR, start=HOUR), last(HOUR), 4 * HOUR + 5
    assert decide_next(every, found, missed=Missed.ONCE, now=now) == 4 * HOUR
    assert decide_next(every, last(4 * HOUR, now), missed=Missed.ONCE, now=now) == 5 * HOUR
    assert decide_next(every, found, missed=Missed.ALL, now=now) == 2 * HOUR
    assert decide_next(every, found, missed=Missed.SKIP, now=now) == 5 * HOUR


def daily(text: str, days: frozenset[int] = ALL_DAYS) -> Daily:
    return Daily(at=time.fromisoformat(text), zone=BERLIN, days=days)


@pytest.mark.parametrize(
    ("clock", "after", "due"),
    [
        ("09:00", "2026-03-28T09:00+01:00", "2026-03-29T09:00+02:00"),  # the night in which the clocks go forward
        ("09:00", "2026-10-24T09:00+02:00", "2026-10-25T09:00+01:00"),  # and back
        ("02:30", "2026-03-28T02:30+01:00", "2026-03-29T03:30+02:00"),  # skipped by the clocks
        ("02:30", "2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"),
        ("02:30", "2026-10-24T02:30+02:00", "2026-10-25T02:30+02:00"),  # shown twice: the first
        ("02:30", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),
        ("00:00", "2026-12-31T00:00+01:00", "2027-01-01T00:00+01:00"),
    ],
)
def test_a_local_time_stays_the_same_all_year_and_comes_once_a_day(clock: str, after: str, due: str) -> None:
    for missed in Missed:
        assert decide_next(daily(clock), last(at(after)), missed=missed, now=at(after) + 1) == at(due)


def test_weekdays_and_the_first_time() -> None:
    friday = at("2026-01-02T10:00+01:00")
    workdays = daily("09:00", frozenset(range(5)))
    assert decide_next(workdays, None, missed=Missed.ONCE, now=friday) == at("2026-01-05T09:00+01:00")
    assert decide_next(daily("11:00"), None, missed=Missed.ONCE, now=friday) == at("2026-01-02T11:00+01:00")
    only = daily("09:00", frozenset({4}))
    assert decide_next(only, last(at("2026-01-02T09:00+01:00")), missed=Missed.ONCE, now=friday) == at(
        "2026-01-09T09:00+01:00"
    )
    assert decide_next(only, last(at("2026-01-02T09:00+01:00")), missed=Missed.ONCE, now=friday + 40 * 24 * HOUR) == at(
        "2026-02-06T09:00+01:00"
    )
    assert workdays.name == "at 09:00:00 Europe/Berlin mon,tue,wed,thu,fri"
    assert (daily("09:00").name, Every(period=HOUR).name) == ("at 09:00:00 Europe/Berlin", "every 1h")


def test_a_start_of_a_local_time() -> None:
    started = Daily(at=time(9), zone=BERLIN, days=ALL_DAYS, start=at("2026-02-01T00:00+01:00"))
    now = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    assert decide_next(started, None, missed=Missed.ONCE, now=now) == at("2026-02-01T09:00+01:00")
