"""A worker in the caller's own process sends what is enqueued while it works, and finishes it at the end."""

import asyncio
import threading
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, effect, ledger
from counterfoil.errors import OutcomeUnknown, StoreClosed
from counterfoil.runtime.dispatcher import Dispatcher
from tests import stores
from tests.patience import until_sent_async

arrived: list[int] = []
came = threading.Event()
goes_on = threading.Event()
LIMIT = 20


@effect("working.post", key="{request_id}/{number}")
def post(call: Any, *, number: int) -> int:
    arrived.append(number)
    came.set()
    return number


@effect("working.apost", key="{request_id}/{number}")
async def apost(call: Any, *, number: int) -> int:
    arrived.append(number)
    came.set()
    return number


def take_time() -> int:
    came.set()
    goes_on.wait(LIMIT)
    arrived.append(0)
    return 0


@effect("working.slow", key="{request_id}")
def slow(call: Any) -> int:
    return take_time()


@effect("working.aslow", key="{request_id}")
async def aslow(call: Any) -> int:
    return await asyncio.to_thread(take_time)


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    arrived.clear()
    came.clear()
    goes_on.clear()


@pytest.fixture
def told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slow effect go on when its worker is told to stop."""
    stop = Dispatcher.stop

    def stops(dispatcher: Dispatcher) -> None:
        stop(dispatcher)
        goes_on.set()

    monkeypatch.setattr(Dispatcher, "stop", stops)


def test_a_thread_sends_what_is_enqueued_meanwhile(url: str) -> None:
    with Counterfoil.open(url) as cf:
        with cf.working(post):
            for number in range(5):
                cf.enqueue(post, number=number, tenant="t", request_id="r")
            assert came.wait(10)
        cf.drain(post)  # what the worker had not claimed yet when it was told to end
        assert {each.state for each in cf.operations.list(tenant="t").items} == {"succeeded"}
    assert sorted(arrived) == list(range(5))


def test_a_task_does_the_same(url: str) -> None:
    async def run() -> None:
        async with AsyncCounterfoil.open(url) as cf:
            async with cf.working(apost):
                await cf.enqueue_all(apost, [{"number": n} for n in range(5)], tenant="t", request_id="r")
                assert await asyncio.to_thread(came.wait, 10)
            await cf.drain(apost)
            page = await cf.operations.list(tenant="t")
            assert {each.state for each in page.items} == {"succeeded"}

    asyncio.run(run())
    assert sorted(arrived) == list(range(5))


def test_what_ends_a_worker_is_raised_where_its_block_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Dispatcher, "run", broken)
    with Counterfoil.open(url) as cf, pytest.raises(BaseExceptionGroup) as caught, cf.working(post):
        pass
    assert caught.group_contains(ZeroDivisionError)


def state_of(url: str) -> str:
    with Counterfoil.open(url) as cf:
        return cf.operations.get("r", tenant="t").operation.state


@stores.on_each(*stores.SHARED)
@pytest.mark.usefixtures("told_to_stop")
def test_closing_inside_the_block_ends_the_worker_after_what_is_under_way(url: str) -> None:
    cf = Counterfoil.open(url)
    with cf.working(slow):
        cf.enqueue(slow, tenant="t", request_id="r")
        assert came.wait(LIMIT)
        cf.close()
    assert (state_of(url), arrived) == ("succeeded", [0])


@stores.on_each(*stores.SHARED)
@pytest.mark.usefixtures("told_to_stop")
def test_closing_ends_the_task_of_a_loop_in_the_same_way(url: str) -> None:
    async def run() -> None:
        cf = AsyncCounterfoil.open(url)
        async with cf.working(aslow):
            await cf.enqueue(aslow, tenant="t", request_id="r")
            assert await asyncio.to_thread(came.wait, LIMIT)
            await cf.close()

    asyncio.run(run())
    assert (state_of(url), arrived) == ("succeeded", [0])


@stores.on_each(*stores.SHARED)
def test_closing_waits_for_a_call_that_outlasts_its_time_limit(url: str) -> None:
    made = effect("working.late", key="{request_id}", time_limit="50ms")(lambda _call: take_time())

    async def run() -> None:
        async with AsyncCounterfoil.open(url) as cf:
            with pytest.raises(OutcomeUnknown):
                await until_sent_async(lambda: cf.perform(made, tenant="t", request_id="r"))
            closing = asyncio.create_task(cf.close())
            await asyncio.wait([closing], timeout=0.1)
            goes_on.set()
            await closing

    asyncio.run(run())
    assert (state_of(url), arrived) == ("succeeded", [0])


def test_a_worker_that_close_did_not_wait_for_ends_and_says_why(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CLOSE_WAIT_S", 0.0)
    cf = Counterfoil.open(url)
    working = cf.working(slow)
    working.__enter__()
    cf.enqueue(slow, tenant="t", request_id="r")
    assert came.wait(LIMIT)
    cf.close()
    goes_on.set()
    with pytest.raises(BaseExceptionGroup) as caught:
        working.__exit__(None, None, None)
    assert caught.group_contains(StoreClosed)
