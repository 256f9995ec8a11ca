"""Checkpoints at key nodes alone: fewer commits, the same result, and what was performed is not repeated."""

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from counterfoil import Counterfoil, Provider, effect
from counterfoil.errors import InvalidArguments
from counterfoil.langgraph import aenqueue, aperform, enqueue, mint, perform

NODES = 12
SENT: list[str] = []


@effect("keynodes.charge", key="{request_id}/{step}", provider=Provider(key_lifetime="24h"))
def charge(call: Any, *, step: int) -> int:
    SENT.append(call.operation_id)
    return step


@pytest.fixture(autouse=True)
def forgotten() -> None:
    SENT.clear()


@pytest.fixture
def cf(url: str) -> Any:
    with Counterfoil.open(url) as opened:
        yield opened


WHO: dict[str, Any] = {"tenant": "t", "request_id": "r", "thread_id": "t-1"}


class State(TypedDict, total=False):
    log: Annotated[list[int], operator.add]
    kept: str


def chain(colour: str, **special: Any) -> Any:
    """Return a builder of a dozen nodes, each of which performs an effect of its own."""
    builder = StateGraph(State)
    for number in range(NODES):
        name = f"n{number}"
        builder.add_node(name, special.get(name) or performing(colour, number))
        builder.add_edge(f"n{number - 1}" if number else START, name)
    builder.add_edge(f"n{NODES - 1}", END)
    return builder


def performing(colour: str, number: int) -> Any:
    def node(state: State) -> State:
        perform(charge, step=number)
        return {"log": [number]}

    async def anode(state: State) -> State:
        await aperform(charge, step=number)
        return {"log": [number]}

    return {"blocking": node, "awaiting": anode}[colour]


def stored(graph: Any, cf: Counterfoil) -> list[list[int]]:
    """Return the log of each stored checkpoint, the oldest first."""
    return [shown.values.get("log", []) for shown in graph.get_state_history(cf.config(**WHO))][::-1]


def run(graph: Any, cf: Counterfoil, colour: str, given: Any) -> Any:
    config = cf.config(**WHO)
    return graph.invoke(given, config) if colour == "blocking" else asyncio.run(graph.ainvoke(given, config))


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_only_key_nodes_and_the_end_are_stored(cf: Counterfoil, colour: str) -> None:
    graph = cf.compile(chain(colour), checkpoint=["n3", "n7"])
    assert run(graph, cf, colour, {})["log"] == list(range(NODES))
    logs = [len(log) for log in stored(graph, cf) if log]
    assert {4, 8, NODES} <= set(logs) <= {3, 4, 7, 8, NODES}  # what a key node's own writes hang on may be there, too
    assert len(SENT) == NODES


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_a_run_that_died_goes_on_from_the_last_key_node_and_repeats_no_effect(cf: Counterfoil, colour: str) -> None:
    times = []

    def fails(state: State) -> State:
        perform(charge, step=9)
        times.append(9)
        if len(times) == 1:
            raise KeyboardInterrupt
        return {"log": [9]}

    async def afails(state: State) -> State:
        await aperform(charge, step=9)
        times.append(9)
        if len(times) == 1:
            raise RuntimeError("dies")
        return {"log": [9]}

    graph = cf.compile(chain(colour, n9={"blocking": fails, "awaiting": afails}[colour]), checkpoint=["n3"])
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        run(graph, cf, colour, {})
    assert run(graph, cf, colour, None)["log"] == list(range(NODES))
    assert sorted(SENT, key=lambda one: int(one.rpartition("/")[2])) == [f"r/{number}" for number in range(NODES)]


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_an_interrupt_finds_its_step_stored(cf: Counterfoil, colour: str) -> None:
    def asks(state: State) -> State:
        return {"log": [100 + interrupt("how many?")]}

    graph = cf.compile(chain(colour, n5=asks), checkpoint=["n11"])
    run(graph, cf, colour, {})
    assert stored(graph, cf)[-1] == list(range(5))
    ended = run(graph, cf, colour, Command(resume=5))
    assert ended["log"] == [*range(5), 105, *range(6, NODES)]
    assert len(SENT) == NODES - 1


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_what_a_step_enqueues_is_stored_with_it(cf: Counterfoil, colour: str) -> None:
    def asks(state: State) -> State:
        enqueue(charge, step=5)
        return {"log": [5]}

    async def aasks(state: State) -> State:
        await aenqueue(charge, step=5)
        return {"log": [5]}

    graph = cf.compile(chain(colour, n5={"blocking": asks, "awaiting": aasks}[colour]), checkpoint=["n11"])
    run(graph, cf, colour, {})
    assert list(range(6)) in stored(graph, cf)
    assert cf.operations.get("r/5", tenant="t").operation.state == "pending"
    cf.drain(charge)
    assert len(SENT) == NODES


def test_a_step_that_mints_finds_its_checkpoint(cf: Counterfoil) -> None:
    def mints(state: State) -> State:
        return {"kept": mint("order")}

    graph = cf.compile(chain("blocking", n5=mints), checkpoint=["n11"])
    assert run(graph, cf, "blocking", {})["kept"].startswith("mint-order")


def test_a_name_that_the_graph_has_no_node_of_is_refused(cf: Counterfoil) -> None:
    with pytest.raises(InvalidArguments, match="checkpoint names n99"):
        cf.compile(chain("blocking"), checkpoint=["n99"])


def test_a_step_is_not_stored_before_the_one_that_it_hangs_on(cf: Counterfoil) -> None:
    builder = StateGraph(State)
    builder.add_node("one", lambda _state: {"log": [0], "kept": "z" * 20_000})
    builder.add_node("key", lambda _state: {"log": [1]})
    builder.add_node("other", lambda _state: {"log": [2]})
    builder.add_edge(START, "one")
    for name in ("key", "other"):
        builder.add_edge("one", name)
        builder.add_edge(name, END)
    graph = cf.compile(builder, checkpoint=["key"])
    for number in range(40):
        config = cf.config(**{**WHO, "thread_id": f"t-{number}"})
        graph.invoke({}, config)
        shown = graph.get_state(config)
        assert (shown.next, shown.values["log"], len(shown.values["kept"])) == ((), [0, 1, 2], 20_000)
