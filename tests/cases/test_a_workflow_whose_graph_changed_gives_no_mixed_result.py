"""B85: an old checkpoint was continued with a different graph and gave a mixed result.

Sources: https://github.com/TauricResearch/TradingAgents/issues/1089,
https://github.com/tinyhumansai/opencompany/pull/1991, https://github.com/PostHog/posthog/pull/69046
"""

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil.storage.scripts.workflows import LOOK_AGAIN_MS
from tests.cases.journeys import Journeys, Log, chain, collecting, noting, paying
from tests.engine.names import EMBEDDED, PROCRASTINATE

LOOKED_AGAIN = f"{LOOK_AGAIN_MS // 1000}s"


class More(Log):
    reviewer: str


class Other(TypedDict, total=False):
    log: list[str]


def old() -> Any:
    return chain(wait=collecting(), ship=paying("a"), note=noting("old"))


def branching(after: str) -> Any:
    builder: Any = StateGraph(Log)
    for name, node in {"wait": collecting(), "ship": paying("a"), "note": noting("old")}.items():
        builder.add_node(name, node)
    builder.add_edge(START, "wait")
    builder.add_conditional_edges("wait", lambda _: after, {after: after})
    builder.add_edge("ship", "note")
    builder.add_edge("note", END)
    return builder


def with_state(schema: Any) -> Any:
    builder: Any = StateGraph(schema)
    builder.add_node("wait", collecting())
    builder.add_node("ship", paying("a"))
    builder.add_node("note", noting("old"))
    for before, after in ((START, "wait"), ("wait", "ship"), ("ship", "note"), ("note", END)):
        builder.add_edge(before, after)
    return builder


CHANGES: dict[str, tuple[Callable[[], Any], str]] = {
    "renamed": (lambda: chain(wait=collecting(), send=paying("b"), note=noting("new")), "node ship is gone"),
    "removed": (lambda: chain(wait=collecting(), note=noting("new")), "node ship is gone"),
    "added": (lambda: chain(wait=collecting(), ship=paying("b"), ask=noting("?"), note=noting("new")), "ask is new"),
    "order": (lambda: chain(wait=collecting(), note=noting("new"), ship=paying("b")), "edge note -> ship is new"),
    "branch": (lambda: branching("note"), "edge wait -> condition() -> note is new"),
    "field": (lambda: with_state(More), "state field reviewer is new"),
    "field-gone": (lambda: with_state(Other), "state field number is gone"),
}
MATRIX = [*((each, change) for each in EMBEDDED for change in CHANGES), (PROCRASTINATE, "renamed")]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("engine", "change"), MATRIX)
def test_it_goes_on_in_its_version_or_says_what_differs(ways: Journeys, *, change: str, kept: bool) -> None:
    ways.cf.workflows.register(old(), name="g")
    ways.start()
    ways.cf.drain()
    make, told = CHANGES[change]
    ways.cf = ways.open()
    ways.cf.workflows.register(make(), name="g", version=2)
    if kept:
        ways.cf.workflows.register(old(), name="g", version=1)
    ways.deliver("e")
    ways.cf.drain()
    if not kept:
        found = ways.get()
        assert (found.status, found.error_class, ways.sent) == ("waiting", "GraphMismatch", [])
        assert told in found.error_text
        ways.cf = ways.open()
        ways.cf.workflows.register(old(), name="g", version=1)
        ways.cf.drain()
    assert (ways.log(), ways.sent) == (["e", "shipped a", "old"], ["a"])


@pytest.mark.parametrize(("engine", "change"), MATRIX)
def test_a_changed_graph_under_the_old_version_is_not_entered(ways: Journeys, change: str) -> None:
    ways.cf.workflows.register(old(), name="g")
    ways.start()
    ways.cf.drain()
    ways.deliver("e")
    make, told = CHANGES[change]
    ways.cf = ways.open()
    ways.cf.workflows.register(make(), name="g")
    ways.cf.drain()
    found = ways.get()
    assert (found.status, found.error_class, ways.sent) == ("waiting", "GraphMismatch", [])
    assert told in found.error_text
    ways.cf = ways.open()
    ways.cf.workflows.register(old(), name="g")
    ways.clock.advance(LOOKED_AGAIN)
    ways.cf.drain()
    assert (ways.log(), ways.sent) == (["e", "shipped a", "old"], ["a"])
