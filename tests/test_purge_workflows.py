"""Events and waits of workflows that ended long ago go, in short transactions, and those of others stay."""

from collections.abc import Callable, Iterator
from operator import add
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil import Retention, purging
from counterfoil.core.retention import is_long_ended
from counterfoil.core.states import WorkflowStatus
from counterfoil.langgraph import await_for, wait_for
from counterfoil.shown import Purged
from counterfoil.storage.scripts import purging as scripts
from tests import stores
from tests.colours import COLOURS, Coloured

DAY = 86_400_000
KEPT = Retention(payload="10d", receipt="400d")


class Log(TypedDict, total=False):
    log: Annotated[list[str], add]


@pytest.fixture(params=COLOURS)
def place(request: pytest.FixtureRequest, url: str) -> Iterator[Coloured]:
    made = Coloured(request.param, url, retention=KEPT)
    made.cf.workflows.register(hearing(request.param), name="hearing")
    made.cf.workflows.register(one_step(failing), name="failing")
    yield made
    made.close()


def hearing(colour: str) -> Any:
    def hear(_: Log) -> Log:
        came = wait_for("word", timeout="30d")
        return {"log": ["nothing" if came is None else came.event_id]}

    async def ahear(_: Log) -> Log:
        came = await await_for("word", timeout="30d")
        return {"log": ["nothing" if came is None else came.event_id]}

    return one_step(ahear if colour == "async" else hear)


def failing(_: Log) -> Log:
    raise AssertionError


def one_step(node: Callable[[Log], Any]) -> Any:
    builder: Any = StateGraph(Log)
    builder.add_node("step", node)
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder


def start(place: Coloured, workflow_id: str, graph: str = "hearing", tenant: str = "t") -> None:
    place.call("workflows.start", graph, {}, tenant=tenant, workflow_id=workflow_id)


def say(place: Coloured, workflow_id: str, event_id: str = "e", tenant: str = "t") -> Any:
    who = {"tenant": tenant, "workflow_id": workflow_id}
    return place.call("workflows.deliver", "word", **who, event_id=event_id, payload="said")


def left(url: str) -> dict[str, list[str]]:
    """Return which workflows have events, and which waits."""
    named = (("event", "workflow_id"), ("wait", "thread_id"))
    found = {
        table: stores.execute(url, f"select distinct {column} from counterfoil_{table} order by 1")  # noqa: S608 - ours
        for table, column in named
    }
    return {table: [name for (name,) in rows] for table, rows in found.items()}


def test_what_ended_long_ago_loses_them_and_what_goes_on_keeps_them(place: Coloured, url: str) -> None:
    for name in ("done", "cancelled", "waiting", "failed"):
        start(place, name, "failing" if name == "failed" else "hearing")
    place.call("drain")
    say(place, "done")
    for name in ("cancelled", "waiting", "failed", "never-started"):
        place.call("workflows.deliver", "other", tenant="t", workflow_id=name, event_id="e")
    place.call("workflows.cancel", "cancelled", tenant="t", by="ann", reason="so")
    place.call("drain")
    every = {
        "event": ["cancelled", "done", "failed", "never-started", "waiting"],
        "wait": ["cancelled", "done", "waiting"],
    }
    assert left(url) == every
    place.clock.advance("9d")
    assert (place.call("purge"), left(url)) == (Purged(), every)
    place.clock.advance("1d")
    assert place.call("purge") == Purged(events=2, waits=2)
    assert left(url) == {"event": ["failed", "never-started", "waiting"], "wait": ["waiting"]}
    assert place.call("workflows.result", "done", tenant="t") == {"log": ["e"]}
    place.clock.advance("9d")
    place.call("drain")
    say(place, "waiting", "e-2")
    place.call("drain")
    assert place.call("workflows.result", "waiting", tenant="t") == {"log": ["e-2"]}


def test_what_came_after_the_end_is_kept_as_long_and_what_comes_again_enters_nothing(place: Coloured, url: str) -> None:
    start(place, "w")
    say(place, "w")
    place.call("drain")
    place.clock.advance("6d")
    assert say(place, "w", "late").state == "too_late"
    place.clock.advance("5d")
    assert place.call("purge") == Purged(events=1, waits=1)
    assert stores.execute(url, "select event_id from counterfoil_event") == [("late",)]
    again = say(place, "w")
    assert (again.is_new, again.state) == (True, "too_late")
    place.clock.advance("10d")
    assert place.call("purge") == Purged(events=2)
    assert left(url) == {"event": [], "wait": []}


def test_it_goes_in_short_transactions_through_one_tenant_or_all(
    place: Coloured, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "PAGE", 3)
    sizes, purge = list[int](), scripts.purge_workflows

    def counted(*args: Any, **kwargs: Any) -> Any:
        gone = yield from purge(*args, **kwargs)
        sizes.append(gone.events + gone.waits)
        return gone

    monkeypatch.setattr(scripts, "purge_workflows", counted)
    for tenant in ("t", "u"):
        for number in range(4):
            start(place, f"w-{number}", tenant=tenant)
            for event in range(3):
                say(place, f"w-{number}", f"e-{event}", tenant=tenant)
    place.call("drain")
    place.clock.advance("10d")
    assert place.call("purge", tenant="t") == Purged(events=12, waits=4)
    assert left(url)["event"] == [f"w-{number}" for number in range(4)]
    assert place.call("purge") == Purged(events=12, waits=4)
    assert (max(sizes), left(url)) == (3, {"event": [], "wait": []})
    assert place.call("purge") == Purged()


def test_one_that_was_deleted_and_started_anew_meanwhile_keeps_what_is_its_own(place: Coloured, url: str) -> None:
    start(place, "w")
    say(place, "w")
    place.call("drain")
    place.clock.advance("10d")
    read = place.desk.store.read(lambda: scripts.workflow_page("t", 0, 9))
    place.call("workflows.delete", "w", tenant="t")
    start(place, "w")
    place.call("drain")
    say(place, "w")
    purged = place.desk.store.write(lambda: scripts.purge_workflows(read, period=0, limit=9))
    assert (purged, left(url)) == (Purged(), {"event": ["w"], "wait": ["w"]})


@pytest.mark.parametrize("status", WorkflowStatus)
def test_only_what_can_never_go_on_has_ended(status: WorkflowStatus) -> None:
    has_ended = status in {WorkflowStatus.DONE, WorkflowStatus.CANCELLED}
    assert is_long_ended(status, 0, DAY, DAY) is has_ended
    assert not is_long_ended(status, 0, DAY, DAY - 1)
