"""B55: the sender was told that all is well, the process died, and the sender never repeats.

Sources: https://github.com/openclaw/openclaw/pull/110526, https://github.com/mikenelsonjr/Accelerators/issues/2

The library's side: `deliver` returns after COMMIT alone, so that an endpoint may answer 200 when it has.
"""

import pytest

from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown, StoreUnavailable
from counterfoil.testing.crash import SimulatedCrash
from tests.cases.journeys import Journeys, chain, collecting, paying
from tests.cases.test_an_accepted_workflow_outlives_who_accepted_it import At
from tests.engine.names import EMBEDDED, ENGINES


@pytest.mark.parametrize(
    ("engine", "waits"), [*((each, True) for each in ENGINES), *((each, False) for each in EMBEDDED)]
)
@pytest.mark.parametrize(
    ("point", "error", "is_there"),
    [
        (Point.BEFORE_STATEMENT, TimeoutError("the database is slow"), False),
        (Point.BEFORE_COMMIT, StoreUnavailable("the disk is full"), False),
        (Point.BEFORE_COMMIT, SimulatedCrash("dead"), False),
        (Point.AFTER_COMMIT, SimulatedCrash("dead"), True),
        (Point.AFTER_COMMIT, CommitUnknown("nobody heard of it"), True),
    ],
)
def test_what_was_not_stored_is_not_answered_and_the_repeat_is_handled_once(
    ways: Journeys, *, point: Point, error: BaseException, is_there: bool, waits: bool
) -> None:
    builder = chain(wait=collecting(), ship=paying("a"))
    ways.cf.workflows.register(builder, name="g")
    if waits:
        ways.start()
        ways.cf.drain()
    probe = At(point, error)
    ways.cf = ways.open(probe=probe)
    probe.is_armed, answered = True, False
    try:
        ways.deliver("e")
        answered = True
    except (TimeoutError, StoreUnavailable, SimulatedCrash):
        assert not isinstance(error, CommitUnknown)
    ways.cf = ways.open()
    ways.cf.workflows.register(builder, name="g")
    assert answered is isinstance(error, CommitUnknown)
    if not answered:
        assert ways.deliver("e").is_new is not is_there
    ways.start()
    ways.cf.drain()
    assert (ways.log(), ways.sent) == (["e", "shipped a"], ["a"])
