"""A try is an entry that got no further: a step of a child graph is further, and the end of a worker is no try."""

import asyncio
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from counterfoil import Counterfoil
from counterfoil.runtime.worker import Worker
from counterfoil.testing.clock import FakeClock

STEPS = 6


class State(TypedDict, total=False):
    seen: int


def chain(nodes: dict[str, Any]) -> StateGraph[Any]:
    builder = StateGraph(State)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder


def flaky(number: int, met: set[int]) -> Any:
    """Return a node that raises when it is entered for the first time."""

    def node(_: State) -> Any:
        if number not in met:
            met.add(number)
            raise RuntimeError(f"the first time, {number} fails")
        return {"seen": number}

    return node


def test_a_child_graph_whose_steps_each_fail_once_gets_to_its_end(tmp_path: Path) -> None:
    met: set[int] = set()
    clock = FakeClock()
    with Counterfoil.open(f"sqlite:///{tmp_path / 'a.db'}", clock=clock) as cf:
        child = cf.compile(chain({f"c{number}": flaky(number, met) for number in range(STEPS)}))
        cf.workflows.register(chain({"parent": child}), name="nested", tries=2)
        cf.workflows.start("nested", {}, tenant="team-a", workflow_id="w-1")
        for _ in range(2 * STEPS):
            cf.drain()
            clock.advance("10m")  # past the pause before its next try
        found = cf.workflows.get("w-1", tenant="team-a")
    assert (found.status, len(met)) == ("done", STEPS)


def test_a_worker_that_ends_between_two_steps_counts_as_no_try(tmp_path: Path) -> None:
    entered: list[str] = []
    with Counterfoil.open(f"sqlite:///{tmp_path / 'a.db'}") as cf:
        worker = Worker(cf.desk, (), 1, None)

        def first(_: State) -> Any:
            entered.append("first")
            worker.stop()
            return {"seen": 1}

        def second(_: State) -> Any:
            entered.append("second")
            return {"seen": 2}

        cf.workflows.register(chain({"first": first, "second": second}), name="two", tries=1)
        cf.workflows.start("two", {}, tenant="team-a", workflow_id="w-1")
        asyncio.run(worker.drain())
        between = cf.workflows.get("w-1", tenant="team-a")
        raised = worker.workflows.counts.raised
        cf.drain()
        after = cf.workflows.get("w-1", tenant="team-a")
    assert (between.status, between.waits_for, between.tries, raised) == ("waiting", "a worker", 0, 0)
    assert (after.status, entered) == ("done", ["first", "second"])
