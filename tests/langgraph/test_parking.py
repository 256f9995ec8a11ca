"""A managed run waits for an unknown outcome as for a person, and goes on when it is settled."""

import sys
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from counterfoil.errors import EffectRefused, OperationClosed, OutcomeUnknown, ThreadParked
from counterfoil.langgraph import aperform, perform
from counterfoil.storage.scripts import threads
from counterfoil.testing.clock import FakeClock
from tests.langgraph.shop import WHO, Shop, State, alose_reply, chain, lose_findable, lose_reply

OPERATION = "r-1/opaque/1"


def pay(state: State) -> State:
    return {"answer": perform(lose_reply, order="1").value}


def done(state: State) -> State:
    return {"log": ["done"]}


def resolve(shop: Shop, verdict: str = "happened", operation_id: str = OPERATION) -> None:
    case = shop.cf.review.open(operation_id, tenant="team-A")
    evidence = '{"number": 17}' if verdict == "happened" else None
    shop.cf.review.resolve(
        case.case_id,
        tenant="team-A",
        verdict=verdict,
        by="ann",
        reason="looked it up",
        evidence=evidence,
        expect_version=case.version,
    )


def status(shop: Shop) -> Any:
    return shop.select("select state, parked_on, holder from counterfoil_thread")


def test_an_unknown_outcome_parks_the_run_and_says_what_it_waits_for(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay), ("done", done)))
    ended = shop.cf.run(graph, {}, **WHO)
    told = ended["__interrupt__"][0].value
    assert told["counterfoil"] == "outcome-unknown"
    assert told["operation_id"] == OPERATION
    assert told["case_id"] == shop.cf.review.list(tenant="team-A").items[0].case_id
    assert status(shop) == [("parked", OPERATION, None)]
    assert graph.get_state(shop.cf.config(**WHO)).next == ("pay",)


@pytest.mark.parametrize("goes_on", ["same-process", "opened-anew"])
def test_it_goes_on_with_none_after_a_verdict_that_it_happened(shop: Shop, goes_on: str) -> None:
    builder = chain(("pay", pay), ("done", done))
    shop.cf.run(shop.cf.compile(builder), {}, **WHO)
    resolve(shop)
    cf = shop.open() if goes_on == "opened-anew" else shop.cf
    ended = cf.run(cf.compile(builder), None, tenant="team-A", thread_id="t-1")
    assert ended["answer"] == {"number": 17}
    assert ended["log"] == ["done"]
    assert shop.count == 1
    assert status(shop) == [("idle", None, None)]


