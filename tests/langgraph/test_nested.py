"""Graphs inside graphs: one claim for the whole thread, one receipt however deep, other threads on their own."""

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from counterfoil.errors import ThreadBusy
from counterfoil.langgraph import aperform, perform
from tests.langgraph.shop import WHO, Shop, State, chain, charge, conf


def pay(state: State) -> State:
    return {"numbers": [perform(charge, order="in").value["number"]]}


def ask(state: State) -> State:
    return {"answer": interrupt("well?")}


class Child(State):
    pass


CHILD = chain(("pay", pay), ("ask", ask))
COMPILED = {
    "plainly": lambda cf, builder: builder.compile(),
    "managed": lambda cf, builder: cf.compile(builder),
    "with-own-history": lambda cf, builder: builder.compile(checkpointer=True),
    "without-history": lambda cf, builder: builder.compile(checkpointer=False),
}
RESUMABLE = [name for name in COMPILED if name != "without-history"]


@pytest.mark.parametrize("kind", RESUMABLE)
@pytest.mark.parametrize("place", ["as-node", "called", "called-with-config"])
def test_an_effect_in_a_child_graph_happens_once_over_an_interrupt(shop: Shop, kind: str, place: str) -> None:
    child = COMPILED[kind](shop.cf, CHILD)

    def calling(state: State) -> State:
        return {"answer": child.invoke({"order": "1"})["answer"]}

    def calling_with(state: State, config: RunnableConfig) -> State:
        return {"answer": child.invoke({"order": "1"}, config)["answer"]}

    node = {"as-node": child, "called": calling, "called-with-config": calling_with}[place]
    graph = shop.cf.compile(chain(("child", node), ("after", pay)))
    shop.cf.run(graph, {}, **WHO)
    assert shop.cf.run(graph, Command(resume="yes"), **WHO)["answer"] == "yes"
    assert shop.count == 1
    assert shop.select("select thread_id, state, attempt from counterfoil_thread") == [("t-1", "idle", 2)]


def test_a_child_without_history_that_pauses_repeats_its_nodes_but_not_the_effect(shop: Shop) -> None:
    child = COMPILED["without-history"](shop.cf, CHILD)
    graph = shop.cf.compile(chain(("child", child)))
    shop.cf.run(graph, {}, **WHO)
    assert shop.count == 1
    shop.cf.run(graph, Command(resume="yes"), **WHO)
    assert shop.count == 1


async def test_children_in_an_awaiting_run(shop: Shop) -> None:
    async def apay(state: State) -> State:
        return {"numbers": [(await aperform(charge, order="in")).value["number"]]}

    child = shop.cf.compile(chain(("pay", apay), ("ask", ask)))

    async def calling(state: State) -> State:
        return {"answer": (await child.ainvoke({"order": "1"}))["answer"]}

    for thread, node in (("t-1", child), ("t-2", calling)):
        graph = shop.cf.compile(chain(("child", node)))
        config = shop.cf.config(**{**WHO, "thread_id": thread})
        await graph.ainvoke({}, config)
        assert (await graph.ainvoke(Command(resume="yes"), config))["answer"] == "yes"
    assert shop.count == 1


def test_a_node_may_run_another_thread_which_has_a_claim_of_its_own(shop: Shop) -> None:
    cf = shop.cf
    inner = cf.compile(chain(("pay", pay)))

    def calling(state: State) -> State:
        return {"numbers": cf.run(inner, {}, tenant="team-B", request_id="r-9", thread_id="t-2")["numbers"]}

    graph = cf.compile(chain(("call", calling), ("pay", pay)))
    assert cf.run(graph, {}, **WHO)["numbers"] == [1, 2]
    assert [one.key for one in shop.tally.accepted()] == ["team-B|r-9/charge/in", "team-A|r-1/charge/in"]
    rows = shop.select("select tenant, thread_id, state, request_id from counterfoil_thread order by tenant")
    assert rows == [("team-A", "t-1", "idle", "r-1"), ("team-B", "t-2", "idle", "r-9")]


