"""Who a run acts for: set where it enters, inherited when it goes on, and never taken from anywhere else."""

import asyncio
import contextvars
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from counterfoil import AsyncCounterfoil, EffectCall, effect
from counterfoil.errors import (
    ExitDurability,
    InvalidArguments,
    NoActiveCounterfoil,
    OutcomeUnknown,
    ReservedConfig,
    SyncOnEventLoop,
    TemplateFieldMissing,
    TenantMissing,
    TrustedFieldMismatch,
    UnmanagedThread,
)
from counterfoil.langgraph import aperform, mint, perform
from counterfoil.langgraph.context import KEY
from counterfoil.testing.tally import TallyFile
from tests.langgraph.shop import WHO, Shop, State, accept, acharge, chain, charge, conf, lose_reply


@effect("test.whose", key="{request_id}/{workflow_id}/{thread_id}")
def whose(call: EffectCall, *, workflow_id: str, note: str = "") -> dict[str, Any]:
    accept(call)
    return {"tenant": call.tenant, "request": call.request_id, "id": call.operation_id}


def pay(state: State) -> State:
    return {"number": perform(charge, order=state["order"]).value["number"]}


def ask(state: State) -> State:
    return {"answer": interrupt("well?")}


def paid(shop: Shop) -> list[tuple[str, str]]:
    return [tuple(str(one.key).split("|", 1)) for one in shop.tally.accepted()]  # type: ignore[misc]


# --- entering --------------------------------------------------------------------------------------------------------


