"""SQLite: run scripts inside the transaction that a caller has open on a `sqlite3` connection of its own."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.drivers.join import not_joinable
from counterfoil.errors import ForeignTransaction
from counterfoil.storage.script import UserCode

if TYPE_CHECKING:
    from counterfoil.drivers.sqlite import SqliteStore
    from counterfoil.storage.script import Maker, Script, Step
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")

SAVEPOINT = "savepoint counterfoil_joined"
UNDO = "rollback to counterfoil_joined"
RELEASE = "release counterfoil_joined"
DATABASES = "pragma database_list"


class JoinedSqlite:
    """The transaction that is open on a `sqlite3.Connection`."""

    def __init__(self, store: SqliteStore, connection: Any) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise not_joinable(store, connection, awaits=False)
        check_open(connection)
        cursor = connection.cursor()
        cursor.row_factory = None
        check_file(store, cursor.execute(DATABASES).fetchall())
        self._store = store
        self._connection = connection

    def run(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script; if it fails, what it did is undone and the transaction stays open."""
        del tenant
        check_open(self._connection)  # it may have been ended since it was joined
        cursor = self._connection.cursor()
        cursor.execute(SAVEPOINT)
        try:
            result: T = self._store.runner.run(self._connection, _reading_text(self._connection, maker()))
        except BaseException:
            if self._connection.in_transaction:  # some errors make SQLite undo the whole transaction
                cursor.execute(UNDO)
                cursor.execute(RELEASE)
            raise
        cursor.execute(RELEASE)
        return result

    @staticmethod
    def leads_here() -> bool:
        """Say that it does: no other could be joined."""
        return True


def check_open(connection: Any) -> None:
    """Refuse a connection without an open transaction.

    Raises:
        ForeignTransaction: it has none.
    """
    if not _in_transaction(connection):
        raise ForeignTransaction(
            "The connection has no transaction open, so there is nothing to commit with. Begin one first:"
            ' connection.execute("begin immediate").'
        )


def _in_transaction(connection: Any) -> bool:
    try:
        return bool(connection.in_transaction)
    except (sqlite3.ProgrammingError, ValueError):
        return False  # it is closed


def check_file(store: SqliteStore, databases: list[Any]) -> None:
    """Refuse a connection to another file than the store's, by what `pragma database_list` says.

    Raises:
        ForeignTransaction: it is another one, or one of them is in memory.
    """
    files = {row[1]: row[2] for row in databases}
    main = files.get("main") or files.get(b"main")
    path = main.decode() if isinstance(main, bytes) else main
    if not path or store.url.in_memory or not _same_file(path, store.path):
        raise ForeignTransaction(
            f"The connection belongs to another database than {store.path}: one transaction cannot hold rows of two."
            " Open a Counterfoil on the database of the business rows."
        )


def _same_file(one: str, other: str) -> bool:
    # Path objects made of both would cost as much as the receipt
    return os.path.samefile(one, other)  # noqa: PTH121


def _reading_text(connection: sqlite3.Connection, script: Script[T]) -> Script[T]:
    """Run a script on a connection that makes text of text, and an effect's body on one as its caller left it."""
    theirs, connection.text_factory = connection.text_factory, str
    try:
        step = next(script)
        while True:
            try:
                answer = yield _with_factory(connection, theirs, step)
            except BaseException as error:  # noqa: BLE001 - the script may clean up, and raises it again
                step = script.throw(error)
            else:
                step = script.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        connection.text_factory = theirs


def _with_factory(connection: sqlite3.Connection, factory: Any, step: Step) -> Step:
    if not isinstance(step, UserCode):
        return step

    def body(guarded: Any) -> Any:
        connection.text_factory = factory
        try:
            return step.function(guarded)
        finally:
            connection.text_factory = str

    return UserCode(body)
