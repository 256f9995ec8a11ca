"""B44: plain reads without a claim let each replica send each row, with a fresh message id; and a pass that outlived
its lock was sent again as a whole by the next one.

Sources: https://github.com/KanishJebaMathewM/Truxify/issues/14680, https://github.com/aasmanj/altarwed/issues/615,
https://github.com/entire-vc/evc-team-relay/pull/115

tests/processes/test_dispatchers.py kills and stops processes in the middle; here all of them live.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest

from counterfoil import Counterfoil, Provider, effect
from counterfoil.runtime.dispatcher import Dispatcher
from counterfoil.testing.clock import FakeClock

ROWS = 200
sent: list[str] = []


@effect("cases.shared", key="{request_id}/{number}", provider=Provider(key_lifetime="24h"))
async def post(call: Any, *, number: int) -> int:
    await asyncio.sleep(0)  # a slow receiver: the others claim meanwhile
    sent.append(call.provider_key)
    return number


@pytest.mark.parametrize("batch", [1, 10])
def test_four_dispatchers_share_the_rows(url: str, batch: int) -> None:
    sent.clear()
    with Counterfoil.open(url, clock=FakeClock()) as cf:
        cf.enqueue_all(post, [{"number": n} for n in range(ROWS)], tenant="t", request_id="r")
        dispatchers = [Dispatcher(cf.desk, [post], batch=batch) for _ in range(4)]

        async def together() -> None:
            await asyncio.gather(*(each.drain() for each in dispatchers))

        asyncio.run(together())
        assert cf.operations.list(tenant="t", state="succeeded", limit=1000).items[ROWS - 1].attempt == 1
    assert set(Counter(sent).values()) == {1}
    assert len(sent) == ROWS
    assert sum(each.counts.claimed for each in dispatchers) == ROWS
    assert sum(each.counts.late for each in dispatchers) == 0
