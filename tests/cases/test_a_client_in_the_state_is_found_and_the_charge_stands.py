"""B63: a module or client in the state cannot be stored; the error appears when the step is over.

Source: https://github.com/langchain-ai/langgraph-codeact/issues/8
"""

import json
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import pytest
from langgraph.types import Command

from counterfoil.errors import StateNotStorable
from tests.cases.stock import Ours, Pay, Stock
from tests.langgraph.shop import State, chain


def generator() -> Any:
    yield 1


LIVE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "module": lambda: json,
    "connection": lambda: sqlite3.connect(":memory:"),
    "generator": generator,
    "lambda": lambda: lambda: 1,
    "socket": socket.socket,
    "client": httpx.Client,
    "thread": threading.Thread,
    "bound-method": lambda: [].append,
}
WRAPPED: dict[str, Callable[[Any], Any]] = {
    "bare": lambda value: {"answer": value},
    "deep": lambda value: {"answer": {"tools": [{"client": value}]}},
    "command": lambda value: Command(update={"answer": value}),
}


def build(value: list[Any], wrap: Callable[[Any], Any], ran: list[str]) -> Any:
    def with_pay(pay: Pay) -> Any:
        def charge(state: State) -> Any:
            ran.append("charge")
            pay("1")
            return wrap(value[0])

        def later(state: State) -> State:
            ran.append("later")
            return {}

        return chain(("charge", charge), ("later", later))

    return with_pay


@pytest.mark.parametrize("name", ["lock", "lambda"])
def test_without_counterfoil_the_retry_after_the_fix_charges_again(stock: Stock, name: str) -> None:
    value = [LIVE[name]()]
    graph = stock.compile(build(value, WRAPPED["bare"], []))
    with pytest.raises(TypeError):
        graph.invoke({}, stock.config())
    value[0] = "plain"
    graph.invoke({}, stock.config())
    assert stock.count == 2


@pytest.mark.parametrize("name", LIVE)
@pytest.mark.parametrize("wrap", WRAPPED)
def test_it_is_refused_before_the_next_step_and_the_retry_charges_nothing(ours: Ours, name: str, wrap: str) -> None:
    live, ran = LIVE[name](), list[str]()
    value = [live]
    graph, config = ours.compile(build(value, WRAPPED[wrap], ran)), ours.config()
    with pytest.raises(StateNotStorable) as caught:
        graph.invoke({}, config)
    assert "charge()" in str(caught.value)
    assert ".answer" in caught.value.facts["path"]
    assert type(live).__name__ in str(caught.value)
    assert ran == ["charge"]
    value[0] = "plain"
    ended = graph.invoke(None, config)
    assert ran == ["charge", "charge", "later"]
    assert "plain" in json.dumps(ended["answer"])
    assert ours.count == 1
    if hasattr(live, "close") and not isinstance(live, httpx.Client):
        with closing(live):
            return
