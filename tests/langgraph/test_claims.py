"""One run at a time owns a thread: who loses, who takes over, and that every way in claims and gives back."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.errors import EmptyInputError, GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt

from counterfoil.drivers.probes import Point
from counterfoil.errors import CheckpointNotFound, CommitUnknown, ThreadBusy, VersionConflict
from counterfoil.langgraph import claims
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import Claimed, ThreadKey, ThreadRequest
from counterfoil.testing.clock import FakeClock
from tests.conformance.test_commits import AFTER, BEFORE, LostAndGone, LostCommit
from tests.langgraph.shop import WHO, Shop, State, chain
from tests.langgraph.worker import graph_of

LIMIT_S = 30
IDLE = [("idle", None, 0)]


def owner(shop: Shop, thread_id: str = "t-1") -> Any:
    return shop.select("select state, holder, lease_until from counterfoil_thread where thread_id = ?", thread_id)


def noted(state: State) -> State:
    return {"log": ["n"]}


# --- two runs of one process -----------------------------------------------------------------------------------------


def test_of_two_runs_on_one_thread_the_second_is_refused_before_any_node(shop: Shop) -> None:
    entered, leave = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow(state: State) -> State:
        ran.append(state["order"])
        entered.set()
        assert leave.wait(LIMIT_S)
        return {"log": [state["order"]]}

    graph = shop.cf.compile(chain(("slow", slow)))
    first = threading.Thread(target=lambda: shop.cf.run(graph, {"order": "first"}, **WHO))
    first.start()
    assert entered.wait(LIMIT_S)
    for cf in (shop.cf, shop.open()):
        with pytest.raises(ThreadBusy) as caught:
            cf.run(cf.compile(chain(("slow", slow))), {"order": "second"}, **WHO)
        assert caught.value.facts["thread_id"] == "t-1"
        assert caught.value.facts["holder"]
    shop.cf.run(shop.cf.compile(chain(("n", noted))), {}, **{**WHO, "tenant": "team-B"})
    leave.set()
    first.join()
    assert ran == ["first"]
    assert graph.get_state(shop.cf.config(**WHO)).values["log"] == ["first"]
    assert owner(shop) == IDLE * 2


async def test_of_two_tasks_on_one_thread_the_second_is_refused_before_any_node(shop: Shop) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def slow(state: State) -> State:
        ran.append(state["order"])
        entered.set()
        await leave.wait()
        return {"log": [state["order"]]}

    graph = shop.cf.compile(chain(("slow", slow)))
    first = asyncio.ensure_future(graph.ainvoke({"order": "first"}, shop.cf.config(**WHO)))
    await entered.wait()
    with pytest.raises(ThreadBusy):
        await graph.ainvoke({"order": "second"}, shop.cf.config(**WHO))
    leave.set()
    await first
    assert ran == ["first"]


# --- real processes --------------------------------------------------------------------------------------------------


@contextmanager
def worker(shop: Shop, doing: str) -> Iterator[subprocess.Popen[str]]:
    """Start a worker, and go on when it is in its first node."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.langgraph.worker", shop.url, str(shop.folder), "t-1", doing],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert line(child) == "in work"
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go_on(shop: Shop, clock: FakeClock | None = None) -> Any:
    cf = shop.open(clock=clock)
    return cf.run(cf.compile(graph_of("nothing", shop.tally)), None, tenant="team-A", thread_id="t-1")


def test_a_run_of_another_process_keeps_its_thread(shop: Shop) -> None:
    with worker(shop, "wait") as child:
        with pytest.raises(ThreadBusy):
            go_on(shop)
        child.communicate("\n", timeout=LIMIT_S)
    assert [shop.tally.count(f"node {name}") for name in ("work", "pay", "mail")] == [1, 1, 1]
    assert shop.tally.count("charge") == 1
    assert owner(shop) == IDLE


def test_the_thread_of_a_killed_process_is_taken_over_at_once(shop: Shop) -> None:
    with worker(shop, "wait") as child:
        child.kill()
        child.wait(LIMIT_S)
        assert go_on(shop)["log"] == ["work", "pay", "mail"]
    assert [shop.tally.count(f"node {name}") for name in ("work", "pay", "mail")] == [2, 1, 1]
    assert shop.tally.count("charge") == 1


