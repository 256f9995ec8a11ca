"""What every verb shares: the options that name the database and the tenant, and the database opened for reading."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, TypeVar

import click

from counterfoil.errors import InvalidCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.drivers.sqlite import SqliteStore
    from counterfoil.drivers.urls import SqliteUrl
    from counterfoil.model import OperationDetail
    from counterfoil.storage.script import Maker

T = TypeVar("T")

JSON = "counterfoil.json"
"""Where the context keeps whether JSON was asked for, for the place that prints errors."""


class Session:
    """One run of a verb: which database, which tenant (None: all, as the database's operator), and which output."""

    def __init__(self, url: str | None, tenant: str | None, *, as_json: bool) -> None:
        self._url = url
        self._store: SqliteStore | None = None
        self.tenant = tenant
        self.as_json = as_json

    @functools.cached_property
    def url(self) -> SqliteUrl:
        """Return the database's URL: the option, the environment, or the project's settings."""
        from counterfoil.config import database_url
        from counterfoil.drivers.urls import parse_url

        return parse_url(database_url(self._url))

    def raw_store(self, *, make: bool = False) -> SqliteStore:
        """Open the database whatever its schema; only `make` makes a file that does not exist.

        Raises:
            StoreUnavailable: there is no such file.
        """
        if self._store is None:
            from counterfoil.drivers.sqlite import SqliteStore

            if not make:
                self._refuse_missing()
            self._store = SqliteStore(self.url)
        return self._store

    def _refuse_missing(self) -> None:
        from pathlib import Path

        from counterfoil.errors import StoreUnavailable

        if not self.url.in_memory and not Path(self.url.path).is_file():
            raise StoreUnavailable(
                f"There is no database {self.url.path}. Nothing was made; check --url, or make it with: counterfoil db"
                f" upgrade --url sqlite:///{self.url.path}"
            )

    @property
    def store(self) -> SqliteStore:
        """Return the database, refused if its schema is not exactly what this code needs.

        Raises:
            SchemaMismatch: it has no tables of ours, older ones, newer ones or altered ones.
        """
        store = self.raw_store()
        from counterfoil.errors import SchemaOutdated
        from counterfoil.storage.migrator import Migrator

        migrator = Migrator(store.dialect, store.path)
        if not store.read(migrator.is_current):
            raise SchemaOutdated(
                f"The database {store.path} lacks tables that this code needs. See which with: counterfoil db status;"
                " make them with: counterfoil db upgrade (it keeps all rows)."
            )
        return store

    def read(self, maker: Maker[T]) -> T:
        """Run a script of reads."""
        return self.store.read(maker)

    def one(self, operation_id: str) -> OperationDetail:
        """Return one operation whole.

        Raises:
            OperationNotFound: there is none with this id.
            InvalidCommand: several tenants use this id and none was named.
        """
        from counterfoil.operations import only
        from counterfoil.storage.scripts import reads

        found = self.read(lambda: reads.get_operation(self.tenant, operation_id))
        refuse_ambiguous(operation_id, [each.operation.tenant for each in found])
        return only(found, operation_id, self.tenant)

    def close(self) -> None:
        """Close the database if it was opened."""
        if self._store is not None:
            self._store.close()


def refuse_ambiguous(operation_id: str, tenants: Sequence[str]) -> None:
    """Refuse to guess whose operation is meant.

    Raises:
        InvalidCommand: several tenants use this id.
    """
    if len(tenants) > 1:
        raise InvalidCommand(f"Several tenants use the id {operation_id}. Add one of: --tenant {', '.join(tenants)}")


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options --url, --tenant and --json, and its session as the first argument."""

    def run(ctx: click.Context, url: str | None, tenant: str | None, *, as_json: bool, **arguments: Any) -> None:
        ctx.meta[JSON] = as_json
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        session = Session(url, tenant, as_json=as_json)
        try:
            function(session, **arguments)
        finally:
            session.close()

    options = (
        click.option("--url", metavar="URL", help="The database, such as sqlite:///agent.db."),
        click.option("--tenant", metavar="TENANT", help="Only this tenant; without it all of them."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object or array and nothing else."),
    )
    wrapped: Callable[..., Any] = click.pass_context(functools.update_wrapper(run, function))
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
