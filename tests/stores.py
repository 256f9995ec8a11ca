"""The databases on which behaviour must hold: one URL for a test to open, and ways to look into it from outside.

`store` and `url` are known to all tests. A folder whose behaviour wants other stores has a `store` fixture of its own.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from counterfoil import Counterfoil
from tests.postgres.databases import EMPTY

FILE, MEMORY, POSTGRES = "sqlite-file", "sqlite-memory", "postgres"
STORES = (FILE, MEMORY, POSTGRES)
SHARED = tuple(name for name in STORES if name != MEMORY)
"""Stores that a second Counterfoil or process can open, too."""


@pytest.fixture(params=SHARED)
def store(request: pytest.FixtureRequest) -> str:
    """The name of a store that others can open, too."""
    return str(request.param)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema and no rows, to be copied: to make one takes longer than most tests."""
    file = tmp_path_factory.mktemp("template") / "ledger.db"
    Counterfoil.open(f"sqlite:///{file}").close()
    return file


@pytest.fixture
def url(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a database with the schema and no rows."""
    match store:
        case "sqlite-memory":
            return "sqlite:///:memory:"
        case "postgres":
            return str(request.getfixturevalue("postgres_database").url)
        case _:
            file = shutil.copyfile(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
            return f"sqlite:///{file}"


OTHERS = """
select 1 from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' and state <> 'idle'
"""
"""Sessions in which a statement or a transaction is under way; an idle one that somebody left changes nothing."""


# --- from outside ----------------------------------------------------------------------------------------------------


def is_postgres(url: str) -> bool:
    return url.startswith("postgres")


_SEERS: dict[str, tuple[str, Counterfoil]] = {}


@contextmanager
def seen_as(owner: str, url: str) -> Iterator[None]:
    """Look into the database of a URL by that of its owner: who connects by the first does not see all of it."""
    with Counterfoil.open(owner) as cf:
        _SEERS[url] = owner, cf
        yield
        del _SEERS[url]


def outside(url: str) -> str:
    """Return the URL by which a test sees all rows of a database."""
    return _SEERS[url][0] if url in _SEERS else url


def seer(url: str) -> Counterfoil | None:
    """Return who sees all rows of a database for those that open it by a URL by which they do not."""
    return _SEERS[url][1] if url in _SEERS else None


def file_of(url: str) -> Path:
    assert not is_postgres(url)
    return Path(url.removeprefix("sqlite:///"))


def execute(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement, with `?` for its values, on a connection of its own."""
    if is_postgres(url):
        with psycopg.connect(outside(url), autocommit=True) as connection:
            cursor = connection.execute(statement.replace("%", "%%").replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as lite:
        return lite.execute(statement, values).fetchall()


def tables(url: str) -> set[str]:
    catalogue = "select tablename from pg_tables" if is_postgres(url) else "select name from sqlite_master"
    return {str(name) for (name,) in execute(url, catalogue)}


def empty(url: str) -> None:
    """Begin anew: a PostgreSQL database loses its rows, a file goes away."""
    if is_postgres(url):
        execute(url, EMPTY)
    else:
        for path in file_of(url).parent.glob(f"{file_of(url).name}*"):
            path.unlink()


def await_quiet(url: str) -> None:
    """Wait until the server has noticed that everybody else is gone: a killed client's statement may still run."""
    if is_postgres(url):
        with psycopg.connect(outside(url), autocommit=True) as connection:
            while connection.execute(OTHERS).fetchall():
                connection.execute("select pg_sleep(0.005)")


def stored(url: str) -> bytes:
    """Return all that is stored as bytes: files with what is still in the write-ahead log, or tables as they are kept.

    What PostgreSQL keeps out of line is compressed on disk, so its tables are copied out in their binary form.
    """
    if not is_postgres(url):
        file = file_of(url)
        return b"".join(path.read_bytes() for path in sorted(file.parent.glob(f"{file.name}*")))
    with psycopg.connect(outside(url), autocommit=True) as connection:
        names = connection.execute("select tablename from pg_tables where schemaname = 'public' order by 1").fetchall()
        return b"".join(_copied(connection, name) for (name,) in names)


def _copied(connection: "psycopg.Connection[Any]", table: str) -> bytes:
    statement = sql.SQL("copy {} to stdout (format binary)").format(sql.Identifier(table))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        return b"".join(bytes(chunk) for chunk in copy)


def on_each(*stores: str) -> Callable[[Any], Any]:
    """Run a test on these stores instead of those of its folder."""
    return pytest.mark.parametrize("store", stores)
