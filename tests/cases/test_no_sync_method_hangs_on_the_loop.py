"""B70: two sync methods blocked for ever on the loop's thread; a sync client used from async code failed late.

Sources: https://github.com/langchain-ai/langgraph/issues/7857, https://github.com/lfnovo/open-notebook/issues/509
"""

import asyncio
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.errors import SyncOnEventLoop


@effect("cases.on-loop", key="{request_id}")
def act(call: Any) -> str:
    return "done"


@effect("cases.on-loop-async", key="{request_id}/async")
async def act_async(call: Any) -> str:
    return "done"


WHOM = {"tenant": "t", "request_id": "r"}
REFUSED = {"perform": (act,), "verify": (act,)}


@pytest.mark.parametrize("method", REFUSED)
async def test_what_would_block_is_refused_at_once_with_the_line_to_write(url: str, method: str) -> None:
    with Counterfoil.open(url) as cf, pytest.raises(SyncOnEventLoop, match="await"):
        getattr(cf, method)(*REFUSED[method], **WHOM)


async def test_what_does_not_wait_for_the_loop_works_on_it(url: str) -> None:
    cf = Counterfoil.open(url)
    with cf:
        assert cf.resources is cf.resources
    cf.close()


def test_one_async_counterfoil_serves_several_loops_and_outlives_them(url: str) -> None:
    cf = AsyncCounterfoil.open(url)

    async def use(request: str) -> Any:
        both = [cf.perform(one, tenant="t", request_id=request) for one in (act, act_async)]
        return [receipt.value for receipt in await asyncio.wait_for(asyncio.gather(*both), 5)]

    assert asyncio.run(use("r-1")) == ["done", "done"]  # this loop is closed now
    assert asyncio.run(use("r-2")) == ["done", "done"]
    assert asyncio.run(use("r-1")) == ["done", "done"]
    asyncio.run(cf.close())


async def test_an_async_counterfoil_closed_twice_does_not_hang(url: str) -> None:
    cf = AsyncCounterfoil.open(url)
    async with asyncio.timeout(5):
        await cf.close()
        await cf.close()
