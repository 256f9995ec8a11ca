"""PostgreSQL's catalog is read as the definitions that the migrations make; what could act on our rows is named."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from urllib.parse import quote

import psycopg
import pytest

from counterfoil import Counterfoil
from counterfoil.drivers.postgres import PostgresStore
from counterfoil.drivers.stores import open_store
from counterfoil.drivers.urls import PostgresUrl, parse_url
from counterfoil.errors import SchemaAltered
from counterfoil.storage import catalog
from counterfoil.storage.migrator import Migrator, expected_schema, plain_sql
from counterfoil.storage.script import Row, Script, all_rows
from tests.postgres.databases import Database
from tests.postgres.servers import Server

TIDY = "create function tidy() returns trigger language plpgsql as $$ begin return null; end $$"
NATURAL = "create collation natural_order (provider = icu, locale = 'en-US', deterministic = false)"


def make(url: str) -> None:
    Counterfoil.open(url).close()


def in_schema(database: Database, name: str) -> str:
    """Return the URL of a role whose tables are in one schema."""
    escaped = name.replace(" ", "\\ ")
    option = quote(f'-csearch_path="{escaped}"')
    return f"{database.url}?options={option}"


def listed(url: str) -> list[Row]:
    def script() -> Script[list[Row]]:
        return list((yield from all_rows("list_schema")))

    store = open_store(parse_url(url))
    try:
        return store.read(script)
    finally:
        store.close()


def differing(url: str) -> tuple[str, ...]:
    store = PostgresStore(PostgresUrl(url))
    try:
        return store.read(Migrator("postgres", store.path).status).differing
    finally:
        store.close()


def test_the_schema_file_is_what_all_migrations_make(fresh_database: Database) -> None:
    made = {row["name"]: row["sql"] for row in listed(fresh_database.url)}
    text = "-- Made from all migrations; a test compares the two.\n\n" + "\n\n".join(f"{sql};" for sql in made.values())
    file = resources.files("counterfoil.storage").joinpath("migrations", "postgres", "schema.sql")
    assert file.read_text("utf-8").strip() == text, f"Write this into {file}:\n\n{text}\n"
    assert expected_schema("postgres") == made


TYPES = {"integer": "bigint", "text": "text", "blob": "bytea"}


def test_both_dialects_make_the_same_columns_of_the_same_kinds(fresh_database: Database) -> None:
    found = fresh_database.execute(
        "select table_name, column_name, data_type, is_nullable = 'YES' from information_schema.columns"
        " where table_name like 'counterfoil%' order by table_name, ordinal_position"
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(plain_sql("sqlite"))
        columns = connection.execute(
            'select m.name, c.name, lower(c.type), not c."notnull" and not c.pk from sqlite_master m'
            " join pragma_table_info(m.name) c where m.type = 'table' order by m.name, c.cid"
        ).fetchall()
    assert found == [(table, column, TYPES[kind], bool(nullable)) for table, column, kind, nullable in columns]


def test_the_lock_of_the_plain_text_is_that_of_the_program() -> None:
    (lock,) = (line for line in plain_sql("postgres").splitlines() if "pg_advisory_xact_lock" in line)
    number = lock.split("(")[1].split(")")[0]
    assert f"pg_advisory_xact_lock({number})" in catalog.load("postgres")["lock_migrations"].sql
    assert int(number).to_bytes(8, "big") == b"counterf"


OPERATION = "alter table counterfoil_operation"
ALTERED = {
    f"{TIDY}; create trigger tidy_up before insert on counterfoil_case for each row execute function tidy()": "tidy_up",
    f"{TIDY}; create constraint trigger late after insert on counterfoil_case deferrable for each row execute"
    " function tidy()": "late",
    "create rule hush as on insert to counterfoil_evidence do instead nothing": "hush",
    f"{NATURAL}; create index named on counterfoil_operation (effect collate natural_order)": "named",
    "create index by_word on counterfoil_operation (error_text)": "by_word",
    "create index by_word on counterfoil_operation (effect) include (receipt)": "by_word",
    "create table counterfoil_more () inherits (counterfoil_operation)": "counterfoil_more",
    "alter table counterfoil_case rename to counterfoil_cases; create view counterfoil_case as select * from"
    " counterfoil_cases": "counterfoil_case",
    "update pg_index set indisvalid = false where indexrelid = 'counterfoil_case_open'::regclass": (
        "counterfoil_case_open"
    ),
    f"{OPERATION} disable row level security": "counterfoil_operation",
    "drop policy counterfoil_case_tenant on counterfoil_case": "counterfoil_case_tenant",
    "alter policy counterfoil_case_tenant on counterfoil_case using (true)": "counterfoil_case_tenant",
    "alter policy counterfoil_case_tenant on counterfoil_case with check (true)": "counterfoil_case_tenant",
    "alter policy counterfoil_case_tenant on counterfoil_case to pg_monitor": "counterfoil_case_tenant",
    "create policy all_of_it on counterfoil_case for select using (true)": "all_of_it",
    "create policy less on counterfoil_operation as restrictive to pg_monitor using (receipt is null)": "less",
    f"{OPERATION} set unlogged": "counterfoil_operation",
    f"{OPERATION} alter seq set generated by default": "counterfoil_operation",
    f"{OPERATION} alter attempt drop default": "counterfoil_operation",
    f"{OPERATION} alter attempt type numeric": "counterfoil_operation",
    f"drop policy counterfoil_operation_tenant on counterfoil_operation; {OPERATION} alter tenant type text collate"
    ' "default"': "counterfoil_operation",
    f"{OPERATION} alter field_digests drop not null": "counterfoil_operation",
    f"{OPERATION} drop constraint counterfoil_operation_state_check": "counterfoil_operation",
    f"{OPERATION} add check (attempt < 3) not valid": "counterfoil_operation",
    f"{OPERATION} add exclude (effect with =)": "counterfoil_operation",
    f"create table seat (id text primary key); {OPERATION} add foreign key (request_id) references seat (id)": (
        "counterfoil_operation"
    ),
    f"{OPERATION} drop constraint counterfoil_operation_tenant_operation_id_key, add unique (tenant, operation_id)"
    " deferrable": "counterfoil_operation",
}


@pytest.mark.parametrize(("change", "named"), ALTERED.items(), ids=range(len(ALTERED)))
def test_what_could_act_on_our_rows_is_named(fresh_database: Database, change: str, named: str) -> None:
    fresh_database.execute(change)
    with pytest.raises(SchemaAltered, match=rf"in {named}\b"):
        Counterfoil.open(fresh_database.url)


def test_what_cannot_act_on_our_rows_is_let_be(fresh_database: Database) -> None:
    for change in (
        "create index by_effect on counterfoil_operation using hash (effect)",
        "create index by_time on counterfoil_operation (created_at desc nulls last) include (state)",
        "create index by_time_of_effect on counterfoil_operation (effect, created_at) with (fillfactor = 80)",
        "create statistics counterfoil_state on tenant, state from counterfoil_operation",
        "alter table counterfoil_operation set (autovacuum_vacuum_scale_factor = 0.01)",
        "alter table counterfoil_operation alter receipt set storage external",
        "comment on table counterfoil_operation is 'one row for each business operation'",
        "create table receipt (tenant text, id text)",
        "alter table receipt add foreign key (tenant, id) references counterfoil_operation (tenant, operation_id)",
        f"{TIDY}; create trigger tidy_up before insert on receipt for each row execute function tidy()",
    ):
        fresh_database.execute(change)
    make(fresh_database.url)


@pytest.mark.parametrize("schema", ["ledger", "Our Ledger", "on using x"])
def test_tables_live_in_the_schema_that_the_search_path_names(empty_database: Database, schema: str) -> None:
    empty_database.execute(f'create schema "{schema}"')
    url = in_schema(empty_database, schema)
    make(url)
    make(url)
    found = empty_database.execute("select distinct schemaname from pg_tables where tablename like 'counterfoil%'")
    assert found == [(schema,)]
    make(empty_database.url)  # the usual search path leads elsewhere: another database, as far as ours are concerned
    assert differing(url) == differing(empty_database.url) == ()


def test_another_installation_in_a_schema_of_its_own_is_not_ours(fresh_database: Database) -> None:
    fresh_database.execute("create schema theirs")
    make(in_schema(fresh_database, "theirs"))
    fresh_database.execute("drop table theirs.counterfoil_mint; alter table theirs.counterfoil_case add note text")
    assert differing(fresh_database.url) == ()
    assert differing(in_schema(fresh_database, "theirs")) == (
        "counterfoil_case",
        "counterfoil_mint",
        "counterfoil_mint_tenant",
    )


def test_a_table_that_hides_one_of_ours_is_named(fresh_database: Database) -> None:
    fresh_database.execute("create schema nearer; create table nearer.counterfoil_case (like public.counterfoil_case)")
    url = f"{fresh_database.url}?options={quote('-csearch_path=nearer,public')}"
    assert differing(url) == ("counterfoil_case", "counterfoil_case_open", "counterfoil_case_operation",
                              "counterfoil_case_state", "counterfoil_case_tenant")  # fmt: skip


@pytest.fixture
def plain_order(postgres_server: Server, postgres_names: Iterator[str]) -> Iterator[str]:
    """A database that sorts text by its bytes, as the servers of many do."""
    name = next(postgres_names)
    provider = "locale_provider libc" if postgres_server.major >= 15 else ""
    postgres_server.execute(f"create database {name} template template0 lc_collate 'C' lc_ctype 'C' {provider}")
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


def test_the_definitions_are_the_same_whatever_the_database_sorts_by(plain_order: str) -> None:
    make(plain_order)
    assert differing(plain_order) == ()


def test_a_restored_dump_is_what_it_was(fresh_database: Database) -> None:
    """A dump names constraints and adds them later, and its order of constraints is its own."""
    with psycopg.connect(fresh_database.url, autocommit=True) as connection:
        connection.execute("alter table counterfoil_thread rename constraint counterfoil_thread_check to zz")
        connection.execute("alter table counterfoil_case drop constraint counterfoil_case_pkey")
        connection.execute(
            "alter table counterfoil_case add constraint counterfoil_case_pkey primary key (tenant, seq)"
        )
    assert differing(fresh_database.url) == ()
