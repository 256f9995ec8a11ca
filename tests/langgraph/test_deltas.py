"""Delta channels: their history is what LangGraph's own walk finds, in few statements, and their values are right."""

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from counterfoil import Counterfoil
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.langgraph.shop import WHO, Shop, chain, conf
from tests.langgraph.test_reading import Statements
from tests.langgraph.test_saver import checkpoint, root

CHANNELS = ("a", "b", "c", "never")


def extended(old: list[Any], new: Sequence[list[Any]]) -> list[Any]:
    return [*old, *(one for each in new for one in each)]


class Deltas(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(extended, snapshot_frequency=5)]
    often: Annotated[list[Any], DeltaChannel(extended, snapshot_frequency=2)]
    number: int


# --- the history itself ----------------------------------------------------------------------------------------------


def value(chance: random.Random, channel: str, number: int) -> Any:
    """Return what a checkpoint may hold of a channel: a snapshot, or a plain value from before it was a delta one."""
    return chance.choice([_DeltaSnapshot([channel, number]), [channel, number], "text", number, "x" * 1000])


def random_thread(saver: CounterfoilSaver, seed: int) -> Iterator[Any]:
    """Write a thread of several lines and yield the address of each of its checkpoints."""
    chance, addresses = random.Random(seed), [root()]
    for number in range(60):
        config = chance.choice(addresses[-4:])
        held = {name: value(chance, name, number) for name in CHANNELS[:3] if chance.random() < 0.15}
        made = checkpoint(saver, f"{number:03}", **held)
        made["channel_versions"] |= {name: saver.get_next_version(None, None) for name in CHANNELS[:3]}
        counted = {name: (1, 1) for name in CHANNELS[:3] if name not in held and chance.random() < 0.9}
        metadata: Any = {"source": "loop", "step": number, "counters_since_delta_snapshot": counted}
        addresses.append(saver.put(config, made, metadata, made["channel_versions"]))
        for task in range(chance.randrange(3)):
            writes = [(chance.choice(CHANNELS[:3]), [number, task]) for _ in range(chance.randrange(1, 3))]
            saver.put_writes(addresses[-1], writes, f"task-{chance.randrange(10)}", f"path-{chance.randrange(3)}")
    yield from addresses[1:]


@pytest.mark.parametrize("seed", range(5))
async def test_it_is_what_the_runtimes_own_walk_finds(shop: Shop, seed: int) -> None:
    saver = shop.cf.saver()
    for address in [*random_thread(saver, seed), root(), conf("nowhere")]:
        for channels in (CHANNELS, ("b",), ("never",), ()):
            told = BaseCheckpointSaver.get_delta_channel_history(saver, config=address, channels=channels)
            assert saver.get_delta_channel_history(config=address, channels=channels) == told
            assert await saver.aget_delta_channel_history(config=address, channels=channels) == told


@pytest.mark.parametrize(("depth", "statements"), [(0, 1), (14, 1), (15, 2), (46, 2), (47, 3), (110, 3), (111, 4)])
def test_the_way_back_to_a_snapshot_is_read_in_few_statements(shop: Shop, depth: int, statements: int) -> None:
    noted = Statements()
    saver = shop.open(probe=noted).saver()
    config: Any = root()
    for number in range(depth + 5):
        held = {"a": _DeltaSnapshot([number])} if number == 3 else {}
        made = checkpoint(saver, f"{number:03}", **held, other="x" * 1000)
        versions = made["channel_versions"] | {"a": saver.get_next_version(None, None)}
        made["channel_versions"] = versions
        metadata: Any = {"source": "loop", "step": number, "counters_since_delta_snapshot": {"a": (1, 1)}}
        config = saver.put(config, made, metadata, versions)
        saver.put_writes(config, [("a", [number]), ("other", "y" * 1000)], "task")
    noted.take()
    found = saver.get_delta_channel_history(config=config, channels=["a"])["a"]
    assert found["seed"] == _DeltaSnapshot([3])
    assert [write[2] for write in found["writes"]] == [[number] for number in range(3, depth + 4)]
    assert noted.take() == ["page_ancestors"] * statements


# --- graphs ----------------------------------------------------------------------------------------------------------


def builder() -> Any:
    def step(state: Deltas) -> Deltas:
        number = state.get("number", 0) + 1
        log: Any = Overwrite([f"fresh {number}"]) if number % 7 == 0 else [number]
        return {"log": log, "often": [number], "number": number}

    return chain(("step", step), ("quiet", lambda state: {}), schema=Deltas)


def turns(graph: Any, config: Any, count: int) -> list[Any]:
    return [graph.invoke({"log": [f"turn {turn}"]}, config) for turn in range(count)]


