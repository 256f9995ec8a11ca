"""B04: a node calls a child graph that pauses; after the answer the parent node starts from its first line.

Sources: https://github.com/langchain-ai/langgraph/issues/4796, https://github.com/langchain-ai/langgraph/issues/6792
"""

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from tests.cases.stock import Build, Ours, Pay, Stock
from tests.langgraph.shop import State, chain


def asking(question: str, *before: tuple[str, Callable[[State], State]]) -> Any:
    return chain(*before, ("ask", lambda state: {"answer": interrupt(question)})).compile()


def one_level(pay: Pay) -> Any:
    child = asking("well?")

    def parent(state: State) -> State:
        number = pay("parent")
        return {"number": number, "answer": child.invoke({})["answer"]}

    return chain(("parent", parent))


def two_levels(pay: Pay) -> Any:
    grandchild = asking("well?")

    def inner(state: State) -> State:
        pay("child")
        return {"answer": grandchild.invoke({})["answer"]}

    child = chain(("inner", inner)).compile()

    def parent(state: State) -> State:
        number = pay("parent")
        return {"number": number, "answer": child.invoke({})["answer"]}

    return chain(("parent", parent))


def child_as_node(pay: Pay) -> Any:
    def inner(state: State) -> State:
        pay("child")
        return {"answer": interrupt("well?")}

    return chain(("child", chain(("inner", inner)).compile()))


def called_twice(pay: Pay) -> Any:
    child = asking("well?")

    def parent(state: State) -> State:
        pay("before")
        first = child.invoke({})["answer"]
        pay("between")
        return {"answer": [first, child.invoke({})["answer"]]}

    return chain(("parent", parent))


SHAPES: dict[str, tuple[Build, int]] = {
    "one-level": (one_level, 1),
    "two-levels": (two_levels, 2),
    "child-as-node": (child_as_node, 1),
    "called-twice": (called_twice, 2),
}


def finish(graph: Any, config: Any) -> Any:
    ended = graph.invoke({}, config)
    while "__interrupt__" in ended:
        ended = graph.invoke(Command(resume="yes"), config)
    return ended


@pytest.mark.parametrize("shape", SHAPES)
def test_without_counterfoil_the_parent_acts_again(stock: Stock, shape: str) -> None:
    build, effects = SHAPES[shape]
    finish(stock.compile(build), stock.config())
    assert stock.count > effects


@pytest.mark.parametrize("shape", SHAPES)
def test_every_level_acts_once(ours: Ours, shape: str) -> None:
    build, effects = SHAPES[shape]
    ended = finish(ours.compile(build), ours.config())
    assert ended["answer"] in ("yes", ["yes", "yes"])
    assert ours.count == effects
