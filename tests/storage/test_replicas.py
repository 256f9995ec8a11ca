"""Replicas that make or upgrade the schema together, and are killed while they do, leave it made once and whole."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from counterfoil import Counterfoil
from counterfoil.drivers import postgres_open
from counterfoil.drivers.postgres import PostgresStore
from counterfoil.drivers.probes import Point
from counterfoil.drivers.stores import open_store
from counterfoil.drivers.urls import PostgresUrl, parse_url
from counterfoil.errors import Busy, CommitUnknown
from counterfoil.storage import migrator
from counterfoil.storage.migrator import Migrator, migrations, prepare
from counterfoil.storage.script import Ddl, Script, one_row
from counterfoil.testing.crash import SimulatedCrash
from counterfoil.testing.wire import Wire
from tests.postgres.databases import Database
from tests.postgres.pooler import Pooler
from tests.postgres.servers import Server
from tests.storage import opener
from tests.storage.conftest import Place

OPENER = Path(opener.__file__)
ROOT = OPENER.parents[2]
CASE = (
    "insert into counterfoil_case (tenant, operation_id, kind, state, attempt, reason, opened_at)"
    " values ('t', 'o', 'dead_letter', 'open', 1, 'kept', 0)"
)
LAST = [m.number for m in migrations("sqlite")]


@pytest.fixture
def outdated(place: Place) -> Place:
    """A database that lacks the migration that newer code brings, with a row in it."""
    Counterfoil.open(place.url).close()
    place.execute(CASE)
    return place


def know_more(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be one of newer code."""
    for name, value in opener.newer(dialect).items():
        monkeypatch.setattr(migrator, name, value)


def check_upgraded(place: Place) -> None:
    assert place.applied() == [*LAST, LAST[-1] + 1]
    assert place.execute("select reason from counterfoil_case") == [("kept",)]
    assert place.execute("select count(*) from counterfoil_added") == [(0,)]


# --- together --------------------------------------------------------------------------------------------------------


def command(place: Place, code: str, *how: str) -> list[str]:
    return [sys.executable, "-m", "tests.storage.opener", place.url, code, *how]


@contextmanager
def started(place: Place, code: str, *how: str, said: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a process and wait for its word; it does not outlive the test."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command(place, code, *how), cwd=ROOT, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{said}\n"
            yield process
        finally:
            process.kill()


def let_go(processes: list["subprocess.Popen[str]"]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def ended(processes: list["subprocess.Popen[str]"]) -> list[tuple[int, str]]:
    said = [process.communicate(timeout=60)[1] for process in processes]
    return [(process.returncode, errors) for process, errors in zip(processes, said, strict=True)]


@pytest.mark.slow
def test_eight_processes_may_open_a_fresh_database_at_once(place: Place) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(started(place, "this", said="ready")) for _ in range(8)]
        let_go(processes)
        assert ended(processes) == [(0, "")] * 8
    assert place.applied() == LAST


@pytest.mark.slow
def test_one_of_eight_that_upgrade_may_be_killed_in_the_middle(outdated: Place) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(started(outdated, "newer", said="ready")) for _ in range(7)]
        first = stack.enter_context(started(outdated, "newer", "pause", said="here"))
        let_go(others)
        first.kill()
        assert ended([first, *others]) == [(-signal.SIGKILL, "")] + [(0, "")] * 7
    check_upgraded(outdated)


# --- killed ----------------------------------------------------------------------------------------------------------