def test_a_stopped_process_keeps_its_thread_until_its_lease_is_over_and_is_then_refused(shop: Shop) -> None:
    with worker(shop, "stop") as child:
        os.waitpid(child.pid, os.WUNTRACED)
        with pytest.raises(ThreadBusy):
            go_on(shop)
        later = FakeClock(int(time.time() * 1000) + claims.LEASE_MS + 1000)
        assert go_on(shop, later)["log"] == ["work", "pay", "mail"]
        child.send_signal(signal.SIGCONT)
        assert line(child) == "version-conflict"
    assert [shop.tally.count(f"node {name}") for name in ("work", "pay", "mail")] == [2, 1, 1]
    assert shop.tally.count("charge") == 1
    attempts = shop.select("select distinct attempt from counterfoil_checkpoint where step > 0")
    assert attempts == [(2,)]
    parents = shop.select("select parent_id, count(*) from counterfoil_checkpoint group by parent_id")
    assert {count for _, count in parents} == {1}


# --- heartbeat -------------------------------------------------------------------------------------------------------


class Beats:
    """Notes renewals: a probe that tells a test when the heartbeat has been."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)

    def __call__(self, point: Point, name: str) -> None:
        if point is Point.AFTER_STATEMENT and name == "renew_thread_if_claimed":
            self.came.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=LIMIT_S)


def test_a_heartbeat_renews_the_claim_of_a_long_node(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LEASE_MS", 300)
    beats, clock = Beats(), FakeClock()
    leases: list[int] = []

    def slow(state: State) -> State:
        for _ in range(3):
            clock.advance("200ms")
            beats.wait(2)  # the second one began after the clock had moved
            leases.extend(row[2] for row in owner(shop))
        return {"log": ["slow"]}

    cf = shop.open(probe=beats, clock=clock)
    cf.run(cf.compile(chain(("slow", slow))), {}, **WHO)
    start = leases[0]
    assert leases == [start, start + 200, start + 400]
    assert owner(shop) == IDLE


class Drained(RunControl):
    """Tells a test when the run was asked to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def request_drain(self, reason: str = "shutdown") -> None:
        super().request_drain(reason)
        self.asked.set()


@pytest.mark.filterwarnings("ignore:durability='async'")
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_run_that_lost_its_thread_stops_before_its_next_node(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    monkeypatch.setattr(claims, "LEASE_MS", 300)
    control, clock = Drained(), FakeClock()
    cf = shop.open(clock=clock)
    ran: list[str] = []

    def stalled(state: State) -> State:
        ran.append("stalled")
        rescuer = threading.Thread(target=steal, args=(shop, clock))
        rescuer.start()
        rescuer.join()
        assert control.asked.wait(LIMIT_S)
        return {"log": ["stalled"]}

    def later(state: State) -> State:
        ran.append("later")
        return {"log": ["later"]}

    graph = cf.compile(chain(("stalled", stalled), ("later", later)))
    with pytest.raises((VersionConflict, GraphDrained)):
        cf.run(graph, {}, **WHO, durability=durability, control=control)
    assert ran == ["stalled"]
    assert graph.get_state(cf.config(**WHO)).values.get("log", []) == []
    assert [row[1] for row in owner(shop)] == ["rescuer@elsewhere"]


def steal(shop: Shop, clock: FakeClock) -> None:
    """Claim the thread when its lease is over; the owner's next heartbeat comes too late."""
    hold(shop, holder="rescuer@elsewhere", clock=FakeClock(clock.now_ms() + 10_000))


def hold(
    shop: Shop, *, holder: str = "someone@elsewhere", clock: FakeClock | None = None, thread_id: str = "t-1"
) -> None:
    """Claim a thread as a run of another host."""
    cf = shop.open(clock=clock)
    trusted: dict[str, str | None] = {"request_id": None, "workflow_id": None, "principal": None}
    key = ThreadKey(tenant="team-A", thread_id=thread_id)
    request = ThreadRequest(key=key, holder=holder, lease=600_000, trusted=trusted, goes_on=True)
    assert isinstance(cf.desk.store.write(lambda: threads.claim(request)), Claimed)


# --- every way in ----------------------------------------------------------------------------------------------------

INPUT: State = {"order": "1"}


async def _astream_events_v3(graph: Any, config: Any) -> Any:
    run = await graph.astream_events(INPUT, config, version="v3")
    return await run.output()


async def _gathered(generator: Any) -> list[Any]:
    return [one async for one in generator]


BLOCKING: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda graph, config: graph.invoke(INPUT, config),
    "stream": lambda graph, config: list(graph.stream(INPUT, config)),
    "stream-values": lambda graph, config: list(graph.stream(INPUT, config, stream_mode=["values", "debug"])),
    "stream_events": lambda graph, config: graph.stream_events(INPUT, config, version="v3").output,
    "batch": lambda graph, config: graph.batch([INPUT], [config]),
    "update_state": lambda graph, config: graph.update_state(config, {"number": 1}, as_node="n"),
    "with_config": lambda graph, config: graph.with_config(recursion_limit=9).invoke(INPUT, config),
    "bound": lambda graph, config: graph.with_config(config).invoke(INPUT),
    "with_retry": lambda graph, config: graph.with_retry(stop_after_attempt=1).invoke(INPUT, config),
}
AWAITING: dict[str, Callable[[Any, Any], Any]] = {
    "ainvoke": lambda graph, config: graph.ainvoke(INPUT, config),
    "astream": lambda graph, config: _gathered(graph.astream(INPUT, config)),
    "astream_events-v2": lambda graph, config: _gathered(graph.astream_events(INPUT, config, version="v2")),
    "astream_events-v3": _astream_events_v3,
    "abatch": lambda graph, config: graph.abatch([INPUT], [config]),
    "aupdate_state": lambda graph, config: graph.aupdate_state(config, {"number": 1}, as_node="n"),
}


