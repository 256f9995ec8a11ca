"""B53: an event that lands between "is it there?" and "now I sleep" is seen by neither, and the run sleeps for ever.

Sources: https://github.com/inngest/inngest/issues/1433, https://github.com/aikirun/aiki/pull/173
"""

import threading

import pytest

from counterfoil.drivers.probes import Point
from tests.cases.journeys import Journeys, chain, collecting
from tests.engine.names import EMBEDDED_POSTGRES, PROCRASTINATE, on_engines

AT_ONCE = 50
PATIENCE_S = 0.05
"""How long the run that parks stands still, for an event that waits for its transaction."""
STRIDE, LONG_STRIDE = 7, 23


@pytest.mark.parametrize("rounds", [50, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_workflow_is_left_asleep_whose_event_comes_as_it_parks(ways: Journeys, rounds: int) -> None:
    sender = ways.open()
    ways.cf.workflows.register(chain(wait=collecting()), name="g")
    for first in range(0, rounds, AT_ONCE):
        ids = [f"w-{number}" for number in range(first, first + AT_ONCE)]
        for workflow_id in ids:
            ways.start(workflow_id)
        parking = threading.Thread(target=ways.cf.drain)
        parking.start()
        for workflow_id in ids:
            sender.workflows.deliver("paid", tenant="t", workflow_id=workflow_id, event_id="e")
        parking.join()
        ways.cf.drain()
        assert [ways.log(workflow_id) for workflow_id in ids] == [["e"]] * AT_ONCE


class Between:
    """Delivers from another process at one point of the run that parks, or after it."""

    def __init__(self, ways: Journeys, target: int) -> None:
        self.target, self.passed, self.is_armed = target, 0, False
        self.sender, self.workflow_id = ways.open(), f"w-{target}"
        self.sending = threading.Thread(target=self.deliver)

    def __call__(self, point: Point, _: str) -> None:
        if not self.is_armed or point not in {Point.BEFORE_STATEMENT, Point.AFTER_COMMIT}:
            return
        self.passed += 1
        if self.passed == self.target:
            self.is_armed = False
            self.sending.start()
            self.sending.join(PATIENCE_S)

    def deliver(self) -> None:
        self.sender.workflows.deliver("paid", tenant="t", workflow_id=self.workflow_id, event_id="e")


@on_engines(EMBEDDED_POSTGRES, PROCRASTINATE)  # a file has one writer, whose turns the other test mixes
def test_at_whatever_point_of_parking_it_comes(ways: Journeys) -> None:
    stride = STRIDE if ways.engine == "embedded" else LONG_STRIDE
    was_late, target = False, 1
    while not was_late:
        probe = Between(ways, target)
        ways.cf = ways.open(probe=probe)
        ways.cf.workflows.register(chain(wait=collecting()), name="g")
        ways.start(probe.workflow_id)
        probe.is_armed = True
        ways.cf.drain()
        was_late, probe.is_armed = probe.is_armed, False
        if was_late:
            probe.sending.start()
        probe.sending.join()
        ways.cf.drain()
        assert ways.log(probe.workflow_id) == ["e"], target
        target += stride
        probe.sender.close()
        ways.cf.close()
    assert target > 3 * stride
