"""Run a script inside the transaction that a caller has open on a `sqlite3` connection of its own."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.errors import ForeignTransaction

if TYPE_CHECKING:
    from counterfoil.drivers.sqlite import SqliteStore
    from counterfoil.storage.script import Maker

T = TypeVar("T")

_SAVEPOINT = "counterfoil_joined"


def check_joinable(store: SqliteStore, transaction: Any) -> sqlite3.Connection:
    """Return the connection if it has a transaction open in this very database.

    Raises:
        ForeignTransaction: it is something else, is not open, or belongs to another database.
    """
    if not isinstance(transaction, sqlite3.Connection):
        raise ForeignTransaction(
            f"cf.join takes an open sqlite3 connection, not {type(transaction).__qualname__}: it must hold the"
            " transaction that the business rows are in."
        )
    check_open(transaction)
    if not _same_file(store, transaction):
        raise ForeignTransaction(
            f"The connection belongs to another database than {store.path}: one transaction cannot hold rows of two."
            " Open a Counterfoil on the database of the business rows."
        )
    return transaction


def check_open(connection: sqlite3.Connection) -> None:
    """Refuse a connection without an open transaction.

    Raises:
        ForeignTransaction: it has none.
    """
    if not _in_transaction(connection):
        raise ForeignTransaction(
            "The connection has no transaction open, so there is nothing to commit with. Begin one first:"
            ' connection.execute("begin immediate").'
        )


def _in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False  # it is closed


def _same_file(store: SqliteStore, connection: sqlite3.Connection) -> bool:
    cursor = connection.cursor()
    cursor.row_factory = None
    files = {row[1]: row[2] for row in cursor.execute("pragma database_list")}
    main = files.get("main") or files.get(b"main")
    path = main.decode() if isinstance(main, bytes) else main
    if not path or store.url.in_memory:
        return False
    return os.path.samefile(path, store.path)  # noqa: PTH121 - two paths made and parsed cost as much as the receipt


def run_joined(store: SqliteStore, connection: sqlite3.Connection, maker: Maker[T]) -> T:
    """Run a script in the open transaction; if it fails, what it did is undone and the transaction stays open."""
    cursor = connection.cursor()
    cursor.execute(f"savepoint {_SAVEPOINT}")
    try:
        result = store.runner.run(connection, maker())
    except BaseException:
        if connection.in_transaction:  # some errors make SQLite undo the whole transaction
            cursor.execute(f"rollback to {_SAVEPOINT}")
            cursor.execute(f"release {_SAVEPOINT}")
        raise
    cursor.execute(f"release {_SAVEPOINT}")
    return result
