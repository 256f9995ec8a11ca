"""Migrations are planned, applied and verified; what does not fit is refused and left alone."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from counterfoil import Counterfoil
from counterfoil.clock import SystemClock
from counterfoil.drivers.probes import Point
from counterfoil.drivers.stores import open_store
from counterfoil.drivers.urls import parse_url
from counterfoil.errors import CommitUnknown, SchemaAltered, SchemaMismatch, SchemaNewer, SchemaOutdated
from counterfoil.storage import migrator
from counterfoil.storage.migrator import Migration, Migrator, migrations, plain_sql, statements
from tests.conformance.test_commits import LostAndGone
from tests.storage.conftest import Place

DELETE = "begin delete from counterfoil_operation; end"
NEXT = Migration(
    number=len(migrator.migrations("sqlite")) + 1,
    name="added",
    sql="create table counterfoil_added (id integer primary key);\n",
)
ADDED = {
    "sqlite": "CREATE TABLE counterfoil_added (id integer primary key)",
    "postgres": "create table counterfoil_added (id integer not null, PRIMARY KEY (id))",
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.fixture
def newer_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code that knows one migration more."""
    known, schema = migrations, migrator.expected_schema
    with monkeypatch.context() as patched:
        patched.setattr(migrator, "migrations", lambda dialect: (*known(dialect), NEXT))
        patched.setattr(
            migrator, "expected_schema", lambda dialect: {**schema(dialect), "counterfoil_added": ADDED[dialect]}
        )
        yield


def execute(url: str, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(parse_url(url).path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def make(url: str) -> None:
    Counterfoil.open(url).close()


# --- both databases --------------------------------------------------------------------------------------------------


def test_a_fresh_database_gets_its_schema(place: Place) -> None:
    make(place.url)
    applied = place.execute("select number, name, digest from counterfoil_migration")
    assert applied == [(m.number, m.name, m.digest) for m in migrations(place.dialect)]


def test_a_database_with_other_peoples_tables_gets_ours_beside_them(place: Place) -> None:
    place.execute("create table counter (n integer)")
    make(place.url)
    assert place.execute("select count(*) from counter") == [(0,)]


def test_a_current_database_is_only_read(place: Place) -> None:
    make(place.url)
    points: list[Point] = []
    Counterfoil.open(place.url, probe=lambda point, _name: points.append(point)).close()
    assert Point.BEFORE_STATEMENT in points
    assert Point.BEFORE_COMMIT not in points


@pytest.mark.usefixtures("newer_code")
def test_a_fresh_database_of_newer_code_gets_every_migration(place: Place) -> None:
    make(place.url)
    assert place.applied() == list(range(1, NEXT.number + 1))


def test_an_outdated_database_is_refused_and_upgraded_on_request(place: Place, request: pytest.FixtureRequest) -> None:
    make(place.url)
    request.getfixturevalue("newer_code")
    needs = rf"at schema {NEXT.number - 1}, this code needs {NEXT.number}\. Run: counterfoil db upgrade"
    with pytest.raises(SchemaOutdated, match=needs):
        Counterfoil.open(place.url)
    assert place.applied() == list(range(1, NEXT.number))
    Counterfoil.open(place.url, upgrade=True).close()
    assert place.execute("select count(*) from counterfoil_added") == [(0,)]
    make(place.url)


def test_a_newer_database_is_refused_untouched(place: Place) -> None:
    make(place.url)
    place.execute("insert into counterfoil_migration values (99, 'later', 'digest', 0)")
    before = place.ours()
    for upgrade in (False, True):
        with pytest.raises(SchemaNewer, match=r"at schema 99, newer than this code knows"):
            Counterfoil.open(place.url, upgrade=upgrade)
    assert (place.applied(), place.ours()) == ([*range(1, NEXT.number), 99], before)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("alter table counterfoil_case add column note text", "counterfoil_case"),
        ("alter table counterfoil_case drop column verdict_reason", "counterfoil_case"),
        ("drop index counterfoil_case_open", "counterfoil_case_open"),
        ("drop table counterfoil_mint", "counterfoil_mint"),
        ("create unique index one_each on counterfoil_operation (effect)", "one_each"),
        ("create index big on counterfoil_operation (effect) where length(receipt) > 1", "big"),
        ("create index long on counterfoil_operation (length(effect))", "long"),
        ("update counterfoil_migration set digest = 'other'", "initial"),
    ],
)
def test_an_altered_database_is_refused_with_the_name_of_what_differs(place: Place, change: str, named: str) -> None:
    make(place.url)
    place.execute(change)
    for upgrade in (False, True):
        with pytest.raises(SchemaAltered, match=rf"in {named}\b"):
            Counterfoil.open(place.url, upgrade=upgrade)


def test_what_cannot_act_on_our_rows_is_let_be(place: Place) -> None:
    make(place.url)
    for sql in (
        "create index by_effect on counterfoil_operation (effect, created_at desc)",
        "create view counterfoil_totals as select count(*) as n from counterfoil_operation",
        "create table counterfoil_notes (n integer unique)",
        "create table seat (n integer unique)",
    ):
        place.execute(sql)
    make(place.url)


def test_every_refusal_is_a_schema_mismatch() -> None:
    assert {SchemaAltered, SchemaNewer, SchemaOutdated} <= set(SchemaMismatch.__subclasses__())


