"""A worker's log says what became of a workflow that raised, and whose work it took over."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from counterfoil import Counterfoil
from counterfoil.langgraph.claims import LEASE_MS
from counterfoil.runtime.worker import Worker
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import Entry, ThreadKey, ThreadRequest
from counterfoil.testing.clock import FakeClock

TENANT, ID = "team-a", "w-1"
KEY = ThreadKey(tenant=TENANT, thread_id=ID)


class State(TypedDict, total=False):
    seen: str


def graph(step: Any) -> Any:
    return StateGraph(State).add_node("step", step).add_edge(START, "step").add_edge("step", END)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cf(tmp_path: Path, clock: FakeClock) -> Iterator[Counterfoil]:
    with Counterfoil.open(f"sqlite:///{tmp_path / 'a.db'}", clock=clock) as opened:
        yield opened


def drained(cf: Counterfoil, caplog: pytest.LogCaptureFixture) -> str:
    """Let a worker work, and return the first lines of what it logged."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="counterfoil.workflows"):
        asyncio.run(Worker(cf.desk, (), 1, None).drain())
    return "\n".join(record.getMessage() for record in caplog.records)


def test_what_raised_is_tried_again_or_left_to_a_person(
    cf: Counterfoil, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    cf.workflows.register(graph(lambda state: 1 / 0), name="flow", tries=2)
    cf.workflows.start("flow", {}, tenant=TENANT, workflow_id=ID)
    assert "workflow w-1 of tenant team-a raised, and is tried again at " in drained(cf, caplog)
    clock.advance("1h")
    told = drained(cf, caplog)
    assert "raised, and is parked; when its cause is mended: counterfoil workflows resume w-1 --tenant team-a" in told


def test_whose_work_is_taken_over_is_named(cf: Counterfoil, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    cf.workflows.register(graph(lambda state: {"seen": "it"}), name="flow")
    cf.workflows.start("flow", {}, tenant=TENANT, workflow_id=ID)
    request = ThreadRequest(
        key=KEY,
        holder="elsewhere@other:1:1:0/0",
        lease=LEASE_MS,
        trusted={"request_id": None, "workflow_id": ID, "principal": None},
        goes_on=False,
        entry=Entry(version=0, most_tries=9),
    )
    assert isinstance(cf.desk.store.write(lambda: threads.claim(request), tenant=TENANT), threads.Claimed)
    assert drained(cf, caplog) == ""
    clock.advance("1h")
    assert drained(cf, caplog) == (
        "workflow w-1 of tenant team-a goes on here: elsewhere@other:1:1:0/0, which ran it, is gone or was silent for"
        " too long"
    )
    assert cf.workflows.get(ID, tenant=TENANT).status == "done"
