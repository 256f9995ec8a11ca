"""B24: a step of several minutes was started a second time although the first was healthy and finished.

Sources: https://github.com/langchain-ai/langgraph/issues/7213, https://github.com/langchain-ai/langgraph/issues/7417
"""

import threading
import time
from typing import Any

import pytest

from counterfoil import effect
from counterfoil.langgraph import claims, perform
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests.cases.journeys import Journeys, chain, noting
from tests.stores import execute

LEASE_MS = 2000
"""Scaled down: the step outlasts it, and blocks the event loop all the time."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def claimed_until(ways: Journeys) -> int:
    ((until,),) = execute(ways.url, "select lease_until from counterfoil_thread")
    return int(until)


@pytest.mark.slow
def test_a_step_that_blocks_its_loop_for_longer_than_its_lease_runs_once(
    ways: Journeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEASE_MS", LEASE_MS)
    ran: list[str] = []
    reached, over = threading.Event(), threading.Event()

    async def long(_: Any) -> Any:
        ran.append("long")
        reached.set()
        assert over.wait(30)  # blocks the loop itself
        return {"log": ["long"]}

    builder = chain(long=long, note=noting("b"))
    ways.clock = SystemClock()
    ways.cf = ways.open()
    ways.cf.workflows.register(builder, name="g")
    ways.start()
    first = threading.Thread(target=ways.cf.drain)
    first.start()
    assert reached.wait(30)
    ends = claimed_until(ways)
    while claimed_until(ways) == ends:
        assert first.is_alive()
    other = ways.open(clock=FakeClock(ends))  # when the claim would be over without a heartbeat
    other.workflows.register(builder, name="g")
    ways.be_silent()  # an engine's heartbeats are those of the loop
    second = threading.Thread(target=other.drain)
    second.start()
    second.join(10)  # until it finds nothing, or waits for a row that the blocked loop keeps in an engine's transaction
    over.set()
    first.join()
    second.join()
    other.drain()
    assert (ran, ways.log()) == (["long"], ["long", "b"])


stalling: list[Any] = []


@effect("cases.slow", key="{workflow_id}/slow")
def slow(call: Any) -> str:
    call.resource(TallyFile).accept("slow", call.operation_id, {"what": "slow"})
    stalling.pop()()
    return "done"


def test_without_heartbeats_the_second_worker_finds_the_first_ones_effect_and_sends_nothing(ways: Journeys) -> None:
    other = ways.open()

    def stall() -> None:
        """Outlast every lease, while another worker takes over; no heartbeat comes in so short a real time."""
        ways.freeze("1h")
        rescue = threading.Thread(target=other.drain)
        rescue.start()
        rescue.join()
        stalling.append(other.workflows.get("w", tenant="t"))

    def work(_: Any) -> Any:
        return {"log": [perform(slow).value]}

    for cf in (ways.cf, other):
        cf.workflows.register(chain(work=work, note=noting("b")), name="g")
    stalling[:] = [stall]
    ways.start()
    ways.cf.drain()
    (taken_over,) = stalling
    assert (taken_over.status, taken_over.parked_on) == ("waiting", "w/slow")
    ways.cf.drain()
    assert (ways.sent, ways.log()) == (["slow"], ["done", "b"])
