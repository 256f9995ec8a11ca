"""Minted ids: kept when a step is entered again, new in a loop and in the next turn, never a second by going back."""

import importlib
from typing import Any

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from counterfoil import EffectCall, effect
from counterfoil.errors import BranchRequired, InvalidId, MintedHere, NestedEffect, NoActiveCounterfoil
from counterfoil.langgraph import amint, aperform, mint, perform
from tests.langgraph.shop import WHO, Shop, State, accept, chain, conf, invite


def minting(state: State) -> State:
    return {"minted": mint("invitation")}


def inviting(state: State) -> State:
    return {"number": perform(invite, invitation=state["minted"]).value["number"]}


GOING_ON: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1"}


def test_a_minted_id_names_what_it_is_for_and_is_used_by_a_later_step(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("mint", minting), ("invite", inviting)))
    ended = shop.cf.run(graph, {}, **WHO)
    assert ended["minted"].startswith("mint-invitation_")
    assert shop.tally.accepted()[0].key == f"team-A|invite/{ended['minted']}"


def test_a_step_that_is_entered_again_gets_the_same_id(shop: Shop) -> None:
    minted: list[str] = []

    def node(state: State) -> State:
        minted.append(mint("invitation"))
        interrupt("well?")
        if len(minted) < 3:
            raise ValueError("try again")
        return {"minted": minted[-1]}

    graph = shop.cf.compile(chain(("mint", node), ("invite", inviting)))
    shop.cf.run(graph, {}, **WHO)
    with pytest.raises(ValueError, match="try again"):
        shop.cf.run(graph, Command(resume=1), **GOING_ON)
    shop.cf.run(graph, None, **GOING_ON)
    assert len(minted) == 3
    assert len(set(minted)) == 1
    assert shop.count == 1
    assert shop.rows("mint") == 1


def test_two_names_in_one_step_are_two_ids_and_one_name_twice_is_one(shop: Shop) -> None:
    def node(state: State) -> State:
        return {"log": [mint("a"), mint("b"), mint("a")]}

    first, second, third = shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **WHO)["log"]
    assert first == third != second


def test_using_an_id_in_the_step_that_minted_it_is_refused(shop: Shop) -> None:
    def node(state: State) -> State:
        return {"number": perform(invite, invitation=mint("invitation")).value["number"]}

    with pytest.raises(MintedHere):
        shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **WHO)
    assert shop.count == 0
    assert shop.rows("operation") == 0


def test_a_loop_mints_a_new_id_each_time(shop: Shop) -> None:
    builder: Any = chain(("mint", minting), ("invite", inviting))
    builder.edges.discard(("invite", END))
    builder.add_conditional_edges("invite", lambda state: END if state["number"] == 3 else "mint", ["mint", END])
    ended = shop.cf.run(shop.cf.compile(builder), {}, **WHO)
    assert ended["number"] == 3
    assert len({one.key for one in shop.tally.accepted()}) == 3


def test_the_next_turn_mints_a_new_id(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("mint", minting), ("invite", inviting)))
    ids = [shop.cf.run(graph, {}, **{**WHO, "request_id": f"r-{turn}"})["minted"] for turn in range(3)]
    assert len(set(ids)) == 3
    assert shop.count == 3


def before(graph: Any, config: Any, node: str) -> Any:
    return next(one.config for one in graph.get_state_history(config) if one.next == (node,))


def test_going_back_before_a_mint_needs_a_branch_and_after_it_does_not(shop: Shop) -> None:
    graph, config = shop.cf.compile(chain(("mint", minting), ("invite", inviting))), shop.cf.config(**WHO)
    graph.invoke({}, config)
    with pytest.raises(BranchRequired):
        graph.invoke(None, before(graph, config, "mint"))
    assert graph.invoke(None, before(graph, config, "invite"))["number"] == 1
    forked = graph.update_state(before(graph, config, "mint"), {"order": "other"}, as_node="__start__")
    with pytest.raises(BranchRequired):
        graph.invoke(None, forked)
    assert shop.count == 1
    assert shop.rows("mint") == 1


def test_going_back_to_another_mint_than_the_first_turns(shop: Shop) -> None:
    graph, config = shop.cf.compile(chain(("mint", minting), ("invite", inviting))), shop.cf.config(**WHO)
    for _ in range(2):
        graph.invoke({}, config)
    for place in [one.config for one in graph.get_state_history(config) if one.next == ("mint",)]:
        with pytest.raises(BranchRequired):
            graph.invoke(None, place)
    assert shop.count == 2


async def test_an_async_node_mints_with_amint(shop: Shop) -> None:
    seen: list[str] = []

    async def node(state: State) -> State:
        seen.append(await amint("invitation"))
        interrupt("well?")
        return {"minted": seen[-1]}

    async def use(state: State) -> State:
        return {"number": (await aperform(invite, invitation=state["minted"])).value["number"]}

    async def at_once(state: State) -> State:
        return {"number": (await aperform(invite, invitation=await amint("invitation"))).value["number"]}

    graph, config = shop.cf.compile(chain(("mint", node), ("use", use))), shop.cf.config(**WHO)
    await graph.ainvoke({}, config)
    assert (await graph.ainvoke(Command(resume=1), config))["number"] == 1
    assert len(seen) == 2
    assert len(set(seen)) == 1
    with pytest.raises(MintedHere):
        await shop.cf.compile(chain(("n", at_once))).ainvoke({}, shop.cf.config(**{**WHO, "thread_id": "t-2"}))
    with pytest.raises(BranchRequired):
        await graph.ainvoke(None, before(graph, config, "mint"))