def test_a_node_may_not_start_its_own_thread_anew(shop: Shop) -> None:
    cf = shop.cf
    inner = cf.compile(chain(("pay", pay)))

    def calling(state: State) -> State:
        cf.run(inner, {}, **WHO)
        return {}

    with pytest.raises(ThreadBusy):
        cf.run(cf.compile(chain(("call", calling))), {}, **WHO)
    assert shop.count == 0


def test_a_child_called_with_settings_of_its_own_stays_in_the_run(shop: Shop) -> None:
    child = shop.cf.compile(CHILD)

    def calling(state: State) -> State:
        return {"answer": child.invoke({"order": "1"}, {"configurable": {"model": "small"}, "tags": ["x"]})["answer"]}

    graph = shop.cf.compile(chain(("child", calling)))
    shop.cf.run(graph, {}, **WHO)
    assert shop.cf.run(graph, Command(resume="yes"), **WHO)["answer"] == "yes"
    assert shop.count == 1
    assert shop.rows("thread") == 1


def test_subgraphs_stay_visible_to_inspection(shop: Shop) -> None:
    inner = chain(("ask", ask)).compile()
    middle = chain(("inner", inner)).compile()

    def calling(state: State) -> State:
        return {"answer": inner.invoke(state)["answer"]}

    builder = chain(("middle", middle), ("calling", calling))
    plain, managed = builder.compile(checkpointer=shop.cf.saver()), shop.cf.compile(builder)
    names = [name for name, _ in plain.get_subgraphs(recurse=True)]
    assert [name for name, _ in managed.get_subgraphs(recurse=True)] == names
    assert names == ["middle", "middle|inner", "calling"]
    assert managed.get_graph(xray=True).draw_mermaid() == plain.get_graph(xray=True).draw_mermaid()


@pytest.mark.parametrize("kind", ["managed", "plain"])
async def test_the_state_of_subgraphs_is_found_in_its_tenant(shop: Shop, kind: str) -> None:
    inner = chain(("ask", ask)).compile()
    builder = chain(("middle", chain(("inner", inner)).compile()))
    if kind == "managed":
        graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    else:
        graph, config = builder.compile(checkpointer=shop.cf.saver(tenant="team-A")), conf()
    graph.invoke({"order": "1"}, config)
    whole = graph.get_state(config, subgraphs=True)
    assert whole == await graph.aget_state(config, subgraphs=True)
    middle = whole.tasks[0].state
    assert (middle.next, middle.tasks[0].state.next) == (("inner",), ("ask",))
    assert middle.tasks[0].state.values == {"order": "1", "log": [], "numbers": []}
    if kind == "managed":  # a plain graph's saver knows its tenant, its addresses do not
        for address in (middle.config, graph.get_state(config).tasks[0].state):
            assert graph.get_state(address).next == ("inner",)
        updated = graph.update_state(middle.tasks[0].state.config, {"number": 7}, as_node="ask")
        assert graph.get_state(updated).values["number"] == 7
        assert [one.tasks[0].state for one in graph.get_state_history(config, limit=1)]
    assert shop.rows("checkpoint", "tenant <> 'team-A'") == 0
    assert graph.invoke(Command(resume="yes"), config).keys() >= {"order"}


def test_a_child_may_send_its_parent_on(shop: Shop) -> None:
    class Schema(State):
        pass

    def leave(state: State) -> Any:
        perform(charge, order="in")
        return Command(graph=Command.PARENT, goto="after", update={"log": ["left"]})

    child: Any = StateGraph(Schema)
    child.add_node("leave", leave)
    child.add_edge(START, "leave")
    builder: Any = StateGraph(State)
    builder.add_node("child", child.compile(), destinations=("after",))
    builder.add_node("after", lambda state: {"log": ["after"]})
    builder.add_edge(START, "child")
    ended = shop.cf.run(shop.cf.compile(builder), {"order": "1"}, **WHO)
    assert ended["log"] == ["left", "after"]
    assert shop.count == 1
