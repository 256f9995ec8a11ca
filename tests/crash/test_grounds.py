"""Worlds on PostgreSQL: each begins as the first did, on connections that outlive it, in a database that goes away."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from counterfoil.drivers.probes import Point
from counterfoil.errors import InvalidUrl
from counterfoil.storage.migrator import migrations
from counterfoil.storage.script import Ddl, Script
from counterfoil.testing.crash import Workshop, crash_at_each_point, enter_well, prepare
from counterfoil.testing.crash_report import Manner
from counterfoil.testing.grounds import Ground, ground_at
from counterfoil.testing.kills import kill_at_each_commit
from counterfoil.testing.scenario import Scenario
from counterfoil.testing.world import World, no_interference
from tests.crash.naive import mark_then_send, naive
from tests.crash.scenarios import BY_NAME, LAGS
from tests.postgres.servers import Server

OURS = "select datname from pg_database where datname like 'counterfoil_crash_%'"
SESSIONS = "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"


@pytest.fixture
def shop(postgres_server: Server, tmp_path: Path) -> Any:
    with ground_at(postgres_server.root) as ground:
        yield prepare(Scenario(name="found", run=BY_NAME["found"].run, prepare=begin, traits=LAGS), tmp_path, ground)


def begin(world: World) -> None:
    cf = world.open()
    prepared = BY_NAME["found"].prepare
    assert prepared is not None
    prepared(world)
    cf.desk.store.write(lambda: several("create table mine (id integer generated always as identity, what text)"))
    cf.desk.store.write(
        lambda: several("insert into mine (what) values ('kept\\n\t%')", "insert into mine (what) values (null)")
    )


def several(*statements: str) -> Script[None]:
    for each in statements:
        yield Ddl(each)


def seen(world: World) -> dict[str, Any]:
    tables = ("counterfoil_operation", "counterfoil_case", "counterfoil_attempt", "counterfoil_migration", "mine")
    return {table: [dict(row) for row in world.rows(f"select * from {table} order by 1")] for table in tables}  # noqa: S608 - ours


def test_every_world_begins_with_the_same_rows_and_numbers(shop: Workshop) -> None:
    first = shop.world("first", no_interference)
    rows = seen(first)
    assert [len(each) for each in rows.values()] == [1, 1, 1, len(migrations("postgres")), 2]
    assert [row["what"] for row in rows["mine"]] == ["kept\\n\t%", None]
    spoil = (
        "insert into mine (what) values ('spoilt')",
        "update counterfoil_operation set version = 9",
        "create table another (id integer)",
    )
    enter_well(lambda world: world.open().desk.store.write(lambda: several(*spoil)), first)
    assert [row["id"] for row in seen(first)["mine"]] == [1, 2, 3]
    second = shop.world("second", no_interference)
    assert seen(second) == rows
    assert second.rows("select tablename from pg_tables where tablename = 'another'") == []
    enter_well(lambda world: world.open().desk.store.write(lambda: several(spoil[0])), second)
    assert [row["id"] for row in seen(second)["mine"]] == [1, 2, 3]


async def awaiting(world: World) -> None:
    await world.open_async().operations.counts(tenant="team-A")


def test_connections_outlive_the_worlds(shop: Workshop) -> None:
    sessions = set()
    for number in range(4):
        world = shop.world(str(number), no_interference)
        for body in (shop.scenario.run, awaiting):
            enter_well(body, world)
        sessions.add(tuple(sorted(row["pid"] for row in world.rows(SESSIONS))))
    assert len(sessions) == 1


def test_what_a_crashed_body_left_open_is_ended(postgres_server: Server) -> None:
    left: list[Any] = []

    def leave(world: World) -> None:
        left.append(connection := psycopg.connect(world.url))
        connection.execute("lock table counterfoil_operation")
        world.probe(Point.BEFORE_COMMIT, "its own")
        connection.close()

    report = crash_at_each_point(
        Scenario(name="leave", run=leave, recover=awaiting, operations=0), url=postgres_server.root
    )
    report.raise_if_violated()
    assert [(run.manner, run.outcome) for run in report.runs] == [
        (Manner.UNDISTURBED, "returned"),
        (Manner.CRASH, "crashed"),
    ]
    with pytest.raises(psycopg.OperationalError):
        left[1].execute("select 1")


def test_the_database_is_dropped_in_the_end(postgres_server: Server) -> None:
    before = postgres_server.execute(OURS)
    with ground_at(postgres_server.root) as ground:
        assert len(postgres_server.execute(OURS)) == len(before) + 1
        assert ground.url(Path()).rpartition("/")[2].startswith("counterfoil_crash_")
    assert postgres_server.execute(OURS) == before


def test_a_role_that_may_create_databases_is_enough(postgres_server: Server) -> None:
    postgres_server.execute("create role crasher login createdb password 'secret'")
    try:
        url = f"postgresql://crasher:secret@{postgres_server.host}:{postgres_server.port}/postgres"
        crash_at_each_point(BY_NAME["keyed"], url=url).raise_if_violated()
        kill_at_each_commit(BY_NAME["keyed"], url=url).raise_if_violated()
    finally:
        postgres_server.execute("drop role crasher")


def test_the_holes_of_a_protocol_written_by_hand_are_found_there_too(ground: Ground, server: str | None) -> None:
    report = crash_at_each_point(naive(mark_then_send), url=server)
    assert any("the provider knows 0 operations, not 1" in run.violations for run in report.violating)


@pytest.mark.parametrize("url", ["sqlite:///ledger.db", "sqlite:///:memory:"])
def test_a_file_of_the_callers_own_is_not_taken(url: str) -> None:
    with pytest.raises(InvalidUrl, match="Leave `url` out, or name a PostgreSQL server"):
        crash_at_each_point(BY_NAME["keyed"], url=url)
