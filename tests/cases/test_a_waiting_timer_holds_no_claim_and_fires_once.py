"""B25: a job that was due in six hours was handed out again each hour, and then ran once per copy.

Sources: https://github.com/celery/celery/issues/2481, https://github.com/celery/celery/issues/4766,
https://github.com/celery/celery/issues/7009
"""

import asyncio
from typing import Any

from counterfoil import Counterfoil, Delivery, effect
from counterfoil.runtime.dispatcher import Dispatcher
from counterfoil.storage.scripts import inspection
from counterfoil.testing.clock import FakeClock

WORKERS = 8
sent: list[int] = []


@effect("cases.timer", key="{request_id}/{number}", time_limit="10s", lease="10s")
def fire(call: Any, *, number: int) -> int:
    sent.append(number)
    return number


def all_search(cf: Counterfoil) -> None:
    """Let eight dispatchers look for work at the same time."""

    async def together() -> None:
        await asyncio.gather(*(Dispatcher(cf.desk, [fire]).drain() for _ in range(WORKERS)))

    asyncio.run(together())


def test_eight_workers_fire_it_once_and_not_before_its_time(url: str) -> None:
    sent.clear()
    clock = FakeClock()
    with Counterfoil.open(url, clock=clock) as cf:
        for number in range(3):
            cf.enqueue(fire, number=number, tenant="t", request_id="r", delivery=Delivery(delay="60s"))
        for _ in range(5):
            all_search(cf)
            clock.advance("10s")
        rows = cf.desk.store.read(inspection.everything).operations
        assert [(row["state"], row["holder"], row["attempt"]) for row in rows] == [("pending", None, 0)] * 3
        assert sent == []
        clock.advance("10s")
        for _ in range(5):
            all_search(cf)
            clock.advance("10s")
    assert sorted(sent) == [0, 1, 2]
