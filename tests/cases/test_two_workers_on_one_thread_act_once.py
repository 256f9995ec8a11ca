"""B11: two workers continue from the same checkpoint; both report success and the history has two children.

Source: https://github.com/langchain-ai/langgraph/issues/8796
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from counterfoil import AsyncCounterfoil
from counterfoil.errors import ThreadBusy
from counterfoil.langgraph import aperform
from tests import children
from tests.cases.stock import Ours, Pay, Stock
from tests.langgraph.shop import WHO, Shop, State, acharge, chain

LIMIT_S = 60


def meeting(wait: Callable[[], object]) -> tuple[Any, list[str]]:
    """Return a graph whose paying node waits for whom it must meet."""
    ran: list[str] = []

    def build(pay: Pay) -> Any:
        def ask(state: State) -> State:
            return {"answer": interrupt("well?")}

        def charge(state: State) -> State:
            ran.append("charge")
            wait()
            return {"numbers": [pay("1")]}

        return chain(("ask", ask), ("charge", charge))

    return build, ran


def children_of(graph: Any, config: Any) -> int:
    parents = Counter(
        one.parent_config["configurable"]["checkpoint_id"]
        for one in graph.get_state_history(config)
        if one.parent_config
    )
    return max(parents.values())


def test_without_counterfoil_both_succeed_and_act(stock: Stock) -> None:
    both = threading.Barrier(2)
    build, ran = meeting(lambda: both.wait(LIMIT_S))
    graph = stock.compile(build)
    graph.invoke({}, stock.config())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: graph.invoke(Command(resume="yes"), stock.config()), range(2)))
    assert stock.count == 2
    assert children_of(graph, stock.config()) == 2
    assert ran == ["charge"] * 2


@pytest.mark.parametrize("workers", [2, 20])
def test_one_worker_goes_on_and_the_others_are_told_before_any_node(ours: Ours, workers: int) -> None:
    losers = threading.Semaphore(0)
    build, ran = meeting(lambda: [losers.acquire(timeout=LIMIT_S) for _ in range(workers - 1)])
    cf = ours.shop.cf
    graph = ours.compile(build)
    cf.run(graph, {}, **WHO)
    before = ours.shop.select("select version from counterfoil_thread")[0][0]
    start = threading.Barrier(workers)

    def resume(_: int) -> str:
        start.wait(LIMIT_S)
        try:
            return str(cf.run(graph, Command(resume="yes"), **WHO)["numbers"])
        except ThreadBusy as error:
            losers.release()
            return error.code

    with ThreadPoolExecutor(workers) as pool:
        told = Counter(pool.map(resume, range(workers)))
    # The winner stays in its node until every other one was told, so that none of them comes after it.
    assert told == {"[1]": 1, "thread-busy": workers - 1}
    assert ran == ["charge"]
    assert ours.count == 1
    assert children_of(graph, ours.config()) == 1
    assert ours.shop.select("select version from counterfoil_thread")[0][0] > before


@pytest.mark.parametrize("workers", [2, 20])
def test_of_tasks_on_one_loop_too_one_goes_on_and_the_others_are_told(shop: Shop, workers: int) -> None:
    ran: list[str] = []

    async def go_on_at_once() -> Any:
        told: Counter[str] = Counter()
        all_told = asyncio.Event()

        async def charge(state: State) -> State:
            ran.append("charge")
            await asyncio.wait_for(all_told.wait(), LIMIT_S)
            return {"numbers": [(await aperform(acharge, order="1")).value["number"]]}

        async def resume() -> None:
            try:
                told[str((await cf.run(graph, Command(resume="yes"), **WHO))["numbers"])] += 1
            except ThreadBusy as error:
                told[error.code] += 1
                if told[error.code] == workers - 1:
                    all_told.set()

        graph = cf.compile(chain(("ask", lambda state: {"answer": interrupt("well?")}), ("charge", charge)))
        await cf.run(graph, {}, **WHO)
        await asyncio.gather(*(resume() for _ in range(workers)))
        assert told == {"[1]": 1, "thread-busy": workers - 1}
        return graph

    cf = AsyncCounterfoil(shop.cf.desk)
    graph = asyncio.run(go_on_at_once())
    assert ran == ["charge"]
    assert shop.count == 1
    assert children_of(graph, shop.cf.config(**WHO)) == 1


@pytest.mark.slow
def test_processes_that_start_one_thread_at_once_act_once(shop: Shop) -> None:
    shop.cf.close()
    workers = [
        children.start(
            [sys.executable, "-m", "tests.langgraph.worker", shop.url, str(shop.folder), "t-1", "nothing"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    told = [worker.communicate(timeout=LIMIT_S)[0].split("\n")[-2] for worker in workers]
    assert {line.split()[0] for line in told} <= {"done", "thread-busy"}
    assert any(line.startswith("done") for line in told)
    assert shop.tally.count("charge") == 1
