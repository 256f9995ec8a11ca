"""`perform` wherever LangGraph runs code, and that nothing else about the graph is different."""

import asyncio
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.errors import NodeError
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, StreamWriter, TimeoutPolicy, interrupt

from counterfoil import EffectCall, effect
from counterfoil.errors import (
    EffectInCachedNode,
    EffectNotSent,
    EffectRefused,
    FingerprintMismatch,
    OutcomeUnknown,
    SecretInState,
)
from counterfoil.langgraph import aperform, perform, retry_on
from tests.langgraph.shop import (
    WHO,
    Shop,
    State,
    accept,
    acharge,
    busy_once,
    chain,
    charge,
    lose_reply,
    refused,
)

GOING_ON: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1"}


def pay(state: State) -> State:
    return {"numbers": [perform(charge, order=state["order"]).value["number"]]}


def pay_and_ask(state: State) -> State:
    paid = perform(charge, order=state["order"])
    return {"numbers": [paid.value["number"]], "answer": interrupt(paid.value), "log": [paid.answered_from]}


def who(thread_id: str = "t-1", request_id: str = "r-1") -> dict[str, Any]:
    return {"tenant": "team-A", "request_id": request_id, "thread_id": thread_id}


def _noting(ran: list[str], value: str) -> Any:
    def node(state: State) -> State:
        ran.append(value)
        return {"log": [value]}

    return node


# --- the acceptance list ---------------------------------------------------------------------------------------------


def test_interrupt_and_resume_are_one_effect(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", pay_and_ask)))
    shop.cf.run(graph, {"order": "1"}, **WHO)
    ended = shop.cf.run(graph, Command(resume="yes"), **GOING_ON)
    assert (shop.count, ended["numbers"], ended["log"]) == (1, [1], ["receipt"])


@pytest.mark.parametrize(("orders", "effects"), [(("1", "2"), 2), (("1", "1"), 1)])
def test_a_deliberate_second_visit_is_a_second_effect_where_its_business_id_differs(
    shop: Shop, orders: tuple[str, str], effects: int
) -> None:
    def visit(state: State) -> State:
        order = orders[len(state.get("numbers", []))]
        return {"numbers": [perform(charge, order=order).value["number"]]}

    builder: Any = StateGraph(State)
    builder.add_node("visit", visit)
    builder.add_edge(START, "visit")
    builder.add_conditional_edges("visit", lambda state: END if len(state["numbers"]) == 2 else "visit")
    shop.cf.run(shop.cf.compile(builder), {}, **WHO)
    assert shop.count == effects


@pytest.mark.parametrize(("second", "effects"), [("r-2", 2), ("r-1", 1)])
def test_the_next_turn_is_a_second_effect_where_its_request_differs(shop: Shop, second: str, effects: int) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    for request in ("r-1", second):
        shop.cf.run(graph, {"order": "1"}, **who(request_id=request))
    assert shop.count == effects


@pytest.mark.parametrize(("second", "effects"), [("r-2", 2), ("r-1", 1)])
def test_two_threads_are_two_effects_where_their_requests_differ(shop: Shop, second: str, effects: int) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    for thread, request in (("t-1", "r-1"), ("t-2", second)):
        shop.cf.run(graph, {"order": "1"}, **who(thread, request))
    assert shop.count == effects


@pytest.mark.parametrize(("orders", "effects"), [("12", 2), ("11", 1), ("121212", 2)])
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_sends_are_as_many_effects_as_they_have_business_ids(
    shop: Shop, orders: str, effects: int, colour: str
) -> None:
    async def apay(state: State) -> State:
        return {"numbers": [(await aperform(charge, order=state["order"])).value["number"]]}

    builder: Any = StateGraph(State)
    builder.add_node("pay", apay if colour == "awaiting" else pay)
    builder.add_conditional_edges(START, lambda state: [Send("pay", {"order": one}) for one in orders], ["pay"])
    graph = shop.cf.compile(builder)
    config = shop.cf.config(**WHO)
    ended = asyncio.run(graph.ainvoke({}, config)) if colour == "awaiting" else graph.invoke({}, config)
    assert shop.count == effects
    assert len(ended["numbers"]) == len(orders)
    assert set(ended["numbers"]) == set(range(1, effects + 1))


def test_time_travel_is_answered_from_the_receipt_and_other_arguments_are_a_conflict(shop: Shop) -> None:
    def charging(state: State) -> State:
        return {"numbers": [perform(charge, order="1", amount=state["amount"]).value["number"]]}

    graph, config = shop.cf.compile(chain(("a", lambda state: {}), ("pay", charging))), shop.cf.config(**WHO)
    graph.invoke({"amount": 10}, config)
    place = next(one.config for one in graph.get_state_history(config) if one.next == ("pay",))
    assert graph.invoke(None, place)["numbers"] == [1]
    forked = graph.update_state(place, {"amount": 12})
    with pytest.raises(FingerprintMismatch):
        graph.invoke(None, forked)
    assert shop.count == 1


def test_a_retry_policy_is_one_effect(shop: Shop) -> None:
    ran: list[int] = []

    def node(state: State) -> State:
        ran.append(1)
        paid = pay(state)
        if len(ran) < 3:
            raise ConnectionError("the next call fails")
        return paid

    policy = RetryPolicy(max_attempts=5, initial_interval=0.001)
    ended = shop.cf.run(shop.cf.compile(chain(("n", node), retry_policy=policy)), {"order": "1"}, **WHO)
    assert (len(ran), shop.count, ended["numbers"]) == (3, 1, [1])


# --- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "error"), [(refused, EffectRefused), (busy_once, EffectNotSent), (lose_reply, OutcomeUnknown)]
)
def test_langgraphs_default_policy_does_not_repeat_our_errors(shop: Shop, effect: Any, error: Any) -> None:
    ran: list[int] = []

    def node(state: State) -> State:
        ran.append(1)
        return {"answer": perform(effect, order="1").value}

    policy = RetryPolicy(max_attempts=4, initial_interval=0.001)
    graph = chain(("n", node), retry_policy=policy).compile(checkpointer=shop.cf.saver())
    with pytest.raises(error):
        graph.invoke({}, shop.cf.config(**WHO))
    assert ran == [1]


