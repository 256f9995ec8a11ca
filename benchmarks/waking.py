"""How long from an event to the step that waited for it: with a long history, and in a process that starts anew?

The long workflow has made a thousand steps before it waits, the short one one; both go on when an event comes.
"""

from __future__ import annotations

import itertools
import logging
import operator
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks.draining import server
from benchmarks.kit import Comparison, Work, compare, once
from counterfoil import Counterfoil
from counterfoil.langgraph import wait_for

STEPS = 1_000
ROUNDS = 5


class State(TypedDict, total=False):
    steps: int
    done: Annotated[int, operator.add]
    at: float


def step(state: State) -> State:
    return {"done": 1}


def wait(state: State) -> State:
    if wait_for("go") is None:
        raise TimeoutError
    return {"at": time.perf_counter()}


def builder() -> Any:
    made: Any = StateGraph(State)
    made.add_node("step", step)
    made.add_node("wait", wait)
    made.add_edge(START, "step")
    made.add_conditional_edges("step", lambda state: "wait" if state["done"] >= state["steps"] else "step")
    made.add_edge("wait", END)
    return made


class Flows:
    """Workflows that wait, each with so many checkpoints behind it."""

    def __init__(self, url: str) -> None:
        self.cf = Counterfoil.open(url)
        self.cf.workflows.register(builder(), name="waking")
        self._numbers = itertools.count()
        self._long: list[str] = []

    def waiting(self, steps: int, count: int) -> list[str]:
        """Return the ids of so many workflows that wait."""
        ids = [f"w-{steps}-{next(self._numbers)}" for _ in range(count)]
        for workflow_id in ids:
            self.cf.workflows.start("waking", {"steps": steps}, tenant="t", workflow_id=workflow_id)
        while any(self.cf.workflows.get(one, tenant="t").status != "waiting" for one in ids):
            self.cf.drain()
            for one in ids:  # LangGraph ends a run after so many steps; it goes on
                if self.cf.workflows.get(one, tenant="t").status in {"parked", "failed"}:
                    self.cf.workflows.resume(one, tenant="t", by="bench", reason="more steps")
        return ids

    def wake(self, ids: list[str]) -> float:
        """Return the seconds from an event to the step that waited for it."""
        workflow_id = ids.pop()
        start = time.perf_counter()
        self.cf.workflows.deliver("go", tenant="t", workflow_id=workflow_id, event_id="e")
        self.cf.drain()
        woken: float = self.cf.workflows.result(workflow_id, tenant="t")["at"]
        return woken - start


def run(on_disk: Path, _in_memory: Path) -> list[Comparison]:
    logging.disable(logging.ERROR)
    answers = [_compared("SQLite", f"sqlite:///{on_disk}/waking.db")]
    with server() as running:
        answers.append(_compared("PostgreSQL", running.create_database("bench_waking")))
    print(f"\nfrom the start of a process to the first step that it goes on with: {started(on_disk):.2f} s")
    return answers


def _compared(store: str, url: str) -> Comparison:
    flows = Flows(url)
    calls = 2 * (ROUNDS + 1) + 2
    short, long = flows.waiting(1, 3 * calls), flows.waiting(STEPS, 2)
    works: dict[str, Work] = {
        "one step behind it": lambda: flows.wake(short or flows.waiting(1, 10)),
        f"{STEPS} steps behind it": lambda: flows.wake(long or flows.waiting(STEPS, 1)),
    }
    answer = compare(f"an event to the step that waited, {store}", works, rounds=ROUNDS, calls=1, clock=once)
    flows.cf.close()
    return answer


ANEW = """
import sys
from benchmarks.waking import Flows
flows = Flows(sys.argv[1])
flows.cf.drain()
print(flows.cf.workflows.result("w-anew", tenant="t")["at"])
"""


def started(folder: Path) -> float:
    """Return the seconds from the start of a process to the step that it goes on with; what that waits for is there."""
    url = f"sqlite:///{folder}/anew.db"
    flows = Flows(url)
    flows.cf.workflows.start("waking", {"steps": 1}, tenant="t", workflow_id="w-anew")
    flows.cf.drain()
    flows.cf.workflows.deliver("go", tenant="t", workflow_id="w-anew", event_id="e")
    flows.cf.close()
    start = time.perf_counter()  # of one clock for all processes, on Linux
    done = subprocess.run([sys.executable, "-c", ANEW, url], capture_output=True, text=True, check=True)
    return float(done.stdout) - start
