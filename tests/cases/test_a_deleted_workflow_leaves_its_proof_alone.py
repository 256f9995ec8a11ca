"""B84: deleting a conversation left all its checkpoints; a limit of -1 in a pruner meant "all but the last".

Sources: https://github.com/aegra/aegra/pull/499, https://github.com/alkem-io/alkemio/issues/1972,
https://github.com/bytedance/deer-flow/pull/5308
"""

import threading
from typing import Any

import pytest

from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown, CounterfoilError, WorkflowHindered, WorkflowNotFound
from counterfoil.langgraph import enqueue
from counterfoil.testing.crash import SimulatedCrash
from tests.cases.journeys import TENANT, Journeys, chain, collecting, paying, ship
from tests.cases.test_an_accepted_workflow_outlives_who_accepted_it import At
from tests.engine.names import EMBEDDED, on_engines
from tests.stores import execute, stored

TABLES = ("checkpoint", "channel", "write", "mint", "wait", "event", "workflow")
SECRET = "kept-for-nobody"


def asking(_: Any) -> Any:
    enqueue(ship, what="later")
    return {"log": [SECRET]}


def builder() -> Any:
    child = chain(inner=collecting("inner"), pay=paying("now")).compile()
    return chain(ask=asking, child=child, wait=collecting())


def counts(ways: Journeys) -> dict[str, int]:
    return {name: execute(ways.url, f"select count(*) from counterfoil_{name}")[0][0] for name in TABLES}  # noqa: S608 - ours


def begun(ways: Journeys, workflow_id: str = "w") -> None:
    """Bring one so far that it has a child's history, a receipt, a message to be sent, waits and events."""
    ways.cf.workflows.register(builder(), name="g")
    ways.start(workflow_id, number=1)
    ways.cf.drain(ship)
    ways.deliver("i-1", workflow_id, event="inner", payload=SECRET)
    ways.deliver("other", workflow_id, event="nobody-waits", payload=SECRET)
    ways.cf.drain(ship)
    assert ways.get(workflow_id).waits_for == "paid"


@on_engines(*EMBEDDED)
@pytest.mark.parametrize("way", ["delete", "delete-thread"])
def test_all_of_it_is_gone_but_for_its_operations_and_nothing_of_others(ways: Journeys, way: str) -> None:
    begun(ways, "other")
    before = counts(ways)
    begun(ways)
    if way == "delete":
        assert ways.cf.workflows.delete("w", tenant=TENANT)
        assert not ways.cf.workflows.delete("w", tenant=TENANT)
    else:
        ways.cf.saver(tenant=TENANT).delete_thread("w")
    assert counts(ways) == before
    with pytest.raises(WorkflowNotFound):
        ways.get()
    operations = execute(
        ways.url, "select operation_id, state, payload from counterfoil_operation order by operation_id"
    )
    assert [(name, state, payload) for name, state, payload in operations] == [
        (f"{of}/ship/{what}", "succeeded", None) for of in ("other", "w") for what in ("later", "now")
    ]
    assert not ways.cf.workflows.delete("w", tenant="another")
    ways.deliver("e", "other")
    ways.cf.drain()
    assert ways.log("other") == [SECRET, "i-1", "shipped now", "e"] or ways.log("other")[-1] == "e"


def test_one_of_its_id_that_is_started_anew_is_answered_from_the_receipts(ways: Journeys) -> None:
    begun(ways)
    ways.cf.workflows.delete("w", tenant=TENANT)
    begun(ways)
    ways.deliver("e")
    ways.cf.drain()
    assert (ways.get().status, sorted(ways.sent)) == ("done", ["later", "now"])


@on_engines(*EMBEDDED)
def test_its_content_is_in_no_file_of_the_database(ways: Journeys) -> None:
    begun(ways)
    ways.cf.workflows.delete("w", tenant=TENANT)
    if ways.url.startswith("postgres"):
        assert SECRET.encode() not in stored(ways.url)


@on_engines(*EMBEDDED)
def test_who_dies_in_the_middle_does_it_again(ways: Journeys) -> None:
    begun(ways)
    before, target = counts(ways), 0
    while any(counts(ways).values()):
        target += 1
        probe = Dying(target)
        dying = ways.open(probe=probe)
        probe.is_armed = True
        try:
            assert dying.workflows.delete("w", tenant=TENANT)
        except SimulatedCrash:
            assert counts(ways) in (before, dict.fromkeys(TABLES, 0))
        assert target < 50
    assert target > 5
    assert not ways.cf.workflows.delete("w", tenant=TENANT)


@on_engines(*EMBEDDED)
def test_one_whose_end_nobody_heard_of_was_there(ways: Journeys) -> None:
    begun(ways)
    probe = At(Point.AFTER_COMMIT, CommitUnknown("nobody heard of it"))
    unheard = ways.open(probe=probe)
    probe.is_armed = True
    assert unheard.workflows.delete("w", tenant=TENANT)
    assert not any(counts(ways).values())
    assert not unheard.workflows.delete("w", tenant=TENANT)


class Dying:
    """Dies at one point."""

    def __init__(self, target: int) -> None:
        self.target, self.passed, self.is_armed = target, 0, False

    def __call__(self, _: Point, __: str) -> None:
        if self.is_armed:
            self.passed += 1
            if self.passed >= self.target:
                raise SimulatedCrash("dead")


def test_one_that_is_being_run_or_has_moved_stays(ways: Journeys) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def long(_: Any) -> Any:
        reached.set()
        assert go_on.wait(30)
        return {"log": ["a"]}

    ways.cf.workflows.register(chain(long=long), name="g")
    ways.start()
    running = threading.Thread(target=ways.cf.drain)
    running.start()
    assert reached.wait(30)
    with pytest.raises(WorkflowHindered, match="is running"):
        ways.cf.workflows.delete("w", tenant=TENANT)
    go_on.set()
    running.join()
    with pytest.raises(WorkflowHindered):
        ways.cf.workflows.delete("w", tenant=TENANT, expect_version=1)
    assert ways.log() == ["a"]
    assert ways.cf.workflows.delete("w", tenant=TENANT, expect_version=ways.get().version)


@on_engines(*EMBEDDED)
def test_a_thread_that_is_no_workflow_stays_and_events_of_one_that_never_began_go(ways: Journeys) -> None:
    graph = ways.cf.compile(chain(pay=paying("a")))
    ways.cf.run(graph, {}, tenant=TENANT, thread_id="thread", workflow_id="x")
    ways.deliver("early", "never")
    before = counts(ways)["checkpoint"]
    assert not ways.cf.workflows.delete("thread", tenant=TENANT)
    assert ways.cf.workflows.delete("never", tenant=TENANT)
    assert (counts(ways)["checkpoint"], counts(ways)["event"]) == (before, 0)


@on_engines(*EMBEDDED)
@pytest.mark.parametrize("limit", [0, -1, 1001, True, "10"])
def test_nonsense_limits_are_refused_before_any_read(ways: Journeys, limit: Any) -> None:
    with pytest.raises(CounterfoilError, match="limit"):
        ways.cf.workflows.list(tenant=TENANT, limit=limit)
    with pytest.raises(CounterfoilError, match="limit"):
        ways.cf.workflows.history("w", tenant=TENANT, limit=limit)
