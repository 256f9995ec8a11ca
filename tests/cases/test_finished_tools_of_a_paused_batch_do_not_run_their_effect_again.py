"""B01: a model asks for two tools in one turn; one pauses for a person; after the answer the whole batch runs again.

Sources: https://github.com/langchain-ai/langgraph/pull/3126, https://github.com/langchain-ai/langgraph/issues/6208
"""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from tests.cases.stock import Ours, Pay, Stock

ORDERS = {
    "paid-first": ["pay", "ask"],
    "paid-last": ["ask", "pay"],
    "three-tools": ["pay", "ask", "pay-2"],
    "two-questions": ["pay", "ask", "ask-2"],
}


def build(pay: Pay) -> Any:
    @tool
    def charge_order(order: str) -> str:
        """Charge an order."""
        return f"charged as {pay(order)}"

    @tool
    def ask_person(question: str) -> str:
        """Ask a person."""
        return str(interrupt(question))

    builder: Any = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([charge_order, ask_person]))
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    return builder


def batch(wanted: list[str]) -> dict[str, Any]:
    calls = [
        {"name": "charge_order" if name.startswith("pay") else "ask_person", "id": name, "args": _args(name)}
        for name in wanted
    ]
    return {"messages": [AIMessage(content="", tool_calls=calls)]}


def _args(name: str) -> dict[str, str]:
    return {"order": name} if name.startswith("pay") else {"question": name}


def finish(graph: Any, config: Any, wanted: list[str]) -> Any:
    ended = graph.invoke(batch(wanted), config)
    while found := ended.get("__interrupt__"):
        ended = graph.invoke(Command(resume={one.id: "yes" for one in found}), config)
    return ended


def test_without_counterfoil_a_finished_tool_acts_twice(stock: Stock) -> None:
    wanted = ORDERS["paid-first"]
    finish(stock.compile(build), stock.config(), wanted)
    assert stock.count == 2


@pytest.mark.parametrize("name", ORDERS)
def test_each_tool_acts_once_and_answers_from_its_receipt(ours: Ours, name: str) -> None:
    wanted = ORDERS[name]
    paid = [one for one in wanted if one.startswith("pay")]
    ended = finish(ours.compile(build), ours.config(), wanted)
    told = {one.tool_call_id: one.content for one in ended["messages"][1:]}
    assert ours.count == len(paid)
    assert {one: told[one] for one in wanted if one.startswith("ask")} == dict.fromkeys(set(wanted) - set(paid), "yes")
    assert sorted(told[one] for one in paid) == [f"charged as {number + 1}" for number in range(len(paid))]
    again = ours.shop.cf.operations.get("r-1/charge/pay", tenant="team-A")
    assert len(again.attempts) == 1
    assert again.receipt is not None
