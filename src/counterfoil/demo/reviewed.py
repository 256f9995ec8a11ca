"""The demo's second graph: a person decides before a tool opens a ticket, and a hook stands between the two.

Plain LangGraph and Counterfoil run this same graph; what differs is `ask`, which asks the person, and `open_ticket`,
the line with the effect.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import httpx
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from counterfoil import EffectCall, Policy, Provider, effect
from counterfoil.demo.graph import Ticket, find_ticket
from counterfoil.demo.steps import APPROVE
from counterfoil.langgraph import approve

CALL_ID = "call-1"


class Talk(TypedDict, total=False):
    """What the graph knows of one business request; `jumps` and `changed` say what the second hook does."""

    title: str
    jumps: bool
    changed: str
    messages: Annotated[list[AnyMessage], add_messages]
    rejected: bool
    notified: bool


def build(open_ticket: Callable[[str], Ticket], ask: Callable[[str], bool]) -> StateGraph[Talk]:
    """Let a model ask for a ticket, a person decide, a second hook route, and a tool open the ticket."""

    @tool
    def create(title: str) -> str:
        """Open a ticket."""
        return f"ticket {open_ticket(title)['id']}"

    def model(state: Talk) -> Talk:
        return {"messages": [_asking_for(state["title"])]}

    def review(state: Talk) -> Talk:
        if ask(state["title"]):
            return {"rejected": False}
        return {"rejected": True, "messages": [ToolMessage("A person rejected it.", tool_call_id=CALL_ID)]}

    def second_hook(state: Talk) -> Command[Any]:
        if "changed" in state:
            return Command(goto="tools", update={"messages": [_asking_for(state["changed"])]})
        runs = state.get("jumps") or not state["rejected"]
        return Command(goto="tools" if runs else "done")

    def done(state: Talk) -> Talk:
        return {"notified": "messages" in state}

    builder = StateGraph(Talk)
    builder.add_node("model", model)
    builder.add_node("review", review)
    builder.add_node("tools", ToolNode([create]))
    builder.add_node("done", done)
    builder.add_node("second_hook", second_hook, destinations=("tools", "done"))
    for earlier, later in ((START, "model"), ("model", "review"), ("review", "second_hook"), ("tools", "done")):
        builder.add_edge(earlier, later)
    builder.add_edge("done", END)
    return builder


def _asking_for(title: str) -> AIMessage:
    """Return what a model says that wants a ticket; said again, it takes the place of what it said before."""
    return AIMessage("", id="answer", tool_calls=[{"name": "create", "args": {"title": title}, "id": CALL_ID}])


def ask_plainly(title: str) -> bool:
    """Ask as LangGraph alone does: the resume value is the decision."""
    return bool(interrupt({"approve": title}) == APPROVE)


def ask_for_decision(title: str) -> bool:
    """Ask for a decision about exactly this ticket."""
    return approve(create_reviewed, title=title).approved


@effect(
    "ticket.create-reviewed",
    key="{request_id}/create-ticket/{title}",
    time_limit="20s",
    lease="2s",
    provider=Provider(key_lifetime="24h", lookup=find_ticket, lookup_lag="0s"),
    approval=Policy(),
)
def create_reviewed(call: EffectCall, *, title: str) -> Ticket:
    """Open a ticket that a person has approved."""
    reply = call.resource(httpx.Client).post(
        "/tickets", json={"title": title}, headers={"Idempotency-Key": call.provider_key}
    )
    ticket: Ticket = reply.raise_for_status().json()
    return ticket
