"""Migrations are planned, applied and verified; what does not fit is refused and left alone."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from counterfoil import Counterfoil
from counterfoil.drivers.probes import Point
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.urls import SqliteUrl, parse_url
from counterfoil.errors import SchemaAltered, SchemaMismatch, SchemaNewer, SchemaOutdated
from counterfoil.storage import migrator
from counterfoil.storage.migrator import Migration, Migrator, migrations, plain_sql, statements
from counterfoil.testing.crash import SimulatedCrash

DELETE = "begin delete from counterfoil_operation; end"
NEXT = Migration(number=2, name="added", sql="create table counterfoil_added (id integer primary key) strict;\n")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.fixture
def newer_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code that knows one migration more."""
    known = (*migrations("sqlite"), NEXT)
    schema = {**migrator.expected_schema("sqlite"), "counterfoil_added": migrator.squeeze(NEXT.sql.replace(";", ""))}
    with monkeypatch.context() as patched:
        patched.setattr(migrator, "migrations", lambda _dialect: known)
        patched.setattr(migrator, "expected_schema", lambda _dialect: {**schema, **_created(schema)})
        yield


def _created(schema: dict[str, str]) -> dict[str, str]:
    """SQLite keeps `CREATE TABLE` in capitals and the rest as written."""
    return {"counterfoil_added": schema["counterfoil_added"].replace("create table", "CREATE TABLE")}


def execute(url: str, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(parse_url(url).path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def make(url: str) -> None:
    Counterfoil.open(url).close()


def test_a_fresh_database_gets_its_schema(url: str) -> None:
    make(url)
    applied = execute(url, "select number, name, digest from counterfoil_migration")
    assert applied == [(m.number, m.name, m.digest) for m in migrations("sqlite")]
    assert execute(url, "pragma journal_mode") == [("wal",)]


def test_a_database_with_other_peoples_tables_gets_ours_beside_them(url: str) -> None:
    execute(url, "create table counter (n integer)")
    make(url)
    assert execute(url, "select count(*) from counter") == [(0,)]


def test_a_current_database_is_only_read(url: str) -> None:
    make(url)
    points: list[Point] = []
    Counterfoil.open(url, probe=lambda point, _name: points.append(point)).close()
    assert Point.BEFORE_STATEMENT in points
    assert Point.BEFORE_COMMIT not in points


@pytest.mark.usefixtures("newer_code")
def test_a_fresh_database_of_newer_code_gets_every_migration(url: str) -> None:
    make(url)
    assert execute(url, "select number from counterfoil_migration order by 1") == [(1,), (2,)]


def test_an_outdated_database_is_refused_and_upgraded_on_request(url: str, request: pytest.FixtureRequest) -> None:
    make(url)
    request.getfixturevalue("newer_code")
    with pytest.raises(SchemaOutdated, match="at schema 1, this code needs 2"):
        Counterfoil.open(url)
    assert execute(url, "select count(*) from counterfoil_migration") == [(1,)]
    Counterfoil.open(url, upgrade=True).close()
    assert execute(url, "select count(*) from counterfoil_added") == [(0,)]
    make(url)


def test_a_newer_database_is_refused_untouched(url: str) -> None:
    make(url)
    execute(url, "insert into counterfoil_migration values (99, 'later', 'digest', 0)")
    before = Path(parse_url(url).path).read_bytes()
    for upgrade in (False, True):
        with pytest.raises(SchemaNewer, match=r"at schema 99, newer than this code knows"):
            Counterfoil.open(url, upgrade=upgrade)
    assert Path(parse_url(url).path).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("alter table counterfoil_case add column note text", "counterfoil_case"),
        ("drop index counterfoil_case_open", "counterfoil_case_open"),
        ("drop table counterfoil_mint", "counterfoil_mint"),
        (f"create trigger tidy after update on counterfoil_operation {DELETE}", "tidy"),
        (f"create trigger tidy after insert on COUNTERFOIL_Operation {DELETE}", "tidy"),
        (f"create trigger counterfoil_operation before delete on counterfoil_case {DELETE}", "counterfoil_operation"),
        ("create unique index one_each on counterfoil_operation (effect)", "one_each"),
        ("create index named on counterfoil_operation (effect collate rtrim)", "named"),
        ("create index totals on counterfoil_operation (json_extract(receipt, '$.total'))", "totals"),
        ("create index big on counterfoil_operation (effect) where json_extract(receipt, '$.n') > 1", "big"),
        ("update counterfoil_migration set digest = 'other'", "initial"),
    ],
)
def test_an_altered_database_is_refused_with_the_name_of_what_differs(url: str, change: str, named: str) -> None:
    make(url)
    execute(url, change)
    with pytest.raises(SchemaAltered, match=rf"in {named}\b"):
        Counterfoil.open(url)