def test_an_effect_without_a_tenant_is_refused(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    with pytest.raises(TenantMissing):
        shop.cf.run(graph, {"order": "1"}, request_id="r-1", thread_id="t-1")
    with pytest.raises(TenantMissing):
        graph.invoke({"order": "1"}, conf())
    with pytest.raises(TenantMissing):
        graph.invoke({"order": "1"}, {**conf(tenant="team-A"), "metadata": {"tenant": "team-A"}})
    assert shop.count == 0


def test_a_graph_without_effects_needs_no_tenant(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", lambda state: {"number": 1})))
    assert graph.invoke({"order": "1"}, conf())["number"] == 1


def test_the_trusted_context_reaches_the_effect(shop: Shop) -> None:
    def node(state: State) -> State:
        return {"answer": perform(whose).value}

    graph = shop.cf.compile(chain(("n", node)))
    ended = shop.cf.run(graph, {}, **WHO, workflow_id="w-9", principal="eve")
    assert ended["answer"] == {"tenant": "team-A", "request": "r-1", "id": "r-1/w-9/t-1"}
    found = shop.cf.operations.get("r-1/w-9/t-1", tenant="team-A").operation
    assert found.trusted.principal == "eve"
    assert (found.origin.thread_id, found.origin.node) == ("t-1", "n")
    assert found.origin.checkpoint_id
    assert found.origin.task_id


def test_state_arguments_and_configuration_cannot_override_the_trusted_context(shop: Shop) -> None:
    def node(state: dict[str, Any]) -> dict[str, Any]:
        assert state["tenant"] == "mallory"
        return {"answer": perform(whose).value}

    builder = chain(("n", node), schema=dict)
    config = shop.cf.config(**WHO, workflow_id="w-1")
    config["configurable"] |= {"tenant": "mallory", "request_id": "other", "workflow_id": "w-2"}
    config["metadata"] = {"tenant": "mallory", "request_id": "other"}
    ended = shop.cf.compile(builder).invoke({"tenant": "mallory", "request_id": "other"}, config)
    assert ended["answer"] == {"tenant": "team-A", "request": "r-1", "id": "r-1/w-1/t-1"}


@pytest.mark.parametrize("claim", [{"tenant": "mallory"}, {"request_id": "other"}, {"thread_id": "t-2"}])
def test_an_argument_that_contradicts_the_trusted_context_is_refused(shop: Shop, claim: dict[str, str]) -> None:
    def node(state: State) -> State:
        return {"answer": perform(whose, workflow_id="w", **claim)}

    with pytest.raises(TrustedFieldMismatch):
        shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **WHO, workflow_id="w")
    assert shop.count == 0


@pytest.mark.parametrize("forged", ["team-A", {"trusted": {"tenant": "team-A"}}, object()])
def test_nothing_but_our_own_context_may_stand_under_the_reserved_key(shop: Shop, forged: Any) -> None:
    builder = chain(("pay", pay))
    for graph in (shop.cf.compile(builder), builder.compile(checkpointer=shop.cf.saver())):
        with pytest.raises(ReservedConfig):
            graph.invoke({"order": "1"}, conf(**{KEY: forged}))
    assert shop.count == 0


def test_the_context_of_another_counterfoil_is_refused(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    with pytest.raises(ReservedConfig):
        shop.open().run(graph, {"order": "1"}, **WHO)
    assert shop.count == 0
    assert shop.rows("thread") == 0


def test_a_graph_that_another_counterfoil_compiled_can_be_compiled_again(shop: Shop) -> None:
    first = shop.cf.compile(chain(("pay", pay)))
    other = shop.open()
    again = other.compile(first)
    assert again is not first
    assert other.run(again, {"order": "1"}, **WHO)["number"] == 1
    assert shop.cf.compile(first) is first


def test_options_for_a_graph_that_was_compiled_before_are_not_dropped(shop: Shop) -> None:
    first = shop.cf.compile(chain(("pay", pay)))
    careful = shop.cf.compile(first, interrupt_before=["pay"])
    shop.cf.run(careful, {"order": "1"}, **WHO)
    assert shop.count == 0
    assert careful.get_state(shop.cf.config(**WHO)).next == ("pay",)


@pytest.mark.parametrize("wrong", [None, "graph", pay, object()])
def test_what_is_no_graph_is_refused(shop: Shop, wrong: Any) -> None:
    with pytest.raises(InvalidArguments):
        shop.cf.compile(wrong)


def test_cf_run_refuses_a_graph_without_claims(shop: Shop) -> None:
    with pytest.raises(UnmanagedThread):
        shop.cf.run(chain(("pay", pay)).compile(checkpointer=shop.cf.saver()), {"order": "1"}, **WHO)
    assert shop.count == 0


FIELDS: dict[str, Any] = {
    "tenant": "team-A",
    "thread_id": "t-1",
    "request_id": "r-1",
    "workflow_id": "w-1",
    "principal": "eve",
}


async def running(shop: Shop, graph: Any, colour: str, **given: Any) -> Any:
    """Run a graph by `cf.run` in one of the colours."""
    if colour == "sync":
        return await asyncio.to_thread(shop.cf.run, graph, {"order": "1"}, **given)
    async with AsyncCounterfoil.open(shop.url) as cf:
        cf.resources.provide(TallyFile, lambda: shop.tally)
        return await cf.run(cf.compile(graph), {"order": "1"}, **given)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_that_is_given_twice_and_differs_is_refused(shop: Shop, field: str, colour: str) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    config = shop.cf.config(**{**FIELDS, field: "other"})
    for given in (config, {**config, "tags": ["x"]}):
        with pytest.raises(TrustedFieldMismatch, match=f"{field} is given twice"):
            await running(shop, graph, colour, **FIELDS, config=given)
        with pytest.raises(TrustedFieldMismatch):
            shop.cf.config(**FIELDS, config=given)
    with pytest.raises(TrustedFieldMismatch):
        graph.with_config(config).invoke({"order": "1"}, shop.cf.config(**FIELDS))
    with pytest.raises(TrustedFieldMismatch):
        await graph.with_config(config).ainvoke({"order": "1"}, shop.cf.config(**FIELDS))
    with pytest.raises(TrustedFieldMismatch):
        await running(shop, graph.with_config(config), "sync", **FIELDS)
    assert (shop.count, shop.rows("thread"), shop.rows("operation")) == (0, 0, 0)


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_field_that_is_given_twice_alike_or_in_either_place_counts(shop: Shop, colour: str) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    await running(shop, graph, colour, **FIELDS, config=shop.cf.config(**FIELDS))
    config = shop.cf.config(**FIELDS)
    await running(shop, graph, colour, thread_id="t-1", config=config)
    await graph.with_config(config).ainvoke({"order": "1"}, config)
    (found,) = shop.cf.operations.list(tenant="team-A").items
    assert shop.cf.operations.get(found.operation_id, tenant="team-A").operation.trusted.principal == "eve"
    assert (shop.count, shop.rows("thread")) == (1, 1)


def test_a_thread_that_a_bare_configuration_names_is_not_another_one(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    with pytest.raises(TrustedFieldMismatch, match="thread_id"):
        shop.cf.run(graph, {"order": "1"}, **WHO, config={"configurable": {"thread_id": "t-2"}})
    assert shop.rows("thread") == 0
    shop.cf.run(graph, {"order": "1"}, **WHO, config={"configurable": {"thread_id": "t-1"}})
    assert shop.count == 1


def test_a_node_may_run_another_graph_with_its_own_configuration(shop: Shop) -> None:
    """It says where the node is: whom the other run is for stands in the arguments alone."""
    child = shop.cf.compile(chain(("pay", pay)))

    def node(state: State, config: RunnableConfig) -> State:
        who = {"tenant": "team-B", "request_id": "r-2", "thread_id": "t-2"}
        return {"number": shop.cf.run(child, {"order": "1"}, **who, config=config)["number"]}

    shop.cf.run(shop.cf.compile(chain(("n", node))), {"order": "1"}, **WHO)
    assert paid(shop) == [("team-B", "r-2/charge/1")]


# --- going on --------------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on_inherits_its_request(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("ask", ask), ("pay", pay)))
    shop.cf.run(graph, {"order": "1"}, **WHO)
    shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-1")
    assert paid(shop) == [("team-A", "r-1/charge/1")]


def test_a_run_that_goes_on_refuses_another_request(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("ask", ask), ("pay", pay)))
    shop.cf.run(graph, {"order": "1"}, **WHO, workflow_id="w", principal="eve")
    for field in ("request_id", "workflow_id", "principal"):
        who: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1", field: "other"}
        on: list[Any] = [None, Command(resume="yes")]
        for going_on in on:
            with pytest.raises(TrustedFieldMismatch):
                shop.cf.run(graph, going_on, **who)
        with pytest.raises(TrustedFieldMismatch):
            graph.update_state(shop.cf.config(**who), {"answer": "yes"})
    assert shop.count == 0
    assert graph.get_state(shop.cf.config(**WHO)).next == ("ask",)


def test_new_input_brings_its_own_request_and_never_the_last_one(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    shop.cf.run(graph, {"order": "1"}, **WHO)
    with pytest.raises(TemplateFieldMissing):
        shop.cf.run(graph, {"order": "2"}, tenant="team-A", thread_id="t-1")
    shop.cf.run(graph, {"order": "2"}, **{**WHO, "request_id": "r-2"})
    assert paid(shop) == [("team-A", "r-1/charge/1"), ("team-A", "r-2/charge/2")]


# --- outside, threads, loops -----------------------------------------------------------------------------------------


def test_outside_of_a_run_there_is_no_counterfoil(shop: Shop) -> None:
    for call in (lambda: perform(charge, order="1"), lambda: mint("invitation")):
        with pytest.raises(NoActiveCounterfoil):
            call()


def test_a_graph_that_knows_no_counterfoil_says_what_to_write(shop: Shop) -> None:
    for options in ({}, {"checkpointer": InMemorySaver()}):
        with pytest.raises(NoActiveCounterfoil, match=r"cf\.compile"):
            chain(("pay", pay)).compile(**options).invoke({"order": "1"}, conf())


def test_a_pool_that_lost_the_context_is_told_how_to_keep_it(shop: Shop) -> None:
    def bare(state: State) -> State:
        with ThreadPoolExecutor() as pool:
            return pool.submit(pay, state).result()

    def keeping(state: State) -> State:
        with ThreadPoolExecutor() as pool:
            return pool.submit(contextvars.copy_context().run, pay, state).result()

    with pytest.raises(NoActiveCounterfoil, match="copy_context"):
        shop.cf.run(shop.cf.compile(chain(("n", bare))), {"order": "1"}, **WHO)
    assert shop.cf.run(shop.cf.compile(chain(("n", keeping))), {"order": "1"}, **WHO)["number"] == 1


def test_what_a_node_leaves_running_keeps_its_tenant_and_parks_nothing(shop: Shop) -> None:
    told: list[str] = []
    left: list[threading.Thread] = []

    def late() -> None:
        told.append(str(perform(charge, order="1").value["number"]))
        try:
            perform(lose_reply, order="1")
        except OutcomeUnknown as error:
            told.append(error.code)

    def node(state: State) -> State:
        left.append(threading.Thread(target=contextvars.copy_context().run, args=(late,)))
        return {}

    shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **WHO)
    left[0].start()
    left[0].join()
    assert told == ["1", "outcome-unknown"]
    assert {tenant for tenant, _ in paid(shop)} == {"team-A"}
    assert shop.select("select state, parked_on from counterfoil_thread") == [("idle", None)]


@pytest.mark.parametrize("thread_id", [0, 17, uuid.UUID(int=1)])
def test_thread_ids_of_other_types_are_taken_as_their_text(shop: Shop, thread_id: Any) -> None:
    builder = chain(("n", lambda state: {"number": 1}))
    for graph in (shop.cf.compile(builder), builder.compile(checkpointer=shop.cf.saver(tenant="plain"))):
        graph.invoke({}, conf(thread_id))
        assert graph.get_state(conf(str(thread_id))).values["number"] == 1


async def test_sync_forms_on_the_loop_are_refused_with_the_line_to_write(shop: Shop) -> None:
    async def paying(state: State) -> State:
        return {"number": perform(charge, order=state["order"]).value["number"]}

    async def minting(state: State) -> State:
        return {"minted": mint("invitation")}

    for node, line in ((paying, "await aperform"), (minting, "await amint")):
        with pytest.raises(SyncOnEventLoop, match=line):
            await shop.cf.compile(chain(("n", node))).ainvoke({"order": "1"}, shop.cf.config(**WHO))
    assert shop.count == 0


@pytest.mark.parametrize("kind", ["managed", "plain"])
async def test_async_nodes_perform_both_colours_of_effect(shop: Shop, kind: str) -> None:
    async def one(state: State) -> State:
        return {"numbers": [(await aperform(charge, order="1")).value["number"]]}

    async def two(state: State) -> State:
        return {"numbers": [(await aperform(acharge, order="2")).value["number"]]}

    builder = chain(("one", one), ("two", two))
    graph = shop.cf.compile(builder) if kind == "managed" else builder.compile(checkpointer=shop.cf.saver())
    assert (await graph.ainvoke({}, shop.cf.config(**WHO)))["numbers"] == [1, 2]
    assert (await graph.ainvoke({}, shop.cf.config(**WHO)))["numbers"] == [1, 2, 1, 2]
    assert shop.count == 2


async def test_blocking_nodes_perform_inside_an_awaiting_run(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    assert (await graph.ainvoke({"order": "1"}, shop.cf.config(**WHO)))["number"] == 1


# --- durability ------------------------------------------------------------------------------------------------------


async def test_durability_exit_is_refused_before_any_node(shop: Shop) -> None:
    ran: list[str] = []

    def node(state: State) -> State:
        ran.append("n")
        return {}

    builder = chain(("n", node))
    for graph in (shop.cf.compile(builder), builder.compile(checkpointer=shop.cf.saver())):
        for config in (conf(), shop.cf.config(**WHO)):
            with pytest.raises(ExitDurability):
                graph.invoke({}, config, durability="exit")
            with pytest.raises(ExitDurability):
                await graph.ainvoke({}, config, durability="exit")
            with pytest.raises(ExitDurability):
                list(graph.stream({}, config, durability="exit"))
    assert ran == []
    assert shop.rows("thread") == 0


def test_durability_async_of_a_managed_run_warns(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("pay", pay)))
    with pytest.warns(UserWarning, match="durability='async'"):
        graph.invoke({"order": "1"}, shop.cf.config(**WHO), durability="async")
    with pytest.warns(UserWarning, match="durability='async'"):
        asyncio.run(graph.ainvoke({"order": "1"}, shop.cf.config(**WHO), durability="async"))
    assert shop.count == 1


# --- plain graphs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async", None])
def test_a_plain_graph_with_our_saver_works_as_before_and_its_effects_are_protected(
    shop: Shop, durability: Any
) -> None:
    def pay_and_ask(state: State) -> State:
        return {**pay(state), **ask(state)}

    graph = chain(("n", pay_and_ask)).compile(checkpointer=shop.cf.saver())
    config = shop.cf.config(**WHO)
    assert "__interrupt__" in graph.invoke({"order": "1"}, config, durability=durability)
    assert graph.invoke(Command(resume="yes"), config, durability=durability)["answer"] == "yes"
    assert shop.count == 1
    assert shop.rows("thread") == 0
    assert len(list(graph.get_state_history(config))) == 3


def test_a_managed_thread_refuses_a_plain_graph_before_any_node(shop: Shop) -> None:
    ran: list[str] = []

    def node(state: State) -> State:
        ran.append("n")
        return ask(state)

    builder = chain(("n", node))
    shop.cf.run(shop.cf.compile(builder), {}, **WHO)
    plain = builder.compile(checkpointer=shop.cf.saver())
    inputs: list[Any] = [{}, None, Command(resume="yes")]
    for given in inputs:
        with pytest.raises(UnmanagedThread):
            plain.invoke(given, shop.cf.config(**WHO))
    with pytest.raises(UnmanagedThread):
        plain.update_state(shop.cf.config(**WHO), {"number": 1})
    assert ran == ["n"]
    assert plain.get_state(shop.cf.config(**WHO)).next == ("n",)
    assert shop.select("select state, attempt from counterfoil_thread") == [("idle", 1)]


def test_a_plain_thread_may_become_managed(shop: Shop) -> None:
    builder = chain(("ask", ask), ("pay", pay))
    builder.compile(checkpointer=shop.cf.saver()).invoke({"order": "1"}, shop.cf.config(**WHO))
    assert shop.cf.run(shop.cf.compile(builder), Command(resume="yes"), **WHO)["number"] == 1


def test_callbacks_bound_to_a_managed_graph_are_called_as_often_as_those_of_a_plain_one(shop: Shop) -> None:
    class Counter(BaseCallbackHandler):
        def __init__(self) -> None:
            self.starts = 0
            self.tags: list[list[str]] = []

        def on_chain_start(self, *_args: Any, tags: list[str] | None = None, **_more: Any) -> None:
            self.starts += 1
            self.tags.append(sorted(tags or []))

    builder = chain(("n", lambda state: {"number": 1}))
    counters = []
    for graph in (builder.compile(checkpointer=shop.cf.saver(tenant="plain")), shop.cf.compile(builder)):
        counter = Counter()
        graph.with_config(callbacks=[counter], tags=["mine"]).invoke({}, conf())
        counters.append((counter.starts, counter.tags))
    assert counters[0] == counters[1]


def test_a_second_checkpointer_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidArguments, match="leave that one out"):
        shop.cf.compile(chain(("pay", pay)), checkpointer=InMemorySaver())


def test_a_checkpointer_that_is_replaced_is_named(shop: Shop) -> None:
    other = chain(("pay", pay)).compile(checkpointer=InMemorySaver())
    with pytest.warns(UserWarning, match="InMemorySaver"):
        shop.cf.compile(other)


def test_a_plain_function_is_no_effect(shop: Shop) -> None:
    def node(state: State) -> State:
        perform(len)  # type: ignore[arg-type]
        return {}

    with pytest.raises(InvalidArguments, match="@effect"):
        shop.cf.run(shop.cf.compile(chain(("n", node))), {}, **WHO)
