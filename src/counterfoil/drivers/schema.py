"""Run the migrator's scripts inside a transaction that a caller has open on a `sqlite3` or `psycopg` connection."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.clock import SystemClock
from counterfoil.drivers.sqlite_run import Runner
from counterfoil.errors import ForeignTransaction
from counterfoil.storage.migrator import Migrator

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from counterfoil.storage.script import Script

T = TypeVar("T")

_SAVEPOINT = "counterfoil_schema"


def run_in(connection: Any, make: Callable[[Migrator], Script[T]]) -> T:
    """Run a script of the migrator; if it fails, what it did is undone and the transaction stays open.

    Raises:
        ForeignTransaction: it is another driver's connection, or has no transaction open.
        StoreError: the database could not do it.
    """
    if isinstance(connection, sqlite3.Connection):
        return _run_in_sqlite(connection, make)
    if type(connection).__module__.partition(".")[0] == "psycopg" and hasattr(connection, "pgconn"):
        return _run_in_postgres(connection, make)
    raise ForeignTransaction(
        f"A migration takes an open sqlite3 or psycopg connection, or SQLAlchemy's or Django's over one, not"
        f" {type(connection).__module__}.{type(connection).__qualname__}. Others run the text that this prints:"
        " counterfoil db sql"
    )


def _run_in_sqlite(connection: sqlite3.Connection, make: Callable[[Migrator], Script[T]]) -> T:
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise _none_open('connection.execute("begin immediate")')
        connection.execute("begin immediate")  # as sqlite3 itself would before a first insert; its owner commits
    path = next(row[2] for row in connection.execute("pragma database_list").fetchall() if row[1] == "main")
    migrator = Migrator("sqlite", path or ":memory:")
    connection.execute(f"savepoint {_SAVEPOINT}")
    try:
        result = Runner(path=migrator.path, clock=SystemClock()).run(connection, make(migrator))
    except BaseException:
        connection.execute(f"rollback to {_SAVEPOINT}")
        connection.execute(f"release {_SAVEPOINT}")
        raise
    connection.execute(f"release {_SAVEPOINT}")
    return result


def _run_in_postgres(connection: psycopg.Connection[Any], make: Callable[[Migrator], Script[T]]) -> T:
    import psycopg  # noqa: PLC0415 - only where the caller has it
    from psycopg.pq import TransactionStatus  # noqa: PLC0415

    from counterfoil.drivers.join_postgres import RELEASE, SAVEPOINT, undo  # noqa: PLC0415
    from counterfoil.drivers.pgstate import from_psycopg  # noqa: PLC0415
    from counterfoil.drivers.postgres import run  # noqa: PLC0415
    from counterfoil.drivers.postgres_run import Progress, Protocol  # noqa: PLC0415

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _none_open("with connection.transaction(): ...")
    info = connection.info
    migrator = Migrator("postgres", f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}")
    try:
        connection.execute(SAVEPOINT)
        try:
            result = run(connection, Protocol(path=migrator.path).inside(lambda: make(migrator), Progress()))
        except BaseException:
            undo(connection)
            raise
        connection.execute(RELEASE)
    except psycopg.Error as error:
        raise from_psycopg(error, migrator.path) from error
    return result


def _none_open(how: str) -> ForeignTransaction:
    return ForeignTransaction(
        f"The connection has no transaction open, so there is nothing to commit the schema with. Begin one first: {how}"
    )
