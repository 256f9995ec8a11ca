"""The tests' own PostgreSQL: shared by a run's workers, gone with the run; a test that stops one has it to itself."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.postgres import binaries, fixtures, servers
from tests.postgres.databases import END_SESSIONS, Database, LeftOpen, Sweeper
from tests.postgres.keeping import Kept, NotStarted, Order, new_folder
from tests.postgres.servers import PrivateServer, Server

ROOT = Path(__file__).parents[2]
needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a process is seen through its pidfd")
PATIENCE = 60


def test_it_is_durable_as_shipped_and_sorts_as_people_do(postgres_server: Server) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert postgres_server.execute(f"show {setting}") == [("on",)]
    assert postgres_server.major >= 13
    if postgres_server.major >= servers.FIRST_NATURAL and fixtures.URL_VARIABLE not in os.environ:
        assert postgres_server.execute("select 'a' < 'B'") == [(True,)]


def test_a_crash_keeps_what_was_committed_and_a_restart_the_address(private_server: PrivateServer) -> None:
    url = private_server.create_database("kept")
    private_server.execute("create table t as select 1 as n", database="kept")
    first = private_server.pid
    for mode in ("immediate", "fast"):
        private_server.restart(mode)
        with psycopg.connect(url) as session:
            assert session.execute("select n from t").fetchall() == [(1,)]
    assert private_server.pid != first


def test_a_stopped_server_refuses_until_it_is_started(private_server: PrivateServer) -> None:
    private_server.stop("immediate")
    private_server.stop()
    with pytest.raises(psycopg.OperationalError):
        private_server.execute("select 1")
    private_server.start()
    private_server.start()
    assert private_server.execute("select 1") == [(1,)]


def test_a_private_server_takes_its_folder_with_it() -> None:
    plan = servers.new_plan(fixtures.programs())
    PrivateServer(plan).close()
    assert not plan.folder.exists()


def test_so_does_one_that_has_been_stopped() -> None:
    plan = servers.new_plan(fixtures.programs())
    server = PrivateServer(plan)
    server.stop()
    server.close()
    assert not plan.folder.exists()


def test_a_program_that_fails_is_named_and_leaves_nothing() -> None:
    folder = new_folder("counterfoil-none-")
    with pytest.raises(NotStarted, match="returned non-zero exit status 3"):
        Kept(Order(folder=str(folder), session=os.getpid(), prepare=[["sh", "-c", "exit 3"]], serve=["true"]))
    assert not folder.exists()


def test_a_server_that_cannot_start_says_what_it_said() -> None:
    plan = servers.new_plan(fixtures.programs())
    first = PrivateServer(plan)
    try:
        taken = servers.Plan(bindir=plan.bindir, folder=new_folder("counterfoil-pg-"), port=plan.port, password="-")
        with pytest.raises(NotStarted, match="Address already in use"):
            servers.start(taken)
        assert not taken.folder.exists()
    finally:
        first.close()


# -- databases


@pytest.fixture
def filled(fresh_database: Database) -> Database:
    fresh_database.execute("create table counterfoil_sample (seq bigint generated always as identity, v int)")
    fresh_database.execute("create table if not exists counterfoil_migration (version int)")
    fresh_database.execute("create table booking (v int)")
    fresh_database.execute("insert into counterfoil_sample (v) values (1), (2)")
    return fresh_database


def migrations(database: Database) -> int:
    return int(database.execute("select count(*) from counterfoil_migration")[0][0])


def test_emptying_leaves_the_schema_and_nothing_of_a_test(filled: Database) -> None:
    before = migrations(filled)
    filled.empty()
    assert filled.execute("insert into counterfoil_sample (v) values (3) returning seq, v") == [(1, 3)]
    assert filled.execute("select to_regclass('booking')") == [(None,)]
    assert migrations(filled) == before


def test_emptying_again_and_again_goes_on_when_its_session_was_ended(filled: Database) -> None:
    sweeper = Sweeper(filled)
    for _ in range(2):
        filled.execute("insert into counterfoil_sample (v) values (3)")
        sweeper.empty()
        assert filled.execute("select count(*) from counterfoil_sample") == [(0,)]
        filled.execute(END_SESSIONS)
    sweeper.close()


def test_emptying_makes_a_table_anew_that_has_grown(filled: Database) -> None:
    filled.execute("insert into counterfoil_sample (v) select n from generate_series(1, 50000) n")
    filled.empty()
    assert filled.execute("select pg_table_size('counterfoil_sample') < 10000") == [(True,)]


def test_emptying_tells_which_statement_a_test_has_left_open(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.postgres.databases.LOCK_LIMIT", "10ms")
    with psycopg.connect(filled.url) as left:
        left.execute("select v from counterfoil_sample /* left open */")
        with pytest.raises(LeftOpen, match=r"idle in transaction: select v .* left open"):
            filled.empty()
        assert filled.execute("select count(*) from counterfoil_sample") == [(0,)]
        with pytest.raises(psycopg.OperationalError):
            left.execute("select 1")
        left.close()


def test_a_clone_holds_what_its_template_holds(postgres_server: Server, filled: Database) -> None:
    name = f"{filled.name}_clone"
    url = postgres_server.create_database(name, template=filled.name)
    with psycopg.connect(url) as session:
        assert session.execute("select v from counterfoil_sample order by v").fetchall() == [(1,), (2,)]
        postgres_server.drop_database(name)
        with pytest.raises(psycopg.OperationalError):
            session.execute("select 1")
        session.close()


# -- where it is missing, and when the run is over


@pytest.mark.parametrize(("ci", "outcome"), [("true", "Failed"), ("", "Skipped")])
def test_a_missing_server_fails_where_nobody_reads_the_list_of_skips(
    ci: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(binaries, "folders", lambda: iter([Path("/nowhere")]))
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="apt-get install postgresql") as caught:
        fixtures.programs()
    assert type(caught.value).__name__ == outcome


INNER = """
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("n", [0, 1])
def test_meets(n, postgres_server):
    folder = postgres_server.execute("show data_directory")[0][0]
    with (HERE / f"told-{n}").open("w") as told:  # a pipe: waits until it is read
        told.write(f"{postgres_server.root} {folder}")
    (HERE / "until").open().read()  # a pipe that nobody writes to
"""


@contextmanager
def run_of_two_workers(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (folder / "test_inner.py").write_text(INNER)
    for pipe in ("told-0", "told-1", "until"):
        os.mkfifo(folder / pipe)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "tests.postgres.fixtures",
        "-p",
        "no:cacheprovider",
    ]
    hidden = {"PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID", fixtures.URL_VARIABLE}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    with subprocess.Popen(
        [*command, "--rootdir", str(folder), "--basetemp", str(folder / "base"), "test_inner.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def parent_of(pid: int) -> int:
    found = re.search(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@needs_pidfd
@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_workers_share_a_server_that_ends_with_their_run(ending: signal.Signals, tmp_path: Path) -> None:
    fixtures.programs()
    with run_of_two_workers(tmp_path) as running:
        told = {(tmp_path / f"told-{n}").read_text() for n in (0, 1)}
        (one,) = told
        data = Path(one.partition(" ")[2])
        server = int((data / "postmaster.pid").read_text().splitlines()[0])
        keeper = os.pidfd_open(parent_of(server))
        running.send_signal(ending)
        ended, _, _ = select.select([keeper], [], [], PATIENCE)
    os.close(keeper)
    assert ended == [keeper]
    assert not Path(f"/proc/{server}").exists()
    assert not data.parent.exists()
