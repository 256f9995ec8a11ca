"""The effects of the soak run: one for each kind of provider, and a graph that performs two of them."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil import Absent, CannotTell, Effect, EffectCall, Found, NotSent, Provider, effect
from counterfoil.langgraph import aperform, perform
from tests.soak.providers import Providers

KINDS = ("opaque", "keyed", "queryable", "both")
LIMITS: dict[str, Any] = {"lease": "2s", "time_limit": "4s"}
"""Short, so that what was stopped or cut off is found within the run."""


def made(kind: str) -> Effect[Any]:
    def create(call: EffectCall, *, title: str) -> dict[str, int]:
        reply = call.resource(Providers).of(kind).post(kind, {"title": title}, key=call.provider_key, timeout=4)
        if reply.status == 409:
            raise NotSent("its twin is under way")
        if reply.status != 201:
            raise ValueError(reply.status)
        return {"id": reply.body["id"]}

    def find(call: Any, *, title: str) -> Found | Absent | CannotTell:
        reply = call.resource(Providers).of(kind).find(kind, key=call.provider_key, timeout=4)
        found = reply.body["found"] if reply.status == 200 else None
        if found is None:
            return CannotTell(f"status {reply.status}")
        return Found({"id": found[0]["id"]}) if found else Absent()

    asks: dict[str, Any] = {"lookup": find, "lookup_lag": "0s"} if kind in {"queryable", "both"} else {}
    keys: dict[str, Any] = {"key_lifetime": "24h"} if kind in {"keyed", "both"} else {}
    return effect(f"soak.{kind}", key="{request_id}", provider=Provider(**asks, **keys), **LIMITS)(create)


EFFECTS: dict[str, Effect[Any]] = {kind: made(kind) for kind in KINDS}
IN_GRAPH = ("keyed", "queryable")


@effect("soak.in-graph-keyed", key="{request_id}/keyed", provider=EFFECTS["keyed"].provider, **LIMITS)
def first_of_graph(call: EffectCall, *, title: str) -> dict[str, int]:
    return dict(EFFECTS["keyed"].function(call, title=title))


@effect("soak.in-graph-queryable", key="{request_id}/queryable", provider=EFFECTS["queryable"].provider, **LIMITS)
def second_of_graph(call: EffectCall, *, title: str) -> dict[str, int]:
    return dict(EFFECTS["queryable"].function(call, title=title))


class State(TypedDict, total=False):
    title: str
    first: int
    second: int


def builder(*, awaiting: bool) -> "StateGraph[Any]":
    """Return the graph in one colour; a thread may go on in the other."""

    def first(state: State) -> Any:
        return {"first": perform(first_of_graph, title=state["title"]).value["id"]}

    async def afirst(state: State) -> Any:
        return {"first": (await aperform(first_of_graph, title=state["title"])).value["id"]}

    def second(state: State) -> Any:
        return {"second": perform(second_of_graph, title=state["title"]).value["id"]}

    async def asecond(state: State) -> Any:
        return {"second": (await aperform(second_of_graph, title=state["title"])).value["id"]}

    graph = StateGraph(State)
    graph.add_node("first", afirst if awaiting else first)
    graph.add_node("second", asecond if awaiting else second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph
