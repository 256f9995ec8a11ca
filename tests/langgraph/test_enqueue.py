"""`enqueue` in graphs: an intent is recorded if and only if the result of what asked for it is."""

import asyncio
import contextvars
import threading
import warnings
from dataclasses import dataclass
from operator import add
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.config import get_config
from langgraph.errors import InvalidUpdateError
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt
from typing_extensions import TypedDict

from counterfoil import Delivery, EffectCall, Provider, effect
from counterfoil.credentials import require_detectors
from counterfoil.errors import (
    Busy,
    DifferentEffect,
    EffectInCachedNode,
    FingerprintMismatch,
    IntentWouldBeLost,
    InvalidArguments,
    NoActiveCounterfoil,
    SyncOnEventLoop,
    TenantMissing,
)
from counterfoil.langgraph import aenqueue, enqueue, perform
from counterfoil.langgraph import saver as saver_module
from counterfoil.langgraph.intents import CHANNEL
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.langgraph.shop import WHO, Shop, State, accept, acharge, chain, charge, conf
from tests.langgraph.test_serving import asked, served

NOTHING: Any = None
require_detectors()  # on its import, detect-secrets turns warnings into log records


@effect("test.other", key="{request_id}/charge/{order}")
def other(call: EffectCall, *, order: str) -> None:
    accept(call)


@effect("test.local", key="{request_id}/local", provider=Provider.transactional())
def local(tx: Any) -> None: ...


@pytest.fixture(params=["blocking", "awaiting"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asking(colour: str, *orders: str, result: Any = NOTHING) -> Any:
    """Return a node that enqueues and returns this, or raises it."""

    def end() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    def node(state: Any) -> Any:
        for order in orders:
            enqueue(charge, order=order)
        return end()

    async def anode(state: Any) -> Any:
        for order in orders:
            await aenqueue(charge, order=order)
        return end()

    return anode if colour == "awaiting" else node


def go(graph: Any, given: Any, config: Any, colour: str, **options: Any) -> Any:
    if colour == "awaiting":
        return asyncio.run(graph.ainvoke(given, config, **options))
    return graph.invoke(given, config, **options)


def run(shop: Shop, builder: Any, colour: str, given: Any = NOTHING, **options: Any) -> Any:
    graph = shop.cf.compile(builder, **options)
    return go(graph, {} if given is None else given, shop.cf.config(**WHO), colour)


def enqueued(shop: Shop) -> list[str]:
    """Return which orders are in the outbox."""
    rows = shop.select("select operation_id from counterfoil_operation order by operation_id")
    return [operation_id.rpartition("/")[2] for (operation_id,) in rows]


# --- what a node returns ---------------------------------------------------------------------------------------------


@dataclass
class Result:
    log: list[str]


RESULTS = {
    "nothing": None,
    "dict": {"log": ["n"]},
    "command": Command(update={"log": ["n"]}, goto="after"),
    "commands": [Command(update={"log": ["n"]}), {"log": []}],
    "dataclass": Result(["n"]),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_whatever_a_node_returns_its_intents_go_with_it(shop: Shop, colour: str, kind: str) -> None:
    builder = chain(("n", asking(colour, "1", "2", result=RESULTS[kind])), ("after", lambda state: {"log": ["after"]}))
    ended = run(shop, builder, colour)
    assert ended == {"log": ([] if kind == "nothing" else ["n"]) + ["after"], "numbers": []}
    assert enqueued(shop) == ["1", "2"]
    shop.cf.drain()
    shop.cf.drain()
    assert shop.count == 2


@pytest.mark.parametrize("place", ["as-node", "called", "among-others"])
def test_intents_ride_a_command_for_the_parent_graph(shop: Shop, colour: str, place: str) -> None:
    leaving: Any = Command(graph=Command.PARENT, update={"log": ["left"]}, goto="after")
    result = [leaving, {"log": ["lost"]}] if place == "among-others" else leaving
    builder = chain(("n", asking(colour, "1", result=result)))
    child = shop.cf.compile(builder) if place == "called" else builder.compile()

    def calling(state: State) -> Any:
        enqueue(charge, order="0")
        return child.invoke({})

    async def acalling(state: State) -> Any:
        await aenqueue(charge, order="0")
        return await child.ainvoke({})

    node: Any = {"blocking": calling, "awaiting": acalling}[colour] if place == "called" else child
    parent: Any = StateGraph(State)
    parent.add_node("child", node, destinations=("after",))
    parent.add_node("after", lambda state: {"log": ["after"]})
    parent.add_edge(START, "child")
    ended = run(shop, parent, colour)
    assert ended["log"] == ["left", "after"]
    assert enqueued(shop) == (["0", "1"] if place == "called" else ["1"])


def test_a_command_for_a_parent_graph_that_would_lose_them_is_refused(shop: Shop, colour: str) -> None:
    child = shop.cf.compile(chain(("n", asking(colour, "1", result=Command(graph=Command.PARENT, goto=END)))))
    plain = chain(("child", child)).compile()

    def calling(state: State) -> Any:
        plain.invoke({})

    async def acalling(state: State) -> Any:
        await plain.ainvoke({})

    with pytest.raises(IntentWouldBeLost, match="Compile the parent graph"):
        run(shop, chain(("call", acalling if colour == "awaiting" else calling)), colour)
    assert enqueued(shop) == []


def test_the_answer_says_what_is_known(shop: Shop) -> None:
    seen: list[Any] = []

    def node(state: State) -> None:
        seen.append(enqueue(charge, order="1"))
        seen.append(enqueue(charge, order="1"))

    run(shop, chain(("n", node)), "blocking")
    shop.cf.drain()
    run(shop, chain(("n", node)), "blocking")
    assert [(one.operation_id, one.state, one.is_new) for one in seen] == [
        ("r-1/charge/1", "pending", True),
        ("r-1/charge/1", "pending", False),
        ("r-1/charge/1", "succeeded", False),
        ("r-1/charge/1", "succeeded", False),
    ]
    assert shop.count == 1


def test_an_operation_says_where_it_was_asked_for_and_on_which_terms(shop: Shop, colour: str) -> None:
    def node(state: State) -> None:
        enqueue(charge, order="1", delivery=Delivery(stream="s", max_attempts=3))

    async def anode(state: State) -> None:
        await aenqueue(charge, order="1", delivery=Delivery(stream="s", max_attempts=3))

    def paying(state: State) -> None:
        perform(charge, order="2")

    builder = chain(("n", anode if colour == "awaiting" else node), ("pay", paying))
    run(shop, builder, colour)
    columns = "tenant, request_id, thread_id, node, stream, max_attempts, sender"
    found = shop.select(f"select {columns} from counterfoil_operation order by operation_id")  # noqa: S608 - ours
    assert found == [
        ("team-A", "r-1", "t-1", "n", "s", 3, "dispatcher"),
        ("team-A", "r-1", "t-1", "pay", None, None, "caller"),
    ]
    where = shop.select(
        "select o.node from counterfoil_operation o join counterfoil_write w on w.checkpoint_id = o.checkpoint_id"
        " and w.checkpoint_ns = '' and w.task_id = o.task_id where w.channel = ?",
        CHANNEL,
    )
    assert where == [("n",)]


# --- what counts -----------------------------------------------------------------------------------------------------


def test_of_several_attempts_only_the_last_ones_intents_count(shop: Shop, colour: str) -> None:
    tried: list[int] = []

    def begun() -> str:
        tried.append(1)
        return str(len(tried))

    def node(state: State) -> None:
        enqueue(charge, order=begun())
        if len(tried) < 3:
            raise ConnectionError

    async def anode(state: State) -> None:
        await aenqueue(charge, order=begun())
        if len(tried) < 3:
            raise ConnectionError

    builder: Any = StateGraph(State)
    policy = RetryPolicy(max_attempts=5, initial_interval=0.001, jitter=False)
    builder.add_node("n", anode if colour == "awaiting" else node, retry_policy=policy)
    builder.add_edge(START, "n")
    run(shop, builder, colour)
    assert enqueued(shop) == ["3"]


def test_a_node_that_fails_leaves_none_and_a_later_run_enqueues_them(shop: Shop, colour: str) -> None:
    failing = shop.cf.compile(chain(("n", asking(colour, "1", result=ValueError("x")))))
    with pytest.raises(ValueError, match="x"):
        go(failing, {}, shop.cf.config(**WHO), colour)
    assert enqueued(shop) == []
    run(shop, chain(("n", asking(colour, "1"))), colour)
    assert enqueued(shop) == ["1"]


@pytest.mark.parametrize("fails", ["in-the-node", "behind-it"])
def test_an_error_handlers_intents_count_and_those_of_a_node_that_raised_do_not(
    shop: Shop, colour: str, fails: str
) -> None:
    error = ValueError("x")
    builder: Any = StateGraph(State)
    result = error if fails == "in-the-node" else {"log": ["n"]}
    builder.add_node(
        "n", asking(colour, "n", result=result), error_handler=asking(colour, "handler", result={"log": ["handler"]})
    )
    builder.add_edge(START, "n")

    def choose(state: State) -> str:
        raise error

    if fails == "behind-it":
        builder.add_conditional_edges("n", choose, ["n"])
    ended = run(shop, builder, colour)
    # LangGraph keeps what a node had written when the choice of the next one failed: so its intents count, too
    counted = ["handler"] if fails == "in-the-node" else ["handler", "n"]
    assert (sorted(ended["log"]), enqueued(shop)) == (counted, counted)


def test_a_choice_of_the_next_node_that_fails_leaves_none(shop: Shop, colour: str) -> None:
    def choose(state: State) -> str:
        raise ValueError("x")

    builder: Any = StateGraph(State)
    builder.add_node("n", asking(colour, "1", result={"log": ["n"]}))
    builder.add_edge(START, "n")
    builder.add_conditional_edges("n", choose, ["n"])
    with pytest.raises(ValueError, match="x"):
        run(shop, builder, colour)
    assert enqueued(shop) == []
    assert shop.rows("write", f"channel = '{CHANNEL}'") == 0


def test_an_interrupt_leaves_none_until_the_node_ends_and_warns(shop: Shop, colour: str) -> None:
    def node(state: State) -> State:
        enqueue(charge, order="before")
        answer = interrupt("?")
        enqueue(charge, order=answer)
        return {"answer": answer}

    async def anode(state: State) -> State:
        await aenqueue(charge, order="before")
        answer = interrupt("?")
        await aenqueue(charge, order=answer)
        return {"answer": answer}

    graph = shop.cf.compile(chain(("n", anode if colour == "awaiting" else node)))
    config = shop.cf.config(**WHO)
    with pytest.warns(UserWarning, match="leaves only when the node ends"):
        go(graph, {}, config, colour)
    assert enqueued(shop) == []
    with warnings.catch_warnings(action="error"):
        assert go(graph, Command(resume="yes"), config, colour)["answer"] == "yes"
    assert enqueued(shop) == ["before", "yes"]


def test_a_sibling_that_fails_takes_none_of_anothers_along(shop: Shop, colour: str) -> None:
    broken = threading.Event()
    broken.set()
    counted: list[str] = []

    def failing(state: State) -> None:
        enqueue(charge, order="failing")
        if broken.is_set():
            raise ValueError("x")

    async def afailing(state: State) -> None:
        await asyncio.sleep(0.2)  # the sibling has ended by then, and is not cancelled
        await aenqueue(charge, order="failing")
        if broken.is_set():
            raise ValueError("x")

    def good(state: State) -> State:
        counted.append("good")
        enqueue(charge, order="good")
        return {"log": ["good"]}

    async def agood(state: State) -> State:
        counted.append("good")
        await aenqueue(charge, order="good")
        return {"log": ["good"]}

    builder: Any = StateGraph(State)
    builder.add_node("failing", afailing if colour == "awaiting" else failing)
    builder.add_node("good", agood if colour == "awaiting" else good)
    builder.add_edge(START, "failing")
    builder.add_edge(START, "good")
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    with pytest.raises(ValueError, match="x"):
        go(graph, {}, config, colour)
    assert enqueued(shop) == ["good"]
    broken.clear()
    assert go(graph, None, config, colour)["log"] == ["good"]
    assert (enqueued(shop), counted) == (["failing", "good"], ["good"])


def test_a_sibling_that_is_cancelled_leaves_none(shop: Shop) -> None:
    async def waiting(state: State) -> None:
        await aenqueue(charge, order="cancelled")
        await asyncio.Event().wait()

    async def failing(state: State) -> None:
        await asyncio.sleep(0.05)
        raise ValueError("x")

    builder: Any = StateGraph(State)
    for name, node in (("waiting", waiting), ("failing", failing)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    with pytest.raises(ValueError, match="x"):
        run(shop, builder, "awaiting")
    assert enqueued(shop) == []


def test_a_sibling_that_is_cancelled_after_its_result_was_written_runs_again(shop: Shop) -> None:
    """LangGraph takes a task with a stored result for finished, error or not, and would not run it again."""
    broken, written = ["x"], asyncio.Event()

    async def done(state: State) -> State:
        await aenqueue(charge, order="done")
        return {"log": ["done"]}

    async def route(state: State) -> str:
        written.set()
        if broken:
            await asyncio.Event().wait()
        return END

    async def failing(state: State) -> None:
        await written.wait()
        if broken:
            raise ValueError("x")

    builder: Any = StateGraph(State)
    for name, node in (("done", done), ("failing", failing)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    builder.add_conditional_edges("done", route, [END])
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    with pytest.raises(ValueError, match="x"):
        go(graph, {}, config, "awaiting")
    assert (set(graph.get_state(config).next), enqueued(shop)) == ({"done", "failing"}, [])
    broken.clear()
    assert go(graph, None, config, "awaiting")["log"] == ["done"]
    assert enqueued(shop) == ["done"]


def test_each_send_has_intents_of_its_own(shop: Shop, colour: str) -> None:
    def node(state: State) -> State:
        enqueue(charge, order=state["order"])
        return {"log": [state["order"]]}

    async def anode(state: State) -> State:
        await aenqueue(charge, order=state["order"])
        return {"log": [state["order"]]}

    builder: Any = StateGraph(State)
    builder.add_node("n", anode if colour == "awaiting" else node)
    builder.add_conditional_edges(START, lambda state: [Send("n", {"order": one}) for one in "12321"], ["n"])
    assert run(shop, builder, colour)["log"] == list("12321")
    assert enqueued(shop) == ["1", "2", "3"]


# --- graphs in graphs, tools, threads --------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", ["plainly", "managed", "with-own-history", "configured"])
def test_the_nodes_of_a_child_graph_enqueue_as_their_own_steps_end(shop: Shop, colour: str, compiled: str) -> None:
    builder = chain(("n", asking(colour, "1")), ("ask", lambda state: {"answer": interrupt("?")}))
    child: Any = {
        "plainly": builder.compile,
        "managed": lambda: shop.cf.compile(builder),
        "with-own-history": lambda: builder.compile(checkpointer=True),
        "configured": lambda: builder.compile().with_config(tags=["x"]),
    }[compiled]()
    graph, config = shop.cf.compile(chain(("child", child), ("after", asking(colour, "2")))), shop.cf.config(**WHO)
    go(graph, {}, config, colour)
    assert enqueued(shop) == ["1"]  # the child's first step has ended, the parent's has not
    go(graph, Command(resume="yes"), config, colour)
    assert enqueued(shop) == ["1", "2"]


def test_a_child_graph_that_a_node_calls_is_compiled_by_us_or_refused(shop: Shop, colour: str) -> None:
    builder = chain(("n", asking(colour, "1")), ("ask", lambda state: {"answer": interrupt("?")}))

    def calling(child: Any) -> Any:
        def node(state: State) -> State:
            enqueue(charge, order="0")
            return {"answer": child.invoke({})["answer"]}

        async def anode(state: State) -> State:
            await aenqueue(charge, order="0")
            return {"answer": (await child.ainvoke({}))["answer"]}

        return anode if colour == "awaiting" else node

    with pytest.raises(IntentWouldBeLost, match=r"cf\.compile\(child\)"):
        run(shop, chain(("call", calling(builder.compile()))), colour)
    graph, config = shop.cf.compile(chain(("call", calling(shop.cf.compile(builder))))), shop.cf.config(**WHO)
    with pytest.warns(UserWarning, match="call is interrupted after enqueue"):
        go(graph, {}, config, colour)
    assert enqueued(shop) == ["1"]
    assert go(graph, Command(resume="yes"), config, colour)["answer"] == "yes"
    assert enqueued(shop) == ["0", "1"]


def test_tools_enqueue_for_the_node_that_runs_them(shop: Shop, colour: str) -> None:
    @tool
    def order(name: str) -> str:
        """Order something."""
        return enqueue(charge, order=name).operation_id

    @tool
    async def aorder(name: str) -> str:
        """Order something."""
        return (await aenqueue(charge, order=name)).operation_id

    class Chat(TypedDict):
        messages: Annotated[list[Any], add]

    used = aorder if colour == "awaiting" else order
    tools: Any = ToolNode([used])
    calls: Any = [{"name": used.name, "args": {"name": one}, "id": one, "type": "tool_call"} for one in "12"]
    said = run(shop, chain(("tools", tools), schema=Chat), colour, {"messages": [AIMessage("", tool_calls=calls)]})
    assert [one.content for one in said["messages"][1:]] == ["r-1/charge/1", "r-1/charge/2"]
    assert enqueued(shop) == ["1", "2"]


def test_threads_of_a_node_may_enqueue_while_it_runs(shop: Shop) -> None:
    ended, refused = threading.Event(), []

    def late() -> None:
        ended.wait()
        with pytest.raises(NoActiveCounterfoil) as caught:
            enqueue(charge, order="late")
        refused.append(str(caught.value))

    late_thread = threading.Thread(target=contextvars.copy_context().run, args=(late,))

    def node(state: State) -> None:
        nonlocal late_thread
        works = [lambda number=number: enqueue(charge, order=str(number)) for number in range(3)]
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(work,)) for work in works]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        late_thread = threading.Thread(target=contextvars.copy_context().run, args=(late,))
        late_thread.start()

    def after(state: State) -> None:
        ended.set()
        late_thread.join()

    run(shop, chain(("n", node), ("after", after)), "blocking")
    assert enqueued(shop) == ["0", "1", "2"]
    assert "had ended" in refused[0]


def test_a_graph_of_langgraphs_server_enqueues_likewise(shop: Shop) -> None:
    graph = served(shop.cf, chain(("n", asking("awaiting", "1", result={"log": ["n"]}))))
    assert asyncio.run(graph.ainvoke({}, asked()))["log"] == ["n"]
    assert enqueued(shop) == ["1"]
    shop.cf.drain()
    assert shop.count == 1


# --- the functional API ----------------------------------------------------------------------------------------------


def tasked(colour: str, ran: list[str], fails: str = "") -> Any:
    """Return a task that enqueues its argument, and fails on one of them."""

    def order(name: str) -> str:
        ran.append(name)
        enqueue(charge, order=name)
        if name == fails:
            raise ValueError("x")
        return name

    async def aorder(name: str) -> str:
        ran.append(name)
        await aenqueue(charge, order=name)
        if name == fails:
            raise ValueError("x")
        return name

    return task(aorder if colour == "awaiting" else order)


def flow(colour: str, order: Any, *names: str, ask: bool = False, catch: bool = False) -> Any:
    """Return an entrypoint that enqueues itself, calls the task with each name, and may ask."""

    def body(given: Any) -> Any:
        enqueue(charge, order="body")
        futures = [order(name) for name in names]
        return [one.result() for one in futures if not catch or one.exception() is None] + ended()

    async def abody(given: Any) -> Any:
        await aenqueue(charge, order="body")
        found = await asyncio.gather(*(order(name) for name in names), return_exceptions=catch)
        return [one for one in found if isinstance(one, str)] + ended()

    def ended() -> list[str]:
        return [interrupt("?")] if ask else []

    return entrypoint()(abody if colour == "awaiting" else body)


def test_tasks_enqueue_as_they_end_and_the_entrypoint_as_it_does(shop: Shop, colour: str) -> None:
    ran: list[str] = []
    graph, config = shop.cf.compile(flow(colour, tasked(colour, ran), "1", "2", ask=True)), shop.cf.config(**WHO)
    with pytest.warns(UserWarning, match="is interrupted after enqueue"):
        go(graph, "x", config, colour)
    assert enqueued(shop) == ["1", "2"]
    shop.cf.drain()
    assert go(graph, Command(resume="yes"), config, colour) == ["1", "2", "yes"]
    assert (enqueued(shop), sorted(ran)) == (["1", "2", "body"], ["1", "2"])
    shop.cf.drain()
    assert shop.count == 3
    assert CHANNEL not in repr([graph.get_state(config), *graph.get_state_history(config)])


def test_a_task_whose_failure_is_caught_leaves_none(shop: Shop, colour: str) -> None:
    graph = shop.cf.compile(flow(colour, tasked(colour, [], fails="2"), "1", "2", catch=True))
    assert go(graph, "x", shop.cf.config(**WHO), colour) == ["1"]
    assert enqueued(shop) == ["1", "body"]


def test_a_task_keeps_its_name_its_result_and_what_langgraph_injects(shop: Shop, colour: str) -> None:
    seen: list[Any] = []

    @task
    def inner(name: str) -> str:
        seen.append(get_config()["metadata"]["langgraph_node"])
        return enqueue(charge, order=name).operation_id

    def outer(name: str, config: RunnableConfig) -> Any:
        seen.append(config["metadata"]["langgraph_node"])
        return inner(name).result()

    @task
    async def ainner(name: str) -> str:
        seen.append(get_config()["metadata"]["langgraph_node"])
        return (await aenqueue(charge, order=name)).operation_id

    async def aouter(name: str, config: RunnableConfig) -> Any:
        seen.append(config["metadata"]["langgraph_node"])
        return await ainner(name)

    renamed: Any = task(name="renamed")
    call, acall = renamed(outer), renamed(aouter)

    def node(state: State) -> State:
        return {"answer": call("1").result()}

    async def anode(state: State) -> State:
        return {"answer": await acall("1")}

    ended = run(shop, chain(("n", anode if colour == "awaiting" else node)), colour)
    assert ended["answer"] == "r-1/charge/1"
    assert seen == ["renamed", "ainner" if colour == "awaiting" else "inner"]
    assert shop.select("select node from counterfoil_operation") == [(seen[1],)]


def test_a_task_of_a_node_that_fails_later_has_ended(shop: Shop, colour: str) -> None:
    ran: list[str] = []
    order = tasked(colour, ran)
    broken = [True]

    def node(state: State) -> State:
        found = order("1").result()
        if broken:
            raise ValueError("x")
        return {"answer": found}

    async def anode(state: State) -> State:
        found = await order("1")
        if broken:
            raise ValueError("x")
        return {"answer": found}

    graph, config = shop.cf.compile(chain(("n", anode if colour == "awaiting" else node))), shop.cf.config(**WHO)
    with pytest.raises(ValueError, match="x"):
        go(graph, {}, config, colour)
    assert enqueued(shop) == ["1"]
    broken.clear()
    assert go(graph, None, config, colour)["answer"] == "1"
    assert (enqueued(shop), ran) == (["1"], ["1"])


def test_a_task_that_a_cache_may_answer_for_is_refused(shop: Shop, colour: str) -> None:
    order: Any = tasked(colour, [])
    order.cache_policy = CachePolicy()
    with pytest.raises(EffectInCachedNode, match="order"):
        go(shop.cf.compile(flow(colour, order, "1")), "x", shop.cf.config(**WHO), colour)
    assert enqueued(shop) == []


@pytest.mark.parametrize("way", ["put", "put_writes"])
def test_each_way_into_the_database_brings_the_intents_of_tasks(
    shop: Shop, colour: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, config = shop.cf.compile(flow(colour, tasked(colour, []), "1", "2")), shop.cf.config(**WHO)
    with monkeypatch.context() as patched:
        losing(patched, way)
        with pytest.raises(ConnectionError, match="gone"):
            go(graph, "x", config, colour)
    assert enqueued(shop) == ["1", "2", "body"]


# --- going back, branches, conflicts ---------------------------------------------------------------------------------


def test_going_back_is_answered_with_the_same_operation_and_a_branch_has_its_own(shop: Shop, colour: str) -> None:
    builder = chain(("prepare", lambda state: {"log": ["prepare"]}), ("n", asking(colour, "1", result={"log": ["n"]})))
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    go(graph, {}, config, colour)
    shop.cf.drain()
    place = next(one.config for one in graph.get_state_history(config) if one.next == ("n",))
    assert go(graph, None, place, colour)["log"] == ["prepare", "n"]
    shop.cf.drain()
    assert (enqueued(shop), shop.count) == (["1"], 1)
    branch = shop.cf.fork("t-1", place, branch="what-if", tenant="team-A")
    go(graph, None, shop.cf.config(tenant="team-A", thread_id=branch.thread_id), colour)
    shop.cf.drain()
    assert (enqueued(shop), shop.count) == (["1", "1~branch-what-if"], 2)


@pytest.mark.parametrize(
    ("wish", "error"), [((charge, {"amount": 11}), FingerprintMismatch), ((other, {}), DifferentEffect)]
)
def test_an_id_means_one_thing_within_a_node_and_beyond(shop: Shop, colour: str, wish: Any, error: Any) -> None:
    second, arguments = wish

    def node(state: State) -> None:
        enqueue(charge, order="1")
        enqueue(second, order="1", **arguments)

    async def anode(state: State) -> None:
        await aenqueue(charge, order="1")
        await aenqueue(second, order="1", **arguments)

    def later(state: State) -> None:
        enqueue(second, order="1", **arguments)

    with pytest.raises(error):
        run(shop, chain(("n", anode if colour == "awaiting" else node)), colour)
    assert enqueued(shop) == []
    with pytest.raises(error, match="r-1/charge/1"):
        run(shop, chain(("n", asking("blocking", "1")), ("later", later)), "blocking")
    assert enqueued(shop) == ["1"]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.filterwarnings("ignore:durability")
def test_siblings_that_mean_two_things_by_an_id_do_not_both_end(shop: Shop, colour: str, durability: str) -> None:
    def sibling(amount: int) -> Any:
        def node(state: State) -> State:
            enqueue(charge, order="1", amount=amount)
            return {"log": [str(amount)]}

        async def anode(state: State) -> State:
            await aenqueue(charge, order="1", amount=amount)
            return {"log": [str(amount)]}

        return anode if colour == "awaiting" else node

    builder: Any = StateGraph(State)
    for amount in (10, 11):
        builder.add_node(f"n{amount}", sibling(amount))
        builder.add_edge(START, f"n{amount}")
        builder.add_edge(f"n{amount}", "after")
    builder.add_node("after", lambda state: {"log": ["after"]})
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    with pytest.raises(FingerprintMismatch, match="amount differ"):
        go(graph, {}, config, colour, durability=durability)
    assert enqueued(shop) == ["1"]
    assert shop.rows("write", f"channel = '{CHANNEL}'") == 1
    assert "after" not in graph.get_state(config).values["log"]
    with pytest.raises(FingerprintMismatch):
        go(graph, None, config, colour)


# --- nothing of it shows ---------------------------------------------------------------------------------------------


def test_nothing_of_it_is_in_results_states_streams_or_history(shop: Shop, colour: str) -> None:
    seen: list[Any] = []

    def look(state: State) -> State:
        seen.append(dict(state))
        return {"log": ["look"]}

    builder: Any = chain(
        ("n", asking(colour, "1", "2", result={"log": ["n"]})),
        ("look", look),
        ("last", asking(colour, "3", result={"log": ["last"]})),
    )
    graph, config = shop.cf.compile(builder, interrupt_before=["last"]), shop.cf.config(**WHO)
    modes = ["values", "updates", "debug", "tasks", "checkpoints"]

    async def stream(given: Any) -> list[Any]:
        chunks = [one async for one in graph.astream(given, config, stream_mode=modes)]
        return [*chunks, *[one async for one in graph.astream_events(None, config, version="v2")]]

    shown = [asyncio.run(stream({})) if colour == "awaiting" else list(graph.stream({}, config, stream_mode=modes))]
    shown += [graph.get_state(config), *graph.get_state_history(config)]
    shown.append(go(graph, None, config, colour))
    shown += [graph.get_state(config), *graph.get_state_history(config), graph.get_graph().to_json(), seen]
    assert CHANNEL not in repr(shown)
    assert "Intents" not in repr(shown)
    assert graph.get_input_jsonschema().keys() == chain(("n", seen.append)).compile().get_input_jsonschema().keys()
    assert enqueued(shop) == ["1", "2", "3"]


def test_a_pending_result_does_not_show_it_either(shop: Shop) -> None:
    def failing(state: State) -> None:
        for _ in range(6000):  # a minute: the other's result is there by then, or the test fails below
            if shop.rows("write"):
                break
            threading.Event().wait(0.01)
        raise ValueError("x")

    builder: Any = StateGraph(State)
    for name, node in (("n", asking("blocking", "1", result={"log": ["n"]})), ("failing", failing)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    with pytest.raises(ValueError, match="x"):
        graph.invoke({}, config)
    (pending,) = [task for task in graph.get_state(config).tasks if task.name == "n"]
    assert pending.result == {"log": ["n"]}


def test_state_does_not_grow_and_holds_no_payload(shop: Shop) -> None:
    def node(state: State) -> State:
        number = state.get("number", 0)
        enqueue(charge, order=f"{number}-{'telltale' * 40}")
        return {"number": number + 1}

    builder: Any = StateGraph(State)
    builder.add_node("n", node)
    builder.add_edge(START, "n")
    builder.add_conditional_edges("n", lambda state: "n" if state["number"] < 12 else END, ["n", END])
    run(shop, builder, "blocking")
    assert len(enqueued(shop)) == 12
    sizes = shop.select("select length(body) from counterfoil_checkpoint where step between 2 and 11")
    assert len(set(sizes)) == 1
    writes = shop.select("select value from counterfoil_write where channel = ?", CHANNEL)
    assert len(writes) == 12
    assert all(bytes(value).count(b"telltale") == 40 for (value,) in writes)  # the id; the payload has it once more
    assert not any(b"telltale" in bytes(body) for (body,) in shop.select("select body from counterfoil_checkpoint"))
    assert shop.rows("channel", f"channel = '{CHANNEL}'") == 0


def test_nobody_else_writes_to_the_channel(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", asking("blocking", result={CHANNEL: [{"key": 1, "x": 2}]}))))
    with pytest.raises(InvalidUpdateError, match="written by enqueue alone"):
        shop.cf.run(graph, {}, **WHO)


# --- both ways into the database -------------------------------------------------------------------------------------


def losing(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let one of the two ways into the database fail for steps that enqueued something."""

    def check(found: Any) -> None:
        if CHANNEL in found:
            raise ConnectionError("gone")

    put, aput = CounterfoilSaver.put, CounterfoilSaver.aput
    put_writes, aput_writes = CounterfoilSaver.put_writes, CounterfoilSaver.aput_writes

    def lost_put(self: Any, config: Any, checkpoint: Any, *more: Any) -> Any:
        check(checkpoint["channel_values"])
        return put(self, config, checkpoint, *more)

    async def alost_put(self: Any, config: Any, checkpoint: Any, *more: Any) -> Any:
        check(checkpoint["channel_values"])
        return await aput(self, config, checkpoint, *more)

    def lost_put_writes(self: Any, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        check(dict(writes))
        put_writes(self, config, writes, task_id, task_path)

    async def alost_put_writes(self: Any, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        check(dict(writes))
        await aput_writes(self, config, writes, task_id, task_path)

    lost: Any = (lost_put, alost_put) if way == "put" else (lost_put_writes, alost_put_writes)
    monkeypatch.setattr(CounterfoilSaver, way, lost[0])
    monkeypatch.setattr(CounterfoilSaver, f"a{way}", lost[1])


@pytest.mark.parametrize("way", ["put", "put_writes"])
def test_each_of_the_two_ways_into_the_database_brings_the_intents(
    shop: Shop, colour: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def after(state: State) -> State:
        ran.append("after")
        return {"log": ["after"]}

    graph = shop.cf.compile(chain(("n", asking(colour, "1", result={"log": ["n"]})), ("after", after)))
    config = shop.cf.config(**WHO)
    with monkeypatch.context() as patched:
        losing(patched, way)
        with pytest.raises(ConnectionError, match="gone"):
            go(graph, {}, config, colour)
    assert enqueued(shop) == ["1"]
    assert ran == ([] if way == "put" else ["after"])
    if way == "put":
        assert go(graph, None, config, colour)["log"] == ["n", "after"]
    assert graph.get_state(config).values["log"] == ["n", "after"]
    shop.cf.drain()
    assert (enqueued(shop), shop.count) == (["1"], 1)


@pytest.mark.filterwarnings("ignore:durability")
def test_writes_wait_for_the_checkpoint_that_they_hang_on_and_not_for_ever(
    shop: Shop, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "STORED_WITHIN_MS", 100)
    graph, config = shop.cf.compile(chain(("n", asking(colour, "1")))), shop.cf.config(**WHO)
    with monkeypatch.context() as patched:
        losing_checkpoints(patched)
        with pytest.raises((Busy, ConnectionError)):
            go(graph, {}, config, colour, durability="async")
    assert (enqueued(shop), shop.rows("write", f"channel = '{CHANNEL}'")) == ([], 0)
    go(graph, {}, config, colour)
    assert enqueued(shop) == ["1"]


def losing_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_given: Any) -> Any:
        raise ConnectionError("gone")

    async def alost(*_given: Any) -> Any:
        raise ConnectionError("gone")

    monkeypatch.setattr(CounterfoilSaver, "put", lost)
    monkeypatch.setattr(CounterfoilSaver, "aput", alost)


# --- refused ---------------------------------------------------------------------------------------------------------


def test_outside_a_run_it_names_the_line_to_write(shop: Shop) -> None:
    with pytest.raises(NoActiveCounterfoil, match=r"cf\.enqueue\(effect"):
        enqueue(charge, order="1")


@pytest.mark.parametrize("checkpointer", [True, False])
def test_in_a_graph_that_was_compiled_plainly(shop: Shop, colour: str, checkpointer: bool) -> None:  # noqa: FBT001
    builder = chain(("n", asking(colour, "1")))
    graph = builder.compile(checkpointer=shop.cf.saver(tenant="team-A") if checkpointer else None)
    with pytest.raises(IntentWouldBeLost, match=r"cf\.compile\(builder\)"):
        go(
            graph,
            {},
            shop.cf.config(**WHO) if not checkpointer else conf(),
            colour,
            **({"durability": "sync"} if checkpointer else {}),
        )


def test_in_a_child_graph_that_stores_nothing(shop: Shop, colour: str) -> None:
    child = chain(("inner", chain(("n", asking(colour, "1"))).compile())).compile(checkpointer=False)
    with pytest.raises(IntentWouldBeLost, match="checkpointer=False"):
        run(shop, chain(("child", child)), colour)


def test_in_a_node_that_a_cache_may_answer_for(shop: Shop, colour: str) -> None:
    builder = chain(("n", asking(colour, "1")), cache_policy=CachePolicy())
    with pytest.raises(EffectInCachedNode, match="Enqueue it in a node without one"):
        run(shop, builder, colour, cache=InMemoryCache())


def test_in_a_graph_whose_state_has_no_fields(shop: Shop, colour: str) -> None:
    def same(state: Any) -> Any:
        return [*state, "x"]

    config = shop.cf.config(**WHO)
    assert shop.cf.compile(chain(("n", same), schema=list)).invoke(["a"], config) == ["a", "x"]
    with pytest.raises(IntentWouldBeLost, match="a state without fields"):
        run(shop, chain(("n", asking(colour, "1")), schema=list), colour, ["a"])


def test_what_no_dispatcher_could_send(shop: Shop) -> None:
    def node(state: State) -> None:
        enqueue(local)

    with pytest.raises(InvalidArguments, match=r"cf\.join\(tx\)\.perform"):
        run(shop, chain(("n", node)), "blocking")


def test_the_blocking_form_on_a_loop(shop: Shop) -> None:
    async def node(state: State) -> None:
        enqueue(acharge, order="1")

    with pytest.raises(SyncOnEventLoop, match=r"await aenqueue\(acharge, \.\.\.\)"):
        run(shop, chain(("n", node)), "awaiting")


def test_without_a_tenant(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", asking("blocking", "1"))))
    with pytest.raises(TenantMissing):
        shop.cf.run(graph, {}, thread_id="t-1", request_id="r-1")


def test_siblings_may_enqueue_different_effects_under_their_own_names(shop: Shop) -> None:
    def node(one: Any, name: str) -> Any:
        def asking_for(state: State) -> None:
            enqueue(one, order=name)

        return asking_for

    builder: Any = StateGraph(State)
    for name, one in (("a", charge), ("b", other), ("c", charge)):
        builder.add_node(name, node(one, name))
        builder.add_edge(START, name)
    graph = shop.cf.compile(builder)
    with pytest.MonkeyPatch.context() as patched:
        losing(patched, "put_writes")  # so that one transaction records them all
        with pytest.raises(ConnectionError):
            shop.cf.run(graph, {}, **WHO)
    found = shop.select("select node, effect from counterfoil_operation order by operation_id")
    assert found == [("a", "test.charge"), ("b", "test.other"), ("c", "test.charge")]
