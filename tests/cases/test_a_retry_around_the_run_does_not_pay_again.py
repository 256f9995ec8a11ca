"""B05: the payment tool returned, the next model call failed, and the run-level retry started over and paid again.

Sources: https://github.com/agno-agi/agno/issues/10366, https://github.com/crewAIInc/crewAI/issues/5802,
https://github.com/Certora/AutoProver/pull/192
"""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.cases.stock import Ours, Pay, Stock
from tests.langgraph.shop import WHO, State


class ModelDown(Exception):
    pass


class Model(GenericFakeChatModel):
    """A model whose answers are given; None stands for a server that answers 500."""

    def bind_tools(self, tools: Any, **_options: Any) -> Any:  # noqa: ARG002 - the interface's name
        return self


def answers(*given: AIMessage | None) -> Any:
    for one in given:
        if one is None:
            raise ModelDown
        yield one


def asks(call_id: str, order: str = "1") -> AIMessage:
    return AIMessage(content="", tool_calls=[{"name": "charge_order", "args": {"order": order}, "id": call_id}])


DONE = AIMessage(content="done")


def agent(pay: Pay, *given: AIMessage | None) -> Any:
    @tool
    def charge_order(order: str) -> str:
        """Charge an order."""
        return f"charged as {pay(order)}"

    return create_agent(Model(messages=answers(*given)), [charge_order])


INPUT = {"messages": [("user", "charge order 1")]}


def test_without_counterfoil_a_retry_of_the_whole_run_pays_again(stock: Stock) -> None:
    for given in ([asks("call-1"), None], [asks("call-2"), DONE]):
        graph = agent(stock.pay, *given)
        graph.checkpointer = InMemorySaver()
        try:
            graph.invoke(INPUT, stock.config())
        except ModelDown:
            continue
    assert stock.count == 2


@pytest.mark.parametrize("thread", ["same-thread", "new-thread"])
def test_a_retry_of_the_whole_run_pays_once_though_the_call_id_is_another(ours: Ours, thread: str) -> None:
    cf = ours.shop.cf
    with pytest.raises(ModelDown):
        cf.run(cf.compile(agent(ours.pay, asks("call-1"), None)), INPUT, **WHO)
    again = {**WHO, "thread_id": "t-1" if thread == "same-thread" else "t-2"}
    ended = cf.run(cf.compile(agent(ours.pay, asks("call-2"), DONE)), INPUT, **again)
    assert [one.content for one in ended["messages"] if one.type == "tool"][-1] == "charged as 1"
    assert ours.count == 1


def test_a_second_order_in_the_retry_is_a_payment_of_its_own(ours: Ours) -> None:
    cf = ours.shop.cf
    with pytest.raises(ModelDown):
        cf.run(cf.compile(agent(ours.pay, asks("call-1"), None)), INPUT, **WHO)
    cf.run(cf.compile(agent(ours.pay, asks("call-2"), asks("call-3", "2"), DONE)), INPUT, **WHO)
    assert ours.count == 2


# --- (b) the original input again on the crashed thread --------------------------------------------------------------


def two_branches(broken: list[bool]) -> Any:
    def build(pay: Pay) -> Any:
        def paying(state: State) -> State:
            return {"numbers": [pay(state["order"])]}

        def failing(state: State) -> State:
            if broken[0]:
                raise ModelDown
            return {"log": ["ok"]}

        builder: Any = StateGraph(State)
        builder.add_node("paying", paying)
        builder.add_node("failing", failing)
        builder.add_edge(START, "paying")
        builder.add_edge(START, "failing")
        return builder

    return build


def crash_and_send_again(subject: Stock | Ours, given: State | None) -> Any:
    broken = [True]
    graph = subject.compile(two_branches(broken))
    with pytest.raises(ModelDown):
        graph.invoke({"order": "1"}, subject.config())
    broken[0] = False
    return graph.invoke(given, subject.config())


def test_without_counterfoil_the_input_sent_again_pays_again(stock: Stock) -> None:
    crash_and_send_again(stock, {"order": "1"})
    assert stock.count == 2


@pytest.mark.parametrize("given", [{"order": "1"}, None], ids=["input-again", "resumed"])
def test_the_input_sent_again_pays_once(ours: Ours, given: State | None) -> None:
    assert set(crash_and_send_again(ours, given)["numbers"]) == {1}
    assert ours.count == 1