def seen(shop: Shop) -> Any:
    """Return a graph whose node notes who owns the thread meanwhile."""
    return shop.cf.compile(chain(("n", lambda state: {"log": [row[0] for row in owner(shop)]})))


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("way", BLOCKING)
def test_every_blocking_way_in_claims_the_thread_and_gives_it_back(shop: Shop, way: str) -> None:
    graph, config = seen(shop), shop.cf.config(**WHO)
    for _ in range(2):
        BLOCKING[way](graph, config)
        assert owner(shop) == IDLE
    values = graph.get_state(config).values
    assert values.get("log") == (["running"] * 2 if way != "update_state" else [])
    hold(shop)
    with pytest.raises(ThreadBusy):
        BLOCKING[way](graph, config)
    assert graph.get_state(config).values == values


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("way", AWAITING)
async def test_every_awaiting_way_in_claims_the_thread_and_gives_it_back(shop: Shop, way: str) -> None:
    graph, config = seen(shop), shop.cf.config(**WHO)
    for _ in range(2):
        await AWAITING[way](graph, config)
        assert owner(shop) == IDLE
    values = graph.get_state(config).values
    assert values.get("log") == (["running"] * 2 if way != "aupdate_state" else [])
    hold(shop)
    with pytest.raises(ThreadBusy):
        await AWAITING[way](graph, config)
    assert graph.get_state(config).values == values


async def test_a_stream_that_is_closed_early_gives_the_thread_back(shop: Shop) -> None:
    graph, config = shop.cf.compile(chain(("one", noted), ("two", noted))), shop.cf.config(**WHO)
    stream = graph.stream(INPUT, config)
    assert next(stream) == {"one": {"log": ["n"]}}
    assert owner(shop)[0][0] == "running"
    stream.close()
    assert owner(shop) == IDLE
    astream = graph.astream(None, config)
    assert await anext(astream) == {"two": {"log": ["n"]}}
    assert owner(shop)[0][0] == "running"
    await astream.aclose()
    assert owner(shop) == IDLE


def test_a_stream_that_nobody_began_claims_nothing(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("one", noted)))
    graph.stream(INPUT, shop.cf.config(**WHO))
    assert owner(shop) == []


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
async def test_an_error_gives_the_thread_back_and_comes_out_as_it_was(shop: Shop, error: type[BaseException]) -> None:
    def node(state: State) -> State:
        raise error

    async def anode(state: State) -> State:
        raise Broken

    config = shop.cf.config(**WHO)
    with pytest.raises(error):
        shop.cf.compile(chain(("n", node))).invoke(INPUT, config)
    assert owner(shop) == IDLE
    with pytest.raises(Broken):
        await shop.cf.compile(chain(("n", anode))).ainvoke(INPUT, config)
    assert owner(shop) == IDLE


async def test_a_cancelled_run_gives_the_thread_back(shop: Shop) -> None:
    entered = asyncio.Event()

    async def node(state: State) -> State:
        entered.set()
        await asyncio.Event().wait()
        return {}

    task = asyncio.ensure_future(shop.cf.compile(chain(("n", node))).ainvoke(INPUT, shop.cf.config(**WHO)))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert owner(shop) == IDLE


