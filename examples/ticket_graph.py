"""Open a ticket from a LangGraph node that pauses for a person, and leave exactly one receipt.

Run it: python examples/ticket_graph.py. It starts a ticket server of its own, which counts what it accepts.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, TypedDict

import httpx
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from counterfoil import Absent, Counterfoil, EffectCall, Found, Provider, effect
from counterfoil.langgraph import perform
from counterfoil.testing.provider_client import CountingProvider


class State(TypedDict, total=False):
    title: str
    ticket_id: int
    seen: bool


def find_ticket(call: EffectCall, *, title: str) -> Found | Absent:
    """Asked when a reply was lost: does this operation's ticket exist?"""
    reply = call.resource(httpx.Client).get("/tickets", params={"key": call.provider_key})
    found = reply.raise_for_status().json()["found"]
    return Found(found[0]) if found else Absent()


@effect(
    "ticket.create",
    key="{request_id}/create-ticket",
    time_limit="20s",
    provider=Provider(key_lifetime="24h", lookup=find_ticket, lookup_lag="0s"),
)
def create_ticket(call: EffectCall, *, title: str) -> dict[str, Any]:
    reply = call.resource(httpx.Client).post(
        "/tickets", json={"title": title}, headers={"Idempotency-Key": call.provider_key}, timeout=call.time_limit
    )
    ticket: dict[str, Any] = reply.raise_for_status().json()
    return ticket


def create_and_review(state: State) -> State:
    ticket = perform(create_ticket, title=state["title"])
    seen = interrupt({"ticket": ticket.value["id"]})
    return {"ticket_id": ticket.value["id"], "seen": seen}


def run(database: str, server: CountingProvider) -> None:
    builder = StateGraph(State)
    builder.add_node("create_and_review", create_and_review)
    builder.add_edge(START, "create_and_review")

    with Counterfoil.open(database) as cf:
        cf.resources.provide(httpx.Client, lambda: httpx.Client(base_url=server.url))
        graph = cf.compile(builder)

        server.order("drop-reply")  # the ticket is opened, and the reply never comes
        waiting = cf.run(graph, {"title": "Printer offline"}, tenant="team-A", request_id="request-42", thread_id="t-1")
        print("waits:", waiting["__interrupt__"][0].value)

        done = cf.run(graph, Command(resume=True), tenant="team-A", thread_id="t-1")
        print("done:", done)

        for line in cf.operations.explain("request-42/create-ticket", tenant="team-A").lines:
            print("   ", line)
    print("tickets at the server:", server.count("tickets"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, CountingProvider() as ticket_server:
        run(f"sqlite:///{Path(folder) / 'agent.db'}", ticket_server)
        sys.exit(0 if ticket_server.count("tickets") == 1 else 1)
