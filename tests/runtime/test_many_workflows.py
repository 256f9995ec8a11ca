"""Workflows that wait cost nothing but their rows, and all that are due at one time are woken, the first ones first."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from counterfoil.engine.port import AT_ONCE
from counterfoil.langgraph import sleep_until, wait_for
from tests.cases.journeys import TENANT, Journeys, chain, journeys
from tests.stores import execute, is_postgres

MANY = [60, pytest.param(1000, marks=pytest.mark.soak)]
SLACK = 2
"""Threads and sessions that come and go: an executor's, or a renewed connection's."""
SESSIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


@pytest.fixture
def ways(url: str, tmp_path: Path) -> Any:
    yield from journeys(url, tmp_path)


def cost(ways: Journeys) -> tuple[int, int]:
    """Return how many threads and connections there are."""
    sessions = int(execute(ways.url, SESSIONS)[0][0]) if is_postgres(ways.url) else 0
    return threading.active_count(), sessions


def begin(ways: Journeys, many: int) -> list[str]:
    ids = [f"w-{number:04}" for number in range(many)]
    for workflow_id in ids:
        ways.start(workflow_id)
    return ids


@pytest.mark.parametrize("many", MANY)
def test_those_that_wait_hold_no_thread_no_connection_and_no_claim(ways: Journeys, many: int) -> None:
    def wait(_: Any) -> Any:
        came = wait_for("paid", timeout="3d")
        return {"log": ["nothing" if came is None else came.event_id]}

    ways.cf.workflows.register(chain(wait=wait), name="g")
    for number in range(3 * AT_ONCE):  # so that pools have what a worker at work needs
        ways.start(f"first-{number}")
    ways.cf.drain()
    before = cost(ways)
    ids = begin(ways, many)
    ways.cf.drain()
    assert [now - then for now, then in zip(cost(ways), before, strict=True) if now > then + SLACK] == []
    assert max(cost(ways)) < 3 * AT_ONCE
    held = execute(ways.url, "select count(*) from counterfoil_thread where holder is not null or lease_until > 0")
    assert held == [(0,)]
    page = ways.cf.workflows.list(tenant=TENANT, status="waiting", limit=1000)
    assert len(page.items) >= min(many, 1000)
    ways.deliver("e", ids[many // 2])
    ways.cf.drain()
    assert ways.log(ids[many // 2]) == ["e"]


@pytest.mark.parametrize("many", MANY)
def test_all_that_are_due_at_one_time_are_woken_once_each_and_nobody_starves(ways: Journeys, many: int) -> None:
    at = datetime.fromtimestamp(ways.clock.now_ms() / 1000 + 3600, UTC)
    woken: list[str] = []

    def sleep(state: Any) -> Any:
        sleep_until(at)
        woken.append(str(state["number"]))
        return {"log": ["woken"]}

    ways.cf.workflows.register(chain(sleep=sleep), name="g")
    for number in range(many):
        ways.start(f"w-{number:04}", number=number)
    ways.cf.drain()
    assert woken == []
    ways.clock.advance("1h")
    ways.start("late", number=many)
    ways.cf.drain()
    assert sorted(woken, key=int) == [str(number) for number in range(many + 1)]
    tries = execute(ways.url, "select count(*) from counterfoil_thread where status = 'done' and attempt <= 2")
    assert tries == [(many + 1,)]
