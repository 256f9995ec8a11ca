"""What every engine must do, on every database on which it works, with workers in real processes.

A worker takes a second to start, so each test is a story of several things that may happen to the same workers.
"""

import os
import random
import signal
import time
from typing import Any

import pytest

from counterfoil import Counterfoil
from counterfoil.starting import graph_of, start_of
from counterfoil.storage.script import Script
from counterfoil.storage.scripts import workflows
from counterfoil.testing.provider_client import CountingProvider
from tests.engine.fleet import Fleet, until, until_status
from tests.engine.names import EMBEDDED_POSTGRES, EMBEDDED_SQLITE, PROCRASTINATE
from tests.engine.program import TENANT

pytestmark = pytest.mark.slow

MOST = pytest.mark.parametrize(
    "engine", [EMBEDDED_SQLITE, pytest.param(EMBEDDED_POSTGRES, marks=pytest.mark.soak), PROCRASTINATE]
)
"""Leaves the embedded engine on PostgreSQL to the long runs, where its code is that of SQLite."""
BACKLOG = int(os.environ.get("COUNTERFOIL_BACKLOG", "20000"))


def start(cf: Counterfoil, graph: str, workflow_id: str) -> None:
    cf.workflows.start(graph, {"order": workflow_id}, tenant=TENANT, workflow_id=workflow_id)


def say(cf: Counterfoil, workflow_id: str) -> None:
    cf.workflows.deliver("word", tenant=TENANT, workflow_id=workflow_id, event_id="1", payload="yes")


# --- the ordinary way -------------------------------------------------------------------------------------------------


def test_two_workers_run_each_workflow_once_what_is_forgotten_too_and_what_was_rolled_back_never(
    cf: Counterfoil, fleet: Fleet, provider: CountingProvider
) -> None:
    rolled_back(cf, "w-0")
    names = [f"w-{number}" for number in range(1, 101)]
    for name in names:
        start(cf, "quick", name)
    start(cf, "paying", "p-1")
    fleet.forget_all()
    first, second = fleet.start_two()
    for name in names:
        until_status(cf, name, "done")
    assert sorted(fleet.place.noted()) == sorted(names)
    assert {cf.workflows.get(name, tenant=TENANT).attempt for name in names} == {1}
    until_status(cf, "p-1", "waiting")
    first.terminate()
    assert first.wait(30) == 0
    say(cf, "p-1")
    fleet.forget_all()
    until_status(cf, "p-1", "done")
    assert cf.workflows.result("p-1", tenant=TENANT) == {"order": "p-1", "paid": "1", "said": "yes"}
    assert provider.count("charge") == 1
    assert second.poll() is None


def rolled_back(cf: Counterfoil, workflow_id: str) -> None:
    """Start a workflow in a transaction that is rolled back."""
    who = {"tenant": TENANT, "workflow_id": workflow_id, "request_id": None, "principal": None}
    wish = start_of(graph_of(cf.desk, "quick", 1), {"order": workflow_id}, **who)  # type: ignore[arg-type]

    def broken() -> Script[Any]:
        yield from workflows.start(wish)
        raise LookupError

    with pytest.raises(LookupError):
        cf.desk.store.write(broken)


# --- death ------------------------------------------------------------------------------------------------------------


@MOST
def test_a_worker_killed_before_or_after_an_effect_leaves_one_and_another_ends_the_run(
    cf: Counterfoil, fleet: Fleet, provider: CountingProvider
) -> None:
    fleet.start_two()
    for name, fault in (("before", "hold-before-accept"), ("after", "hold")):
        provider.order(fault)  # type: ignore[arg-type]
        start(cf, "paying", name)
        provider.wait_held()
        fleet.holder(cf, name).kill()
        provider.release()
        until_status(cf, name, "waiting")
        if name == "before":
            fleet.start()
    for name in ("before", "after"):
        say(cf, name)
        until_status(cf, name, "done")
    assert provider.count("charge") == 2


