"""Run scripts inside a transaction that the caller has open: which driver's connection it is, and who serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.errors import ForeignTransaction

if TYPE_CHECKING:
    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.drivers.postgres_async import AsyncPostgresStore
    from counterfoil.drivers.sqlite_async import AsyncSqliteStore
    from counterfoil.storage.script import Maker
    from counterfoil.storage.store import AsyncStore, Store
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")

_SQLITE = frozenset({"sqlite3", "aiosqlite"})
_OURS = {"sqlite": _SQLITE, "postgres": frozenset({"psycopg"})}
_OTHERS = {"psycopg2", "asyncpg", "pg8000"}
"""Drivers of PostgreSQL that Counterfoil does not work with."""
_LEGACY = -1
"""`sqlite3.LEGACY_TRANSACTION_CONTROL`."""


class Transaction(Protocol):
    """A caller's open transaction, for blocking callers."""

    def run(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in it; if the script fails, what it did is undone and the transaction goes on."""
        ...

    def leads_here(self) -> bool:
        """Say whether it belongs to the store's own database."""
        ...


class AsyncTransaction(Protocol):
    """A caller's open transaction, for callers on an event loop."""

    async def run(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in it; if the script fails, what it did is undone and the transaction goes on."""
        ...


def joined(store: Store, connection: Any) -> Transaction:
    """Return the transaction that is open on a driver's connection.

    Raises:
        ForeignTransaction: none is open, it must be awaited, or it belongs to another database.
    """
    if isinstance(store, SqliteStore):
        from counterfoil.drivers.join_sqlite import JoinedSqlite  # noqa: PLC0415 - only the driver that is used

        return JoinedSqlite(store, connection)
    from counterfoil.drivers.join_postgres import JoinedPostgres  # noqa: PLC0415 - needs psycopg

    return JoinedPostgres(cast("PostgresStore", store), connection)


def ajoined(store: AsyncStore, connection: Any) -> AsyncTransaction:
    """Return the transaction that is open on an async driver's connection.

    Raises:
        ForeignTransaction: none is open, it is blocking, or it belongs to another database.
    """
    if store.dialect == "sqlite":
        from counterfoil.drivers.join_aiosqlite import JoinedAiosqlite  # noqa: PLC0415 - only the driver that is used

        return JoinedAiosqlite(cast("AsyncSqliteStore", store), connection)
    from counterfoil.drivers.join_postgres_async import AsyncJoinedPostgres  # noqa: PLC0415 - needs psycopg

    return AsyncJoinedPostgres(cast("AsyncPostgresStore", store), connection)


def leads_to(store: Store, connection: Any) -> bool:
    """Say whether a driver's connection, which has a transaction open, leads to this very database."""
    try:
        return joined(store, connection).leads_here()
    except ForeignTransaction:
        return False


def begins_late(connection: Any) -> bool:
    """Say whether a driver has a transaction open in name only: `sqlite3` begins it with the first row it writes."""
    if not _SQLITE.intersection(packages(connection)) or connection.in_transaction:
        return False
    legacy = getattr(connection, "autocommit", _LEGACY) == _LEGACY  # Python 3.12 has another way besides
    return legacy and connection.isolation_level is not None


def kind(value: object) -> str:
    """Return the name of an object's class for messages."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def packages(value: object) -> list[str]:
    """Return the packages that an object's class and its base classes come from."""
    return [cls.__module__.partition(".")[0] for cls in type(value).__mro__]


def not_joinable(store: Store | AsyncStore, connection: Any, *, awaits: bool) -> ForeignTransaction:
    """Return the refusal of what is no connection of this database's driver and of this colour."""
    homes, name = set(packages(connection)), kind(connection)
    if homes & _OURS[store.dialect] and awaits:
        return ForeignTransaction(
            f"{name} blocks, and would hold up the event loop. Join it from code that runs on no loop, with a"
            " Counterfoil.open(url), or use an async connection here."
        )
    if homes & _OURS[store.dialect]:
        return ForeignTransaction(
            f"The statements of {name} must be awaited. Write: await AsyncCounterfoil.open(url).join(...).perform(...)"
        )
    if homes & _OTHERS and store.dialect == "postgres":
        return ForeignTransaction(
            f"{name} belongs to a driver that Counterfoil does not work with; it takes psycopg 3. Connect with psycopg,"
            " or in SQLAlchemy by the URL postgresql+psycopg://..."
        )
    return ForeignTransaction(
        f"{name} holds no transaction of {store.path}, and one transaction cannot hold rows of two databases. Pass the"
        " connection or session that writes the business rows, or open a Counterfoil on their database."
    )
