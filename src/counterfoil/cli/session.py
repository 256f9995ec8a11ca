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

    from counterfoil.core.access import Principal
    from counterfoil.drivers.sqlite_look import SqliteLook
    from counterfoil.drivers.urls import DatabaseUrl
    from counterfoil.shown import OperationDetail
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

    def __init__(
        self,
        url: str | None,
        tenant: str | None,
        *,
        as_json: bool,
        network_filesystem: bool = False,
        act: str = "read",
        token_file: str | None = None,
    ) -> None:
        if tenant == "":  # as where a script's variable is not set: it must not stand for all of them
            raise InvalidCommand("--tenant is empty and names no tenant. Nothing was done.")
        self._url = url
        self._network_filesystem = network_filesystem
        self._opened: Store | None = None
        self._checked = False
        self._act = act
        self._token_file = token_file
        self.named = tenant
        self.as_json = as_json

    @functools.cached_property
    def principal(self) -> Principal | None:
        """Return for whom the token stands that is given, or None: the operating-system user, who holds the database.

        Raises:
            TokenRefused: it is not honoured.
        """
        from counterfoil.core.tokens import digest, public_id
        from counterfoil.issuing import honoured
        from counterfoil.storage.scripts import tokens
        from counterfoil.storage.tenants import ALL_TENANTS

        if (text := _token(self._token_file)) is None:
            return None
        self._check()
        token_id, shown = public_id(text), digest(text)
        return honoured(self.look.read(lambda: tokens.look(token_id), tenant=ALL_TENANTS), token_id, shown)

    @functools.cached_property
    def tenant(self) -> str | None:
        """Return the tenant that the verb is about: the one that is named, else the one of the token; None for all.

        Raises:
            NotAllowed: the role of the token does not permit the verb.
            TenantNotFound: the token is for another tenant than the one that is named.
        """
        from counterfoil.access import acting
        from counterfoil.core.access import Act

        if self.principal is None:
            return self.named
        wanted = self.principal.tenant if self.named is None else self.named
        acting(self.principal, act=Act(self._act), tenant=wanted)
        return wanted

    def by(self, name: str | None) -> str | Principal:
        """Return who acts: the principal of the token; without one, whom `--by` names, else the operating-system user.

        Raises:
            NotAllowed: `--by` names somebody else than the token stands for.
        """
        if self.principal is None:
            return name or user()
        from counterfoil.access import not_allowed
        from counterfoil.core.access import Act, is_same_principal

        if name and not is_same_principal(name, self.principal.name):
            raise not_allowed(self.principal, Act(self._act), "acts here by a token, and --by names somebody else")
        return self.principal

    def refuse_token(self, what: str) -> None:
        """Refuse what no role permits, where a token is given.

        Raises:
            NotAllowed: one is.
        """
        from counterfoil.errors import NotAllowed

        if _token(self._token_file) is not None:
            raise NotAllowed(
                f"No role permits to {what}: that is for whoever holds the database. Nothing was changed. Do it without"
                " COUNTERFOIL_TOKEN and --token-file.",
                act=what,
            )

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
        self._admit()
        return self.raw_store

    def read(self, maker: Maker[T], *, tenant: str | None) -> T:
        """Run a script of reads, of one tenant or of all; a schema is refused that is not exactly what this code needs.

        Raises:
            SchemaMismatch: it has no tables of ours, older ones, newer ones or altered ones.
        """
        from counterfoil.storage.tenants import whose

        self._admit()
        return self.look.read(maker, tenant=whose(tenant))

    def _admit(self) -> None:
        """See to it that the database is ours, and that whoever comes with a token may do this."""
        self._check()
        _ = self.tenant

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

        found = self.read(lambda: reads.get_operation(self.tenant, operation_id), tenant=self.tenant)
        refuse_ambiguous(operation_id, [each.operation.tenant for each in found])
        return only(found, operation_id, self.tenant)

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


TOKEN = "COUNTERFOIL_TOKEN"  # noqa: S105 - the name of a variable


def _token(file: str | None) -> str | None:
    """Return the token that is given; a variable that is set to nothing is one that is not honoured.

    Raises:
        InvalidCommand: its file cannot be read.
    """
    if file is None:
        return os.environ.get(TOKEN)
    from pathlib import Path

    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, ValueError):
        raise InvalidCommand(f"The file {file} that --token-file names cannot be read. Nothing was done.") from None


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb that reads the options that all share, and its session as the first argument."""
    return verb_to("read")(function)


def verb_to(act: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a verb of a kind of act, which the role of a token has to permit."""
    return functools.partial(_verb, act)


def _verb(act: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(
        ctx: click.Context,
        url: str | None,
        tenant: str | None,
        *,
        as_json: bool,
        network_filesystem: bool,
        token_file: str | None,
        **arguments: Any,
    ) -> None:
        ctx.meta[JSON] = as_json
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        session = Session(
            url, tenant, as_json=as_json, network_filesystem=network_filesystem, act=act, token_file=token_file
        )
        try:
            function(session, **arguments)
        finally:
            session.close()

    options = (
        click.option("--url", metavar="URL", help="The database: sqlite:///agent.db, postgresql://me@host/agents."),
        click.option("--tenant", metavar="TENANT", help="Only this tenant; without it all of them."),
        click.option("--token-file", metavar="PATH", help="Act as the token in this file; else COUNTERFOIL_TOKEN."),
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
