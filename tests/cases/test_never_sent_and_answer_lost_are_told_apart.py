"""B39: a client returned the same failure for a refused connection and for a lost answer.

In another system answers later than 2.5 s were dropped, and the model booked again.

Sources: https://github.com/currents-dev/currents-mcp/issues/163, https://github.com/aplisay/llm-agent/pull/176
"""

import asyncio
import socket
import threading
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, Effect, Receipt
from counterfoil.errors import EffectNotSent, OutcomeUnknown
from tests.cases.counted import Counted
from tests.cases.over_http import AWAITING, BLOCKING, posting, provide
from tests.patience import until_sent_async
from tests.providers import faulty
from tests.providers.faulty import Faulty


def test_a_refused_connection_was_not_sent_and_may_be_tried_again(url: str, counted: Counted) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with Counterfoil.open(url) as cf:
            for _ in range(2):
                with pytest.raises(EffectNotSent) as caught:
                    counted.perform(cf, "opaque", url=dead)
                assert caught.value.retry == "safe"
            assert counted.perform(cf, "opaque").attempt == 3
    assert (counted.provider.received(), counted.provider.count()) == (1, 1)


@pytest.mark.parametrize("fault", ["reset-reply", "drop-reply", "cut-reply", "drop-before-accept", "hold"])
@pytest.mark.parametrize("kind", ["opaque", "queryable", "keyed"])
def test_a_lost_answer_is_unknown_and_is_never_guessed(url: str, counted: Counted, fault: Any, kind: str) -> None:
    counted.provider.order(fault)
    counted.patience_s = 0.5 if fault == "hold" else 30.0
    accepted = fault != "drop-before-accept"
    with Counterfoil.open(url) as cf:
        if kind == "queryable" and accepted:
            assert counted.perform(cf, kind).answered_from == "lookup"
        else:
            with pytest.raises(OutcomeUnknown):
                counted.perform(cf, kind)
        counted.provider.release()
        if kind == "keyed":
            assert counted.perform(cf, kind).value["id"] == 1
        elif kind == "opaque" or not accepted:
            with pytest.raises(OutcomeUnknown):
                counted.perform(cf, kind)
        else:
            assert counted.perform(cf, kind).already_happened
    assert counted.provider.count() == (accepted or kind == "keyed")


async def settled(cf: AsyncCounterfoil, made: Effect[Any], **more: Any) -> Receipt[Any]:
    """Ask until the late answer is recorded."""
    while True:
        try:
            return await cf.perform(made, tenant="t", request_id="r-1", title="a", **more)
        except OutcomeUnknown:
            continue


async def test_an_answer_after_the_time_limit_is_attached_and_settles_it(url: str, counted: Counted) -> None:
    came = threading.Event()
    counted.provider.order("hold")
    async with AsyncCounterfoil.open(url) as cf:
        made = counted.effect("opaque", time_limit="100ms", after=came.set)
        with pytest.raises(OutcomeUnknown):
            await until_sent_async(lambda: cf.perform(made, tenant="t", request_id="r-1", title="a"))
        counted.provider.wait_held()
        counted.provider.release()
        assert came.wait(10)
        async with asyncio.timeout(10):
            receipt = await settled(cf, made)
    assert receipt.value["id"] == 1
    assert counted.provider.received() == 1


# --- through real clients ---------------------------------------------------------------------------------------------

EACH: dict[str, Any] = BLOCKING | AWAITING
ASKED = {"tenant": "t", "request_id": "r-1", "title": "a"}


async def performed(cf: AsyncCounterfoil, client: str, url: str, **more: Any) -> Receipt[Any]:
    return await cf.perform(posting(EACH[client], **more), **ASKED, url=url)


@pytest.mark.parametrize("client", EACH)
async def test_a_refused_connection_was_not_sent_through_each_client(url: str, client: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with AsyncCounterfoil.open(url) as cf:
            provide(cf)
            for _ in range(2):
                with pytest.raises(EffectNotSent) as caught:
                    await performed(cf, client, f"http://127.0.0.1:{closed.getsockname()[1]}/things")
                assert caught.value.retry == "safe"


@pytest.mark.parametrize("fault", ["reset", "close", "garbage"])
@pytest.mark.parametrize("client", EACH)
async def test_a_lost_answer_is_unknown_through_each_client_and_nothing_is_sent_again(
    url: str, client: str, fault: str
) -> None:
    with Faulty(getattr(faulty, fault)) as server:
        async with AsyncCounterfoil.open(url) as cf:
            provide(cf)
            for _ in range(3):
                with pytest.raises(OutcomeUnknown):
                    await performed(cf, client, server.url)
        assert server.requests == 1


@pytest.mark.parametrize("client", BLOCKING)
async def test_an_answer_after_the_time_limit_settles_it_through_each_client(
    url: str, counted: Counted, client: str
) -> None:
    counted.provider.order("hold")
    address = f"{counted.provider.url}/tickets"
    async with AsyncCounterfoil.open(url) as cf:
        provide(cf)
        with pytest.raises(OutcomeUnknown):
            await until_sent_async(lambda: performed(cf, client, address, time_limit="100ms"))
        counted.provider.wait_held()
        counted.provider.release()
        async with asyncio.timeout(10):
            receipt = await settled(cf, posting(EACH[client], time_limit="100ms"), url=address)
    assert (receipt.value["id"], receipt.already_happened) == (1, True)
    assert (counted.provider.received(), counted.provider.count()) == (1, 1)