@pytest.mark.soak
def test_three_workers_of_which_one_is_killed_again_and_again_charge_each_order_once(
    cf: Counterfoil, fleet: Fleet, provider: CountingProvider
) -> None:
    chance, names = random.Random(7), [f"w-{number}" for number in range(60)]
    fleet.start_two()
    fleet.start()
    for number, name in enumerate(names):
        start(cf, "paying", name)
        say(cf, name)
        if number % 10 == 9:
            provider.wait_accepted(number - chance.randrange(10), timeout=60)
            chance.choice([each for each in fleet.processes if each.poll() is None]).kill()
            fleet.start()
    for name in names:
        until_status(cf, name, "done")
    assert provider.count("charge") == len(names)


@MOST
def test_a_paused_worker_returns_late_and_stores_nothing(
    cf: Counterfoil, fleet: Fleet, provider: CountingProvider
) -> None:
    provider.order("hold")
    fleet.start_two()
    start(cf, "paying", "w-1")
    provider.wait_held()
    paused = fleet.holder(cf, "w-1")
    paused.send_signal(signal.SIGSTOP)
    provider.release()
    until_status(cf, "w-1", "waiting")
    say(cf, "w-1")
    until_status(cf, "w-1", "done")
    steps, row = cf.workflows.history("w-1", tenant=TENANT), cf.workflows.get("w-1", tenant=TENANT)
    paused.send_signal(signal.SIGCONT)
    paused.terminate()
    assert paused.wait(30) == 0
    assert cf.workflows.history("w-1", tenant=TENANT) == steps
    assert cf.workflows.get("w-1", tenant=TENANT).version == row.version
    assert provider.count("charge") == 1


# --- change -----------------------------------------------------------------------------------------------------------


@MOST
def test_a_workflow_whose_graph_was_changed_is_held_until_the_right_one_is_there(cf: Counterfoil, fleet: Fleet) -> None:
    start(cf, "changing", "w-1")
    cf.drain()
    say(cf, "w-1")
    changed = fleet.start(is_changed=True)
    found = until(lambda: row if (row := cf.workflows.get("w-1", tenant=TENANT)).error_class else None)
    assert (found.status, found.error_class) == ("waiting", "GraphMismatch")
    assert "node more is new" in (found.error_text or "")
    changed.terminate()
    changed.wait(30)
    with cf.working():
        until_status(cf, "w-1", "done")


# --- how fast, and how much -------------------------------------------------------------------------------------------


@MOST
def test_the_time_from_an_event_to_the_node_that_hears_it_is_told(
    cf: Counterfoil, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    names = [f"w-{number}" for number in range(20)]
    for name in names:
        start(cf, "paying", name)
    for name in names:
        until_status(cf, name, "waiting")
    took = sorted(heard_after(cf, fleet, name) for name in names)
    where = f"{fleet.place.engine} on {fleet.place.database.partition(':')[0]}"
    with capsys.disabled():
        print(f"\nevent to node, {where}: p50 {took[9] * 1000:.0f} ms, p95 {took[18] * 1000:.0f} ms")  # noqa: T201


def heard_after(cf: Counterfoil, fleet: Fleet, name: str) -> float:
    """Tell a workflow an event, and return after how many seconds its node has it."""
    began = time.time()
    say(cf, name)
    until_status(cf, name, "done")
    (heard,) = [line for line in fleet.place.noted() if line.startswith(f"heard {name} ")]
    return float(heard.rpartition(" ")[2]) - began


@MOST
@pytest.mark.soak
def test_a_large_backlog_is_worked_off_by_two_workers(cf: Counterfoil, fleet: Fleet) -> None:
    for number in range(BACKLOG):
        start(cf, "quick", f"w-{number:05}")
    fleet.start_two()
    until(lambda: True if len(fleet.place.noted()) >= BACKLOG else None, 3600, every=1)
    until(lambda: None if cf.workflows.list(tenant=TENANT, status="running").items else True)
    assert len(set(fleet.place.noted())) == len(fleet.place.noted()) == BACKLOG
