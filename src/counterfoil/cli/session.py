"""What every verb shares: the options that name the database and the tenant, and the database opened for reading."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, TypeVar

import click

from counterfoil.core.arguments import LARGEST
from counterfoil.errors import InvalidCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.drivers.sqlite_look import SqliteLook
    from counterfoil.drivers.urls import DatabaseUrl
    from counterfoil.model import OperationDetail
    from counterfoil.storage.script import Maker
    from counterfoil.storage.store import Store

T = TypeVar("T")

JSON = "counterfoil.json"
"""Where the context keeps whether JSON was asked for, for the place that prints errors."""


def integer(text: str) -> int:
    """Read a whole number that a database holds; click's own ranges would fill the help with it.

    Raises:
        BadParameter: it is none.
    """
    digits = str(text)  # a default is a number already
    if not (digits.isascii() and digits.isdigit() and len(digits) < len(str(LARGEST))):
        raise click.BadParameter("write a whole number, not negative and of 18 digits at the most.")
    return int(digits)


class Session:
    """One run of a verb: which database, which tenant (None: all, as the database's operator), and which output."""

    def __init__(self, url: str | None, tenant: str | None, *, as_json: bool, network_filesystem: bool = False) -> None:
        self._url = url
        self._network_filesystem = network_filesystem
        self._opened: Store | None = None
        self._checked = False
        self.tenant = tenant
        self.as_json = as_json

    @functools.cached_property
    def url(self) -> DatabaseUrl:
        """Return the database's URL: the option, the environment, or the project's settings."""
        from counterfoil.config import database_url
        from counterfoil.drivers.urls import parse_url

        return parse_url(database_url(self._url))

    @functools.cached_property
    def look(self) -> SqliteLook | Store:
        """Return the database for reading, whoever made it and whatever its schema; looking leaves no trace.

        Raises:
            StoreUnavailable: there is no such file.
        """
        from pathlib import Path

        from counterfoil.drivers.sqlite_look import SqliteLook
        from counterfoil.drivers.urls import PostgresUrl
        from counterfoil.errors import StoreUnavailable

        if isinstance(self.url, PostgresUrl) or self.url.in_memory:
            return self.raw_store
        if not Path(self.url.path).is_file():
            raise StoreUnavailable(
                f"There is no database {self.url.path}. Nothing was made; check --url, or make it with: counterfoil db"
                f" upgrade --url sqlite:///{self.url.path}"
            )
        return SqliteLook(self.url, network_filesystem=self._network_filesystem)

    @functools.cached_property
    def raw_store(self) -> Store:
        """Open the database for writing, whatever its schema; a file that does not exist is made."""
        from counterfoil.drivers.stores import open_store

        self._opened = open_store(self.url, network_filesystem=self._network_filesystem)
        return self._opened

    @property
    def store(self) -> Store:
        """Return the database for writing, refused like one that is read."""
        self._check()
        return self.raw_store

    def read(self, maker: Maker[T]) -> T:
        """Run a script of reads; the database is refused if its schema is not exactly what this code needs.

        Raises:
            SchemaMismatch: it has no tables of ours, older ones, newer ones or altered ones.
        """
        self._check()
        return self.look.read(maker)

    def _check(self) -> None:
        if self._checked:
            return
        from counterfoil.errors import SchemaOutdated
        from counterfoil.storage.migrator import Migrator

        look = self.look
        migrator = Migrator(look.dialect, look.path)
        status = look.read(migrator.status)
        if not (status.applied or status.differing):
            raise SchemaOutdated(
                f"The database {look.path} holds no tables of Counterfoil. Nothing in it was changed. If it is another"
                " program's, check --url; to put the tables into it: counterfoil db upgrade --url"
                f" {'sqlite:///' if look.dialect == 'sqlite' else ''}{look.path}"
            )
        if not look.read(migrator.is_current):
            raise SchemaOutdated(
                f"The database {look.path} lacks tables that this code needs. See which with: counterfoil db status;"
                " make them with: counterfoil db upgrade (it keeps all rows)."
            )
        self._checked = True

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

    def by(self, name: str | None) -> str:
        """Return who acts: the name that was given, else the operating-system user."""
        return name or user()

    def close(self) -> None:
        """Close the database if it was opened for writing."""
        if self._opened is not None:
            self._opened.close()


def refuse_ambiguous(operation_id: str, tenants: Sequence[str]) -> None:
    """Refuse to guess whose operation is meant.

    Raises:
        InvalidCommand: several tenants use this id.
    """
    if len(tenants) > 1:
        raise InvalidCommand(f"Several tenants use the id {operation_id}. Add one of: --tenant {', '.join(tenants)}")


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that all share, and its session as the first argument."""

    def run(
        ctx: click.Context,
        url: str | None,
        tenant: str | None,
        *,
        as_json: bool,
        network_filesystem: bool,
        **arguments: Any,
    ) -> None:
        ctx.meta[JSON] = as_json
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        session = Session(url, tenant, as_json=as_json, network_filesystem=network_filesystem)
        try:
            function(session, **arguments)
        finally:
            session.close()

    options = (
        click.option("--url", metavar="URL", help="The database: sqlite:///agent.db, postgresql://me@host/agents."),
        click.option("--tenant", metavar="TENANT", help="Only this tenant; without it all of them."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object or array and nothing else."),
        click.option("--network-filesystem", is_flag=True, help="Accept a SQLite file on one, at your own risk."),
    )
    wrapped: Callable[..., Any] = click.pass_context(functools.update_wrapper(run, function))
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def names_operation(metavar: str = "OPERATION") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a verb an operation's id as its argument, and the option --branch for the id that it has in a branch.

    It stands below `verb`.
    """

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(session: Session, *, operation: str, branch: str | None, **arguments: Any) -> None:
            from counterfoil.core.branches import marked, validate_path

            function(session, marked(operation, validate_path(branch)), **arguments)

        wrapped: Callable[..., Any] = functools.update_wrapper(run, function)
        option = click.option("--branch", metavar="NAME", help="The same action in a branch: what-if, what-if~deeper.")
        return click.argument("operation", metavar=metavar)(option(wrapped))

    return named


def user() -> str:
    """Return the operating-system user; a container may have none by name."""
    from counterfoil.access import system_user

    return system_user()