def test_what_cannot_act_on_our_rows_is_let_be(url: str) -> None:
    make(url)
    for sql in (
        "create index by_effect on counterfoil_operation (effect, created_at desc)",
        "create view counterfoil_totals as select count(*) as n from counterfoil_operation",
        "create table counterfoil_notes (n integer unique)",
        f"create trigger own after insert on counterfoil_notes {DELETE}",
        "create table seat (n integer unique)",
        f"create trigger own_too after insert on seat {DELETE}",
    ):
        execute(url, sql)
    make(url)


def test_every_refusal_is_a_schema_mismatch() -> None:
    assert {SchemaAltered, SchemaNewer, SchemaOutdated} <= set(SchemaMismatch.__subclasses__())


def test_a_refused_database_is_closed_again(url: str, tmp_path: Path) -> None:
    make(url)
    execute(url, "drop table counterfoil_mint")
    with pytest.raises(SchemaAltered):
        Counterfoil.open(url)
    assert [path.name for path in tmp_path.iterdir()] == ["agent.db"]  # no -wal left open


def test_a_migration_killed_in_the_middle_leaves_nothing_and_runs_again(
    url: str, request: pytest.FixtureRequest
) -> None:
    make(url)
    request.getfixturevalue("newer_code")

    def die(point: Point, name: str) -> None:
        if (point, name) == (Point.AFTER_STATEMENT, "ddl"):
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        Counterfoil.open(url, upgrade=True, probe=die)
    assert execute(url, "select count(*) from sqlite_master where name = 'counterfoil_added'") == [(0,)]
    assert execute(url, "select count(*) from counterfoil_migration") == [(1,)]
    Counterfoil.open(url, upgrade=True).close()
    assert execute(url, "select count(*) from counterfoil_migration") == [(2,)]


def test_the_migrations_row_comes_first_in_its_transaction(url: str) -> None:
    names: list[str] = []

    def note(point: Point, name: str) -> None:
        if point is Point.BEFORE_STATEMENT:
            names.append(name)

    Counterfoil.open(url, probe=note).close()
    assert names.index("insert_migration") < names.index("ddl", names.index("insert_migration"))
    assert names.count("ddl") == 1 + sum(len(statements(m.sql)) for m in migrations("sqlite"))


OPENS = """
import sys
from counterfoil import Counterfoil
print("ready", flush=True)
sys.stdin.readline()
Counterfoil.open(sys.argv[1]).close()
"""


@pytest.mark.slow
def test_eight_processes_may_open_a_fresh_file_at_once(url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENS, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    ended = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        ended.append((process.returncode, errors))
    assert ended == [(0, b"")] * 8
    assert execute(url, "select count(*) from counterfoil_migration") == [(len(migrations("sqlite")),)]


def test_the_plain_text_makes_the_same_schema(url: str) -> None:
    with closing(sqlite3.connect(parse_url(url).path, isolation_level=None)) as connection:
        connection.executescript(plain_sql("sqlite"))
    make(url)


def test_status_names_what_is_missing(url: str) -> None:
    store = SqliteStore(SqliteUrl(parse_url(url).path))
    try:
        status = store.read(Migrator("sqlite", store.path).status)
    finally:
        store.close()
    assert status.applied == ()
    assert status.missing == migrations("sqlite")
    assert status.differing == ()


def test_a_statement_ends_with_a_semicolon_at_the_end_of_a_line() -> None:
    assert statements("create a (x text default ';x');\n\ncreate b;") == ["create a (x text default ';x')", "create b"]