@pytest.mark.parametrize("name", ["", "Upper", "with space", "1st", "x" * 41, "a/b", "ünder"])
def test_a_name_that_is_no_name_is_refused(shop: Shop, name: str) -> None:
    with pytest.raises(InvalidId):
        shop.cf.run(shop.cf.compile(chain(("n", lambda state: {"minted": mint(name)}))), {}, **WHO)


def test_parallel_branches_and_sends_mint_ids_of_their_own(shop: Shop) -> None:
    def each(state: State) -> State:
        return {"log": [mint("invitation")]}

    builder: Any = StateGraph(State)
    builder.add_node("each", each)
    builder.add_conditional_edges(START, lambda state: [Send("each", {"order": str(n)}) for n in range(3)], ["each"])
    builder.add_edge("each", END)
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    ids = graph.invoke({}, config)["log"]
    assert len(set(ids)) == 3


def test_a_child_graph_mints_once_over_an_interrupt(shop: Shop) -> None:
    child = chain(("mint", minting), ("ask", lambda state: {"answer": interrupt("well?")})).compile()
    graph = shop.cf.compile(chain(("child", child), ("invite", inviting)))
    shop.cf.run(graph, {}, **WHO)
    shop.cf.run(graph, Command(resume=1), **GOING_ON)
    assert shop.count == 1
    assert shop.rows("mint") == 1


def test_going_back_in_the_parent_does_not_let_a_child_mint_again(shop: Shop) -> None:
    child = chain(("mint", minting), ("use", inviting)).compile()
    graph, config = shop.cf.compile(chain(("child", child), ("end", lambda state: {}))), shop.cf.config(**WHO)
    graph.invoke({}, config)
    with pytest.raises(BranchRequired):
        graph.invoke(None, before(graph, config, "child"))
    graph.invoke({}, shop.cf.config(**{**WHO, "request_id": "r-2"}))
    assert shop.count == 2


def test_a_loop_in_a_child_mints_a_new_id_each_time(shop: Shop) -> None:
    builder: Any = chain(("mint", minting), ("use", inviting))
    builder.edges.discard(("use", END))
    builder.add_conditional_edges("use", lambda state: END if state["number"] == 3 else "mint", ["mint", END])
    shop.cf.run(shop.cf.compile(chain(("child", builder.compile()))), {}, **WHO)
    assert len({one.key for one in shop.tally.accepted()}) == 3


def test_a_child_that_keeps_no_history_may_not_mint(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("counterfoil.langgraph.mint"), "STORED_WITHIN_MS", 20)
    child = chain(("mint", minting)).compile(checkpointer=False)
    with pytest.raises(NoActiveCounterfoil, match="checkpointer=False"):
        shop.cf.run(shop.cf.compile(chain(("child", child))), {}, **WHO)
    assert shop.rows("mint") == 0


def test_an_entrypoint_mints_while_its_input_is_still_being_stored(shop: Shop) -> None:
    @task
    def minted() -> str:
        return mint("invitation")

    @task
    def invited(invitation: str) -> int:
        return int(perform(invite, invitation=invitation).value["number"])

    @entrypoint()
    def flow(order: str) -> list[Any]:
        invitation = minted().result()
        return [invitation, invited(invitation).result(), interrupt("well?")]

    graph = shop.cf.compile(flow)
    ids = []
    for turn in range(3):
        shop.cf.run(graph, "1", **{**WHO, "request_id": f"r-{turn}"})
        ids.append(shop.cf.run(graph, Command(resume="yes"), **GOING_ON)[0])
    assert len(set(ids)) == 3
    assert shop.count == 3


def test_a_plain_graph_mints_too(shop: Shop) -> None:
    graph = chain(("mint", minting)).compile(checkpointer=shop.cf.saver())
    assert graph.invoke({}, conf())["minted"].startswith("mint-")


def test_without_a_thread_there_is_nothing_to_keep_an_id(shop: Shop) -> None:
    with pytest.raises(NoActiveCounterfoil):
        chain(("mint", minting)).compile().invoke({})


@effect("test.minting-effect", key="{request_id}/minting")
def minting_effect(call: EffectCall) -> str:
    accept(call)
    return mint("invitation")


def test_an_effect_may_not_mint(shop: Shop) -> None:
    def node(state: State) -> State:
        return {"answer": perform(minting_effect).value}

    graph = shop.cf.compile(chain(("n", node)))
    with pytest.raises(NestedEffect):
        shop.cf.run(graph, {}, **WHO)
    attempt = shop.cf.operations.get("r-1/minting", tenant="team-A").attempts[0]
    assert attempt.error_class is not None
    assert attempt.error_class.endswith(NestedEffect.__qualname__)
