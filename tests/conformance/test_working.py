"""A worker in the caller's own process sends what is enqueued while it works, and finishes it at the end."""

import asyncio
import threading
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.runtime.dispatcher import Dispatcher

arrived: list[int] = []
came = threading.Event()


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


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    arrived.clear()
    came.clear()


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
