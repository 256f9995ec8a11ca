"""The checkpointer itself: order of commits, repeats, paging, tenants, copies, loops, and what it keeps of a run."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.types import Command, Send, interrupt

from counterfoil import Counterfoil
from counterfoil.errors import InvalidId, SecretInState, StateNotStorable, StoreClosed
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.langgraph.shop import Shop, State, chain, conf

LIMIT_S = 5


def noted(name: str) -> Callable[[State], State]:
    return lambda state: {"log": [name]}


def checkpoint(saver: CounterfoilSaver, identity: str, **values: Any) -> Any:
    made = empty_checkpoint()
    made["id"] = identity
    made["channel_values"] = values
    made["channel_versions"] = {name: saver.get_next_version(None, None) for name in values}
    return made


def put(saver: CounterfoilSaver, config: Any, identity: str, step: int = 0, **values: Any) -> Any:
    made = checkpoint(saver, identity, **values)
    return saver.put(config, made, {"source": "loop", "step": step}, made["channel_versions"])


def root(thread_id: str = "t") -> Any:
    return conf(thread_id, checkpoint_ns="")


# --- order -----------------------------------------------------------------------------------------------------------


def id_at(when: datetime) -> str:
    """Return a checkpoint id as a host with this clock makes it: they begin with the time."""
    ticks = int(when.timestamp() * 10**7) + 0x01B21DD213814000
    high, low = ticks >> 12, ticks & 0xFFF
    rest = str(uuid6())[18:]
    text = f"{high:012x}6{low:03x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}{rest}"


@pytest.mark.parametrize("minutes", [-5, 5], ids=["behind", "ahead"])
def test_the_newest_checkpoint_is_the_last_one_committed_whatever_the_clocks_say(shop: Shop, minutes: int) -> None:
    saver, now = shop.cf.saver(), datetime.now(UTC)
    first = put(saver, root(), id_at(now), number=1)
    rescued = put(saver, first, id_at(now + timedelta(minutes=minutes)), number=2)
    third = put(saver, rescued, id_at(now + timedelta(minutes=2 * minutes)), number=3)
    ids = [each["configurable"]["checkpoint_id"] for each in (first, rescued, third)]
    assert sorted(ids) == ids[:: -1 if minutes < 0 else 1]
    newest = saver.get_tuple(root())
    assert newest is not None
    assert newest.checkpoint["channel_values"] == {"number": 3}
    assert newest.parent_config is not None
    assert newest.parent_config["configurable"]["checkpoint_id"] == ids[1]
    assert [one.checkpoint["id"] for one in saver.list(root())] == ids[::-1]
    assert [one.checkpoint["id"] for one in saver.list(root(), before=third)] == ids[1::-1]


def test_a_rescuer_with_a_slow_clock_does_not_run_a_finished_node_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def node(name: str) -> Any:
        def run(state: State) -> State:
            ran.append(name)
            return {}

        return name, run

    builder = chain(node("pay"), node("ask"), node("mail"))
    first = shop.cf.compile(builder, interrupt_before=["ask"])
    first.invoke({"order": "1"}, shop.cf.config(thread_id="t", tenant="a"))
    late = 0

    def slow(clock_seq: int | None = None) -> Any:
        nonlocal late
        late += 1
        return id_at(datetime.now(UTC) - timedelta(minutes=5) + timedelta(milliseconds=late))

    monkeypatch.setattr("langgraph.pregel._checkpoint.uuid6", slow)
    rescuer = shop.open()
    second = rescuer.compile(builder, interrupt_before=["mail"])
    second.invoke(None, rescuer.config(thread_id="t", tenant="a"))
    third = rescuer.compile(builder)
    assert third.get_state(rescuer.config(thread_id="t", tenant="a")).next == ("mail",)
    third.invoke(None, rescuer.config(thread_id="t", tenant="a"))
    assert late
    assert ran == ["pay", "ask", "mail"]


# --- repeats ---------------------------------------------------------------------------------------------------------


def test_a_repeated_put_leaves_one_checkpoint_and_its_place_in_the_order(shop: Shop) -> None:
    saver = shop.cf.saver()
    made = checkpoint(saver, "1", number=1, text="x" * 1000)
    for _ in range(3):
        saver.put(root(), made, {"source": "loop", "step": 0}, made["channel_versions"])
    put(saver, root(), "2", number=2)
    saver.put(root(), made, {"source": "loop", "step": 0}, made["channel_versions"])
    assert shop.rows("checkpoint") == 2
    assert shop.rows("channel") == 1
    newest = saver.get_tuple(root())
    assert newest is not None
    assert newest.checkpoint["id"] == "2"


def test_repeated_writes_of_a_task_are_stored_once_and_another_value_does_not_replace_the_first(shop: Shop) -> None:
    saver = shop.cf.saver()
    config = put(saver, root(), "1")
    for value in ("first", "first", "other"):
        saver.put_writes(config, [("number", value), ("branch:to:b", None)], "task", "path")
    found = saver.get_tuple(root())
    assert found is not None
    assert found.pending_writes == [("task", "number", "first"), ("task", "branch:to:b", None)]


def test_a_later_error_or_interrupt_of_a_task_replaces_the_earlier(shop: Shop) -> None:
    saver = shop.cf.saver()
    config = put(saver, root(), "1")
    for text in ("one", "two"):
        saver.put_writes(config, [("__error__", ValueError(text))], "task")
    found = saver.get_tuple(root())
    assert found is not None
    assert found.pending_writes == [("task", "__error__", "ValueError('two')")]


def test_the_path_of_a_task_orders_its_writes(shop: Shop) -> None:
    saver = shop.cf.saver()
    config = put(saver, root(), "1")
    saver.put_writes(config, [("a", 1)], "task-1", task_path="~__pregel_push, 2")
    saver.put_writes(config, [("a", 2)], "task-2", task_path="~__pregel_push, 1")
    found = saver.get_tuple(root())
    assert found is not None
    assert found.pending_writes == [("task-2", "a", 2), ("task-1", "a", 1)]


# --- listing ---------------------------------------------------------------------------------------------------------


def steps(found: Any) -> list[int]:
    return [one.metadata["step"] for one in found]


def many(saver: CounterfoilSaver, count: int = 130) -> Any:
    config = root()
    for number in range(count):
        made = checkpoint(saver, f"{number:04}", number=number)
        metadata: Any = {"source": "loop", "step": number, "kind": "even" if number % 2 == 0 else "odd"}
        config = saver.put(config, made, metadata, made["channel_versions"])
    return config


def test_a_list_pages_over_more_checkpoints_than_it_reads_at_once(shop: Shop) -> None:
    saver = shop.cf.saver()
    many(saver)
    put(saver, root("other"), "x", step=7)
    assert steps(saver.list(root())) == list(range(129, -1, -1))
    assert steps(saver.list(root(), limit=60)) == list(range(129, 69, -1))
    assert steps(saver.list(root(), limit=0)) == []
    assert steps(saver.list(root(), filter={"kind": "odd"}, limit=60)) == list(range(129, 9, -2))
    before = conf("t", checkpoint_id="0100")
    assert steps(saver.list(root(), before=before)) == list(range(99, -1, -1))
    assert steps(saver.list(root(), filter={"kind": "even", "step": 4})) == [4]
    assert steps(saver.list(root(), before=conf("t", checkpoint_id="nowhere"))) == []
    assert steps(saver.list(conf("t", checkpoint_ns="", checkpoint_id="0003"))) == [3]
    assert len(list(saver.list(None))) == 131


async def test_a_list_holds_nothing_while_its_reader_is_away(shop: Shop) -> None:
    saver = shop.cf.saver()
    config = many(saver, 60)
    listing = saver.list(root())
    alisting = saver.alist(root())
    assert next(listing).metadata["step"] == 59
    assert (await anext(alisting)).metadata["step"] == 59
    put(saver, config, "new", step=60)
    await saver.aput_writes(config, [("a", 1)], "task")
    assert steps(listing) == list(range(58, -1, -1))
    assert [one.metadata["step"] async for one in alisting] == list(range(58, -1, -1))
    assert next(saver.list(root())).metadata["step"] == 60


# --- what is stored once, what is deleted ----------------------------------------------------------------------------


def test_a_channel_that_did_not_change_is_not_written_again(shop: Shop) -> None:
    def big(state: State) -> State:
        return {"answer": "x" * 10_000}

    names = [f"n{number}" for number in range(8)]
    graph = shop.cf.compile(chain(("big", big), *((name, noted(name)) for name in names)))
    graph.invoke({"order": "1"}, shop.cf.config(thread_id="t"))
    rows = shop.select("select channel, count(*), sum(length(value)) from counterfoil_channel group by channel")
    sizes = {channel: (count, size) for channel, count, size in rows}
    assert sizes["answer"][0] == 1
    assert sizes["log"][0] == 8
    total = shop.select("select sum(length(body)) from counterfoil_checkpoint")[0][0]
    assert total < 20_000
    assert graph.get_state(shop.cf.config(thread_id="t")).values["answer"] == "x" * 10_000


async def test_deleting_a_thread_leaves_other_threads_and_other_tenants(shop: Shop) -> None:
    for tenant in ("a", "b"):
        for thread in ("t", "u"):
            graph = shop.cf.compile(chain(("n", noted(f"{tenant}{thread}"))))
            graph.invoke({"answer": "x" * 1000}, shop.cf.config(thread_id=thread, tenant=tenant))
    graph = shop.cf.compile(chain(("n", noted("n"))))
    shop.cf.saver(tenant="a").delete_thread("t")
    await shop.cf.saver(tenant="a").adelete_thread("unknown")
    left = {
        (tenant, thread): graph.get_state(shop.cf.config(thread_id=thread, tenant=tenant)).values.get("log")
        for tenant in ("a", "b")
        for thread in ("t", "u")
    }
    assert left == {("a", "t"): None, ("a", "u"): ["au"], ("b", "t"): ["bt"], ("b", "u"): ["bu"]}
    for table in ("checkpoint", "channel", "write", "mint"):
        assert shop.rows(table, "tenant = 'a' and thread_id = 't'") == 0
    graph.invoke({"order": "anew"}, shop.cf.config(thread_id="t", tenant="a"))
    assert graph.get_state(shop.cf.config(thread_id="t", tenant="a")).values["log"] == ["n"]


# --- tenants ---------------------------------------------------------------------------------------------------------


def test_two_tenants_with_one_thread_id_see_nothing_of_each_other(shop: Shop) -> None:
    cf = shop.cf
    graph = cf.compile(chain(("n", lambda state: {"log": [state["order"]]})))
    for tenant in ("a", "b", "a"):
        graph.invoke({"order": tenant}, cf.config(thread_id="t", tenant=tenant))
    assert graph.get_state(cf.config(thread_id="t", tenant="a")).values["log"] == ["a", "a"]
    assert graph.get_state(cf.config(thread_id="t", tenant="b")).values["log"] == ["b"]
    assert graph.get_state(cf.config(thread_id="t")).values == {}
    assert cf.saver().get_tuple(root("t")) is None
    assert len(list(cf.saver(tenant="b").list(None))) == 3
    other = next(cf.saver(tenant="a").list(conf("t")))
    stolen = conf("t", checkpoint_ns="", checkpoint_id=other.checkpoint["id"])
    assert cf.saver(tenant="b").get_tuple(stolen) is None


def test_the_tenant_stays_in_every_configuration_that_is_handed_out(shop: Shop) -> None:
    cf = shop.cf
    graph = cf.compile(chain(("one", noted("one")), ("two", noted("two"))))
    graph.invoke({"order": "1"}, cf.config(thread_id="t", tenant="a"))
    snapshot = graph.get_state(cf.config(thread_id="t", tenant="a"))
    assert graph.get_state(snapshot.config).values == snapshot.values
    assert graph.get_state(snapshot.parent_config).values["log"] == ["one"]
    history = list(graph.get_state_history(snapshot.config | {}))
    assert [len(list(graph.get_state_history(one.config, limit=1))) for one in history] == [1] * len(history)
    updated = graph.update_state(snapshot.config, {"log": ["by hand"]}, as_node="one")
    assert graph.get_state(updated).values["log"] == ["one", "two", "by hand"]
    assert graph.invoke(None, updated)["log"] == ["one", "two", "by hand", "two"]
    assert list(cf.saver().list(None)) == []


# --- copies, strict msgpack, loops -----------------------------------------------------------------------------------


def test_a_shallow_copy_is_the_same_saver(shop: Shop) -> None:
    saver = shop.cf.saver(tenant="a")
    clone = copy(saver)
    put(clone, root(), "1", number=1)
    found = saver.get_tuple(root())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"number": 1}
    assert clone.tenant == "a"


STRICT = """
import dataclasses, sys
from typing import TypedDict
from langgraph.graph import END, START, StateGraph
from counterfoil import Counterfoil, effect

