"""B12: recovery ran a workflow that was running already; a second pass acted on an outdated list.

Sources: https://github.com/dbos-inc/dbos-transact-java/issues/491,
https://github.com/dbos-inc/dbos-transact-py/issues/742
"""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from counterfoil.errors import ThreadBusy, VersionConflict, WorkflowEnded
from counterfoil.langgraph.claims import LEASE_MS
from counterfoil.runtime.workflows import WorkflowRunner
from counterfoil.storage.scripts import threads, workflows
from counterfoil.storage.scripts.threads import Claimed, Entry, ThreadRequest
from counterfoil.storage.scripts.workflows import Due
from tests.cases.journeys import TENANT, Journeys, chain, noting, paying

RESCUERS = 20
LIMIT_S = 30


def all_search(ways: Journeys, count: int = RESCUERS) -> int:
    """Let rescuers look for work at the same time; return how many entries there were."""

    async def together() -> int:
        runners = [WorkflowRunner(ways.cf.desk) for _ in range(count)]
        await asyncio.gather(*(runner.drain() for runner in runners))
        return sum(runner.counts.entered - runner.counts.elsewhere for runner in runners)

    return asyncio.run(together())


def request(due: Due, number: int) -> ThreadRequest:
    return ThreadRequest(
        key=due.key,
        holder=f"elsewhere@other:{number}:1:0/0",
        lease=LEASE_MS,
        trusted={"request_id": None, "workflow_id": "w", "principal": None},
        goes_on=False,
        entry=Entry(version=due.version, most_tries=10),
    )


def due_now(ways: Journeys) -> Due:
    (due,) = ways.cf.desk.store.write(lambda: workflows.find_due("g", 1, limit=9))
    return due


def abandoned(ways: Journeys) -> None:
    """Start a workflow whose first run dies at once."""
    ways.start()
    due = due_now(ways)
    assert isinstance(ways.cf.desk.store.write(lambda: threads.claim(request(due, 0))), Claimed)
    ways.clock.advance("31s")


@pytest.mark.parametrize("with_one_list", [True, False])
def test_of_twenty_racing_rescuers_one_proceeds(ways: Journeys, *, with_one_list: bool) -> None:
    ran: list[str] = []

    def note(_: Any) -> Any:
        ran.append("body")
        return {"log": ["a"]}

    ways.cf.workflows.register(chain(note=note, ship=paying("a")), name="g")
    abandoned(ways)
    if with_one_list:
        due, start, told = due_now(ways), threading.Barrier(RESCUERS), list[str]()

        def rescue(number: int) -> None:
            start.wait(LIMIT_S)
            told.append(type(ways.cf.desk.store.write(lambda: threads.claim(request(due, number)))).__name__)

        racing = [threading.Thread(target=rescue, args=[number]) for number in range(1, RESCUERS + 1)]
        for one in racing:
            one.start()
        for one in racing:
            one.join()
        assert Counter(told) == {"Claimed": 1, "Moved": RESCUERS - 1}
        ways.clock.advance("31s")
    assert all_search(ways) == 1
    assert (ran, ways.sent, ways.log()) == (["body"], ["a"], ["a", "shipped a"])


def test_an_outdated_list_enters_nothing(ways: Journeys) -> None:
    ways.cf.workflows.register(chain(ship=paying("a"), note=noting("b")), name="g")
    abandoned(ways)
    old = due_now(ways)
    ways.cf.drain()
    version = ways.get().version
    kept = ways.cf.desk.store.read(lambda: workflows.entry(old.key))
    assert kept is not None
    graph = ways.cf.desk.graphs["g", 1]
    with pytest.raises(WorkflowEnded, match="goes on no more"):
        asyncio.run(graph.enter(old, kept, graph.control()))
    assert (ways.get().version, ways.sent) == (version, ["a"])


@pytest.mark.parametrize("same_process", [True, False])
def test_an_owner_that_lives_is_not_replaced(ways: Journeys, *, same_process: bool) -> None:
    reached, go_on, ran = threading.Event(), threading.Event(), list[str]()

    def long(_: Any) -> Any:
        ran.append("body")
        reached.set()
        assert go_on.wait(LIMIT_S)
        return {"log": ["a"]}

    builder = chain(long=long, ship=paying("a"))
    ways.cf.workflows.register(builder, name="g")
    ways.start()
    due = due_now(ways)
    ways.clock.advance("31s")
    owner = threading.Thread(target=ways.cf.drain)
    owner.start()
    assert reached.wait(LIMIT_S)
    if not same_process:
        ways.cf = ways.open()
        ways.cf.workflows.register(builder, name="g")
    graph = ways.cf.desk.graphs["g", 1]
    kept = ways.cf.desk.store.read(lambda: workflows.entry(due.key))
    assert kept is not None
    now = due_now_or_none(ways)
    with pytest.raises((VersionConflict, ThreadBusy)):
        asyncio.run(graph.enter(due, kept, graph.control()))
    with pytest.raises(ThreadBusy):
        ways.cf.run(graph.graph, None, tenant=TENANT, thread_id="w")
    go_on.set()
    owner.join()
    assert (now, ran, ways.sent, ways.log()) == ([], ["body"], ["a"], ["a", "shipped a"])


def due_now_or_none(ways: Journeys) -> list[Due]:
    return ways.cf.desk.store.write(lambda: workflows.find_due("g", 1, limit=9))