def states(graph: Any, config: Any) -> list[Any]:
    return [snapshot.values for snapshot in graph.get_state_history(config)]


async def test_values_and_all_of_history_are_the_same_as_in_memory(shop: Shop) -> None:
    ours, theirs = shop.cf.compile(builder()), builder().compile(checkpointer=InMemorySaver())
    config, plain = shop.cf.config(**WHO), conf()
    assert turns(ours, config, 12) == turns(theirs, plain, 12)
    assert states(ours, config) == states(theirs, plain)
    assert [one.values async for one in ours.aget_state_history(config)] == states(theirs, plain)


def back(graph: Any, config: Any, number: int) -> Any:
    """Return the address of the checkpoint after which `step` ran for the nth time."""
    places = [one.config for one in graph.get_state_history(config) if one.next == ("step",)]
    return places[::-1][number]


def test_going_back_and_changing_the_state_give_what_they_give_in_memory(shop: Shop) -> None:
    seen = []
    for graph, config in (
        (shop.cf.compile(builder()), shop.cf.config(**WHO)),
        (builder().compile(checkpointer=InMemorySaver()), conf()),
    ):
        turns(graph, config, 8)
        graph.invoke(None, back(graph, config, 3))
        graph.update_state(back(graph, config, 5), {"log": ["by hand"]}, as_node="step")
        graph.update_state(config, {"often": Overwrite(["reset"])}, as_node="step")
        turns(graph, config, 3)
        seen.append(states(graph, config))
    assert seen[0] == seen[1]


def test_a_thread_grows_with_what_is_written_and_not_with_what_is_there(shop: Shop) -> None:
    graph, config = shop.cf.compile(builder()), shop.cf.config(**WHO)
    for _ in range(40):
        graph.invoke({"log": ["x" * 1000]}, config)
    ((size,),) = shop.select("select sum(length(value)) from counterfoil_channel where channel = 'log'")
    whole = len(graph.get_state(config).values["log"])
    assert whole < 40  # the last reset
    assert size < 40 * 1000 * 8  # every checkpoint holding all of it would be some hundred times as much


# --- upkeep ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def long(shop: Shop) -> Counterfoil:
    turns(shop.cf.compile(builder()), shop.cf.config(**WHO), 12)
    return shop.cf


@pytest.mark.parametrize("times", [1, 2])
def test_a_pruned_thread_has_its_whole_state_and_goes_on(long: Counterfoil, shop: Shop, times: int) -> None:
    graph, config = long.compile(builder()), long.config(**WHO)
    before, rows = graph.get_state(config).values, shop.rows("checkpoint")
    for _ in range(times):
        long.saver(tenant="team-A").prune(["t-1"])
    assert graph.get_state(config).values == before
    assert 1 < shop.rows("checkpoint") < rows / 2
    oracle = builder().compile(checkpointer=InMemorySaver())
    turns(oracle, conf(), 12)
    assert turns(graph, config, 9) == turns(oracle, conf(), 9)


@pytest.mark.parametrize("upkeep", ["copy_thread", "delete_for_runs"])
def test_copying_and_deleting_leave_what_values_are_made_of(shop: Shop, upkeep: str) -> None:
    cf, saver = shop.cf, shop.cf.saver(tenant="team-A")
    graph = cf.compile(builder())
    for turn in range(12):
        run = cf.config(**WHO, config={"metadata": {"run_id": f"run-{turn}"}})
        graph.invoke({"log": [f"turn {turn}"]}, run)
    before, read = graph.get_state(cf.config(**WHO)).values, WHO
    if upkeep == "copy_thread":
        saver.copy_thread("t-1", "t-2")
        saver.delete_thread("t-1")
        read = {**WHO, "thread_id": "t-2"}
    else:
        rows = shop.rows("checkpoint")
        saver.delete_for_runs([f"run-{turn}" for turn in range(11)])
        assert shop.rows("checkpoint") < rows
    assert graph.get_state(cf.config(**read)).values == before


def test_a_channel_that_was_a_delta_channel_before_keeps_its_value_over_a_pruning(shop: Shop) -> None:
    class Plain(TypedDict, total=False):
        log: Annotated[list[Any], lambda old, new: [*old, *new]]
        often: Annotated[list[Any], lambda old, new: [*old, *new]]
        number: int

    cf, config = shop.cf, shop.cf.config(**WHO)
    turns(cf.compile(builder()), config, 4)
    plain = cf.compile(chain(("other", lambda state: {"number": 100}), schema=Plain))
    plain.invoke({"number": 1}, config)
    before = plain.get_state(config).values
    assert before["log"][-1] == 4
    cf.saver(tenant="team-A").prune(["t-1"])
    assert plain.get_state(config).values == before