class Crasher:
    """A probe that raises at the point of one number, and keeps where that was; what precedes one follows another."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.here: Point | None = None

    def __call__(self, point: Point, _name: str) -> None:
        self.left -= point is not Point.BEFORE_STATEMENT
        if self.left < 0:
            self.here = point
            raise SimulatedCrash


def crashes(place: Place) -> Iterator[Point]:
    """Crash at one point after another while the schema is made, until there are no more."""
    for number in range(1000):
        crasher = Crasher(number)
        try:
            Counterfoil.open(place.url, upgrade=True, probe=crasher).close()
        except SimulatedCrash:
            assert crasher.here is not None
            yield crasher.here
        else:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.slow
def test_a_crash_at_any_point_leaves_all_or_nothing(place: Place) -> None:
    points = []
    for point in crashes(place):
        points.append(point)
        whole = Point.AFTER_COMMIT in points
        assert bool(place.ours()) == whole, point
    assert len(points) > sum(len(migrator.statements(m.sql)) for m in migrations(place.dialect))
    assert place.applied() == LAST


def test_a_crash_at_any_point_of_an_upgrade_leaves_all_or_nothing(
    outdated: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    know_more(outdated.dialect, monkeypatch)
    points = []
    for point in crashes(outdated):
        points.append(point)
        assert outdated.applied() == ([*LAST, LAST[-1] + 1] if Point.AFTER_COMMIT in points else LAST), point
    assert points.count(Point.AFTER_COMMIT) == 1
    check_upgraded(outdated)


@pytest.mark.slow
def test_a_process_may_be_killed_at_any_point_and_the_next_goes_on(outdated: Place) -> None:
    done = subprocess.run(command(outdated, "newer", "kill"), cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 15
    check_upgraded(outdated)


# --- a COMMIT that nobody heard of -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_commit_is_looked_up(place: Place, kept: bool) -> None:  # noqa: FBT001 - pytest's parameter
    store = open_store(parse_url(place.url))
    losses = iter([True, False])

    def write(maker: Callable[[], Script[Any]]) -> Any:
        lost = next(losses)
        done = store.write_alone(maker) if kept or not lost else ()
        if lost:
            raise CommitUnknown("lost")
        return done

    try:
        applied = prepare(store, write, upgrade=False)
    finally:
        store.close()
    assert applied == (() if kept else migrations(place.dialect))
    assert place.applied() == LAST


def test_commits_that_are_always_lost_are_not_tried_for_ever(place: Place) -> None:
    store = open_store(parse_url(place.url))
    tries = []

    def write(maker: Callable[[], Script[Any]]) -> Any:
        tries.append(maker)
        raise CommitUnknown("lost")

    try:
        with pytest.raises(CommitUnknown):
            prepare(store, write, upgrade=False)
    finally:
        store.close()
    assert len(tries) == 3


# --- a connection that breaks, on PostgreSQL ------------------------------------------------------------------------

SENT = {
    "the lock": b"pg_advisory_xact_lock",
    "its own row": b"insert into counterfoil_migration",
    "a table": b"create table counterfoil_case",
    "the last table": b"create table counterfoil_mint",
}


@pytest.fixture
def wire(postgres_server: Server) -> Iterator[Wire]:
    with Wire(postgres_server.host, postgres_server.port) as running:
        yield running


@pytest.mark.parametrize("request_cut", SENT)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_that_breaks_while_the_schema_is_made_is_replaced(
    empty_database: Database, wire: Wire, request_cut: str, moment: str
) -> None:
    cut = wire.cut_before_request if moment == "before" else wire.cut_after_request
    cut(SENT[request_cut])
    Counterfoil.open(wire.through(empty_database.url)).close()
    assert wire.counts.cuts == 1
    assert empty_database.execute("select number from counterfoil_migration") == [(number,) for number in LAST]


@pytest.mark.parametrize("moment", ["before", "after", "reply"])
def test_a_commit_that_breaks_off_is_looked_up(empty_database: Database, wire: Wire, moment: str) -> None:
    def cut_commit(point: Point, _name: str) -> None:
        if point is Point.BEFORE_COMMIT and wire.counts.cuts == 0:
            if moment == "reply":
                wire.cut_before_reply(b"COMMIT")
            else:
                (wire.cut_before_request if moment == "before" else wire.cut_after_request)(b"commit")

    Counterfoil.open(wire.through(empty_database.url), probe=cut_commit).close()
    assert wire.counts.cuts == 1
    assert empty_database.execute("select number from counterfoil_migration") == [(number,) for number in LAST]


def test_several_may_open_a_fresh_database_through_a_pooler(empty_database: Database, postgres_pooler: Pooler) -> None:
    url = postgres_pooler.url(empty_database.name)
    with ThreadPoolExecutor(6) as pool:
        for opened in pool.map(lambda _: Counterfoil.open(url), range(6)):
            opened.close()
    assert empty_database.execute("select number from counterfoil_migration") == [(number,) for number in LAST]


# --- waiting, on PostgreSQL ------------------------------------------------------------------------------------------

HOLD = "select pg_advisory_xact_lock(7165074649429406310)"
WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event = 'advisory' and clock_timestamp() - query_start > interval '1.5 s'
"""


def wait_until_somebody_waits(database: Database) -> None:
    while database.execute(WAITING) != [(1,)]:
        pass


def test_who_waits_for_the_schema_is_patient(empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement may elsewhere take no longer than the server may be silent, nor wait for a lock for ten seconds."""
    monkeypatch.setattr(postgres_open, "SILENCE_S", 1.0)
    opened = []
    with psycopg.connect(empty_database.url) as other:
        other.execute(HOLD)
        thread = threading.Thread(target=lambda: opened.append(Counterfoil.open(empty_database.url)))
        thread.start()
        wait_until_somebody_waits(empty_database)
        monkeypatch.undo()
        other.commit()
        thread.join()
    opened[0].close()
    assert empty_database.execute("select count(*) from counterfoil_migration") == [(len(LAST),)]


@pytest.fixture
def store(fresh_database: Database) -> Iterator[PostgresStore]:
    opened = PostgresStore(PostgresUrl(fresh_database.url))
    yield opened
    opened.close()


@pytest.mark.parametrize(("usual", "after"), [("7s", "7s"), ("0", "10s")])
def test_only_the_lock_of_migrations_is_waited_for_so_long(store: PostgresStore, usual: str, after: str) -> None:
    def script() -> Script[Any]:
        yield Ddl(f"set local lock_timeout = '{usual}'")
        yield from one_row("lock_migrations")
        return (yield Ddl("show lock_timeout"))

    assert store.write(script) == [{"lock_timeout": after}]
    assert store.write(lambda: all_rows_of("show lock_timeout")) == [{"lock_timeout": "10s"}]


def all_rows_of(sql: str) -> Script[Any]:
    return (yield Ddl(sql))


@pytest.mark.parametrize("who", ["another migration", "a user of a table"])
def test_who_waited_in_vain_is_told_for_whom(
    store: PostgresStore, fresh_database: Database, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    know_more("postgres", monkeypatch)
    hold = HOLD if who == "another migration" else "lock table counterfoil_migration in access share mode"
    shorter = {
        "60s": "50ms",
        "select count(*) as locked": "select count(*) as locked, set_config('lock_timeout', '50ms', true)",
    }
    statement = store.protocol.statements["lock_migrations"]
    for old, new in shorter.items():
        statement = statement.replace(old, new)
    monkeypatch.setitem(store.protocol.statements, "lock_migrations", statement)
    altering = migrator.Migration(
        number=LAST[-1] + 1, name="altered", sql="alter table counterfoil_migration add note text;"
    )
    if who == "a user of a table":
        monkeypatch.setattr(migrator, "migrations", lambda dialect: (*migrations(dialect), altering))
    with psycopg.connect(fresh_database.url) as other:
        other.execute(hold.encode())
        with pytest.raises(Busy, match="another process is doing so, or has a transaction open on a table"):
            store.migrate(upgrade=True)
    assert store.read(Migrator("postgres", "x").status).applied == tuple(LAST)