@dataclasses.dataclass
class Order:
    number: int

class State(TypedDict, total=False):
    order: Order
    seen: int

@effect("strict.pay", key="{request_id}/pay")
def pay(call, *, number: int):
    return number

from counterfoil.langgraph import perform

def node(state: State) -> State:
    return {"order": Order(perform(pay, number=7).value)}

def later(state: State) -> State:
    return {"seen": state["order"].number}

builder = StateGraph(State)
builder.add_node("node", node)
builder.add_node("later", later)
builder.add_edge(START, "node")
builder.add_edge("node", "later")
builder.add_edge("later", END)
with Counterfoil.open(sys.argv[1]) as cf:
    for graph in (cf.compile(builder, interrupt_before=["later"]), builder.compile(checkpointer=cf.saver(tenant="a"))):
        config = cf.config(thread_id=type(graph).__name__, tenant="a", request_id="r")
        graph.invoke({}, config)
        state = graph.get_state(config)
        assert state.values["order"] == Order(7), state
        print(type(state.values["order"]).__name__, graph.invoke(None, config)["seen"])
"""


def test_classes_of_the_state_come_back_under_strict_msgpack(shop: Shop) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", STRICT, shop.url],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["Order", "7", "Order", "7"]


def test_one_saver_serves_several_event_loops_also_after_one_was_closed(shop: Shop) -> None:
    graph = shop.cf.compile(chain(("n", noted("n"))))

    async def once(order: str) -> int:
        await graph.ainvoke({"order": order}, shop.cf.config(thread_id="t", tenant="a"))
        return len((await graph.aget_state(shop.cf.config(thread_id="t", tenant="a"))).values["log"])

    assert [asyncio.run(once(str(number))) for number in range(3)] == [1, 2, 3]
    assert graph.invoke({"order": "4"}, shop.cf.config(thread_id="t", tenant="a"))["log"] == ["n"] * 4


async def test_no_method_hangs_on_the_thread_of_the_loop(shop: Shop) -> None:
    saver = shop.cf.saver()
    made = checkpoint(saver, "1", number=1)
    config = conf("t", checkpoint_ns="", checkpoint_id="1")
    found: list[CheckpointTuple | None] = []
    async with asyncio.timeout(LIMIT_S):
        saver.put(root(), made, {"source": "loop", "step": 0}, made["channel_versions"])
        saver.put_writes(config, [("number", 2)], "task")
        found += [saver.get_tuple(root()), *saver.list(root())]
        assert saver.get(root()) is not None
        await saver.aput(root(), made, {"source": "loop", "step": 0}, made["channel_versions"])
        await saver.aput_writes(config, [("number", 2)], "task")
        found += [await saver.aget_tuple(root()), *[one async for one in saver.alist(root())]]
        assert await saver.aget(root()) is not None
        saver.delete_thread("t")
        await saver.adelete_thread("t")
        graph = shop.cf.compile(chain(("n", noted("n"))))
        run = shop.cf.config(thread_id="t", tenant="a")
        graph.invoke({"order": "1"}, run)
        graph.update_state(run, {"number": 1})
        assert graph.get_state(run).values["number"] == 1
        assert [one.values.get("number") for one in graph.get_state_history(run, limit=1)] == [1]
        saver.copy_thread("t", "u")
        await saver.acopy_thread("t", "u")
        saver.prune(["u"])
        await saver.aprune(["u"])
        saver.delete_for_runs(["r"])
        await saver.adelete_for_runs(["r"])
        shop.cf.close()
    assert len(found) == 4
    assert all(one is not None and one.checkpoint["channel_values"] == {"number": 1} for one in found)


# --- what is kept of a run's configuration ---------------------------------------------------------------------------

CANARIES = {
    "api_key": "canary-configurable-api-key",
    "harmless": "canary-harmless-setting",
}
SECRET_URL = "postgresql://app:canary-password@db.internal/prod"
HEADER = "Bearer canary0123456789abcdef"


def refuses(action: Callable[[], object]) -> None:
    with pytest.raises((SecretInState, StateNotStorable)):
        action()


def compiled(shop: Shop, builder: Any, kind: str) -> tuple[Any, Any]:
    if kind == "managed":
        return shop.cf.compile(builder), shop.cf.config(thread_id="t", tenant="a")
    return builder.compile(checkpointer=shop.cf.saver()), conf("t")


both = pytest.mark.parametrize("kind", ["managed", "plain"])


@both
def test_of_the_configuration_only_the_id_of_the_run_is_stored(shop: Shop, kind: str) -> None:
    graph, config = compiled(shop, chain(("n", noted("n"))), kind)
    config["configurable"] |= {**CANARIES, "database": SECRET_URL}
    config["metadata"] = {"Authorization": HEADER, "note": "canary-note", "run_id": "run-17"}
    config["tags"] = ["canary-tag"]
    graph.invoke({"order": "1"}, config)
    assert b"canary" not in shop.raw()
    newest = graph.get_state(config)
    assert newest.metadata["run_id"] == "run-17"
    assert set(newest.metadata) <= {"source", "step", "parents", "run_id"}


def secrets_of(value: Any) -> Any:
    return {
        "returned by a node": chain(("n", lambda state: {"answer": value})),
        "sent to a node": _sending(value),
        "asked of a person": _asking(value),
    }


def _sending(value: Any) -> Any:
    builder = chain(("n", noted("n")))
    builder.add_node("m", noted("m"))
    builder.add_conditional_edges("n", lambda state: [Send("m", {"answer": value})], ["m"])
    return builder


def _asking(value: Any) -> Any:
    return chain(("n", lambda state: {"answer": interrupt(value)}))


@both
@pytest.mark.parametrize("place", list(secrets_of("")))
@pytest.mark.parametrize("value", [{"api_key": "canary-by-name"}, HEADER, SECRET_URL], ids=["by-name", "header", "url"])
def test_a_credential_reaches_no_part_of_the_database_by_a_node(shop: Shop, kind: str, place: str, value: Any) -> None:
    graph, config = compiled(shop, secrets_of(value)[place], kind)
    refuses(lambda: graph.invoke({"order": "1"}, config))
    assert b"canary" not in shop.raw()


@both
@pytest.mark.parametrize("value", [{"api_key": "canary-by-name"}, HEADER], ids=["by-name", "header"])
def test_a_credential_reaches_no_part_of_the_database_from_outside(shop: Shop, kind: str, value: Any) -> None:
    graph, config = compiled(shop, _asking("well?"), kind)
    refuses(lambda: graph.invoke({"answer": value}, config))
    graph.invoke({"order": "1"}, config)
    refuses(lambda: graph.update_state(config, {"answer": value}, as_node="__start__"))
    oldest = list(graph.get_state_history(config))[-1]
    refuses(lambda: graph.update_state(oldest.config, {"answer": value}, as_node="__start__"))
    refuses(lambda: graph.invoke(Command(resume=value), config))
    assert b"canary" not in shop.raw()


@both
def test_the_text_of_an_error_is_stored_without_its_credentials(shop: Shop, kind: str) -> None:
    def node(state: State) -> State:
        raise ValueError(f"cannot reach {SECRET_URL} with Authorization: {HEADER}")

    graph, config = compiled(shop, chain(("n", node)), kind)
    with pytest.raises(ValueError, match="cannot reach"):
        graph.invoke({"order": "1"}, config)
    assert b"canary" not in shop.raw()
    assert "cannot reach" in str(graph.get_state(config).tasks[0].error)


@pytest.mark.parametrize("thread_id", ["nul\0", "lone\ud800", ""])
def test_a_thread_id_that_cannot_be_stored_is_refused(shop: Shop, thread_id: str) -> None:
    graph = chain(("n", noted("n"))).compile(checkpointer=shop.cf.saver())
    with pytest.raises(InvalidId):
        graph.invoke({"order": "1"}, conf(thread_id))
    with pytest.raises(InvalidId):
        shop.cf.config(thread_id=thread_id)


def test_metadata_given_to_the_saver_is_checked(shop: Shop) -> None:
    saver = shop.cf.saver()
    made = checkpoint(saver, "1")
    metadata: Any = {"source": "loop", "step": 0, "authorization": HEADER}
    with pytest.raises(SecretInState) as caught:
        saver.put(root(), made, metadata, {})
    assert "canary" not in str(caught.value)
    assert json.dumps(caught.value.facts, default=str).count("canary") == 0


def test_a_saver_of_a_closed_counterfoil_says_so(url: str) -> None:
    cf = Counterfoil.open(url)
    saver = cf.saver()
    cf.close()
    with pytest.raises(StoreClosed):
        saver.get_tuple(root())
