"""Claims, checkpoints and writes of a thread, each as the saver and the claims make them, without a graph."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.runtime import RunControl

from counterfoil import AsyncCounterfoil, Counterfoil
from counterfoil.errors import CommitUnknown
from counterfoil.langgraph.claims import LEASE_MS, aclaim_now, aowning, claim_now, owning, with_run
from counterfoil.liveness import place as this_place
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import ThreadKey, ThreadRequest
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import World

WHO: dict[str, Any] = {"tenant": "team-A", "request_id": "r-1", "thread_id": "t-1"}
KEY = ThreadKey(tenant="team-A", thread_id="t-1")
METADATA: Any = {"source": "loop", "step": 0}
WRITES = [("log", ["a"]), ("branch:to:b", None)]
LARGE = "x" * 1000


def place(config: Any, checkpoint_id: str | None = None) -> Any:
    address = {"checkpoint_ns": "", **({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}
    return {"configurable": {**config["configurable"], **address}}


def made(checkpoint_id: str) -> Any:
    checkpoint = empty_checkpoint()
    checkpoint["id"] = checkpoint_id
    checkpoint["channel_values"] = {"answer": LARGE, "number": 1}
    # the same in every run: the channels of one step have one version
    checkpoint["channel_versions"] = dict.fromkeys(("answer", "number"), f"{1:032}.{checkpoint_id}")
    return checkpoint


# --- bodies ----------------------------------------------------------------------------------------------------------


def run(world: World) -> None:
    """Claim, store two checkpoints and a task's writes, ordinary and special ones, and give the thread back."""
    cf = world.open()
    claimed, _ = claim_now(cf.desk, cf.config(**WHO), None)
    saver, config = cf.saver(), with_run(cf.config(**WHO), claimed)
    with owning(claimed, RunControl()):
        first, second = made("0001"), made("0002")
        saver.put(place(config), first, METADATA, first["channel_versions"])
        saver.put_writes(place(config, "0001"), WRITES, "task", "path")
        saver.put_writes(place(config, "0001"), [("__interrupt__", ())], "other")
        saver.put(place(config, "0001"), second, METADATA, second["channel_versions"])


async def arun(world: World) -> None:
    cf = world.open_async()
    claimed, _ = await aclaim_now(cf.desk, cf.config(**WHO), None)
    saver, config = cf.saver(), with_run(cf.config(**WHO), claimed)
    async with aowning(claimed, RunControl()):
        first, second = made("0001"), made("0002")
        await saver.aput(place(config), first, METADATA, first["channel_versions"])
        await saver.aput_writes(place(config, "0001"), WRITES, "task", "path")
        await saver.aput_writes(place(config, "0001"), [("__interrupt__", ())], "other")
        await saver.aput(place(config, "0001"), second, METADATA, second["channel_versions"])


def park(world: World) -> None:
    """End a run that waits for an unknown outcome, and one that goes on from there."""
    cf = world.open()
    parked, _ = claim_now(cf.desk, cf.config(**WHO), {})
    with owning(parked, RunControl()):
        parked.parked.append("charge")
    going_on, was_parked_on = claim_now(cf.desk, cf.config(**WHO), None)
    assert was_parked_on == "charge"
    with owning(going_on, RunControl()):
        pass


async def apark(world: World) -> None:
    cf = world.open_async()
    parked, _ = await aclaim_now(cf.desk, cf.config(**WHO), {})
    async with aowning(parked, RunControl()):
        parked.parked.append("charge")
    going_on, was_parked_on = await aclaim_now(cf.desk, cf.config(**WHO), None)
    assert was_parked_on == "charge"
    async with aowning(going_on, RunControl()):
        pass


def renew(world: World) -> None:
    """Own a thread for longer than one lease; heartbeats go on when they hear of no COMMIT."""
    cf = world.open()
    claimed, _ = claim_now(cf.desk, cf.config(**WHO), None)
    with owning(claimed, RunControl()):
        for _ in range(3):
            world.clock.advance("20s")
            with suppress(CommitUnknown):
                assert cf.desk.store.write(lambda: threads.renew(KEY, attempt=claimed.attempt, lease=LEASE_MS))


def read(world: World) -> None:
    saver, config = (cf := world.open()).saver(), place(cf.config(**WHO))
    check_read(saver.get_tuple(config), [*saver.list(config)], [*saver.list(config, before=place(config, "0002"))])


async def aread(world: World) -> None:
    saver, config = (cf := world.open_async()).saver(), place(cf.config(**WHO))
    before = saver.alist(config, before=place(config, "0002"))
    check_read(
        await saver.aget_tuple(config), [one async for one in saver.alist(config)], [one async for one in before]
    )


def check_read(newest: CheckpointTuple | None, found: list[CheckpointTuple], before: list[CheckpointTuple]) -> None:
    assert newest is not None
    assert newest.checkpoint["channel_values"] == {"answer": LARGE, "number": 1}
    assert [one.checkpoint["id"] for one in found] == ["0002", "0001"]
    assert [one.checkpoint["id"] for one in before] == ["0001"]
    assert before[0].pending_writes == [("other", "__interrupt__", ()), *(("task", *write) for write in WRITES)]


def delete(world: World) -> None:
    saver = world.open().saver(tenant="team-A")
    saver.delete_thread("t-1")
    saver.delete_thread("t-1")


async def adelete(world: World) -> None:
    saver = world.open_async().saver(tenant="team-A")
    await saver.adelete_thread("t-1")
    await saver.adelete_thread("t-1")


def prune(world: World) -> None:
    world.open().saver(tenant="team-A").prune(["t-1"])


async def aprune(world: World) -> None:
    await world.open_async().saver(tenant="team-A").aprune(["t-1"])


