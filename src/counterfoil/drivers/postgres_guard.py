"""The open transaction as a transactional effect sees it on PostgreSQL: statements yes, commit and rollback no."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.pq import TransactionStatus
from psycopg.sql import Composable

from counterfoil.errors import GuardedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psycopg

_FORBIDDEN = re.compile(
    r"(?:begin|start|commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:(?:transaction|work)\s+)?to\b))\b",
    re.IGNORECASE,
)
_BLANK = re.compile(r"(?:\s|;|--[^\n\r]*)*")
_COMMENT_BOUND = re.compile(r"/\*|\*/")


class _Guard:
    """What both colours check before and after each statement."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._lent: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] | None = connection

    def end_loan(self) -> None:
        """Refuse what comes from now on."""
        self._lent = None

    def check_ended_well(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        """Refuse to record an effect whose transaction is not what it was.

        Raises:
            GuardedTransaction: it was ended, or one of its statements failed and the effect went on.
        """
        status = connection.pgconn.transaction_status
        if status == TransactionStatus.INERROR:
            raise GuardedTransaction(
                "A transactional effect went on after one of its statements had failed; PostgreSQL keeps nothing of"
                " such a transaction. Let the error end the effect, or put a savepoint before what may fail."
            )
        if status == TransactionStatus.IDLE:
            raise GuardedTransaction(
                "A transactional effect ended the transaction that it was given. Counterfoil commits its rows together"
                " with the receipt; leave commit and rollback to it."
            )

    def opened(self, sql: Any) -> Any:
        """Return the connection while the loan lasts, for a statement that does not end it."""
        if self._lent is None:
            raise GuardedTransaction("A transactional effect used its transaction after it had returned.")
        text = _text(sql, self._lent)
        if _FORBIDDEN.match(text, _beginning(text)):
            raise GuardedTransaction(
                "A transactional effect may not begin, end or leave the transaction that it was given."
                " Counterfoil commits its rows together with the receipt; raise an exception to roll both back."
            )
        return self._lent

    def __getattr__(self, name: str) -> Any:
        """Refuse everything else that a connection can do."""
        raise GuardedTransaction(
            f"A transactional effect may not use {name!r} of its transaction; it can execute and executemany."
        )


def _text(sql: Any, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> str:
    """Return the text of a statement, in whatever form psycopg takes it."""
    match sql:
        case str():
            return sql
        case bytes() | bytearray() | memoryview():
            return bytes(sql).decode("utf-8", "replace")
        case Composable():
            return sql.as_string(connection)
        case _:
            raise GuardedTransaction(
                f"A transactional effect's statement is text, bytes or made with psycopg.sql, not {type(sql).__name__}:"
                " what it would do to the transaction that it was given could not be told."
            )


def _beginning(text: str) -> int:
    """Return where a statement begins, behind blanks and comments; PostgreSQL's may hold comments."""
    at = _behind_blanks(text, 0)
    while text.startswith("/*", at):
        depth = 0
        for bound in _COMMENT_BOUND.finditer(text, at):
            depth += 1 if bound[0] == "/*" else -1
            at = bound.end()
            if not depth:
                break
        at = _behind_blanks(text, at)
    return at


def _behind_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _alone(sql: Any, parameters: Any) -> dict[str, bool]:
    """Say how to execute what may be several statements: asked for binary results, the server takes one alone."""
    several = not parameters and not (isinstance(sql, str) and ";" not in sql.rstrip().rstrip(";"))
    return {"binary": True} if several else {}


class GuardedPostgres(_Guard):
    """For blocking effects."""

    def execute(self, sql: Any, parameters: Any = None, /) -> GuardedRows:
        """Execute one statement inside the transaction."""
        return GuardedRows(self, self.opened(sql).execute(sql, parameters, **_alone(sql, parameters)))

    def executemany(self, sql: Any, parameters: Iterable[Any], /) -> GuardedRows:
        """Execute one statement for each set of parameters inside the transaction."""
        cursor = self.opened(sql).cursor()
        cursor.executemany(sql, parameters)
        return GuardedRows(self, cursor)


class GuardedAsyncPostgres(_Guard):
    """For async effects."""

    async def execute(self, sql: Any, parameters: Any = None, /) -> list[Any]:
        """Execute one statement inside the transaction and return its rows."""
        cursor = await self.opened(sql).execute(sql, parameters, **_alone(sql, parameters))
        return await cursor.fetchall() if cursor.description else []

    async def executemany(self, sql: Any, parameters: Iterable[Any], /) -> int:
        """Execute one statement for each set of parameters and return the number of rows changed."""
        cursor = self.opened(sql).cursor()
        await cursor.executemany(sql, parameters)
        return int(cursor.rowcount)


class GuardedRows:
    """What a statement inside the transaction returned: its rows and counts, and no way to the connection."""

    def __init__(self, guard: _Guard, cursor: psycopg.Cursor[Any]) -> None:
        self._guard = guard
        self._cursor = cursor

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        return self._cursor.fetchone()

    def fetchmany(self, size: int = 1) -> list[Any]:
        """Return the next rows, no more than `size`."""
        return self._cursor.fetchmany(size)

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    @property
    def description(self) -> Any:
        """Return the names of the columns, as the DB-API lays them out."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """Return how many rows were changed."""
        return self._cursor.rowcount

    def __getattr__(self, name: str) -> Any:
        """Refuse everything else that a cursor can do."""
        raise GuardedTransaction(
            f"A transactional effect may not use {name!r} of a statement's result; it can fetch and iterate rows, and"
            " read description and rowcount."
        )


@contextmanager
def lent(connection: psycopg.Connection[Any]) -> Iterator[GuardedPostgres]:
    """Lend an open transaction to a blocking effect, and check what came back."""
    guarded = GuardedPostgres(connection)
    try:
        yield guarded
    finally:
        guarded.end_loan()
    guarded.check_ended_well(connection)


@contextmanager
def lent_async(connection: psycopg.AsyncConnection[Any]) -> Iterator[GuardedAsyncPostgres]:
    """Lend an open transaction to an async effect, and check what came back."""
    guarded = GuardedAsyncPostgres(connection)
    try:
        yield guarded
    finally:
        guarded.end_loan()
    guarded.check_ended_well(connection)
