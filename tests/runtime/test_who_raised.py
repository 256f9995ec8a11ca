"""A run that lost its workflow is no fault; a node that met another thread which is busy is one, and is logged."""

import asyncio
import logging
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from counterfoil import Counterfoil
from counterfoil.errors import ThreadBusy
from counterfoil.runtime.worker import Worker


class State(TypedDict, total=False):
    seen: str


def graph(raising: ThreadBusy) -> Any:
    def meet(state: State) -> Any:
        raise raising

    builder = StateGraph(State)
    builder.add_node("meet", meet)
    builder.add_edge(START, "meet")
    builder.add_edge("meet", END)
    return builder


@pytest.mark.parametrize(("thread", "counted"), [("w-1", (1, 0)), ("w-2", (0, 1))])
def test_who_is_busy_decides(
    thread: str, counted: tuple[int, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    busy = ThreadBusy("it is being run", tenant="team-a", operation_id="", thread_id=thread)
    with Counterfoil.open(f"sqlite:///{tmp_path / 'a.db'}") as cf, caplog.at_level(logging.ERROR):
        cf.workflows.register(graph(busy), name="meeting", tries=1)
        cf.workflows.start("meeting", {}, tenant="team-a", workflow_id="w-1")
        worker = Worker(cf.desk, (), 1, None)
        asyncio.run(worker.drain())
        counts = worker.workflows.counts
    assert (counts.elsewhere, counts.raised) == counted
    assert (" raised" in caplog.text) == bool(counts.raised)
