"""What does a superstep cost with our checkpointer, beside LangGraph's own for SQLite? Ten nodes, small state."""

from __future__ import annotations

import itertools
import sqlite3
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.kit import Comparison, Work, compare, cpu, wall
from counterfoil import Counterfoil

NODES = 10


class State(TypedDict):
    n: Annotated[int, add]
    text: str


def graph() -> Any:
    builder: Any = StateGraph(State)
    names = [START, *(f"n{number}" for number in range(NODES)), END]
    for name in names[1:-1]:
        builder.add_node(name, lambda _state: {"n": 1})
    for one, other in pairwise(names):
        builder.add_edge(one, other)
    return builder


def run(disk: Path, memory: Path) -> list[Comparison]:
    answers = []
    for where, folder, clock in (("on disk", disk, wall), ("in memory, the run's own thread alone", memory, cpu)):
        stock = sqlite3.connect(folder / "stock.db", check_same_thread=False)
        with Counterfoil.open(f"sqlite:///{folder}/graphs.db") as cf:
            variants = runs(cf, SqliteSaver(stock))
            answers.append(compare(f"A run of {NODES} nodes, {where}", variants, rounds=15, calls=5, clock=clock))
        stock.close()
    return answers


def runs(cf: Counterfoil, stock: SqliteSaver) -> dict[str, Work]:
    theirs, ours, managed = graph().compile(stock), graph().compile(cf.saver()), cf.compile(graph())
    at_end = cf.compile(graph(), checkpoint=[f"n{NODES - 1}"])
    ids = itertools.count()

    def invoke(compiled: Any, config: Any) -> None:
        compiled.invoke({"n": 0, "text": "x" * 200}, config, durability="sync")

    def thread() -> str:
        return f"t-{next(ids)}"

    return {
        "SqliteSaver": lambda: invoke(theirs, {"configurable": {"thread_id": thread()}}),
        "cf.saver(), compiled plainly": lambda: invoke(ours, {"configurable": {"thread_id": thread()}}),
        "cf.compile: claimed and fenced": lambda: invoke(managed, cf.config(tenant="t", thread_id=thread())),
        "the same, stored after its last node alone": lambda: invoke(at_end, cf.config(tenant="t", thread_id=thread())),
    }
