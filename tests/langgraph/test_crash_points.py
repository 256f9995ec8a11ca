"""Claims and checkpoints survive a crash at every statement and COMMIT, and a COMMIT that nobody heard of."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.runtime import RunControl

from counterfoil.langgraph.claims import aclaim_now, aowning, claim_now, owning, with_run
from counterfoil.testing.crash import crash_at_each_point
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import World
from tests.langgraph.shop import WHO

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


METADATA: Any = {"source": "loop", "step": 0}


def run(world: World) -> None:
    cf = world.open()
    claimed, _ = claim_now(cf.desk, cf.config(**WHO), None)
    saver, config = cf.saver(), with_run(cf.config(**WHO), claimed)
    with owning(claimed, RunControl()):
        first, second = made("0001"), made("0002")
        saver.put(place(config), first, METADATA, first["channel_versions"])
        saver.put_writes(place(config, "0001"), WRITES, "task", "path")
        saver.put_writes(place(config, "0001"), [("__interrupt__", ())], "other")
        saver.put(place(config, "0001"), second, METADATA, second["channel_versions"])
    check(world)


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
    check(world)


def delete(world: World) -> None:
    run(world)
    cf = world.open()
    cf.saver(tenant="team-A").delete_thread("t-1")
    cf.saver(tenant="team-A").delete_thread("t-1")


async def adelete(world: World) -> None:
    await arun(world)
    cf = world.open_async()
    await cf.saver(tenant="team-A").adelete_thread("t-1")


def select(world: World, sql: str) -> list[Any]:
    with closing(sqlite3.connect(world.database)) as connection:
        return connection.execute(sql).fetchall()


def check(world: World) -> None:
    assert not list(wrong(world))


def wrong(world: World) -> Iterator[str]:
    want = {
        "select state, holder, parked_on from counterfoil_thread": [("idle", None, None)],
        "select checkpoint_id, parent_id from counterfoil_checkpoint order by seq": [("0001", None), ("0002", "0001")],
        "select count(*) from counterfoil_channel": [(2,)],
        "select task_id, channel from counterfoil_write order by task_id, idx": [
            ("other", "__interrupt__"),
            ("task", "log"),
            ("task", "branch:to:b"),
        ],
    }
    yield from (f"{sql}: {found}" for sql, rows in want.items() if (found := select(world, sql)) != rows)


def whole(after: Aftermath) -> Iterator[str]:
    yield from wrong(after.world)


def gone(after: Aftermath) -> Iterator[str]:
    for table in ("thread", "checkpoint", "channel", "write", "mint"):
        if select(after.world, f"select 1 from counterfoil_{table}"):  # noqa: S608 - ours
            yield f"{table} rows are left"


SCENARIOS = [
    (Scenario(name="run", run=run, operations=0, checks=(whole,)), 44),
    (Scenario(name="run/async", run=arun, operations=0, checks=(whole,)), 44),
    (Scenario(name="delete", run=delete, operations=0, checks=(gone,)), 70),
    (Scenario(name="delete/async", run=adelete, operations=0, checks=(gone,)), 60),
]


@pytest.mark.parametrize(("scenario", "points"), SCENARIOS, ids=lambda value: getattr(value, "name", ""))
def test_a_crash_at_any_point_leaves_a_thread_that_goes_on(scenario: Scenario, points: int) -> None:
    report = crash_at_each_point(scenario)
    report.raise_if_violated()
    assert len(report.points) >= points
    assert len(report.runs) > len(report.points)