def test_an_interrupt_gives_the_thread_back_and_any_worker_resumes_it(shop: Shop) -> None:
    builder = chain(("ask", lambda state: {"answer": interrupt("well?")}))
    shop.cf.run(shop.cf.compile(builder), {}, **WHO)
    assert owner(shop) == IDLE
    other = shop.open()
    assert other.run(other.compile(builder), Command(resume="yes"), **WHO)["answer"] == "yes"
    assert shop.select("select attempt from counterfoil_thread") == [(2,)]


@pytest.mark.parametrize("checkpoint", [None, "1f000000-0000-6000-8000-000000000000"])
async def test_a_thread_that_nobody_began_has_nothing_to_go_on_from(shop: Shop, checkpoint: str | None) -> None:
    graph = shop.cf.compile(chain(("one", lambda _state: pytest.fail("a node ran"))))
    config = shop.cf.config(**WHO)
    config["configurable"] |= {"checkpoint_id": checkpoint} if checkpoint else {}
    told = f"Thread t-1 of tenant team-A has no checkpoint{f' {checkpoint}' if checkpoint else ''} to go on from"
    with pytest.raises(CheckpointNotFound, match=told) as caught:
        await asyncio.to_thread(shop.cf.run, graph, None, config=config, **WHO)
    assert caught.value.__suppress_context__
    with pytest.raises(CheckpointNotFound, match=told):
        await graph.ainvoke(None, config)
    assert owner(shop) == IDLE


def test_what_another_graph_in_a_node_lacks_is_not_taken_for_it(shop: Shop) -> None:
    inner = chain(("one", noted)).compile()
    graph = shop.cf.compile(chain(("two", lambda _state: inner.invoke(None))))
    with pytest.raises(EmptyInputError):
        shop.cf.run(graph, {}, **WHO)


def test_a_deleted_thread_refuses_the_run_that_still_owns_it(shop: Shop) -> None:
    ran: list[str] = []

    def node(state: State) -> State:
        ran.append("n")
        shop.cf.saver(tenant="team-A").delete_thread("t-1")
        return {}

    with pytest.raises(VersionConflict):
        shop.cf.run(shop.cf.compile(chain(("one", node), ("two", node))), {}, **WHO)
    assert ran == ["n"]
    assert shop.rows("checkpoint") == 0


def test_a_run_of_a_deleted_thread_is_not_taken_for_the_one_that_began_it_anew(shop: Shop) -> None:
    stale: list[VersionConflict] = []

    def delete_and_begin_anew(state: State) -> State:
        if not state.get("order"):
            shop.cf.saver(tenant="team-A").delete_thread(WHO["thread_id"])
            shop.cf.run(graph, {"order": "anew"}, **WHO)
        return {"log": [state.get("order", "stale")]}

    graph = shop.cf.compile(chain(("n", delete_and_begin_anew)))

    def begin() -> None:
        try:
            shop.cf.run(graph, {}, **WHO)
        except VersionConflict as error:
            stale.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join(30)
    assert len(stale) == 1
    assert graph.get_state(shop.cf.config(**WHO)).values["log"] == ["anew"]


# --- a claim whose COMMIT nobody heard of ----------------------------------------------------------------------------


CLAIM = "insert_claimed_thread"


def enter(cf: Any, graph: Any, colour: str) -> Any:
    config = cf.config(**WHO)
    return graph.invoke({}, config) if colour == "blocking" else asyncio.run(graph.ainvoke({}, config))


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_lost_commit_of_a_claim_does_not_show(shop: Shop, point: str, colour: str) -> None:
    cf = shop.open(probe=LostCommit(1, point, since=CLAIM))
    assert enter(cf, cf.compile(chain(("n", noted))), colour)["log"] == ["n"]
    assert owner(shop) == IDLE


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_a_claim_that_cannot_be_looked_up_is_not_said_to_be_none(shop: Shop, colour: str) -> None:
    lost = LostAndGone(since=CLAIM)
    cf = shop.open(probe=lost)
    graph = cf.compile(chain(("n", noted)))
    with pytest.raises(CommitUnknown):
        enter(cf, graph, colour)
    assert owner(shop)[0][0] == "running"
    lost.gone = False
    assert enter(cf, graph, colour)["log"] == ["n"]  # its run is over, so that it does not stand in the way


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_a_claim_that_was_lost_is_made_again_over_one_that_is_over(shop: Shop, colour: str) -> None:
    clock = FakeClock()
    hold(shop, clock=clock)
    clock.advance("700s")
    cf = shop.open(probe=LostCommit(1, BEFORE, since=CLAIM), clock=clock)
    assert enter(cf, cf.compile(chain(("n", noted))), colour)["log"] == ["n"]
