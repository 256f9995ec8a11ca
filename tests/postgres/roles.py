"""Roles that may connect to one database of the tests, and do there what they were granted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest

from counterfoil.storage import rights
from tests.postgres.databases import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role that may connect to one database, and do there what it was granted."""

    name: str
    database: Database

    @property
    def url(self) -> str:
        parts = urlsplit(self.database.url)
        return parts._replace(netloc=f"{self.name}:secret@{parts.netloc.rpartition('@')[2]}").geturl()

    def let(self, *, read_only: bool = False, one_tenant: bool = False, schema: str = "public") -> None:
        self.database.execute(rights.grants(self.name, schema, read_only=read_only, one_tenant=one_tenant))

    def let_make_tables(self) -> None:
        self.database.execute(f"grant create on schema public to {self.name}")

    def give_tables(self) -> None:
        """Make it the owner of the tables."""
        for table in self.tables():
            self.database.execute(f"alter table {table} owner to {self.name}")

    @contextmanager
    def without(self, table: str, right: str) -> Iterator[None]:
        self.database.execute(f"revoke {right} on {table} from {self.name}")
        try:
            yield
        finally:
            self.database.execute(f"grant {right} on {table} to {self.name}")

    def tables(self) -> list[str]:
        return [
            name
            for (name,) in self.database.execute(
                "select format('%I.%I', schemaname, tablename) from pg_tables where tablename like 'counterfoil%'"
            )
        ]


def new_role(database: Database, word: str = "role") -> Iterator[Role]:
    name = database.name.replace("test", word)
    try:
        database.execute(f"create role {name} login password 'secret'")
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("the role of the tests may make no roles on this server")
    yield Role(name=name, database=database)
    database.execute(f"drop owned by {name} cascade; drop role {name}")
