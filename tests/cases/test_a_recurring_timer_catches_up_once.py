"""B58: after a restart a repeating timer with a start time in the past fired for every missed period.

Source: https://github.com/camunda/camunda/issues/9680
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from counterfoil.langgraph import asleep_until_next, sleep_for, sleep_until_next
from counterfoil.runtime.workflows import WorkflowRunner
from tests.cases.journeys import Journeys, Log, chain, paying
from tests.engine.names import EMBEDDED, PROCRASTINATE, on_engines

HOUR = 3_600_000


def recurring(step: Any) -> Any:
    builder: Any = StateGraph(Log)
    builder.add_node("tick", step)
    builder.add_edge(START, "tick")
    builder.add_edge("tick", "tick")
    return builder


def hourly(fired: list[int], **more: Any) -> Any:
    def tick(_: Any) -> Any:
        when = sleep_until_next(every="1h", **more)
        fired.append(int(when.timestamp()) // 3600)
        return {}

    return tick


def two_workers(ways: Journeys) -> None:
    async def together() -> None:
        await asyncio.gather(*(WorkflowRunner(ways.cf.desk).drain() for _ in range(2)))

    asyncio.run(together())


@pytest.mark.parametrize(
    ("engine", "missed"),
    [*((each, missed) for each in EMBEDDED for missed in (None, "once", "all", "skip")), (PROCRASTINATE, None)],
)
def test_after_three_days_down_it_follows_its_written_policy(ways: Journeys, missed: str | None) -> None:
    fired: list[int] = []
    more = {} if missed is None else {"missed": missed}
    ways.cf.workflows.register(recurring(hourly(fired, **more)), name="g")
    began = ways.clock.now_ms() // HOUR
    ways.start()
    two_workers(ways)
    for _ in range(2):
        ways.clock.advance("1h")
        two_workers(ways)
    assert fired == [began + 1, began + 2]
    fired.clear()
    ways.clock.advance("72h30m")
    two_workers(ways)
    caught_up = {"all": list(range(began + 3, began + 75)), "skip": []}.get(missed or "once", [began + 3])
    assert fired == caught_up
    for _ in range(3):
        ways.clock.advance("1h")
        two_workers(ways)
    assert fired[len(caught_up) :] == [began + 75, began + 76, began + 77]


def test_a_start_in_the_past_fires_once_and_then_keeps_its_rhythm(ways: Journeys) -> None:
    fired: list[int] = []
    start = datetime.fromtimestamp(ways.clock.now_ms() / 1000, UTC) - timedelta(days=3, minutes=30)
    ways.cf.workflows.register(recurring(hourly(fired, start=start)), name="g")
    ways.start()
    two_workers(ways)
    assert len(fired) == 1
    ways.clock.advance("29m")
    two_workers(ways)
    assert len(fired) == 1
    for count in (2, 3):
        ways.clock.advance("1m" if count == 2 else "1h")
        two_workers(ways)
        assert len(fired) == count


def test_a_timer_that_does_not_recur_fires_once_however_late(ways: Journeys) -> None:
    def sleep(_: Any) -> Any:
        sleep_for("1h")
        return {"log": ["woken"]}

    ways.cf.workflows.register(chain(sleep=sleep, ship=paying("a")), name="g")
    ways.start()
    ways.cf.drain()
    ways.clock.advance("72h")
    for _ in range(2):
        two_workers(ways)
    assert (ways.log(), ways.sent) == (["woken", "shipped a"], ["a"])


@on_engines(*EMBEDDED)
def test_nine_oclock_stays_nine_oclock_when_the_clocks_change(ways: Journeys) -> None:
    seen: list[str] = []

    async def tick(_: Any) -> Any:
        seen.append((await asleep_until_next(at="09:00", zone="Europe/Berlin")).isoformat())
        return {}

    ways.clock.advance(timedelta(days=86))  # 2026-03-28
    ways.cf.workflows.register(recurring(tick), name="g")
    ways.start()
    two_workers(ways)
    for _ in range(3 * 8):
        ways.clock.advance("3h")
        two_workers(ways)
    assert seen == ["2026-03-28T09:00:00+01:00", "2026-03-29T09:00:00+02:00", "2026-03-30T09:00:00+02:00"]


@on_engines(*EMBEDDED)
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"every": "0s"},
        {"every": "1h", "at": "09:00"},
        {"at": "09:00"},
        {"at": "9 o'clock", "zone": "Europe/Berlin"},
        {"at": "09:00", "zone": "Europe/Atlantis"},
        {"at": "09:00", "zone": "../etc/passwd"},
        {"at": "09:00+01:00", "zone": "Europe/Berlin"},
        {"at": "09:00", "zone": "Europe/Berlin", "days": ()},
        {"at": "09:00", "zone": "Europe/Berlin", "days": "mon"},
        {"at": "09:00", "zone": "Europe/Berlin", "days": ("someday",)},
        {"every": "1h", "missed": "sometimes"},
        {"every": "1h", "start": datetime(2026, 1, 1)},  # noqa: DTZ001 - what is refused
    ],
)
def test_a_schedule_that_makes_no_sense_fails_the_workflow_and_stores_no_wait(ways: Journeys, wrong: Any) -> None:
    def tick(_: Any) -> Any:
        sleep_until_next(**wrong)

    ways.cf.workflows.register(chain(tick=tick), name="g")
    ways.start()
    ways.cf.drain()
    assert (ways.get().status, ways.cf.workflows.waits("w", tenant="t")) == ("failed", ())
