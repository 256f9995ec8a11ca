"""A step asks before an effect is sent; the run waits without a process, and goes on when a person has decided."""

import asyncio
from operator import add
from typing import Annotated, Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt
from typing_extensions import TypedDict

from counterfoil import AsyncCounterfoil, Policy, effect
from counterfoil.errors import (
    ApprovalExpired,
    ApprovalRejected,
    ApprovalRequired,
    EffectInCachedNode,
    IntentWouldBeLost,
    InvalidArguments,
    NoActiveCounterfoil,
    ThreadParked,
)
from counterfoil.langgraph import aapprove, aenqueue, aperform, approve, enqueue, perform
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests.langgraph.shop import WHO, Shop, accept, chain, charge

ON: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1"}


@effect("approve.pay", key="{request_id}/pay/{order}", approval=Policy(decide_within="1h", valid_for="1h"))
def pay(call: Any, *, order: str, amount: int = 10) -> dict[str, int]:
    return {"number": accept(call, order=order, amount=amount)}


@effect("approve.apay", key="{request_id}/apay/{order}", approval=Policy())
async def apay(call: Any, *, order: str, amount: int = 10) -> dict[str, int]:
    return {"number": accept(call, order=order, amount=amount)}


class State(TypedDict, total=False):
    order: str
    log: Annotated[list[str], add]


def waiting(shop: Shop) -> list[Any]:
    return list(shop.cf.approvals.list(tenant="team-A").items)


def decide(shop: Shop, ruling: str = "approve", operation: str | None = None, **more: Any) -> Any:
    (one,) = [each for each in waiting(shop) if operation in {None, each.operation_id}]
    given = {"reason": "so", **more}
    return getattr(shop.cf.approvals, ruling)(one.approval_id, tenant="team-A", by="mei", **given)


def go_on(shop: Shop, graph: Any) -> Any:
    return shop.cf.run(graph, None, **ON)


def parked(shop: Shop) -> tuple[str, str | None]:
    ((state, on),) = shop.select("select state, parked_on from counterfoil_thread")
    return state, on


def orders(shop: Shop) -> list[str]:
    return [one.body["order"] for one in shop.tally.accepted()]


def asking(order: str = "1", made: Any = pay) -> Any:
    def node(_: State) -> State:
        decision = approve(made, order=order)
        if not decision.approved:
            return {"log": [f"{decision.state} {order}: {decision.reason}"]}
        return {"log": [f"paid {perform(decision).value['number']}"]}

    return node


def performing(order: str = "1") -> Any:
    return lambda _: {"log": [f"paid {perform(pay, order=order).value['number']}"]}


# --- in a node -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [asking, performing])
def test_the_run_waits_and_goes_on_when_it_is_approved(shop: Shop, way: Any) -> None:
    graph = shop.cf.compile(chain(("pay", way()), schema=State))
    ended = shop.cf.run(graph, {}, **WHO)
    told = ended["__interrupt__"][0].value
    (one,) = waiting(shop)
    assert (told["counterfoil"], told["operation_id"]) == ("approval-required", "r-1/pay/1")
    assert (told["approval_id"], told["decide_by"]) == (one.approval_id, one.decide_by)
    assert (parked(shop), shop.count) == (("parked", "r-1/pay/1"), 0)
    again = go_on(shop, graph)
    assert (again["__interrupt__"][0].value, shop.count) == (told, 0)
    decide(shop)
    assert go_on(shop, graph)["log"] == ["paid 1"]
    assert (parked(shop), shop.count) == (("idle", None), 1)


