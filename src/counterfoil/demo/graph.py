"""The demo's graph and its one effect: the lines to copy.

Plain LangGraph and Counterfoil run this same graph; only `open_ticket`, the line with the effect, differs.
"""

from collections.abc import Callable
from typing import Any, TypedDict

import httpx
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy, interrupt

from counterfoil import Absent, EffectCall, Found, NotSent, Provider, effect

Ticket = dict[str, Any]


class State(TypedDict, total=False):
    """What the graph knows of one business request."""

    title: str
    review: bool
    ticket_id: int
    notified: bool


def build(open_ticket: Callable[[str], Ticket], notify: Callable[[int], None]) -> StateGraph[State]:
    """Open a ticket, let a person look at it if the request says so, and notify the customer."""

    def create_and_review(state: State) -> State:
        ticket = open_ticket(state["title"])
        if state.get("review"):
            interrupt({"ticket": ticket["id"]})
        return {"ticket_id": ticket["id"]}

    def notify_customer(state: State) -> State:
        notify(state["ticket_id"])
        return {"notified": True}

    builder = StateGraph(State)
    builder.add_node("create", create_and_review, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.01))
    builder.add_node("notify", notify_customer)
    builder.add_edge(START, "create")
    builder.add_edge("create", "notify")
    builder.add_edge("notify", END)
    return builder


# --- plain: the node posts --------------------------------------------------------------------------------------------


def post_ticket(client: httpx.Client, title: str) -> Ticket:
    """Post a ticket and return what the server made of it."""
    ticket: Ticket = client.post("/tickets", json={"title": title}).raise_for_status().json()
    return ticket


# --- with Counterfoil: the same post, declared as an effect -----------------------------------------------------------


def find_ticket(call: EffectCall, *, title: str) -> Found | Absent:  # noqa: ARG001 - asked for by key, not by title
    """Ask the server whether this operation's ticket exists."""
    reply = call.resource(httpx.Client).get("/tickets", params={"key": call.provider_key})
    found = reply.raise_for_status().json()["found"]
    return Found(found[0]) if found else Absent()


@effect(
    "ticket.create",
    key="{request_id}/create-ticket",
    time_limit="20s",
    lease="2s",
    provider=Provider(key_lifetime="24h", lookup=find_ticket, lookup_lag="0s"),
)
def create_ticket(call: EffectCall, *, title: str) -> Ticket:
    """Open a ticket at a server that honours keys and can be asked."""
    reply = call.resource(httpx.Client).post(
        "/tickets", json={"title": title}, headers={"Idempotency-Key": call.provider_key}
    )
    if reply.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise NotSent("the ticket server was busy and took nothing")
    ticket: Ticket = reply.raise_for_status().json()
    return ticket


@effect("ticket.create-opaque", key="{request_id}/create-ticket", time_limit="20s", lease="2s")
def create_opaque_ticket(call: EffectCall, *, title: str) -> Ticket:
    """Open a ticket at a server that knows no keys and cannot be asked."""
    return post_ticket(call.resource(httpx.Client), title)
