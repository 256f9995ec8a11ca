"""SQLite: run scripts inside the transaction that a caller has open on an `aiosqlite` connection of its own.

The package is never imported: whoever has such a connection has it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, assert_never

from counterfoil.drivers.join import not_joinable, packages
from counterfoil.drivers.join_sqlite import DATABASES, RELEASE, SAVEPOINT, UNDO, check_file, check_open
from counterfoil.drivers.probes import Point
from counterfoil.drivers.sqlite_run import GuardedConnection, check_ended_well, dictionaries
from counterfoil.drivers.sqlstate import from_sqlite
from counterfoil.model import Statement
from counterfoil.storage.script import Call, Ddl, Lone, Several, UserCode, Wake

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from counterfoil.drivers.sqlite_async import AsyncSqliteStore
    from counterfoil.storage.script import Maker, Row, Script, Step
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")
Answer: TypeAlias = "Callable[[Any, list[Any]], list[Row]]"


class JoinedAiosqlite:
    """The transaction that is open on an `aiosqlite.Connection`."""

    def __init__(self, store: AsyncSqliteStore, connection: Any) -> None:
        if "aiosqlite" not in packages(connection):
            raise not_joinable(store, connection, awaits=True)
        check_open(connection)
        self._store = store.store
        self._connection = connection

    async def run(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script; if it fails, what it did is undone and the transaction stays open."""
        del tenant
        check_open(self._connection)  # it may have been ended since it was joined
        check_file(self._store, [tuple(row.values()) for row in await self._fetch(DATABASES)])
        await self._fetch(SAVEPOINT)
        try:
            result = await self._run(maker())
        except BaseException:
            if self._connection.in_transaction:  # some errors make SQLite undo the whole transaction
                await self._fetch(UNDO)
                await self._fetch(RELEASE)
            raise
        await self._fetch(RELEASE)
        return result

    async def _run(self, script: Script[T]) -> T:
        try:
            step = next(script)
            while True:
                try:
                    answer = await self._step(step)
                except BaseException as error:  # noqa: BLE001 - thrown into the script, so its frame is in the traceback
                    step = script.throw(error)
                else:
                    step = script.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()

    async def _step(self, step: Step) -> Any:
        runner = self._store.runner
        match step:
            case Call(name, params):
                return await self._execute(name, *runner.bound(name, params))
            case Lone(name, params) | Several(name, params):
                known = name in runner.statements
                return await self._execute(name, *runner.bound(name, params)) if known else None
            case Ddl(sql):
                return await self._execute("ddl", sql, (), dictionaries)
            case UserCode(function):
                return await self._lend(function)
            case Wake():
                return None
            case Statement(sql, params):
                return await self._lend(lambda guarded: fetch(guarded.opened(sql), sql, params))
            case _:
                assert_never(step)

    async def _lend(self, function: Callable[[GuardedAiosqlite], Awaitable[Any]]) -> Any:
        guarded = GuardedAiosqlite(self._connection)
        try:
            result = await function(guarded)
        finally:
            guarded.close_guard()
        check_ended_well(self._connection)
        return result

    async def _execute(self, name: str, sql: str, values: Sequence[Any], answer: Answer) -> list[Row]:
        self._store.runner.probe(Point.BEFORE_STATEMENT, name)
        try:
            rows = await fetch(self._connection, sql, values, answer)
        except sqlite3.Error as error:
            raise from_sqlite(error, self._store.path) from error
        self._store.runner.probe(Point.AFTER_STATEMENT, name)
        return rows

    async def _fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return await fetch(self._connection, sql, values)


async def fetch(
    connection: Any, sql: str, values: Sequence[Any] | Mapping[str, Any], answer: Answer = dictionaries
) -> list[Row]:
    """Execute one statement and return what it answers, whatever the connection's own row factory is."""
    async with connection.cursor() as cursor:
        cursor.row_factory = None
        await cursor.execute(sql, values)
        return answer(cursor, list(await cursor.fetchall()))


class GuardedAiosqlite:
    """The open transaction as an async transactional effect sees it."""

    def __init__(self, connection: Any) -> None:
        self._guard = GuardedConnection(connection)
        self.close_guard = self._guard.close_guard
        self.opened = self._guard.opened

    async def execute(self, sql: str, parameters: Any = (), /) -> list[Any]:
        """Execute one statement inside the transaction and return its rows."""
        async with self.opened(sql).execute(sql, parameters) as cursor:
            return list(await cursor.fetchall())

    async def executemany(self, sql: str, parameters: Iterable[Any], /) -> int:
        """Execute one statement for each set of parameters and return the number of rows changed."""
        async with self.opened(sql).executemany(sql, parameters) as cursor:
            return int(cursor.rowcount)

    def __getattr__(self, name: str) -> Any:
        """Refuse everything else, with the guard's own words."""
        return getattr(self._guard, name)