def copy(world: World) -> None:
    world.open().saver(tenant="team-A").copy_thread("t-1", "t-2")


async def acopy(world: World) -> None:
    await world.open_async().saver(tenant="team-A").acopy_thread("t-1", "t-2")


def fork(world: World) -> None:
    world.open().fork("t-1", "0001", branch="b", tenant="team-A")


async def afork(world: World) -> None:
    await world.open_async().fork("t-1", "0001", branch="b", tenant="team-A")


# --- beginnings ------------------------------------------------------------------------------------------------------


def claim(cf: Counterfoil | AsyncCounterfoil, holder: str) -> None:
    """Claim, and never be heard of again."""
    trusted = {"request_id": "r-1", "workflow_id": None, "principal": None}
    request = ThreadRequest(key=KEY, holder=holder, lease=LEASE_MS, trusted=trusted, goes_on=False)
    cf.desk.store.write(lambda: threads.claim(request))


def abandoned(world: World) -> None:
    claim(world.open(), "another host")
    world.clock.advance("2m")


def held(world: World) -> None:
    claim(world.open(), "another host")


def held_by_the_dead(world: World) -> None:
    """Be claimed by a process of this host that is gone: process 1 began at another time."""
    claim(world.open(), f"here@{this_place()}:1:1:0/0")


# --- judging ---------------------------------------------------------------------------------------------------------


def select(world: World, sql: str) -> list[Any]:
    return [tuple(row.values()) for row in world.rows(sql)]


WHOLE: dict[str, list[Any]] = {
    "select checkpoint_id, parent_id from counterfoil_checkpoint order by seq": [("0001", None), ("0002", "0001")],
    "select count(*) from counterfoil_channel": [(2,)],
    "select task_id, channel from counterfoil_write order by task_id, idx": [
        ("other", "__interrupt__"),
        ("task", "log"),
        ("task", "branch:to:b"),
    ],
}
WHOLE_OF_FIRST: dict[str, list[Any]] = {
    "select checkpoint_id from counterfoil_checkpoint where thread_id = 't-1' order by seq": [("0001",), ("0002",)],
    "select count(*) from counterfoil_write where thread_id = 't-1'": [(3,)],
}
IDLE: dict[str, list[Any]] = {"select state, holder, parked_on from counterfoil_thread": [("idle", None, None)]}


def holds(wanted: dict[str, list[Any]]) -> Callable[[Aftermath], Iterator[str]]:
    def check(after: Aftermath) -> Iterator[str]:
        for sql, rows in wanted.items():
            if (found := select(after.world, sql)) != rows:
                yield f"{sql}: {found}"

    return check


PRUNED: dict[str, list[Any]] = {
    "select checkpoint_id from counterfoil_checkpoint": [("0002",)],
    "select version from counterfoil_channel": [(f"{1:032}.0002",)],
    "select task_id from counterfoil_write": [],
}
COPIED: dict[str, list[Any]] = {
    "select thread_id, checkpoint_id, parent_id from counterfoil_checkpoint order by seq": [
        (thread, *line) for thread in ("t-1", "t-2") for line in (("0001", None), ("0002", "0001"))
    ],
    "select thread_id, count(*) from counterfoil_channel group by thread_id order by 1": [("t-1", 2), ("t-2", 2)],
    "select thread_id, count(*) from counterfoil_write group by thread_id order by 1": [("t-1", 3), ("t-2", 3)],
    "select state, holder, request_id from counterfoil_thread": [("idle", None, "r-1")] * 2,
}
FORKED: dict[str, list[Any]] = {
    "select checkpoint_id from counterfoil_checkpoint where thread_id <> 't-1'": [("0001",)],
    "select version from counterfoil_channel where thread_id <> 't-1'": [(f"{1:032}.0001",)],
    "select task_id from counterfoil_write where thread_id <> 't-1'": [],
    "select thread_id, state, branch, branched_from, branched_at from counterfoil_thread order by thread_id": [
        ("t-1", "idle", None, None, None),
        ("t-1~branch-b", "idle", "b", "t-1", "0001"),
    ],
}


def gone(after: Aftermath) -> Iterator[str]:
    for table in ("checkpoint", "channel", "write", "mint"):
        if select(after.world, f"select 1 from counterfoil_{table}"):  # noqa: S608 - ours
            yield f"{table} rows are left"
    yield from holds(IDLE)(after)  # the row stays, for its number of attempts


# --- the list --------------------------------------------------------------------------------------------------------


def both(name: str, body: Any, abody: Any, check: Any, **fields: Any) -> tuple[Scenario, Scenario]:
    common = {"operations": 0, "entries": 2, "checks": (check,), **fields}
    return Scenario(name=name, run=body, **common), Scenario(name=f"{name}/async", run=abody, **common)


ENDED = holds(WHOLE | IDLE)
THREADS = (
    *both("run", run, arun, ENDED),
    *both("taken-over", run, arun, ENDED, prepare=abandoned),
    *both("taken-over-the-dead", run, arun, ENDED, prepare=held_by_the_dead),
    *both("busy", run, arun, ENDED, prepare=held),
    *both("park", park, apark, holds(IDLE)),
    *both("read", read, aread, ENDED, prepare=run),
    *both("delete", delete, adelete, gone, prepare=run),
    *both("prune", prune, aprune, holds(PRUNED | IDLE), prepare=run),
    *both("copy", copy, acopy, holds(COPIED), prepare=run),
    *both("fork", fork, afork, holds(WHOLE_OF_FIRST | FORKED), prepare=run),
    Scenario(name="renew", run=renew, operations=0, entries=2, checks=(holds(IDLE),)),
)