def test_retry_on_repeats_what_may_simply_be_repeated_and_nothing_else(shop: Shop) -> None:
    def node(effect: Any) -> Any:
        return lambda state: {"answer": perform(effect, order="1").value}

    policy = RetryPolicy(max_attempts=4, initial_interval=0.001, retry_on=retry_on)
    graph = shop.cf.compile(chain(("n", node(busy_once)), retry_policy=policy))
    assert shop.cf.run(graph, {}, **WHO)["answer"] == {"number": 1}
    attempts = shop.cf.operations.get("r-1/busy/1", tenant="team-A").attempts
    assert [one.outcome for one in attempts] == ["not_sent", "succeeded"]
    with pytest.raises(EffectRefused):
        shop.cf.run(shop.cf.compile(chain(("n", node(refused)), retry_policy=policy)), {}, **who("t-2"))
    assert len(shop.cf.operations.get("r-1/refused/1", tenant="team-A").attempts) == 1
    assert retry_on(ConnectionError())  # the node's own: left to LangGraph's default, which repeats it
    assert not retry_on(ValueError())


def test_an_error_handler_node_sees_our_error_and_may_perform_another_effect(shop: Shop) -> None:
    def failing(state: State) -> State:
        return {"answer": perform(refused, order="1").value}

    def compensate(state: State, error: NodeError) -> State:
        return {"log": [type(error.error).__name__], **pay({"order": "compensation"})}

    builder: Any = StateGraph(State)
    builder.add_node("n", failing, error_handler=compensate)
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    ended = shop.cf.run(shop.cf.compile(builder), {"order": "1"}, **WHO)
    assert ended["log"] == ["EffectRefused"]
    assert shop.count == 1


def test_an_error_handler_does_not_see_a_parked_run(shop: Shop) -> None:
    handled: list[Any] = []

    def failing(state: State) -> State:
        return {"answer": perform(lose_reply, order="1").value}

    builder: Any = StateGraph(State)
    builder.add_node("n", failing, error_handler=_noting(handled, "handled"))
    builder.add_edge(START, "n")
    assert "__interrupt__" in shop.cf.run(shop.cf.compile(builder), {}, **WHO)
    assert handled == []


