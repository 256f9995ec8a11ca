"""Every statement is one for both databases: the same name, parameters and columns, and valid where it is sent."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import ExecStatus

from counterfoil.storage import catalog
from counterfoil.storage.catalog import Statement, parse
from counterfoil.storage.migrator import plain_sql
from tests.postgres.databases import Database
from tests.storage.asking import asked

SQLITE, POSTGRES = catalog.load("sqlite"), catalog.load("postgres")
BOUND = catalog.load("postgres", bound_clock=True)
"""With the time as a parameter, for tests."""
FOLDER = Path(catalog.__file__).parent / "statements"


def written(folder: Path) -> dict[str, Statement]:
    """Return the statements of one folder's files by name, their fragments aside."""
    found: dict[str, Statement] = {}
    for path in folder.glob("*.sql"):
        found |= parse(path.read_text("utf-8"))
    return found


SHARED, OVERRIDES = written(FOLDER), written(FOLDER / "postgres")
BOTH = sorted(SQLITE.keys() & POSTGRES.keys())


def test_statements_are_written_once_and_overridden_by_name() -> None:
    assert SQLITE.keys() == SHARED.keys()
    assert POSTGRES.keys() == SHARED.keys() | OVERRIDES.keys()


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_what_differs_says_why(name: str) -> None:
    assert re.search(r"differs: .{20,}", OVERRIDES[name].purpose), "an override says why it is needed"


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_is_shared_is_not_said_to_differ(name: str) -> None:
    assert "differs:" not in SHARED[name].purpose


@pytest.mark.parametrize("name", BOTH)
def test_both_take_the_same_parameters(name: str) -> None:
    assert SQLITE[name].params - {"now"} == POSTGRES[name].params


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(plain_sql("sqlite"))
        yield connection


@pytest.fixture(scope="module")
def postgres(worker_database: Database) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(worker_database.url, autocommit=True) as connection:
        yield connection


def of_sqlite(connection: sqlite3.Connection, name: str) -> list[str]:
    """Name the columns that a statement returns; it is run and undone. One that tells the time returns none here."""
    params = {**asked(name), "now": 0}
    simple = {key: str(value) if isinstance(value, list) else value for key, value in params.items()}
    connection.execute("begin")
    try:
        cursor = connection.execute(SQLITE[name].sql, simple)
        found = [column[0] for column in cursor.description or ()]
        return ["now"] if SQLITE[name].tells and not found else found
    finally:
        connection.execute("rollback")


def of_postgres(connection: psycopg.Connection[Any], statement: Statement) -> list[tuple[str, str]]:
    """Name the columns that a statement returns and their types, without running it."""
    numbers = {key: f"${number}" for number, key in enumerate(sorted(statement.params), start=1)}
    sql = re.sub(r"(?<![:\w]):([a-z_]+)", lambda found: numbers[found[1]], statement.sql)
    prepared = connection.pgconn.prepare(b"", sql.encode())
    assert prepared.status == ExecStatus.COMMAND_OK, prepared.error_message.decode()
    shown = connection.pgconn.describe_prepared(b"")
    types = connection.adapters.types
    return [((shown.fname(number) or b"").decode(), types[shown.ftype(number)].name) for number in range(shown.nfields)]


@pytest.mark.parametrize("name", BOTH)
def test_both_return_the_same_columns(sqlite: sqlite3.Connection, postgres: psycopg.Connection[Any], name: str) -> None:
    assert of_sqlite(sqlite, name) == [column for column, _ in of_postgres(postgres, POSTGRES[name])]


@pytest.mark.parametrize("name", sorted(POSTGRES))
def test_columns_of_postgres_are_of_kinds_that_sqlite_has(postgres: psycopg.Connection[Any], name: str) -> None:
    kinds = {kind for _, kind in of_postgres(postgres, POSTGRES[name])}
    assert kinds <= {"int4", "int8", "text", "bytea", "bool"}


@pytest.mark.parametrize("name", sorted(POSTGRES))
def test_the_time_may_be_bound(postgres: psycopg.Connection[Any], name: str) -> None:
    assert of_postgres(postgres, BOUND[name]) == of_postgres(postgres, POSTGRES[name])
    assert BOUND[name].params - POSTGRES[name].params <= {"now"}
