"""Databases of each kind that nobody has used yet, for the tests of the schema."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from counterfoil.drivers.urls import parse_url
from tests.postgres.databases import Database
from tests.postgres.servers import Server

NAMES = {
    "sqlite": "select name from sqlite_master where name like 'counterfoil~_%' escape '~' order by 1",
    "postgres": "select relname from pg_class where relname like 'counterfoil~_%' escape '~' order by 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database by its URL, and what its administrator does to it by hand."""

    dialect: str
    url: str
    database: Database | None = None

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        if self.database is not None:
            return self.database.execute(sql)
        with closing(sqlite3.connect(parse_url(self.url).path, isolation_level=None)) as connection:
            return connection.execute(sql).fetchall()

    def run(self, text: str) -> None:
        """Run a text of several statements, as a database's own command line does."""
        if self.database is not None:
            self.database.execute(text)
            return
        with closing(sqlite3.connect(parse_url(self.url).path, isolation_level=None)) as connection:
            connection.executescript(text)

    def ours(self) -> list[str]:
        """Name everything of ours that is there."""
        return [name for (name,) in self.execute(NAMES[self.dialect])]

    def applied(self) -> list[int]:
        return [number for (number,) in self.execute("select number from counterfoil_migration order by 1")]


@pytest.fixture
def empty_database(postgres_server: Server, postgres_names: Iterator[str]) -> Iterator[Database]:
    """A PostgreSQL database of the test's own, without our tables."""
    name = next(postgres_names)
    postgres_server.create_database(name)
    yield Database(server=postgres_server, name=name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return Place(dialect="sqlite", url=f"sqlite:///{tmp_path / 'agent.db'}")
    database: Database = request.getfixturevalue("empty_database")
    return Place(dialect="postgres", url=database.url, database=database)
