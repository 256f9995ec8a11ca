"""Waits wherever a step can be: fanned out, in child graphs, in tasks, under retry policies, beside questions."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt

from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown, InvalidId, NoActiveCounterfoil, ThreadExists
from counterfoil.langgraph import perform, sleep_for, sleep_until, wait_for
from counterfoil.testing.clock import FakeClock
from tests.langgraph.shop import Shop, State, chain, charge, lose_reply

TENANT = "team-A"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cf(shop: Shop, clock: FakeClock) -> Any:
    return shop.open(clock=clock)


def start(cf: Any, builder: Any, given: Any = None, **options: Any) -> Any:
    graph = cf.workflows.register(builder, name="g", **options)
    cf.workflows.start("g", {} if given is None else given, tenant=TENANT, workflow_id="w", request_id="r-1")
    cf.drain(charge)
    return graph


def deliver(cf: Any, event_id: str, event: str = "paid", **given: Any) -> None:
    cf.workflows.deliver(event, tenant=TENANT, workflow_id="w", event_id=event_id, **given)


def status(cf: Any) -> str:
    return str(cf.workflows.get("w", tenant=TENANT).status)


def result(cf: Any) -> Any:
    return cf.workflows.result("w", tenant=TENANT)


def wait(state: State) -> State:
    came = wait_for("paid", subject=state.get("order"), timeout="1h")
    return {"log": ["nothing" if came is None else came.event_id]}


def test_of_tasks_that_are_fanned_out_each_waits_for_its_own(cf: Any, clock: FakeClock) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("wait", wait)
    builder.add_conditional_edges(START, lambda _: [Send("wait", {"order": name}) for name in ("a", "b", "c", "d")])
    builder.add_edge("wait", END)
    start(cf, builder)
    deliver(cf, "for-c", subject="c")
    deliver(cf, "for-a", subject="a")
    cf.drain(charge)
    assert status(cf) == "waiting"
    clock.advance("1h")
    deliver(cf, "late", subject="b")
    cf.drain(charge)
    assert sorted(result(cf)["log"]) == ["for-a", "for-c", "nothing", "nothing"]


@pytest.mark.parametrize("keeps", [None, True])
def test_a_child_graph_waits_and_what_it_did_before_is_not_done_again(cf: Any, shop: Shop, keeps: bool | None) -> None:  # noqa: FBT001 - LangGraph's own
    def pay(state: State) -> State:
        return {"numbers": [perform(charge, order="1").value["number"]]}

    child = chain(("pay", pay), ("wait", wait), ("again", wait)).compile(checkpointer=keeps)
    start(cf, chain(("child", child), ("last", lambda _: {"log": ["last"]})))
    for event_id in ("e-1", "e-2"):
        assert status(cf) == "waiting"
        deliver(cf, event_id)
        cf.drain(charge)
    assert (result(cf)["log"], shop.count) == (["e-1", "e-2", "last"], 1)


@pytest.mark.parametrize("compiled", ["by-counterfoil", "plainly"])
def test_a_child_that_a_node_calls_waits_if_it_is_known(cf: Any, compiled: str) -> None:
    builder = chain(("wait", wait))
    child = cf.compile(builder) if compiled == "by-counterfoil" else builder.compile()

    def call(_: State) -> State:
        return {"log": child.invoke({})["log"]}

    start(cf, chain(("call", call)))
    found = cf.workflows.get("w", tenant=TENANT)
    if compiled == "plainly":
        assert (found.status, "cf.compile(child)" in found.error_text) == ("failed", True)
        return
    assert found.status == "waiting", found
    deliver(cf, "e-1")
    cf.drain(charge)
    assert result(cf)["log"] == ["e-1"]


def test_a_child_that_stores_nothing_cannot_wait(cf: Any) -> None:
    child = chain(("wait", wait)).compile(checkpointer=False)
    start(cf, chain(("child", child)), tries=1)
    assert cf.workflows.get("w", tenant=TENANT).error_class.endswith("NoActiveCounterfoil")


def test_an_entrypoint_and_its_tasks_wait(cf: Any) -> None:
    @task
    def ask(name: str) -> str:
        came = wait_for("paid", subject=name)
        assert came is not None
        return came.event_id

    @entrypoint()
    def whole(given: dict[str, Any]) -> list[str]:
        asked = [ask(name) for name in ("a", "b")]
        sleep_for("0s")
        return [one.result() for one in asked]

    start(cf, whole, {"n": 1})
    for name in ("b", "a"):
        assert status(cf) == "waiting", cf.workflows.get("w", tenant=TENANT)
        deliver(cf, f"for-{name}", subject=name)
        cf.drain(charge)
    assert status(cf) == "done", cf.workflows.get("w", tenant=TENANT)


def test_a_retry_policy_does_not_make_it_another_wait(cf: Any) -> None:
    entered: list[int] = []

    def node(state: State) -> State:
        entered.append(1)
        came = wait_for("paid")
        assert came is not None
        if len(entered) < 4:
            raise ValueError("not yet")
        return {"log": [came.event_id]}

    policy = RetryPolicy(max_attempts=5, initial_interval=0.001, retry_on=Exception)
    start(cf, chain(("node", node), retry_policy=policy))
    assert entered == [1]
    deliver(cf, "e-1")
    cf.drain(charge)
    assert (result(cf)["log"], len(entered)) == (["e-1"], 4)
    assert [(each.name, each.state) for each in cf.workflows.waits("w", tenant=TENANT)] == [("paid", "answered")]


def test_a_loop_waits_anew_each_time(cf: Any) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("wait", wait)
    builder.add_edge(START, "wait")
    builder.add_conditional_edges("wait", lambda state: END if len(state["log"]) == 3 else "wait")
    start(cf, builder)
    for event_id in ("e-1", "e-2", "e-3"):
        deliver(cf, event_id)
        cf.drain(charge)
    assert result(cf)["log"] == ["e-1", "e-2", "e-3"]


def asking(state: State) -> State:
    return {"answer": interrupt("well?")}


@pytest.mark.parametrize("first", ["event", "answer"])
def test_a_wait_beside_a_question_each_get_their_own_answer(cf: Any, first: str) -> None:
    builder: Any = StateGraph(State)
    for name, node in (("wait", wait), ("ask", asking)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    graph = start(cf, builder)

    def answer() -> None:
        config = cf.config(tenant=TENANT, thread_id="w")
        (asked,) = [one for one in graph.get_state(config).interrupts if one.value == "well?"]
        cf.run(graph, Command(resume={asked.id: "yes"}), tenant=TENANT, thread_id="w")

    if first == "answer":
        answer()
        assert status(cf) == "waiting"
    deliver(cf, "e-1")
    cf.drain(charge)
    if first == "event":
        assert status(cf) == "waiting"
        answer()
    assert (result(cf)["log"], result(cf)["answer"]) == (["e-1"], "yes")


def test_a_question_and_a_wait_in_one_node(cf: Any) -> None:
    def both(state: State) -> State:
        said = interrupt("well?")
        came = wait_for("paid")
        assert came is not None
        return {"log": [said, came.event_id, interrupt("and?")]}

    graph = start(cf, chain(("both", both)))
    deliver(cf, "e-1")
    cf.drain(charge)
    assert cf.workflows.get("w", tenant=TENANT).waits_for == "an answer to its question"
    cf.run(graph, Command(resume="yes"), tenant=TENANT, thread_id="w")
    cf.drain(charge)
    cf.run(graph, Command(resume="no"), tenant=TENANT, thread_id="w")
    assert result(cf)["log"] == ["yes", "e-1", "no"]


def test_a_change_of_its_state_by_hand_lets_it_go_on_and_answers_nothing(cf: Any) -> None:
    graph = start(cf, chain(("wait", wait), ("last", lambda _: {"log": ["last"]})))
    graph.update_state(cf.config(tenant=TENANT, thread_id="w"), {"number": 5})
    cf.drain(charge)
    assert status(cf) == "waiting", cf.workflows.get("w", tenant=TENANT)
    deliver(cf, "e-1")
    cf.drain(charge)
    assert (result(cf)["log"], result(cf)["number"]) == (["e-1", "last"], 5)


def test_going_back_in_a_workflows_history_is_answered_from_its_receipts(cf: Any, shop: Shop) -> None:
    def pay(state: State) -> State:
        return {"numbers": [perform(charge, order="1").value["number"]]}

    graph = start(cf, chain(("pay", pay), ("wait", wait)))
    config = cf.config(tenant=TENANT, thread_id="w")
    (before,) = [one for one in graph.get_state_history(config) if one.next == ("pay",)]
    graph.invoke(None, {"configurable": {**config["configurable"], **before.config["configurable"]}})
    cf.drain(charge)
    assert (status(cf), shop.count) == ("waiting", 1)
    deliver(cf, "e-1")
    cf.drain(charge)
    assert (result(cf)["log"], shop.count) == (["e-1"], 1)


def test_a_node_for_which_a_cache_may_answer_does_not_wait(cf: Any) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("wait", wait, cache_policy=CachePolicy())
    builder.add_edge(START, "wait")
    builder.add_edge("wait", END)
    start(cf, builder.compile(cache=InMemoryCache()))
    assert cf.workflows.get("w", tenant=TENANT).error_class.endswith("EffectInCachedNode")


def test_it_is_told_all_that_a_workflow_waits_for(cf: Any) -> None:
    def lost(_: State) -> State:
        return {"answer": perform(lose_reply, order="1").value}

    builder: Any = StateGraph(State)
    for name, node in (("wait", wait), ("lost", lost), ("ask", asking)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    start(cf, builder)
    found = cf.workflows.get("w", tenant=TENANT)
    assert (found.waits_for, found.parked_on) == ("paid, the outcome of r-1/opaque/1", "r-1/opaque/1")
    cf.workflows.cancel("w", tenant=TENANT, by="ann", reason="so")
    assert cf.workflows.plan_resume("w", tenant=TENANT).waits == ()


class LostCommit:
    """Lets nobody hear of the COMMIT after a statement, once."""

    def __init__(self, statement: str) -> None:
        self.statement, self.passed = statement, False

    def __call__(self, point: Point, name: str) -> None:
        if name == self.statement:
            self.passed = True
        elif self.passed and point is Point.AFTER_COMMIT:
            self.passed = False
            raise CommitUnknown("nobody heard of it")


@pytest.mark.parametrize("last", [True, False])
def test_a_run_by_hand_whose_end_nobody_heard_of_is_looked_up(shop: Shop, *, last: bool) -> None:
    nodes = (("ask", asking),) if last else (("ask", asking), ("wait", wait))
    builder = chain(*nodes)
    start(shop.open(), builder)
    cf = shop.open(probe=LostCommit("leave_workflow_if_claimed"))
    graph = cf.workflows.register(builder, name="g")
    assert cf.run(graph, Command(resume="yes"), tenant=TENANT, thread_id="w")["answer"] == "yes"
    assert status(cf) == ("done" if last else "waiting")


def test_an_event_about_something_else_does_not_enter_it(cf: Any) -> None:
    start(cf, chain(("wait", wait)), {"order": "a"})
    version = cf.workflows.get("w", tenant=TENANT).version
    for number, subject in enumerate(("b", None)):
        told = cf.workflows.deliver("paid", tenant=TENANT, workflow_id="w", event_id=f"e-{number}", subject=subject)
        assert (told.state, told.wakes) == ("kept", False)
        cf.drain(charge)
        assert cf.workflows.get("w", tenant=TENANT).version == version
    deliver(cf, "e-3", subject="a")
    cf.drain(charge)
    assert result(cf)["log"] == ["e-3"]


def test_a_history_names_nodes_whatever_they_are_called_and_no_numbers(cf: Any) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("sent", lambda _: {"log": ["a"]})
    builder.add_node("last, of all", lambda _: {"log": ["b"]})
    builder.add_conditional_edges(START, lambda _: [Send("sent", {"order": name}) for name in "ab"])
    builder.add_edge("sent", "last, of all")
    builder.add_edge("last, of all", END)
    start(cf, builder, {"number": 1})
    steps = cf.workflows.history("w", tenant=TENANT)
    assert [(step.nodes, step.fields) for step in steps][:2] == [(("last, of all",), ("log",)), ((), ("log",))]


@pytest.mark.parametrize("begun", [True, False])
def test_no_history_is_copied_onto_a_workflow(cf: Any, *, begun: bool) -> None:
    builder = chain(("wait", wait))
    cf.run(cf.compile(chain(("a", lambda _: {"log": ["other"]}))), {}, tenant=TENANT, thread_id="t")
    cf.workflows.register(builder, name="g")
    cf.workflows.start("g", {"number": 1}, tenant=TENANT, workflow_id="w")
    if begun:
        cf.drain(charge)
    with pytest.raises(ThreadExists):
        cf.saver(tenant=TENANT).copy_thread("t", "w")
    cf.saver(tenant=TENANT).copy_thread("w", "copy")
    cf.saver(tenant=TENANT).prune(["w"])
    deliver(cf, "e-1")
    cf.drain(charge)
    assert (result(cf)["log"], result(cf)["number"]) == (["e-1"], 1)


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ({"event": ""}, "InvalidArguments", "event is empty."),
        ({"event": "paid", "match": {"amount": math.nan}}, "NonFiniteNumber", "at $.match.amount"),
    ],
)
def test_what_no_event_can_be_is_not_waited_for(cf: Any, asked: dict[str, Any], error: str, told: str) -> None:
    def step(_: State) -> State:
        wait_for(**asked)
        return {}

    start(cf, chain(("step", step)))
    found = cf.workflows.get("w", tenant=TENANT)
    assert (found.status, found.error_class) == ("failed", error)
    assert told in found.error_text


def test_a_wait_outside_of_a_graph_says_what_can_wait() -> None:
    with pytest.raises(NoActiveCounterfoil, match="Only steps of a workflow can wait"):
        wait_for("paid")


@pytest.mark.parametrize("wrong", ["far", "event", "subject", "name"])
def test_what_no_row_can_hold_is_refused_before_anything_is_stored(cf: Any, wrong: str) -> None:
    long = "x" * 5000

    def step(_: State) -> State:
        if wrong == "far":
            sleep_until(datetime.max.replace(tzinfo=UTC))
        asked: dict[str, Any] = {"event": "paid", wrong: long}
        wait_for(**asked)
        return {}

    start(cf, chain(("step", step)))
    assert (status(cf), cf.workflows.waits("w", tenant=TENANT)) == ("failed", ())
    if wrong in {"event", "subject"}:
        with pytest.raises(InvalidId, match=wrong):
            deliver(cf, "e-1", **{"event": "paid", wrong: long})
