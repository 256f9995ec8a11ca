"""B52: three parallel deliveries each settled the order; a webhook and the browser's return both completed it.

Sources: https://github.com/Pinelab-studio/pinelab-vendure-plugins/issues/620, https://github.com/getdokan/dokan/issues/2994
"""

import threading
from collections import Counter

import pytest

from tests.cases.journeys import Journeys, beside, chain, collecting, noting, paying

TIMES = 10


@pytest.mark.parametrize("waits", [True, False])
def test_ten_parallel_deliveries_of_one_event_are_one(ways: Journeys, *, waits: bool) -> None:
    ways.cf.workflows.register(chain(wait=collecting(), ship=paying("a")), name="g")
    if waits:
        ways.start()
        ways.cf.drain()
    start, told = threading.Barrier(TIMES), list[bool]()

    def deliver() -> None:
        start.wait(30)
        told.append(ways.deliver("e", payload={"sum": 10}).is_new)

    racing = [threading.Thread(target=deliver) for _ in range(TIMES)]
    for one in racing:
        one.start()
    for one in racing:
        one.join()
    assert Counter(told) == {True: 1, False: TIMES - 1}
    ways.start()
    ways.cf.drain()
    assert (ways.log(), ways.sent) == (["e", "shipped a"], ["a"])
    assert not ways.deliver("e", payload={"sum": 10.0}).is_new


@pytest.mark.parametrize("moment", ["at-once", "later", "after-the-end"])
def test_another_event_that_means_the_same_is_recorded_and_does_nothing(ways: Journeys, moment: str) -> None:
    last = {} if moment == "after-the-end" else {"rest": collecting("refunded")}
    ways.cf.workflows.register(chain(wait=collecting(subject="order-1"), ship=paying("a"), **last), name="g")
    ways.start()
    ways.cf.drain()
    assert ways.deliver("webhook-1", subject="order-1").wakes
    if moment != "at-once":
        ways.cf.drain()
    second = ways.deliver("return-1", subject="order-1")
    assert (second.is_new, second.state) == (True, "too_late" if moment == "after-the-end" else "kept")
    ways.cf.drain()
    assert ways.sent == ["a"]
    ways.deliver("r-1", event="refunded")
    ways.cf.drain()
    assert (ways.get().status, ways.sent, ways.log()[0]) == ("done", ["a"], "webhook-1")


def test_two_waits_for_one_event_do_not_share_it(ways: Journeys) -> None:
    ways.cf.workflows.register(beside(a=collecting(name="a"), b=collecting(name="b"), c=noting("c")), name="g")
    ways.start()
    ways.cf.drain()
    ways.deliver("e-1")
    ways.cf.drain()
    assert ways.get().status == "waiting"
    ways.deliver("e-2")
    ways.cf.drain()
    assert sorted(ways.log()) == ["c", "e-1", "e-2"]
