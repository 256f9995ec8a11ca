"""A graph that is registered while a worker works is entered by it, and what runs in others meanwhile goes on."""

import threading
from collections.abc import Iterator

import pytest

from counterfoil import Counterfoil
from tests.engine.fleet import until, until_status
from tests.engine.program import TENANT, Place, State, chain, opened_at, quick


@pytest.fixture
def cf(place: Place) -> Iterator[Counterfoil]:
    """A program that registers no graph at first."""
    with opened_at(place, has_graphs=False) as opened:
        yield opened


def start(cf: Counterfoil, graph: str, workflow_id: str) -> None:
    cf.workflows.start(graph, {"order": workflow_id}, tenant=TENANT, workflow_id=workflow_id)


def test_a_worker_that_began_without_graphs_sees_them_and_others_after_them(cf: Counterfoil, place: Place) -> None:
    with cf.working():
        for name in ("first", "second", "third"):
            cf.workflows.register(quick(place), name=name)
            start(cf, name, name)
            until_status(cf, name, "done")
    assert place.noted() == ["first", "second", "third"]


def test_what_runs_when_a_graph_comes_ends_beside_it(cf: Counterfoil, place: Place) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def long(state: State) -> State:
        reached.set()
        assert go_on.wait(30)
        return {"said": "long"}

    cf.workflows.register(chain(long=long), name="long")
    with cf.working():
        start(cf, "long", "w-1")
        assert reached.wait(30)
        cf.workflows.register(quick(place), name="quick")
        start(cf, "quick", "w-2")
        until_status(cf, "w-2", "done")
        go_on.set()
        until_status(cf, "w-1", "done")
        cf.workflows.register(quick(place), name="quick", version=2)
        start(cf, "quick", "w-3")
        until_status(cf, "w-3", "done")
    assert cf.workflows.get("w-1", tenant=TENANT).attempt == 1
    assert place.noted() == ["w-2", "w-3"]


def test_what_was_stranded_goes_on_when_its_version_comes(cf: Counterfoil, place: Place) -> None:
    with opened_at(place) as other:
        start(other, "quick", "w-1")
    cf.workflows.register(quick(place), name="quick", version=2)
    with cf.working():
        until(lambda: cf.workflows.get("w-1", tenant=TENANT).error_class)
        cf.workflows.register(quick(place), name="quick")
        until_status(cf, "w-1", "done")
    assert cf.workflows.get("w-1", tenant=TENANT).error_class is None
