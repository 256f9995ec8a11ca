"""B10: the caller was told that the run was accepted; the process died, and the thread looked as if it had never begun.

Source: https://github.com/langchain-ai/langgraph/issues/8764
"""

import os
import signal
import subprocess
import sys

import pytest

from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown, StoreUnavailable
from counterfoil.testing.crash import SimulatedCrash
from tests.cases.journeys import TENANT, Journeys, chain, noting, paying
from tests.engine.names import EMBEDDED, on_engines

PROGRAM = """
import os, signal, sys
from counterfoil import Counterfoil
from tests.cases.journeys import chain, noting, paying
cf = Counterfoil.open(sys.argv[1])
cf.workflows.register(chain(ship=paying("a"), note=noting("b")), name="g")
cf.workflows.start("g", {}, tenant="t", workflow_id="w")
print("accepted", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def registered(ways: Journeys) -> None:
    ways.cf.workflows.register(chain(ship=paying("a"), note=noting("b")), name="g")


@pytest.mark.slow
@on_engines(*EMBEDDED)
def test_a_process_that_is_killed_after_its_answer_leaves_the_run_to_the_next_one(ways: Journeys) -> None:
    path = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))  # noqa: PTH109 - as text
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, ways.url],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
    )
    assert (child.returncode, child.stdout) == (-signal.SIGKILL, b"accepted\n"), child.stderr
    assert ways.get().status == "accepted"
    registered(ways)
    ways.clock.advance("400d")  # the child knew the time of day
    ways.cf.drain()
    assert (ways.log(), ways.sent) == (["shipped a", "b"], ["a"])


class At:
    """Interferes at one point of the start."""

    def __init__(self, point: Point, error: BaseException) -> None:
        self.point, self.error, self.is_armed = point, error, False

    def __call__(self, point: Point, _: str) -> None:
        if self.is_armed and point is self.point:
            self.is_armed = False
            raise self.error


@pytest.mark.parametrize(
    ("point", "error", "is_there"),
    [
        (Point.BEFORE_COMMIT, StoreUnavailable("the disk is full"), False),
        (Point.BEFORE_COMMIT, SimulatedCrash("dead"), False),
        (Point.AFTER_COMMIT, SimulatedCrash("dead"), True),
        (Point.AFTER_COMMIT, CommitUnknown("nobody heard of it"), True),
    ],
)
def test_it_answers_when_it_is_stored_and_else_says_so(
    ways: Journeys, *, point: Point, error: BaseException, is_there: bool
) -> None:
    probe = At(point, error)
    ways.cf = ways.open(probe=probe)
    registered(ways)
    probe.is_armed = True
    answered = False
    try:
        answered = ways.start().status == "accepted"
    except (StoreUnavailable, SimulatedCrash):
        assert not isinstance(error, CommitUnknown)
    ways.cf = ways.open()
    assert [each.workflow_id for each in ways.cf.workflows.list(tenant=TENANT).items] == ["w"] * is_there
    assert not answered or is_there
    registered(ways)
    assert ways.start().is_new is not is_there  # whoever heard nothing asks again
    ways.cf.drain()
    assert (ways.log(), ways.sent) == (["shipped a", "b"], ["a"])
