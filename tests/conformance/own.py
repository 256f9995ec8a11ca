"""An application's own connection to a subject's database, in the subject's colour, behind one blocking interface."""

import sqlite3
from typing import Any

import aiosqlite
import psycopg

from counterfoil import Effect, Receipt
from tests.conformance.subject import ASYNC, Subject
from tests.conformance.test_transactional import POSTGRES, dialect

BEGIN = {"sqlite": "begin immediate", "postgres": "begin"}


class Own:
    """A connection in autocommit on which the test begins and ends transactions by statements."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.dialect = dialect(subject)
        self.connection = self._connect()
        self.errors = psycopg.Error if self.dialect == POSTGRES else sqlite3.Error
        """What the driver raises."""

    def _connect(self) -> Any:
        url = self.subject.url
        match self.dialect, self.subject.colour:
            case "postgres", "async":
                return self._settle(psycopg.AsyncConnection.connect(url, autocommit=True))
            case "postgres", _:
                return psycopg.connect(url, autocommit=True)
            case _, "async":
                return self._settle(_open_aiosqlite(url.removeprefix("sqlite:///")))
            case _:
                return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)

    def _settle(self, answer: Any) -> Any:
        return self.subject.settle(answer)

    def execute(self, sql: str) -> list[Any]:
        if self.subject.colour == ASYNC:
            return list(self._settle(_execute(self.connection, sql)))
        cursor = self.connection.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []

    def begin(self) -> None:
        self.execute(BEGIN[self.dialect])

    @property
    def in_transaction(self) -> bool:
        if self.dialect == POSTGRES:
            return bool(self.connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INTRANS)
        return bool(self.connection.in_transaction)

    def perform(self, made: Effect[Any], /, **given: Any) -> Receipt[Any]:
        """Perform an effect joined to the transaction that is open."""
        whole = {"tenant": "team-a", "request_id": "r-1", **given}
        done: Receipt[Any] = self._settle(self.subject.cf.join(self.connection).perform(made, **whole))
        return done

    def close(self) -> None:
        if self.subject.colour == ASYNC:
            self._settle(self.connection.close())
        else:
            self.connection.close()


async def _open_aiosqlite(path: str) -> Any:
    return await aiosqlite.connect(path, isolation_level=None)


async def _execute(connection: Any, sql: str) -> list[Any]:
    cursor = await connection.execute(sql)
    return list(await cursor.fetchall()) if cursor.description else []
