"""B15: a person rejected the refund; its call stood in the message still, and a hook that jumps to the tools ran it.

Sources: https://github.com/langchain-ai/langchain/issues/40491
"""

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, hook_config
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from counterfoil import Policy
from counterfoil.errors import ApprovalRejected
from counterfoil.langgraph import ProtectTools, protect
from tests.cases.stock import Ours, Stock
from tests.langgraph.agency import (
    ASKING,
    DONE,
    GOING_ON,
    Talk,
    forget_tools,
    model,
    questions,
    refunds,
    results,
    tool_graph,
)

INPUT = {"messages": [("user", "refund order o-7")]}
KEY = "{request_id}/refund/{order}"
NO = {"type": "reject", "message": "not this customer"}


@pytest.fixture(autouse=True)
def _each_test_declares_its_own() -> None:
    forget_tools()


def refunding(subject: Stock | Ours) -> BaseTool:
    tally = subject.tally if isinstance(subject, Stock) else subject.shop.tally

    @tool
    def refund(order: str, amount: int) -> str:
        """Refund an order."""
        return f"refunded as {tally.accept('refund', None, {'order': order, 'amount': amount})}"

    return refund


class FinishesWhatIsAsked(AgentMiddleware[Any, Any]):
    """Sends a message with tool calls straight to the tools, whatever other hooks made of it."""

    @hook_config(can_jump_to=["tools"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002 - the interface's name
        asked = next(one for one in reversed(state["messages"]) if isinstance(one, AIMessage))
        return {"jump_to": "tools"} if asked.tool_calls else None


# Hooks behind the model run from the last to the first: the person is asked before the second hook jumps.
def agent_of(subject: Stock | Ours, review: AgentMiddleware[Any, Any], *answers: AIMessage, jumps: bool) -> Any:
    hooks: list[Any] = [FinishesWhatIsAsked(), review] if jumps else [review]
    return create_agent(model(*answers), [refunding(subject)], middleware=hooks)


@pytest.mark.parametrize(("jumps", "count"), [(False, 0), (True, 1)])
def test_without_counterfoil_a_second_hook_runs_what_was_rejected(stock: Stock, jumps: bool, count: int) -> None:  # noqa: FBT001 - the parameter
    graph = agent_of(stock, HumanInTheLoopMiddleware({"refund": True}), refunds(), DONE, jumps=jumps)
    graph.checkpointer = InMemorySaver()
    graph.invoke(INPUT, stock.config())
    graph.invoke(Command(resume={"decisions": [NO]}), stock.config())
    assert stock.count == count


def protection(subject: Ours) -> ProtectTools:
    return ProtectTools([refunding(subject)], {"refund": {"key": KEY, "approval": Policy()}})


def rejected(ours: Ours, graph: Any, *, given: Any = INPUT) -> Any:
    """Let a graph ask, and a person say no; return where the run ends."""
    cf = ours.shop.cf
    parked = cf.run(graph, given, **ASKING)
    assert questions(parked)[0]["operation_id"] == "r-1/refund/o-7"
    cf.approvals.answer({"decisions": [NO]}, to=parked["__interrupt__"], tenant="team-A", by="mei")
    return cf.run(graph, None, **GOING_ON)


@pytest.mark.parametrize("jumps", [False, True])
def test_a_rejected_call_is_not_made_though_a_second_hook_jumps_to_the_tools(ours: Ours, jumps: bool) -> None:  # noqa: FBT001 - the parameter
    graph = ours.shop.cf.compile(agent_of(ours, protection(ours), refunds(), DONE, jumps=jumps))
    ended = rejected(ours, graph)
    assert [one.status for one in results(ended)] == ["error"]
    assert "not this customer" in str(results(ended)[0].content)
    assert ours.count == 0


def noted(ours: Ours) -> list[tuple[str, str]]:
    return [(act, who) for act, who in ours.shop.select("select act, who from counterfoil_audit order by seq")]


# --- the whole kind: whatever leads there ----------------------------------------------------------------------------


def by_a_model_that_asks_again(ours: Ours, graph: Any) -> Any:
    return ours.shop.cf.run(graph, INPUT, **ASKING)


def by_a_command(ours: Ours, graph: Any) -> Any:
    jump: Any = Command(goto="tools", update={"messages": [refunds(batch="jump")]})
    return ours.shop.cf.run(graph, jump, **ASKING)


def by_a_change_of_state(ours: Ours, graph: Any) -> Any:
    config = ours.shop.cf.config(**ASKING)
    graph.update_state(config, {"messages": [refunds(batch="state")]}, as_node="model")
    return graph.invoke(None, config)


def by_another_thread(ours: Ours, graph: Any) -> Any:
    return ours.shop.cf.run(graph, INPUT, **ASKING | {"thread_id": "t-2"})


@pytest.mark.parametrize("route", [by_a_model_that_asks_again, by_a_command, by_a_change_of_state, by_another_thread])
def test_no_route_through_the_agent_leads_to_the_provider(ours: Ours, route: Callable[..., Any]) -> None:
    answers = refunds(), DONE, refunds(batch="again"), DONE
    graph = ours.shop.cf.compile(agent_of(ours, protection(ours), *answers, jumps=True))
    rejected(ours, graph)
    assert noted(ours) == [("approval.reject", "mei")]
    ended = route(ours, graph)
    assert "A person rejected this call" in str(results(ended)[-1].content)
    first, *tries = noted(ours)
    assert (first, set(tries)) == (("approval.reject", "mei"), {("approval.refuse", "agent")})
    assert ours.count == 0


def test_neither_does_a_tool_node_nor_the_tool_itself(ours: Ours) -> None:
    cf = ours.shop.cf
    refund = protect(refunding(ours), key=KEY, approval=Policy())
    rejected(ours, cf.compile(tool_graph(refund)), given={"messages": [refunds()]})

    def calling(_: Talk) -> Talk:
        return {"seen": [refund.invoke({"order": "o-7", "amount": 500})]}

    builder: Any = StateGraph(Talk)
    builder.add_node("calling", calling)
    builder.add_edge(START, "calling")
    builder.add_edge("calling", END)
    with pytest.raises(ApprovalRejected, match="not this customer"):
        cf.run(cf.compile(builder), {}, **ASKING | {"thread_id": "t-2"})
    again = cf.run(cf.compile(tool_graph(refund)), {"messages": [refunds()]}, **ASKING | {"thread_id": "t-3"})
    assert [one.status for one in results(again)] == ["error"]
    assert ours.count == 0


def test_other_arguments_under_the_same_id_are_no_way_around_it(ours: Ours) -> None:
    cf = ours.shop.cf
    graph = cf.compile(agent_of(ours, protection(ours), refunds(), refunds(5, batch="less"), DONE, jumps=False))
    ended = rejected(ours, graph)
    assert "amount differ" in str(results(ended)[-1].content)
    assert ours.count == 0