def test_the_migrations_row_comes_first_in_its_transaction(place: Place) -> None:
    names: list[str] = []

    def note(point: Point, name: str) -> None:
        if point is Point.BEFORE_STATEMENT:
            names.append(name)

    Counterfoil.open(place.url, probe=note).close()
    assert names.index("lock_migrations") < names.index("insert_migration")
    assert names.index("insert_migration") < names.index("ddl", names.index("insert_migration"))
    assert names.count("ddl") == 1 + sum(len(statements(m.sql)) for m in migrations(place.dialect))


def test_the_plain_text_makes_the_same_schema(place: Place) -> None:
    place.run(plain_sql(place.dialect))
    points: list[Point] = []
    Counterfoil.open(place.url, probe=lambda point, _name: points.append(point)).close()
    assert Point.BEFORE_COMMIT not in points
    (applied_at,) = place.execute("select applied_at from counterfoil_migration")[0]
    assert abs(SystemClock().now_ms() - applied_at) < 60_000


def test_the_plain_text_brings_an_outdated_database_up_to_date(place: Place, request: pytest.FixtureRequest) -> None:
    make(place.url)
    request.getfixturevalue("newer_code")
    place.run(plain_sql(place.dialect, applied=place.applied()))
    make(place.url)
    assert place.applied() == list(range(1, NEXT.number + 1))


def test_status_names_what_is_missing(place: Place) -> None:
    store = open_store(parse_url(place.url))
    try:
        status = store.read(Migrator(store.dialect, store.path).status)
    finally:
        store.close()
    assert status.applied == ()
    assert status.missing == migrations(place.dialect)
    assert status.differing == ()


# --- SQLite ----------------------------------------------------------------------------------------------------------


def test_a_fresh_file_enters_wal(url: str) -> None:
    make(url)
    assert execute(url, "pragma journal_mode") == [("wal",)]


def test_a_newer_file_is_not_touched(url: str) -> None:
    make(url)
    execute(url, "insert into counterfoil_migration values (99, 'later', 'digest', 0)")
    before = Path(parse_url(url).path).read_bytes()
    with pytest.raises(SchemaNewer):
        Counterfoil.open(url, upgrade=True)
    assert Path(parse_url(url).path).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (f"create trigger tidy after update on counterfoil_operation {DELETE}", "tidy"),
        (f"create trigger tidy after insert on COUNTERFOIL_Operation {DELETE}", "tidy"),
        (f"create trigger counterfoil_operation before delete on counterfoil_case {DELETE}", "counterfoil_operation"),
        ("create index named on counterfoil_operation (effect collate rtrim)", "named"),
        ("create index totals on counterfoil_operation (json_extract(receipt, '$.total'))", "totals"),
    ],
)
def test_an_altered_file_is_refused_with_the_name_of_what_differs(url: str, change: str, named: str) -> None:
    make(url)
    execute(url, change)
    with pytest.raises(SchemaAltered, match=rf"in {named}\b"):
        Counterfoil.open(url)


def test_triggers_of_other_tables_are_let_be(url: str) -> None:
    make(url)
    for sql in (
        "create table counterfoil_notes (n integer unique)",
        f"create trigger own after insert on counterfoil_notes {DELETE}",
        "create table seat (n integer unique)",
        f"create trigger own_too after insert on seat {DELETE}",
    ):
        execute(url, sql)
    make(url)


def test_a_refused_database_is_closed_again(url: str, tmp_path: Path) -> None:
    make(url)
    execute(url, "drop table counterfoil_mint")
    with pytest.raises(SchemaAltered):
        Counterfoil.open(url)
    assert [path.name for path in tmp_path.iterdir()] == ["agent.db"]  # no -wal left open


# --- the text of a migration -----------------------------------------------------------------------------------------

FUNCTION = """create function counterfoil_now() returns bigint language sql as $body$
  select 1; -- one; two
  select $$;$$;
$body$"""


def test_a_migration_is_split_where_statements_end() -> None:
    parts = [
        "create table a (x text default ';x', \"y;\" text) -- and; so\n, on",
        "create b /* ;\n; */ as c",
        f"-- Why; because.\n{FUNCTION}",
        "create trigger d before update on b for each row execute function counterfoil_now()",
        "select 1 - -1, 4 / 2",
    ]
    text = "-- A note; for readers.\n\n" + ";\n\n".join(parts)
    assert statements(f"{text};\n-- The end;\n") == [f"-- A note; for readers.\n\n{parts[0]}", *parts[1:]]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_migration_is_split_into_what_its_semicolons_say(dialect: str) -> None:
    for migration in migrations(dialect):
        parts = statements(migration.sql)
        assert "\n".join(f"{part};" for part in parts).split() == (migration.sql.split() if parts else [])


def test_the_body_of_a_trigger_is_part_of_its_statement() -> None:
    trigger = (
        "create trigger tidy after update on seat when new.id > 1 begin -- as if; it were over; end\n"
        "  select case when new.id = 2 then raise(abort, 'no; end') end;\n  delete from seat;\nEND"
    )
    assert statements(f"{trigger};\nselect 1;\ncreate trigger t after insert on seat {DELETE};") == [
        trigger,
        "select 1",
        f"create trigger t after insert on seat {DELETE}",
    ]


def test_a_schema_that_may_be_made_is_not_said_to_be_none(place: Place) -> None:
    lost = LostAndGone(since="insert_migration")
    with pytest.raises(CommitUnknown):
        Counterfoil.open(place.url, probe=lost)
    Counterfoil.open(place.url).close()
