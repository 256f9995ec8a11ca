"""Run scripts on one `sqlite3` connection: bind, execute, feed rows back, throw errors in."""

from __future__ import annotations

import re
import sqlite3
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from counterfoil.clock import Clock, SystemClock
from counterfoil.drivers.probes import Point, Probe, no_probe
from counterfoil.drivers.sqlstate import from_sqlite
from counterfoil.errors import CommitUnknown, GuardedTransaction, StoreUnavailable
from counterfoil.model import Statement
from counterfoil.storage import catalog
from counterfoil.storage.script import Call, Ddl, Lone, Peek, Row, Script, Several, Step, UserCode, Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")

_FORBIDDEN = re.compile(
    r"(?:[\s\ufeff]+|--[^\n]*(?:\n|\Z)|/\*.*?\*/|;)*"  # SQLite takes a byte order mark for white space
    r"(?:begin|commit|end|rollback(?!\s+(?:transaction\s+)?to\b)|attach|detach|vacuum)\b",
    re.IGNORECASE | re.DOTALL,
)


class Numbered:
    """A statement with its parameters numbered, the time first: bound in half the time that names take."""

    __slots__ = ("_binds", "_pick", "sql", "tells")

    def __init__(self, statement: catalog.Statement) -> None:
        names = tuple(sorted(statement.params - {"now"}))
        self._binds = bool(statement.params)
        self._pick = itemgetter(*names) if len(names) > 1 else lambda params: tuple(params[name] for name in names)
        self.tells = statement.tells
        places = {name: f"?{place}" for place, name in enumerate(("now", *names), 1)}
        self.sql = re.sub(r"(?<![:\w]):(\w+)", lambda found: places[found[1]], statement.sql)

    def values(self, now: int, params: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what is bound; a place that the statement does not use is bound all the same."""
        return (now, *self._pick(params)) if self._binds else ()

    def rows(self, cursor: Any, found: list[Any], now: int) -> list[Row]:
        """Return what it answers: its rows, or the time for each row that it wrote."""
        return [{"now": now}] * cursor.rowcount if self.tells else dictionaries(cursor, found)


class Runner:
    """How statements are run: whose clock, which probe, and a name for messages."""

    def __init__(
        self,
        *,
        path: str,
        clock: Clock | None = None,
        probe: Probe = no_probe,
        statements: Mapping[str, catalog.Statement] | None = None,
    ) -> None:
        self.path = path
        self.probe = probe
        self._now_ms = (clock or SystemClock()).now_ms
        self.statements = catalog.load("sqlite") if statements is None else statements
        self._numbered: dict[str, Numbered] = {}

    def run(self, connection: sqlite3.Connection, script: Script[T]) -> T:
        """Run a script to its end inside whatever transaction is open; on failure close it and pass the error on."""
        try:
            step = next(script)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return self.go_on(connection, script, step)

    def go_on(self, connection: sqlite3.Connection, script: Script[T], step: Step) -> T:
        """Run a script from one of its steps to its end."""
        try:
            while True:
                try:
                    answer = self._step(connection, step)
                except BaseException as error:  # noqa: BLE001 - thrown into the script, so its frame is in the traceback
                    step = script.throw(error)
                else:
                    step = script.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()

    def peek(self, connection: sqlite3.Connection, step: Peek) -> list[Row]:
        """Run a read on a connection that has no transaction open."""
        return self._call(connection, step.name, step.params)

    def lone(self, connection: sqlite3.Connection, step: Lone) -> list[Row]:
        """Run a statement that is a transaction by itself: SQLite commits it when its last row was fetched.

        Raises:
            StoreError: it failed; nothing was written.
            CommitUnknown: its commit failed, or it returns no rows and failed where its commit may have.
        """
        name, params = step.name, step.params
        known, now = self._known(name), self._now_ms()
        self.probe(Point.BEFORE_STATEMENT, name)
        self.probe(Point.BEFORE_COMMIT, "")
        try:
            cursor = connection.cursor().execute(known.sql, known.values(now, params))
        except sqlite3.Error as error:
            refused = from_sqlite(error, self.path)
            unheard = known.tells and isinstance(refused, StoreUnavailable)
            raise (commit_unknown(error, self.path) if unheard else refused) from error
        try:
            found = cursor.fetchall()
        except sqlite3.Error as error:
            raise commit_unknown(error, self.path) from error
        rows = known.rows(cursor, found, now)
        self.probe(Point.AFTER_STATEMENT, name)
        if rows:
            self.probe(Point.AFTER_COMMIT, "")
        return rows

    def _step(self, connection: sqlite3.Connection, step: Step) -> Any:
        match step:
            case Call(name, params):
                return self._call(connection, name, params)
            case Lone(name, params) | Several(name, params):
                return self._call(connection, name, params) if name in self.statements else None
            case Ddl(sql):
                return dictionaries(*self._execute(connection, "ddl", sql))
            case UserCode(function):
                return _run_user_code(connection, function)
            case Wake():
                return None  # one machine: whoever works here searches the rows
            case Statement():
                return _run_user_code(connection, lambda guarded: _own_rows(guarded, step))
            case _:
                assert_never(step)

    def bound(self, name: str, params: Mapping[str, Any]) -> tuple[str, tuple[Any, ...], Callable[..., list[Row]]]:
        """Return a statement, what is bound in it, and what makes of its cursor and what that found what it answers."""
        known, now = self._known(name), self._now_ms()
        return known.sql, known.values(now, params), lambda cursor, found: known.rows(cursor, found, now)

    def _call(self, connection: sqlite3.Connection, name: str, params: Mapping[str, Any]) -> list[Row]:
        known, now = self._known(name), self._now_ms()
        cursor, found = self._execute(connection, name, known.sql, known.values(now, params))
        return known.rows(cursor, found, now)

    def _known(self, name: str) -> Numbered:
        return self._numbered.get(name) or self._numbered.setdefault(name, Numbered(self.statements[name]))

    def _execute(
        self, connection: sqlite3.Connection, name: str, sql: str, values: Sequence[Any] = ()
    ) -> tuple[sqlite3.Cursor, list[Any]]:
        self.probe(Point.BEFORE_STATEMENT, name)
        try:
            cursor = execute(connection, sql, values)
            found = cursor.fetchall()
        except sqlite3.Error as error:
            raise from_sqlite(error, self.path) from error
        self.probe(Point.AFTER_STATEMENT, name)
        return cursor, found


def execute(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
    """Execute a statement up to its first row, whatever the connection's own row factory is."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(sql, values)


def dictionaries(cursor: Any, found: list[Any]) -> list[Row]:
    """Return the rows that a statement returned, each by the names of its columns."""
    if not found:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def commit_unknown(error: sqlite3.Error, path: str) -> CommitUnknown:
    """Return our error for one of COMMIT after which no transaction is open."""
    return CommitUnknown(
        f"The database {path} reported an error while committing ({type(error).__name__}); whether the transaction"
        " took effect must be looked up."
    )


def _run_user_code(connection: sqlite3.Connection, function: Any) -> Any:
    guarded = GuardedConnection(connection)
    try:
        result = function(guarded)
    finally:
        guarded.close_guard()
    check_ended_well(connection)
    return result


def check_ended_well(connection: Any) -> None:
    """Refuse to record an effect whose transaction is over.

    Raises:
        GuardedTransaction: it is.
    """
    if not connection.in_transaction:
        raise GuardedTransaction(
            "A transactional effect ended the transaction that it was given. Counterfoil commits its rows together"
            " with the receipt; leave commit and rollback to it."
        )


def _own_rows(guarded: GuardedConnection, own: Statement[Any]) -> list[Row]:
    """Run the statement that an effect is and return its rows, no more than two."""
    cursor = guarded.execute(own.sql, own.params)
    return dictionaries(cursor, cursor.fetchmany(2))


class GuardedConnection:
    """The open transaction as a transactional effect sees it: statements yes, commit, rollback and scripts no."""

    def __init__(self, connection: Any) -> None:
        self._connection: Any = connection

    def close_guard(self) -> None:
        """End the loan: the effect's transaction is over."""
        self._connection = None

    def execute(self, sql: str, parameters: Any = (), /) -> GuardedCursor:
        """Execute one statement inside the transaction."""
        return GuardedCursor(self, self.opened(sql).execute(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> GuardedCursor:
        """Execute one statement for each set of parameters inside the transaction."""
        return GuardedCursor(self, self.opened(sql).executemany(sql, parameters))

    def lent(self) -> Any:
        """Return the connection while the loan lasts.

        Raises:
            GuardedTransaction: the effect has returned.
        """
        if self._connection is None:
            raise GuardedTransaction("A transactional effect used its transaction after it had returned.")
        return self._connection

    def opened(self, sql: str) -> Any:
        """Return the connection while the loan lasts, for a statement that does not end the transaction.

        Raises:
            GuardedTransaction: it does, or the transaction is over.
        """
        connection = self.lent()
        if _FORBIDDEN.match(sql):
            raise GuardedTransaction(
                "A transactional effect may not begin, end or leave the transaction that it was given."
                " Counterfoil commits its rows together with the receipt; raise an exception to roll both back."
            )
        if not connection.in_transaction:
            raise GuardedTransaction(
                "A transactional effect went on after one of its statements had undone the whole transaction (as INSERT"
                " OR ROLLBACK and a full disk do). Let the error of that statement end the effect."
            )
        return connection

    def __getattr__(self, name: str) -> Any:
        """Refuse everything else that a connection can do."""
        raise GuardedTransaction(
            f"A transactional effect may not use {name!r} of its transaction; it can execute and executemany."
        )


class GuardedCursor:
    """What a statement inside the transaction returned: its rows and counts, and no way to the connection."""

    def __init__(self, guard: GuardedConnection, cursor: sqlite3.Cursor) -> None:
        self._guard = guard
        self._cursor = cursor

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        return self._lent().fetchone()

    def fetchmany(self, size: int = 1) -> list[Any]:
        """Return the next rows, no more than `size`."""
        return self._lent().fetchmany(size)

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        return self._lent().fetchall()

    def __iter__(self) -> GuardedCursor:
        return self

    def __next__(self) -> Any:
        return next(self._lent())

    @property
    def description(self) -> Any:
        """Return the names of the columns, as the DB-API lays them out."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """Return how many rows were changed."""
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        """Return the id of the last inserted row."""
        return self._cursor.lastrowid

    def _lent(self) -> sqlite3.Cursor:
        self._guard.lent()
        return self._cursor

    def __getattr__(self, name: str) -> Any:
        """Refuse everything else that a cursor can do."""
        raise GuardedTransaction(
            f"A transactional effect may not use {name!r} of a statement's result; it can fetch and iterate rows, and"
            " read description, rowcount and lastrowid."
        )
