"""B25: a job that was due in six hours was handed out again each hour, and then ran once per copy.

Sources: https://github.com/celery/celery/issues/2481, https://github.com/celery/celery/issues/4766,
https://github.com/celery/celery/issues/7009
"""

import asyncio
from typing import Any

from counterfoil.langgraph import sleep_for
from counterfoil.runtime.workflows import WorkflowRunner
from tests.cases.journeys import Journeys, chain, paying

WORKERS = 8


def test_eight_workers_wake_it_once_and_not_before_its_time(ways: Journeys) -> None:
    entered: list[int] = []

    def sleep(_: Any) -> Any:
        entered.append(ways.clock.now_ms())
        sleep_for("6h")
        return {"log": ["woken"]}

    processes = [ways.cf, *(ways.open() for _ in range(1))]
    for cf in processes:
        cf.workflows.register(chain(sleep=sleep, ship=paying("a")), name="g")
    ways.start()

    async def together() -> None:
        runners = [WorkflowRunner(cf.desk) for cf in processes for _ in range(WORKERS // 2)]
        await asyncio.gather(*(runner.drain() for runner in runners))

    for _ in range(7):
        asyncio.run(together())
        if ways.get().status == "done":
            break
        found = ways.get()
        assert (found.status, found.holder, found.lease_until, ways.sent) == ("waiting", None, 0, [])
        ways.clock.advance("1h")
    assert (len(entered), ways.sent, ways.log()) == (2, ["a"], ["woken", "shipped a"])
    assert entered[1] - entered[0] == 6 * 3_600_000
