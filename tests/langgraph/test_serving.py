"""Under LangGraph's own server, as far as that can be had without one: what it says of runs, what it puts around us."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.errors import GraphDrained
from langgraph.types import Command, interrupt

from counterfoil import Counterfoil
from counterfoil.drivers.probes import Point
from counterfoil.errors import (
    ExitDurability,
    InvalidArguments,
    InvalidId,
    NoActiveCounterfoil,
    TenantMissing,
    ThreadBusy,
    TrustedFieldMismatch,
    VersionConflict,
)
from counterfoil.langgraph import aperform, for_server, perform
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.langgraph.shop import WHO, Shop, State, acharge, chain, charge, conf
from tests.langgraph.test_upkeep import big

LIMIT_S = 30


class Around(BaseCheckpointSaver[str]):
    """What the server puts around a saver: some methods handed on, everything else looked up behind it."""

    def __init__(self, inner: CounterfoilSaver) -> None:
        super().__init__(serde=inner.serde)
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._inner.aget_tuple(config)

    async def alist(self, config: RunnableConfig | None, **asked: Any) -> AsyncIterator[CheckpointTuple]:
        async for one in self._inner.alist(config, **asked):
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        added = {name: value for name, value in config["configurable"].items() if not name.startswith("__")}
        enriched: Any = {**added, **config.get("metadata", {}), **metadata}
        return await self._inner.aput(config, checkpoint, enriched, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._inner.aput_writes(config, writes, task_id, task_path)

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self._inner.get_next_version(current, channel)


def who(config: RunnableConfig) -> dict[str, str | None]:
    return {"request_id": config["configurable"].get("request_id")}


def served(cf: Counterfoil, builder: Any, *, tenant: str = "team-A", trust: Any = who) -> Any:
    """Return a graph as the server makes it of what `langgraph.json` names."""
    return for_server(builder).copy(update={"checkpointer": Around(cf.saver(tenant=tenant, trust=trust))})


def asked(run_id: str = "run-1", attempt: int = 1, **more: Any) -> Any:
    """Return a configuration as the server makes it."""
    metadata = {"run_id": run_id, "run_attempt": attempt, "graph_id": "agent"}
    return {"configurable": {"thread_id": "t-1", "run_id": run_id, "request_id": "r-1", **more}, "metadata": metadata}


async def paying(state: State) -> State:
    receipt = await aperform(acharge, order="1")
    return {"number": receipt.value["number"], "log": [f"{receipt.tenant} {receipt.operation_id}"]}


def asking(state: State) -> State:
    return {"answer": interrupt("well?")}


# --- what is trusted -------------------------------------------------------------------------------------------------


async def test_a_run_of_the_server_is_claimed_performs_once_and_goes_on(shop: Shop) -> None:
    graph = served(shop.cf, chain(("pay", paying), ("ask", asking)))
    waiting = await graph.ainvoke({}, asked(), durability="async")
    assert waiting["log"] == ["team-A r-1/charge/1"]
    assert shop.select("select state, run_id, run_attempt from counterfoil_thread") == [("idle", "run-1", 1)]
    done = await graph.ainvoke(Command(resume="yes"), asked("run-2", request_id=None), durability="async")
    assert done["answer"] == "yes"
    assert shop.count == 1
    read = conf("t-1")
    assert (await graph.aget_state(read)).values["answer"] == "yes"
    assert len([one async for one in graph.aget_state_history(read)]) == 4
    await graph.aupdate_state(read, {"answer": "by hand"})
    assert (await graph.aget_state(read)).values["answer"] == "by hand"


async def test_a_run_that_goes_on_may_not_change_its_request(shop: Shop) -> None:
    graph = served(shop.cf, chain(("ask", asking)))
    await graph.ainvoke({}, asked())
    with pytest.raises(TrustedFieldMismatch):
        await graph.ainvoke(Command(resume="yes"), asked("run-2", request_id="r-2"))


async def test_a_plain_graph_finds_what_is_trusted_through_the_server_too(shop: Shop) -> None:
    saver = Around(shop.cf.saver(tenant="team-A", trust=who))
    graph = chain(("pay", paying)).compile(checkpointer=saver)
    assert (await graph.ainvoke({}, asked()))["log"] == ["team-A r-1/charge/1"]
    assert shop.rows("thread") == 0


async def test_without_a_tenant_effects_are_refused(shop: Shop) -> None:
    with pytest.raises(TenantMissing):
        await served(shop.cf, chain(("pay", paying)), tenant="").ainvoke({}, asked())
    assert shop.count == 0


@pytest.mark.parametrize(
    ("trust", "error"),
    [
        (lambda config: {"tenant": "team-B"}, InvalidArguments),
        (lambda config: {"thread_id": "t-2"}, InvalidArguments),
        (lambda config: "r-1", InvalidArguments),
        (lambda config: None, InvalidArguments),
        (lambda config: {"request_id": 7}, InvalidId),
        (lambda config: {"request_id": ""}, InvalidId),
    ],
)
async def test_what_cannot_be_trusted_is_refused_before_any_node(shop: Shop, trust: Any, error: Any) -> None:
    with pytest.raises(error):
        await served(shop.cf, chain(("pay", paying)), trust=trust).ainvoke({}, asked())
    assert shop.count == shop.rows("thread") == 0


@pytest.mark.parametrize("trust", ["request_id", {}, 7])
def test_trust_is_a_function(shop: Shop, trust: Any) -> None:
    with pytest.raises(InvalidArguments, match="trust"):
        shop.cf.saver(tenant="team-A", trust=trust)


async def test_a_context_of_ones_own_counts_more_than_what_the_saver_trusts(shop: Shop) -> None:
    graph = served(shop.cf, chain(("pay", paying)))
    config = shop.cf.config(tenant="team-B", request_id="r-9", thread_id="t-1")
    assert (await graph.ainvoke({}, config))["log"] == ["team-B r-9/charge/1"]


# --- attempts --------------------------------------------------------------------------------------------------------


def stalling(shop: Shop, entered: threading.Event, leave: threading.Event) -> Any:
    def stall(state: State) -> State:
        number = perform(charge, order="1").value["number"]
        if not entered.is_set():
            entered.set()
            assert leave.wait(LIMIT_S)
        return {"number": number, "log": ["stall"]}

    return for_server(chain(("stall", stall), ("later", big))).copy(
        update={"checkpointer": shop.cf.saver(tenant="team-A", trust=who)}
    )


@pytest.mark.parametrize(
    ("run_id", "attempt", "outcome"),
    [
        ("run-1", 2, "taken"),
        ("run-1", 7, "taken"),
        ("run-1", 1, "refused"),
        ("run-1", 0, "refused"),
        ("run-2", 2, "refused"),
    ],
)
def test_the_next_attempt_of_a_run_takes_its_thread_and_another_run_does_not(
    shop: Shop, run_id: str, attempt: int, outcome: str
) -> None:
    entered, leave = threading.Event(), threading.Event()
    graph, ended = stalling(shop, entered, leave), []

    def first() -> None:
        try:
            ended.append(graph.invoke({}, asked()))
        except (VersionConflict, GraphDrained) as error:
            ended.append(error)

    run = threading.Thread(target=first)
    run.start()
    assert entered.wait(LIMIT_S)
    if outcome == "taken":
        assert graph.invoke({}, asked(run_id, attempt))["log"] == ["stall", "big"]
    else:
        with pytest.raises(ThreadBusy):
            graph.invoke({}, asked(run_id, attempt))
    leave.set()
    run.join()
    assert isinstance(ended[0], dict) is (outcome == "refused")
    assert graph.get_state(conf("t-1")).values["log"] == ["stall", "big"]
    assert shop.count == 1


def test_a_run_that_its_server_deletes_while_it_is_at_work_can_write_nothing_more(shop: Shop) -> None:
    entered, leave = threading.Event(), threading.Event()
    graph, ended = stalling(shop, entered, leave), []

    def first() -> None:
        try:
            graph.invoke({}, asked())
        except (VersionConflict, GraphDrained) as error:
            ended.append(error)

    run = threading.Thread(target=first)
    run.start()
    assert entered.wait(LIMIT_S)
    saver = shop.cf.saver(tenant="team-A")
    saver.delete_for_runs(["run-2"])
    assert shop.rows("checkpoint") == 2
    saver.delete_for_runs(["run-1"])
    leave.set()
    run.join()
    assert len(ended) == 1
    assert shop.rows("checkpoint") == shop.rows("write") == 0
    assert graph.invoke({}, asked("run-2"))["log"] == ["stall", "big"]
    assert shop.count == 1


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_a_run_that_its_server_deletes_before_its_first_checkpoint_can_write_nothing(shop: Shop, colour: str) -> None:
    saver, ended = shop.cf.saver(tenant="team-A"), list[str]()

    def delete(point: Point, name: str) -> None:
        if point is Point.BEFORE_STATEMENT and name == "read_newest_checkpoint" and not ended:
            ended.append("deleted")
            if colour == "blocking":
                saver.delete_for_runs(["run-1"])
            else:
                asyncio.run(saver.adelete_for_runs(["run-1"]))

    ours = shop.open(probe=delete).saver(tenant="team-A", trust=who)
    graph = for_server(chain(("big", big))).copy(update={"checkpointer": ours})
    with pytest.raises((VersionConflict, GraphDrained)):
        graph.invoke({}, asked())
    assert ended == ["deleted"]
    assert shop.rows("checkpoint") == shop.rows("write") == 0
    assert graph.invoke({}, asked("run-2"))["log"] == ["big"]


# --- how a served graph is run ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
async def test_the_servers_own_durability_is_no_wish_of_the_clients(shop: Shop) -> None:
    graph = served(shop.cf, chain(("pay", paying)))
    seen: list[Any] = []

    def note(state: State, config: RunnableConfig) -> State:
        seen.append(config["configurable"].get("__pregel_durability"))
        return {}

    graph = served(shop.cf, chain(("note", note)))
    await graph.ainvoke({}, asked(), durability="async")
    assert seen == ["sync"]
    with pytest.raises(ExitDurability):
        await graph.ainvoke({}, asked(), durability="exit")


async def test_a_run_without_a_thread_has_no_ledger_and_says_so(shop: Shop) -> None:
    graph = for_server(chain(("big", big)))
    assert (await graph.ainvoke({}))["log"] == ["big"]
    assert graph.invoke({})["log"] == ["big"]
    with pytest.raises(NoActiveCounterfoil, match="on a thread"):
        await for_server(chain(("pay", paying))).ainvoke({})
    with pytest.raises(ValueError, match="No checkpointer"):
        graph.get_state(conf())


async def test_nothing_of_ours_is_written_out_with_a_configuration(shop: Shop) -> None:
    graph = served(shop.cf, chain(("pay", paying)))
    streamed = [one async for one in graph.astream({}, asked(), stream_mode=["debug", "values"])]
    handed = [(await graph.aget_state(conf("t-1"))).config, await graph.aupdate_state(conf("t-1"), {"number": 7})]
    assert all(set(one["configurable"]) == {"thread_id", "checkpoint_ns", "checkpoint_id"} for one in handed)
    told = orjson.dumps([streamed, handed, shop.cf.config(**WHO)], default=lambda _: None)
    assert b"debug" in told
    for secret in (shop.cf.desk.holder, "wait_ms", "trusted", str(shop.cf.desk.store.path)):
        assert secret.encode() not in told


@pytest.mark.parametrize("what", [None, "graph", 7, lambda: None])
def test_only_graphs_are_compiled_for_the_server(what: Any) -> None:
    with pytest.raises(InvalidArguments):
        for_server(what)


def test_the_server_brings_the_checkpointer(shop: Shop) -> None:
    with pytest.raises(InvalidArguments, match="checkpointer"):
        for_server(chain(("big", big)), checkpointer=shop.cf.saver())
    graph = for_server(chain(("big", big)).compile(), name="agent", interrupt_before=["big"])
    assert (graph.checkpointer, graph.name) == (None, "agent")
    compiled = shop.cf.compile(graph)
    shop.cf.run(compiled, {}, **WHO)
    assert compiled.get_state(shop.cf.config(**WHO)).next == ("big",)
