"""What every engine must do, on every database on which it works, with workers in real processes."""

import os
import signal
from typing import Any

import pytest

from counterfoil import Counterfoil
from counterfoil.starting import graph_of, start_of
from counterfoil.storage.script import Script
from counterfoil.storage.scripts import workflows
from counterfoil.testing.provider_client import CountingProvider
from tests.engine.fleet import Fleet, until, until_status
from tests.engine.program import TENANT

pytestmark = pytest.mark.slow


def start(cf: Counterfoil, graph: str, workflow_id: str) -> None:
    cf.workflows.start(graph, {"order": workflow_id}, tenant=TENANT, workflow_id=workflow_id)


def say(cf: Counterfoil, workflow_id: str, event_id: str = "1") -> None:
    cf.workflows.deliver("word", tenant=TENANT, workflow_id=workflow_id, event_id=event_id, payload="yes")


# --- the ordinary way -------------------------------------------------------------------------------------------------


def test_two_live_workers_run_each_workflow_once_and_what_is_rolled_back_never(
    cf: Counterfoil, fleet: Fleet, provider: CountingProvider
) -> None:
    rolled_back(cf, "w-0")
    first, second = fleet.start(), fleet.start()
    names = [f"w-{number}" for number in range(1, 31)]
    for name in names:
        start(cf, "quick", name)
    start(cf, "paying", "p-1")
    for name in names:
        until_status(cf, name, "done")
    assert sorted(one.kind for one in fleet.place.tally.accepted()) == sorted(f"counted {name}" for name in names)
    assert {cf.workflows.get(name, tenant=TENANT).attempt for name in names} == {1}
    until_status(cf, "p-1", "waiting")
    first.terminate()
    assert first.wait(30) == 0
    say(cf, "p-1")
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


@pytest.mark.parametrize("fault", ["hold-before-accept", "hold"], ids=["before", "after"])
def test_a_worker_killed_in_the_middle_of_an_effect_leaves_one(
    cf: Counterfoil, fleet: Fleet, provider: CountingProvider, fault: Any
) -> None:
    provider.order(fault)
    fleet.start_two()
    start(cf, "paying", "w-1")
    provider.wait_held()
    fleet.holder(cf, "w-1").kill()
    provider.release()
    until_status(cf, "w-1", "waiting")
    say(cf, "w-1")
    until_status(cf, "w-1", "done")
    assert provider.count("charge") == 1


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


def test_a_workflow_whose_graph_was_changed_is_held_until_the_right_one_is_there(cf: Counterfoil, fleet: Fleet) -> None:
    first = fleet.start()
    start(cf, "changing", "w-1")
    until_status(cf, "w-1", "waiting")
    first.terminate()
    first.wait(30)
    say(cf, "w-1")
    changed = fleet.start(is_changed=True)
    found = until(lambda: row if (row := cf.workflows.get("w-1", tenant=TENANT)).error_class else None)
    assert (found.status, found.error_class) == ("waiting", "GraphMismatch")
    assert "node more is new" in (found.error_text or "")
    changed.terminate()
    changed.wait(30)
    fleet.start()
    until_status(cf, "w-1", "done")


# --- how much and how fast --------------------------------------------------------------------------------------------


def backlog(cf: Counterfoil, fleet: Fleet, count: int, limit: float) -> None:
    names = [f"w-{number:05}" for number in range(count)]
    for name in names:
        start(cf, "quick", name)
    fleet.start_two()
    until(lambda: True if fleet.place.tally.count() >= count else None, limit)
    until(lambda: None if cf.workflows.list(tenant=TENANT, status="running").items else True)
    assert len(fleet.place.tally.accepted()) == count


def test_a_backlog_is_worked_off_by_two_workers(cf: Counterfoil, fleet: Fleet) -> None:
    backlog(cf, fleet, int(os.environ.get("COUNTERFOIL_BACKLOG", "100")), 60)


@pytest.mark.soak
def test_a_large_backlog_is_worked_off_by_two_workers(cf: Counterfoil, fleet: Fleet) -> None:
    backlog(cf, fleet, 20_000, 3600)