# --- what else a node may say ----------------------------------------------------------------------------------------


def test_commands_go_where_they_say(shop: Shop) -> None:
    def first(state: State) -> Any:
        perform(charge, order="1")
        return Command(goto="third", update={"log": ["first"]})

    builder: Any = StateGraph(State)
    builder.add_node("first", first, destinations=("second", "third"))
    builder.add_node("second", lambda state: {"log": ["second"]})
    builder.add_node("third", lambda state: Command(update={"log": ["third"]}))
    builder.add_edge(START, "first")
    assert shop.cf.run(shop.cf.compile(builder), {}, **WHO)["log"] == ["first", "third"]


def test_a_deferred_node_waits_for_all_branches(shop: Shop) -> None:
    builder: Any = StateGraph(State)
    for name in ("a", "b", "b2"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
    builder.add_node("last", lambda state: {"log": ["last"]}, defer=True)
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge("b", "b2")
    builder.add_edge("a", "last")
    builder.add_edge("b2", "last")
    log = shop.cf.run(shop.cf.compile(builder), {}, **WHO)["log"]
    assert log[-1] == "last"
    assert sorted(log) == ["a", "b", "b2", "last"]


def test_cached_nodes_keep_keys_of_their_own(shop: Shop) -> None:
    ran: list[str] = []

    def one(state: State) -> State:
        ran.append("one")
        return {"log": ["one"]}

    def two(state: State) -> State:
        ran.append("two")
        return {"log": ["two"]}

    builder: Any = StateGraph(State)
    for name, node in (("one", one), ("two", two), ("three", _noting(ran, "three")), ("four", _noting(ran, "four"))):
        builder.add_node(name, node, cache_policy=CachePolicy(key_func=lambda _state: b"same"))
    for earlier, later in ((START, "one"), ("one", "two"), ("two", "three"), ("three", "four")):
        builder.add_edge(earlier, later)
    graph = shop.cf.compile(builder, cache=InMemoryCache())
    logs = [shop.cf.run(graph, {}, **who(thread))["log"] for thread in ("t-1", "t-2")]
    assert logs == [["one", "two", "three", "four"]] * 2
    assert ran == ["one", "two", "three", "four"]


@pytest.mark.parametrize("place", ["node", "default", "child", "called-child"])
async def test_an_effect_in_a_node_that_a_cache_may_answer_for_is_refused(shop: Shop, place: str) -> None:
    child = chain(("pay", pay)).compile()
    nodes: dict[str, Any] = {"child": child, "called-child": lambda state: {**child.invoke(state)}}
    builder: Any = StateGraph(State)
    policy: Any = None if place == "default" else CachePolicy()
    if place == "default":
        builder.set_node_defaults(cache_policy=CachePolicy())
    builder.add_node("n", nodes.get(place, pay), cache_policy=policy)
    builder.add_edge(START, "n")
    graph, config = shop.cf.compile(builder, cache=InMemoryCache()), shop.cf.config(**WHO)
    with pytest.raises(EffectInCachedNode):
        await graph.ainvoke({"order": "1"}, config)
    assert shop.count == 0


def test_a_node_beside_a_cached_one_performs(shop: Shop) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("estimate", lambda state: {"amount": 3}, cache_policy=CachePolicy())
    builder.add_node("pay", pay)
    builder.add_edge(START, "estimate")
    builder.add_edge("estimate", "pay")
    graph = shop.cf.compile(builder, cache=InMemoryCache())
    for number in range(2):
        shop.cf.run(graph, {"order": "1"}, **who(f"t-{number}", f"r-{number}"))
    assert shop.count == 2


def test_a_timeout_on_a_blocking_node_is_still_refused(shop: Shop) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("n", pay, timeout=TimeoutPolicy(run_timeout=5))
    builder.add_edge(START, "n")
    with pytest.raises(ValueError, match="timeout"):
        builder.compile()
    with pytest.raises(ValueError, match="timeout"):
        shop.cf.compile(builder)


async def test_a_timeout_on_an_async_node_works_and_its_effect_is_honest(shop: Shop) -> None:
    async def slow(state: State) -> State:
        paid = await aperform(acharge, order="1")
        if paid.answered_from == "effect":
            await asyncio.Event().wait()
        return {"numbers": [paid.value["number"]]}

    builder: Any = StateGraph(State)
    policy = RetryPolicy(max_attempts=2, initial_interval=0.001)
    builder.add_node("n", slow, timeout=TimeoutPolicy(run_timeout=1), retry_policy=policy)
    builder.add_edge(START, "n")
    ended = await shop.cf.compile(builder).ainvoke({}, shop.cf.config(**WHO))
    assert ended["numbers"] == [1]
    assert shop.count == 1


def test_names_and_pictures_are_those_of_the_plain_graph(shop: Shop) -> None:
    builder: Any = StateGraph(State)
    builder.add_node("first", pay, metadata={"team": "billing"}, destinations=("second", END))
    builder.add_node("second", pay_and_ask)
    builder.add_edge(START, "first")
    builder.add_conditional_edges("second", lambda state: "first", {"first": "first", "end": END})
    plain, managed = builder.compile(name="shop"), shop.cf.compile(builder, name="shop")
    assert managed.get_graph().draw_mermaid() == plain.get_graph().draw_mermaid()
    assert managed.get_graph().to_json() == plain.get_graph().to_json()
    assert managed.name == plain.name
    assert managed.nodes.keys() == plain.nodes.keys()
    assert managed.get_input_jsonschema() == plain.get_input_jsonschema()
    assert managed.get_output_jsonschema() == plain.get_output_jsonschema()
    assert managed.get_context_jsonschema() == plain.get_context_jsonschema()
    assert isinstance(managed, type(plain))


def test_the_original_is_left_as_it_is(shop: Shop) -> None:
    builder = chain(("pay", pay))
    spec = builder.nodes["pay"]
    compiled = builder.compile(interrupt_before=["pay"])
    managed = shop.cf.compile(compiled)
    assert builder.nodes["pay"] is spec
    assert compiled.checkpointer is None
    shop.cf.run(managed, {"order": "1"}, **WHO)
    assert managed.get_state(shop.cf.config(**WHO)).next == ("pay",)
    assert shop.count == 0


class Ctx(TypedDict):
    place: str


def test_runtime_context_store_writer_and_config_reach_a_wrapped_node(shop: Shop) -> None:
    def node(state: State, config: RunnableConfig, *, runtime: Runtime[Ctx], writer: StreamWriter) -> State:
        assert runtime.store is not None
        runtime.store.put(("a",), "k", {"v": 1})
        writer({"progress": 1})
        return {"log": [runtime.context["place"], config["configurable"]["setting"]]}

    builder: Any = StateGraph(State, context_schema=Ctx)
    builder.add_node("n", node)
    builder.add_edge(START, "n")
    store = InMemoryStore()
    graph = shop.cf.compile(builder, store=store)
    config = shop.cf.config(**WHO, config={"configurable": {"setting": "s"}})
    chunks = list(graph.stream({}, config, context={"place": "here"}, stream_mode=["custom", "values"]))
    assert ("custom", {"progress": 1}) in chunks
    assert chunks[-1][1]["log"] == ["here", "s"]
    assert store.get(("a",), "k") is not None


def test_what_a_node_returns_is_refused_before_the_next_node_and_its_effect_stands(shop: Shop) -> None:
    ran: list[str] = []
    leaking = [True]

    def node(state: State) -> State:
        paid = pay(state)
        return {**paid, "answer": {"password": "hunter2secret"}} if leaking[0] else paid

    graph = shop.cf.compile(chain(("n", node), ("later", _noting(ran, "later"))))
    with pytest.raises(SecretInState) as caught:
        shop.cf.run(graph, {"order": "1"}, **WHO)
    assert caught.value.facts["path"] == "n() -> $.answer.password"
    assert ran == []
    leaking[0] = False
    assert shop.cf.run(graph, None, **GOING_ON)["numbers"] == [1]
    assert shop.count == 1


@effect("test.intent", key="{request_id}/intent", redact=["client_secret"])
def make_intent(call: EffectCall) -> dict[str, Any]:
    return {"id": accept(call), "client_secret": "pi_1_secret_2"}


def test_a_receipt_with_a_redacted_part_may_be_kept_in_the_state(shop: Shop) -> None:
    graph, config = (
        shop.cf.compile(chain(("n", lambda state: {"answer": perform(make_intent).value}))),
        shop.cf.config(**WHO),
    )
    ended = graph.invoke({}, config)
    assert ended["answer"]["id"] == 1
    assert graph.get_state(config).values["answer"] == ended["answer"]
    assert b"pi_1_secret_2" not in shop.raw()


# --- functional API --------------------------------------------------------------------------------------------------


def test_tasks_of_an_entrypoint(shop: Shop) -> None:
    @task
    def paying(order: str) -> int:
        return int(perform(charge, order=order).value["number"])

    @entrypoint()
    def flow(orders: list[str], *, previous: Any = None) -> Any:
        numbers = [one.result() for one in [paying(order) for order in orders]]
        answer = interrupt("well?")
        again = perform(charge, order=orders[0]).value["number"]
        return entrypoint.final(value=[numbers, answer, again], save=(previous or 0) + 1)

    graph = shop.cf.compile(flow)
    shop.cf.run(graph, ["1", "2"], **WHO)
    numbers, answer, again = shop.cf.run(graph, Command(resume="yes"), **GOING_ON)
    assert sorted(numbers) == [1, 2]
    assert (answer, again) == ("yes", numbers[0])
    assert shop.count == 2
    assert shop.select("select state, attempt from counterfoil_thread") == [("idle", 2)]


async def test_tasks_of_an_async_entrypoint(shop: Shop) -> None:
    @task
    async def paying(order: str) -> int:
        return int((await aperform(acharge, order=order)).value["number"])

    @entrypoint()
    async def flow(orders: list[str]) -> Any:
        numbers = await asyncio.gather(*(paying(order) for order in orders))
        return [sorted(numbers), interrupt("well?")]

    graph, config = shop.cf.compile(flow), shop.cf.config(**WHO)
    await graph.ainvoke(["1", "2"], config)
    assert await graph.ainvoke(Command(resume="yes"), config) == [[1, 2], "yes"]
    assert shop.count == 2


def test_an_entrypoint_parks_and_goes_on(shop: Shop) -> None:
    @task
    def paying() -> Any:
        return perform(lose_reply, order="1").value

    @entrypoint()
    def flow(_: str) -> Any:
        return paying().result()

    graph = shop.cf.compile(flow)
    assert "__interrupt__" in shop.cf.run(graph, "go", **WHO)
    assert shop.select("select state from counterfoil_thread") == [("parked",)]
    case = shop.cf.review.list(tenant="team-A").items[0]
    shop.cf.review.resolve(
        case.case_id, tenant="team-A", verdict="happened", by="ann", value=17, expect_version=case.version
    )
    assert shop.cf.run(graph, None, **GOING_ON) == 17
    assert shop.count == 1


# --- tools and agents ------------------------------------------------------------------------------------------------


@tool
def pay_order(order: str) -> str:
    """Pay an order."""
    return f"paid as {perform(charge, order=order).value['number']}"


@tool
async def apay_order(order: str) -> str:
    """Pay an order."""
    return f"paid as {(await aperform(charge, order=order)).value['number']}"


@tool
def pay_in_the_dark(order: str) -> str:
    """Pay an order at a provider that loses its replies."""
    return str(perform(lose_reply, order=order).value)


@tool
def ask_a_person(question: str) -> str:
    """Ask a person."""
    return str(interrupt(question))


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: Annotated[list[str], add]


def calls(*wanted: tuple[str, dict[str, Any]], batch: str = "x") -> AIMessage:
    made = [{"name": name, "args": args, "id": f"{batch}-{n}"} for n, (name, args) in enumerate(wanted)]
    return AIMessage(content="", tool_calls=made)


def tool_graph(*tools: Any) -> Any:
    builder: Any = StateGraph(Talk)
    builder.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    return builder


def told(state: Any) -> list[str]:
    return [str(one.content) for one in state["messages"] if isinstance(one, ToolMessage)]


def test_a_batch_of_tools_of_which_one_pauses_pays_once(shop: Shop) -> None:
    graph = shop.cf.compile(tool_graph(pay_order, ask_a_person))
    asked = calls(("pay_order", {"order": "1"}), ("ask_a_person", {"question": "well?"}))
    shop.cf.run(graph, {"messages": [asked]}, **WHO)
    ended = shop.cf.run(graph, Command(resume="yes"), **GOING_ON)
    assert told(ended) == ["paid as 1", "yes"]
    assert shop.count == 1


def test_a_tool_error_handler_never_shows_the_model_an_unknown_outcome(shop: Shop) -> None:
    graph = shop.cf.compile(tool_graph(pay_in_the_dark))
    first = shop.cf.run(graph, {"messages": [calls(("pay_in_the_dark", {"order": "1"}))]}, **WHO)
    assert told(first) == []
    assert first["__interrupt__"][0].value["operation_id"] == "r-1/opaque/1"
    case = shop.cf.review.list(tenant="team-A").items[0]
    shop.cf.review.resolve(
        case.case_id, tenant="team-A", verdict="happened", by="ann", value=17, expect_version=case.version
    )
    assert told(shop.cf.run(graph, None, **GOING_ON)) == ["17"]
    assert shop.count == 1


async def test_async_tools(shop: Shop) -> None:
    graph, config = shop.cf.compile(tool_graph(apay_order, pay_order)), shop.cf.config(**WHO)
    asked = calls(("apay_order", {"order": "1"}), ("pay_order", {"order": "1"}), ("pay_order", {"order": "2"}))
    ended = await graph.ainvoke({"messages": [asked]}, config)
    assert sorted(set(told(ended))) == ["paid as 1", "paid as 2"]
    assert shop.count == 2


class Model(GenericFakeChatModel):
    """A model that says what it is told to, and takes any tools."""

    def bind_tools(self, tools: Any, **_options: Any) -> Any:  # noqa: ARG002 - the interface's name
        return self


def test_an_agent_pays_once_over_an_interrupt_and_under_a_new_call_id(shop: Shop) -> None:
    def agent(*messages: AIMessage) -> Any:
        model = Model(messages=iter(messages))
        return shop.cf.compile(create_agent(model, [pay_order, ask_a_person]))

    both = calls(("pay_order", {"order": "1"}), ("ask_a_person", {"question": "well?"}))
    same_again = calls(("pay_order", {"order": "1"}), batch="other")
    graph = agent(both, same_again, AIMessage(content="done"))
    first = shop.cf.run(graph, {"messages": [("user", "pay order 1")]}, **WHO)
    assert [one.value for one in first["__interrupt__"]] == ["well?"]
    ended = shop.cf.run(graph, Command(resume="yes"), **GOING_ON)
    assert told(ended) == ["paid as 1", "yes", "paid as 1"]
    assert ended["messages"][-1].content == "done"
    assert shop.count == 1


def test_an_agent_parks_on_an_unknown_outcome(shop: Shop) -> None:
    model = Model(messages=iter([calls(("pay_in_the_dark", {"order": "1"})), AIMessage(content="done")]))
    graph = shop.cf.compile(create_agent(model, [pay_in_the_dark]))
    first = shop.cf.run(graph, {"messages": [("user", "pay")]}, **WHO)
    assert told(first) == []
    assert first["__interrupt__"][0].value["operation_id"] == "r-1/opaque/1"
    case = shop.cf.review.list(tenant="team-A").items[0]
    shop.cf.review.resolve(
        case.case_id, tenant="team-A", verdict="happened", by="ann", value=17, expect_version=case.version
    )
    ended = shop.cf.run(graph, None, **GOING_ON)
    assert told(ended) == ["17"]
    assert ended["messages"][-1].content == "done"
    assert shop.count == 1
