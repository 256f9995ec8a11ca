"""B26: a stalled worker lost its lock, another one finished the job, then the first finished it again.

Sources: https://github.com/taskforcesh/bullmq/issues/3183, https://github.com/OptimalBits/bull/issues/308
"""

from typing import Any

import pytest

from counterfoil.langgraph import enqueue, perform, wait_for
from tests.cases.journeys import Journeys, chain, noting, ship


@pytest.mark.parametrize("frozen", ["before-it-sends", "after-it-sent", "before-it-enqueues", "before-it-waits"])
def test_who_lost_its_workflow_sends_and_stores_nothing_more(ways: Journeys, frozen: str) -> None:
    other = ways.open()
    seen: list[Any] = []

    def stall() -> None:
        """Be frozen for an hour, in which another worker takes over and finishes."""
        if not seen:
            seen.append(None)
            ways.freeze("1h")
            other.drain()
            seen.append(other.workflows.get("w", tenant="t"))

    def work(_: Any) -> Any:
        if frozen == "before-it-enqueues":
            stall()
            enqueue(ship, what="a")
            return {"log": ["work"]}
        if frozen == "before-it-waits":
            stall()
            came = wait_for("paid", timeout="1m")
            return {"log": ["nothing" if came is None else came.event_id]}
        if frozen == "before-it-sends":
            stall()
        perform(ship, what="a")
        stall()
        return {"log": ["work"]}

    for cf in (ways.cf, other):
        cf.workflows.register(chain(work=work, note=noting("after")), name="g")
    ways.start()
    if frozen == "before-it-waits":
        ways.deliver("e-1")
    ways.cf.drain()
    ways.cf.drain()
    done = seen[1]
    assert (done.status, ways.get()) == ("done", done)
    assert ways.log() == [{"before-it-waits": "e-1"}.get(frozen, "work"), "after"]
    assert ways.sent == ([] if frozen == "before-it-waits" else ["a"])
    nodes = [step.nodes for step in ways.cf.workflows.history("w", tenant="t")]
    assert sorted(filter(None, nodes)) == [("note",), ("work",)]