def test_a_rejection_is_an_answer_and_nothing_is_sent(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", asking()), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop, "reject", reason="not this one")
    assert go_on(shop, graph)["log"] == ["rejected 1: not this one"]
    assert shop.count == 0


def test_whoever_performs_what_was_rejected_is_told_so(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", performing()), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop, "reject", reason="not this one")
    with pytest.raises(ApprovalRejected, match="not this one"):
        go_on(shop, graph)
    assert shop.count == 0


def test_an_effect_without_a_policy_is_asked_about(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", asking(made=charge)), schema=State))
    shop.cf.run(graph, {}, **WHO)
    assert shop.count == 0
    decide(shop)
    assert go_on(shop, graph)["log"] == ["paid 1"]


def test_a_run_whose_request_ran_out_goes_on_with_that(shop: Shop) -> None:
    clock = FakeClock()
    cf = shop.open(clock=clock)
    graph = cf.compile(chain(("pay", asking()), schema=State))
    cf.run(graph, {}, **WHO)
    clock.advance("1h")
    assert cf.run(graph, None, **ON)["log"][0].startswith("expired 1: nobody decided")
    assert shop.count == 0


def test_a_decision_that_ran_out_before_the_run_went_on_is_asked_for_again(shop: Shop) -> None:
    clock = FakeClock()
    cf = shop.open(clock=clock)
    graph = cf.compile(chain(("pay", asking()), schema=State))
    cf.run(graph, {}, **WHO)
    first = decide(shop)
    clock.advance("1h")
    told = cf.run(graph, None, **ON)["__interrupt__"][0].value
    assert told["approval_id"] != first.approval_id
    decide(shop)
    assert cf.run(graph, None, **ON)["log"] == ["paid 1"]
    assert shop.count == 1


def test_the_step_that_asked_goes_on_with_what_was_edited(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", asking()), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop, "edit", changes={"amount": 5})
    told = go_on(shop, graph)["__interrupt__"][0].value
    assert told["operation_id"] == "r-1/pay/1~edit-1"
    decide(shop)
    assert go_on(shop, graph)["log"] == ["paid 1"]
    assert [one.body["amount"] for one in shop.tally.accepted()] == [5]


@pytest.mark.parametrize("edited", [False, True])
def test_what_is_enqueued_after_a_decision_is_sent_by_the_dispatcher(shop: Shop, edited: bool) -> None:  # noqa: FBT001
    def node(_: State) -> State:
        return {"log": [enqueue(approve(pay, order="1")).state]}

    graph = shop.cf.compile(chain(("pay", node), schema=State))
    shop.cf.run(graph, {}, **WHO)
    if edited:
        decide(shop, "edit", changes={"amount": 5})
        go_on(shop, graph)
    decide(shop)
    assert go_on(shop, graph)["log"] == ["pending"]
    assert shop.count == 0
    shop.cf.drain(pay)
    assert [one.body["amount"] for one in shop.tally.accepted()] == [5 if edited else 10]


def test_what_is_enqueued_without_a_decision_waits_in_the_outbox(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", lambda _: {"log": [enqueue(pay, order="1").state]}), schema=State))
    assert shop.cf.run(graph, {}, **WHO)["log"] == ["awaiting_approval"]
    shop.cf.drain(pay)
    assert shop.count == 0
    decide(shop)
    shop.cf.drain(pay)
    assert shop.count == 1


def test_a_rejected_decision_is_not_performed(shop: Shop) -> None:
    def node(_: State) -> State:
        decision = approve(pay, order="1")
        with pytest.raises(ApprovalRejected):
            perform(decision)
        return {"log": [enqueue(decision).state]}

    graph = shop.cf.compile(chain(("pay", node), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop, "reject")
    assert go_on(shop, graph)["log"] == ["rejected"]
    shop.cf.drain(pay)
    assert shop.count == 0


def test_a_decision_names_its_arguments(shop: Shop) -> None:
    def node(_: State) -> State:
        decision = approve(pay, order="1")
        with pytest.raises(InvalidArguments, match="names its arguments"):
            perform(decision, amount=5)
        return {}

    graph = shop.cf.compile(chain(("pay", node), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop)
    go_on(shop, graph)
    assert shop.count == 0


# --- everywhere in a graph -------------------------------------------------------------------------------------------


async def test_async_nodes_wait_and_go_on(shop: Shop) -> None:
    async def node(_: State) -> State:
        decision = await aapprove(apay, order="1")
        queued = await aenqueue(await aapprove(apay, order="2"))
        return {"log": [f"paid {(await aperform(decision)).value['number']}", queued.state]}

    async with AsyncCounterfoil.open(shop.url) as cf:
        cf.resources.provide(TallyFile, lambda: shop.tally)
        graph = cf.compile(chain(("pay", node), schema=State))
        for _ in range(2):
            assert "__interrupt__" in await cf.run(graph, {} if shop.rows("thread") == 0 else None, **WHO)
            (one,) = (await cf.approvals.list(tenant="team-A")).items
            await cf.approvals.approve(one.approval_id, tenant="team-A", by="mei")
        ended = await cf.run(graph, None, **ON)
        assert ended["log"] == ["paid 1", "pending"]
        await cf.drain(apay)
    assert shop.count == 2


def test_in_tasks(shop: Shop) -> None:
    @task
    def paying(order: str) -> int:
        return int(perform(approve(pay, order=order)).value["number"])

    @entrypoint(checkpointer=shop.cf.saver())
    def flow(given: list[str]) -> list[int]:
        return [one.result() for one in [paying(order) for order in given]]

    graph = shop.cf.compile(flow)
    shop.cf.run(graph, ["1", "2"], **WHO)
    assert {one.operation_id for one in waiting(shop)} == {"r-1/pay/1", "r-1/pay/2"}
    decide(shop, operation="r-1/pay/2")
    assert len(go_on(shop, graph)["__interrupt__"]) == 1
    decide(shop)
    assert sorted(go_on(shop, graph)) == [1, 2]
    assert sorted(orders(shop)) == ["1", "2"]


@pytest.mark.parametrize("way", [asking, performing])
def test_in_a_child_graph(shop: Shop, way: Any) -> None:
    child = chain(("pay", way()), schema=State).compile()
    graph = shop.cf.compile(chain(("child", child), ("after", lambda _: {"log": ["after"]}), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop)
    assert go_on(shop, graph)["log"] == ["paid 1", "after"]
    assert shop.count == 1


def beside(*nodes: tuple[str, Any], **options: Any) -> Any:
    builder: Any = StateGraph(State)
    for name, node in nodes:
        builder.add_node(name, node, **options)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
@pytest.mark.parametrize("ruling", ["approve", "reject"])
def test_branches_wait_each_for_its_own_decision(shop: Shop, order: tuple[str, str], ruling: str) -> None:
    graph = shop.cf.compile(beside(("a", asking("1")), ("b", asking("2"))))
    assert len(shop.cf.run(graph, {}, **WHO)["__interrupt__"]) == 2
    decide(shop, ruling, f"r-1/pay/{order[0]}")
    between = go_on(shop, graph)
    (left,) = between["__interrupt__"]
    assert left.value["operation_id"] == f"r-1/pay/{order[1]}"
    assert (parked(shop), shop.count) == (("parked", f"r-1/pay/{order[1]}"), ruling == "approve")
    decide(shop)
    assert len(go_on(shop, graph)["log"]) == 2
    assert shop.count == 1 + (ruling == "approve")
    assert (parked(shop), waiting(shop)) == (("idle", None), [])


def test_one_question_of_several_sent_steps_is_one(shop: Shop) -> None:
    def paying(state: State) -> State:
        return {"log": [f"paid {perform(pay, order=state['order']).value['number']}"]}

    builder: Any = StateGraph(State)
    builder.add_node("fan", lambda _: {})
    builder.add_node("pay", paying)
    builder.add_edge(START, "fan")
    builder.add_conditional_edges("fan", lambda _: [Send("pay", {"order": order}) for order in "112"], ["pay"])
    graph = shop.cf.compile(builder)
    shop.cf.run(graph, {}, **WHO)
    assert len(waiting(shop)) == 2
    decide(shop, operation="r-1/pay/1")
    go_on(shop, graph)
    decide(shop)
    assert sorted(go_on(shop, graph)["log"]) == ["paid 1", "paid 1", "paid 2"]
    assert sorted(orders(shop)) == ["1", "2"]


# --- beside other questions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, {"approved": True}, "approve", [{"type": "accept"}]])
def test_a_resume_value_is_no_decision(shop: Shop, answer: Any) -> None:
    graph = shop.cf.compile(chain(("pay", asking()), schema=State))
    shop.cf.run(graph, {}, **WHO)
    with pytest.raises(ThreadParked, match="counterfoil approvals list"):
        shop.cf.run(graph, Command(resume=answer), **ON)
    named = {shop.cf.run(graph, None, **ON)["__interrupt__"][0].id: answer}
    with pytest.raises(ThreadParked):
        shop.cf.run(graph, Command(resume=named), **ON)
    assert (len(waiting(shop)), shop.count) == (1, 0)
    decide(shop)
    assert go_on(shop, graph)["log"] == ["paid 1"]


def test_a_question_beside_an_approval_keeps_its_own_answer(shop: Shop) -> None:
    graph = shop.cf.compile(beside(("pay", asking()), ("ask", lambda _: {"log": [str(interrupt("sure?"))]})))
    both = shop.cf.run(graph, {}, **WHO)["__interrupt__"]
    assert len(both) == 2
    (question,) = [one.id for one in both if one.value == "sure?"]
    shop.cf.run(graph, Command(resume={question: "yes"}), **ON)
    assert shop.count == 0
    decide(shop)
    assert sorted(go_on(shop, graph)["log"]) == ["paid 1", "yes"]
    assert shop.count == 1


def test_a_question_in_the_same_step_is_asked_when_it_is_decided(shop: Shop) -> None:
    def node(_: State) -> State:
        decision = approve(pay, order="1")
        answer = interrupt("now?")
        return {"log": [f"{answer} {perform(decision).value['number']}"]}

    graph = shop.cf.compile(chain(("pay", node), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop)
    assert go_on(shop, graph)["__interrupt__"][0].value == "now?"
    assert shop.cf.run(graph, Command(resume="yes"), **ON)["log"] == ["yes 1"]


def test_a_retry_policy_does_not_run_a_step_that_waits(shop: Shop) -> None:
    entered: list[int] = []

    def node(_: State) -> State:
        entered.append(1)
        return {"log": [f"paid {perform(pay, order='1').value['number']}"]}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=Exception)
    graph = shop.cf.compile(chain(("pay", node), schema=State, retry_policy=policy))
    shop.cf.run(graph, {}, **WHO)
    assert len(entered) == 1
    decide(shop)
    go_on(shop, graph)
    assert (len(entered), shop.count) == (2, 1)


def test_going_back_before_a_decision_is_answered_from_what_happened(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("first", lambda _: {"log": ["first"]}), ("pay", asking()), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop)
    go_on(shop, graph)
    history = list(graph.get_state_history(shop.cf.config(**ON)))
    before = next(one for one in history if one.next == ("pay",))
    again = shop.cf.run(graph, None, **ON, checkpoint_id=before.config["configurable"]["checkpoint_id"])
    assert (again["log"], shop.count, waiting(shop)) == (["first", "paid 1"], 1, [])


def test_key_nodes_alone_store_what_waits(shop: Shop) -> None:
    nodes = [(name, lambda _, name=name: {"log": [name]}) for name in ("a", "b")]
    builder = chain(*nodes, ("pay", asking()), ("after", lambda _: {"log": ["after"]}), schema=State)
    graph = shop.cf.compile(builder, checkpoint=["after"])
    shop.cf.run(graph, {}, **WHO)
    assert parked(shop) == ("parked", "r-1/pay/1")
    decide(shop)
    assert go_on(shop, graph)["log"] == ["a", "b", "paid 1", "after"]
    assert shop.count == 1


# --- refused ---------------------------------------------------------------------------------------------------------


def test_a_step_that_enqueued_does_not_ask(shop: Shop) -> None:
    def node(_: State) -> State:
        enqueue(charge, order="1")
        approve(pay, order="1")
        return {}

    graph = shop.cf.compile(chain(("pay", node), schema=State))
    with pytest.raises(IntentWouldBeLost, match="then asks for an approval"):
        shop.cf.run(graph, {}, **WHO)
    assert (shop.rows("operation"), shop.rows("approval")) == (0, 0)


def test_outside_a_managed_run_nobody_can_wait(shop: Shop) -> None:
    plain = chain(("pay", asking()), schema=State).compile(checkpointer=shop.cf.saver())
    with pytest.raises(NoActiveCounterfoil):
        plain.invoke({}, shop.cf.config(**WHO))
    asks = chain(("pay", performing()), schema=State).compile(checkpointer=shop.cf.saver())
    with pytest.raises(ApprovalRequired):
        asks.invoke({}, shop.cf.config(**{**WHO, "thread_id": "t-2"}))
    with pytest.raises(NoActiveCounterfoil):
        chain(("pay", asking()), schema=State).compile(checkpointer=InMemorySaver()).invoke(
            {}, {"configurable": {"thread_id": "t-3"}}
        )
    with pytest.raises(NoActiveCounterfoil):
        approve(pay, order="1")
    assert shop.count == 0


def test_a_cached_node_does_not_ask(shop: Shop) -> None:
    builder = chain(("pay", asking()), schema=State, cache_policy=CachePolicy())
    graph = shop.cf.compile(builder, cache=InMemoryCache())
    with pytest.raises(EffectInCachedNode):
        shop.cf.run(graph, {}, **WHO)
    assert shop.rows("approval") == 0


def test_a_blocking_call_on_a_loop_is_refused(shop: Shop) -> None:
    async def node(_: State) -> State:
        return {"log": [approve(pay, order="1").state]}

    graph = shop.cf.compile(chain(("pay", node), schema=State))
    with pytest.raises(Exception, match="await aapprove"):
        asyncio.run(_invoke(shop, graph))


async def _invoke(shop: Shop, graph: Any) -> Any:
    return await graph.ainvoke({}, shop.cf.config(**WHO))


def test_an_expired_one_is_performed_by_nobody(shop: Shop) -> None:
    clock = FakeClock()
    cf = shop.open(clock=clock)
    graph = cf.compile(chain(("pay", performing()), schema=State))
    cf.run(graph, {}, **WHO)
    clock.advance("1h")
    with pytest.raises(ApprovalExpired):
        cf.run(graph, None, **ON)
    assert shop.count == 0


def test_whoever_ran_the_graph_cannot_decide(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", asking()), schema=State))
    shop.cf.run(graph, {}, **WHO, principal="Mei")
    (one,) = waiting(shop)
    assert one.requested_by == "Mei"
    with pytest.raises(Exception, match="asked for operation"):
        decide(shop)


def test_another_turn_that_asks_for_the_first_asks_anew(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", asking()), schema=State))
    shop.cf.run(graph, {}, **WHO)
    decide(shop, "edit", changes={"amount": 5})
    go_on(shop, graph)
    decide(shop)
    go_on(shop, graph)
    told = shop.cf.run(graph, {}, **WHO)["__interrupt__"][0].value
    assert told["operation_id"] == "r-1/pay/1~edit-2"
    others = shop.cf.approvals.show(told["approval_id"], tenant="team-A").others
    assert [(one.operation_id, one.state) for one in others] == [
        ("r-1/pay/1", "cancelled"),
        ("r-1/pay/1~edit-1", "succeeded"),
    ]
    assert shop.count == 1


@pytest.mark.parametrize("asks", [approve, perform])
def test_the_question_of_a_node_is_answered_as_it_was_asked(shop: Shop, asks: Any) -> None:
    graph = shop.cf.compile(chain(("n", lambda state: asks(pay, order=state["order"]) and {})))
    first, other = (
        shop.cf.run(graph, {"order": order}, **{**WHO, "thread_id": order})["__interrupt__"][0] for order in "ab"
    )
    who: dict[str, Any] = {"tenant": "team-A", "by": "mei"}
    with pytest.raises(InvalidArguments, match="fingerprint"):
        shop.cf.approvals.answer(
            {"type": "approve"}, to=first.value | {"fingerprint": other.value["fingerprint"]}, **who
        )
    (decided,) = shop.cf.approvals.answer({"type": "approve"}, to=first, **who)
    assert (decided.state, len(waiting(shop))) == ("approved", 1)