def test_without_a_verdict_it_stays_parked_and_sends_nothing(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    shop.cf.run(graph, {}, **WHO)
    for _ in range(3):
        again = shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")
        assert again["__interrupt__"][0].value["operation_id"] == OPERATION
        assert status(shop) == [("parked", OPERATION, None)]
    assert shop.count == 1
    assert len(shop.cf.review.list(tenant="team-A").items) == 1
    state = graph.get_state(shop.cf.config(**WHO))
    assert len(state.interrupts) == 1


def test_a_verdict_that_it_did_not_happen_sends_it_once_more_or_never(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    shop.cf.run(graph, {}, **WHO)
    resolve(shop, "did_not_happen_retry")
    assert "__interrupt__" in shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")
    assert shop.count == 2  # the provider had it, the person was wrong; the second reply was lost, too
    resolve(shop, "did_not_happen_close")
    with pytest.raises((OperationClosed, EffectRefused)):
        shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")
    assert shop.count == 2


def test_it_goes_on_by_itself_after_a_look_up_that_finds_it(shop: Shop) -> None:
    def paying(state: State) -> State:
        return {"answer": perform(lose_findable, order="1").value}

    graph = shop.cf.compile(chain(("pay", paying), ("done", done)))
    assert "__interrupt__" in shop.cf.run(graph, {}, **WHO)
    shop.desk.is_open = True
    ended = shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")
    assert ended["answer"] == {"number": 1}
    assert ended["log"] == ["done"]
    assert shop.count == 1


def test_a_look_up_that_answers_at_once_never_parks(shop: Shop) -> None:
    def paying(state: State) -> State:
        return {"answer": perform(lose_findable, order="1").value}

    shop.desk.is_open = True
    assert shop.cf.run(shop.cf.compile(chain(("pay", paying))), {}, **WHO)["answer"] == {"number": 1}


@pytest.mark.parametrize("resume", [True, "yes", False, {}, {"operation": "happened"}])
def test_a_resume_value_is_no_verdict(shop: Shop, resume: Any) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    shop.cf.run(graph, {}, **WHO)
    with pytest.raises(ThreadParked) as caught:
        shop.cf.run(graph, Command(resume=resume), tenant="team-A", thread_id="t-1")
    assert caught.value.operation_id == OPERATION
    assert status(shop) == [("parked", OPERATION, None)]
    resolve(shop)
    assert shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")["answer"] == {"number": 17}


def test_a_thread_that_ended_waits_for_nothing_though_its_last_run_died(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        sys.exit()

    clock = FakeClock()
    cf = shop.open(clock=clock)
    graph = cf.compile(chain(("pay", pay), ("done", done)))
    cf.run(graph, {}, **WHO)
    resolve(shop)
    monkeypatch.setattr(threads, "leave", die)
    with pytest.raises(SystemExit):  # between its last checkpoint and the end of its claim
        cf.run(graph, None, tenant="team-A", thread_id="t-1")
    monkeypatch.undo()
    clock.advance("2m")
    ended = cf.run(graph, Command(resume=True), tenant="team-A", thread_id="t-1")
    shop.close()
    assert ended["log"] == ["done"]
    assert status(shop) == [("idle", None, None)]


def test_an_answer_addressed_to_the_unknown_outcome_is_refused(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    parked = shop.cf.run(graph, {}, **WHO)["__interrupt__"][0]
    with pytest.raises(ThreadParked):
        shop.cf.run(graph, Command(resume={parked.id: True}), tenant="team-A", thread_id="t-1")


async def test_an_awaiting_run_parks_and_goes_on(shop: Shop) -> None:
    async def paying(state: State) -> State:
        return {"answer": (await aperform(alose_reply, order="1")).value}

    graph, config = shop.cf.compile(chain(("pay", paying), ("done", done))), shop.cf.config(**WHO)
    assert "__interrupt__" in await graph.ainvoke({}, config)
    assert status(shop) == [("parked", OPERATION, None)]
    with pytest.raises(ThreadParked):
        await graph.ainvoke(Command(resume=True), config)
    assert status(shop) == [("parked", OPERATION, None)]


def test_a_plain_graph_raises_instead(shop: Shop) -> None:
    graph = chain(("pay", pay)).compile(checkpointer=shop.cf.saver())
    inputs: list[Any] = [{}, None]
    for given in inputs:
        with pytest.raises(OutcomeUnknown):
            graph.invoke(given, shop.cf.config(**WHO))
    assert shop.count == 1


# --- together with people --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["asked-before", "asked-after"])
def test_a_question_in_the_same_node_still_gets_its_own_answer(shop: Shop, order: str) -> None:
    def node(state: State) -> State:
        if order == "asked-before":
            answer = interrupt("before?")
            return {"answer": [answer, perform(lose_reply, order="1").value]}
        value = perform(lose_reply, order="1").value
        return {"answer": [interrupt("after?"), value]}

    graph = shop.cf.compile(chain(("node", node)))
    first = shop.cf.run(graph, {}, **WHO)["__interrupt__"]
    if order == "asked-before":
        assert [one.value for one in first] == ["before?"]
        second = shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-1")["__interrupt__"]
        assert second[0].value["operation_id"] == OPERATION
        resolve(shop)
        ended = shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")
    else:
        resolve(shop)
        second = shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")["__interrupt__"]
        assert [one.value for one in second] == ["after?"]
        ended = shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-1")
    assert ended["answer"] == ["yes", {"number": 17}]
    assert shop.count == 1


def branches(*, asking: str = "ask") -> Any:
    def ask(state: State) -> State:
        return {"log": [interrupt(f"{asking}?")]}

    builder: Any = StateGraph(State)
    builder.add_node("pay", pay)
    builder.add_node("ask", ask)
    builder.add_node("join", done)
    builder.add_edge(START, "pay")
    builder.add_edge(START, "ask")
    builder.add_edge(["pay", "ask"], "join")
    builder.add_edge("join", END)
    return builder


def test_one_branch_parked_and_one_asking_a_person_are_settled_in_any_order(shop: Shop) -> None:
    graph = shop.cf.compile(branches())
    for thread, verdict_first in (("t-1", True), ("t-2", False)):
        who: dict[str, Any] = {"tenant": "team-A", "thread_id": thread}
        request: dict[str, Any] = {"request_id": f"r-{thread}"}
        found = shop.cf.run(graph, {}, **who, **request)["__interrupt__"]
        ours, theirs = sorted(found, key=lambda one: isinstance(one.value, str))
        assert theirs.value == "ask?"
        operation = ours.value["operation_id"]
        answer: Any = Command(resume={theirs.id: "yes"})
        if verdict_first:
            resolve(shop, operation_id=operation)
            assert [one.value for one in shop.cf.run(graph, None, **who)["__interrupt__"]] == ["ask?"]
            ended = shop.cf.run(graph, answer, **who)
        else:
            left = shop.cf.run(graph, answer, **who)["__interrupt__"]
            assert [one.value["operation_id"] for one in left] == [operation]
            with pytest.raises(ThreadParked):
                shop.cf.run(graph, Command(resume="again"), **who)
            resolve(shop, operation_id=operation)
            ended = shop.cf.run(graph, None, **who)
        assert ended["answer"] == {"number": 17}
        assert ended["log"] == ["yes", "done"]
    assert shop.count == 2


def test_an_unaddressed_answer_while_two_wait_is_langgraphs_to_refuse(shop: Shop) -> None:
    graph = shop.cf.compile(branches())
    shop.cf.run(graph, {}, **WHO)
    with pytest.raises(RuntimeError, match="interrupt id"):
        shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-1")
    assert len(graph.get_state(shop.cf.config(**WHO)).interrupts) == 2


def test_two_branches_parked_on_two_operations(shop: Shop) -> None:
    def paying(order: str) -> Any:
        return lambda state: {"log": [str(perform(lose_reply, order=order).value["number"])]}

    builder: Any = StateGraph(State)
    for order in ("1", "2"):
        builder.add_node(order, paying(order))
        builder.add_edge(START, order)
    graph = shop.cf.compile(builder)
    assert len(shop.cf.run(graph, {}, **WHO)["__interrupt__"]) == 2
    with pytest.raises(ThreadParked):
        shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-1")
    resolve(shop, operation_id="r-1/opaque/1")
    left = shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")["__interrupt__"]
    assert [one.value["operation_id"] for one in left] == ["r-1/opaque/2"]
    resolve(shop, operation_id="r-1/opaque/2")
    assert shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")["log"] == ["17", "17"]
    assert shop.count == 2


# --- around it -------------------------------------------------------------------------------------------------------


def test_a_retry_policy_does_not_repeat_a_parked_node(shop: Shop) -> None:
    ran: list[int] = []

    def node(state: State) -> State:
        ran.append(1)
        return pay(state)

    policy = RetryPolicy(max_attempts=4, initial_interval=0.001, retry_on=Exception)
    shop.cf.run(shop.cf.compile(chain(("pay", node), retry_policy=policy)), {}, **WHO)
    assert ran == [1]


def test_a_child_graph_parks_the_whole_run(shop: Shop) -> None:
    child = chain(("pay", pay)).compile()
    graph = shop.cf.compile(chain(("child", child), ("done", done)))
    shop.cf.run(graph, {}, **WHO)
    assert status(shop) == [("parked", OPERATION, None)]
    resolve(shop)
    assert shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")["log"] == ["done"]
    assert shop.count == 1


def test_an_update_of_a_parked_thread_does_not_send_again(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    shop.cf.run(graph, {}, **WHO)
    graph.update_state(shop.cf.config(**WHO), {"number": 3}, as_node="__start__")
    assert "__interrupt__" in shop.cf.run(graph, None, tenant="team-A", thread_id="t-1")
    assert status(shop) == [("parked", OPERATION, None)]
    assert shop.count == 1


def test_new_input_on_a_parked_thread_is_a_new_request(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("done", done)))
    shop.cf.run(shop.cf.compile(chain(("pay", pay))), {}, **WHO)
    assert shop.cf.run(graph, {}, **{**WHO, "request_id": "r-2"})["log"] == ["done"]
    assert status(shop) == [("idle", None, None)]


def test_a_change_of_state_leaves_a_parked_thread_parked(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay), ("done", done)))
    shop.cf.run(graph, {}, **WHO)
    graph.update_state(shop.cf.config(**WHO), {"log": ["noted"]}, as_node="__start__")
    assert status(shop) == [("parked", OPERATION, None)]
