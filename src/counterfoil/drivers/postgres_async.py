"""PostgreSQL for callers on an event loop: psycopg's own async connections, a pool for each loop."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import psycopg
import psycopg_pool
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from counterfoil.drivers.postgres import closed, no_connection
from counterfoil.drivers.postgres_guard import lent_async
from counterfoil.drivers.postgres_open import AsyncConnection, make_async_pool
from counterfoil.drivers.postgres_run import Control, Execute, Lend, Progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.drivers.postgres_run import Action, Actions
    from counterfoil.storage.script import Maker

T = TypeVar("T")
Pool = psycopg_pool.AsyncConnectionPool[AsyncConnection]


class AsyncPostgresStore:
    """One PostgreSQL database, used from one or more event loops."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.dialect = store.dialect
        self.claims_at_once = store.claims_at_once
        self._protocol = store.protocol
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Pool]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def path(self) -> str:
        """Return where the database is, without a password."""
        return self.store.path

    async def write(self, maker: Maker[T]) -> T:
        """Run a script in a transaction; when cancelled, the transaction is done whole or not at all."""
        return await _to_the_end(self._write(maker))

    async def write_alone(self, maker: Maker[T]) -> T:
        """Run a script that holds blocking user code, in a thread."""
        return await _to_the_end(asyncio.to_thread(self.store.write_alone, maker))

    async def write_lent(self, maker: Maker[T]) -> T:
        """Run a script that holds async user code, on this loop; a cancellation reaches that code."""
        return await self._write(maker)

    @staticmethod
    def lend(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return async user code as a script takes it: as it is."""
        return function

    async def read(self, maker: Maker[T]) -> T:
        """Run a script of reads."""
        for runs in count(1):
            try:
                async with self._connection() as connection:
                    return await arun(connection, self._protocol.reading(maker))
            except psycopg.Error as error:
                self._protocol.again_or_raise(error, Progress(), runs=runs)
        raise AssertionError("unreachable")

    async def migrate(self, *, upgrade: bool) -> None:
        """Make, check or upgrade the schema."""
        await asyncio.to_thread(lambda: self.store.migrate(upgrade=upgrade))

    async def close(self) -> None:
        """Close all connections; closing twice is harmless."""
        opening = self._pools.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).close()
        self.retire()
        await asyncio.to_thread(self.store.close)

    def retire(self) -> None:
        """Close the connections of other loops: through them where they run, and at once where they are gone."""
        for loop, opening in list(self._pools.items()):
            if loop.is_running() and opening.done():
                asyncio.run_coroutine_threadsafe(opening.result().close(), loop)
        self._pools.clear()

    async def _write(self, maker: Maker[T]) -> T:
        for runs in count(1):
            progress = Progress()
            try:
                async with self._connection() as connection:
                    return await arun(connection, self._protocol.writing(maker, progress))
            except psycopg.Error as error:
                self._protocol.again_or_raise(error, progress, runs=runs)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection; what it leaves open is undone, and one that broke is dropped."""
        self.store.check_usable()
        pool = await self._pool()
        try:
            connection = await pool.getconn()
        except psycopg_pool.PoolTimeout as error:
            raise no_connection(self.path, pool.get_stats()) from error
        except psycopg_pool.PoolClosed as error:
            raise closed() from error
        try:
            yield connection
        finally:
            await _to_the_end(_give_back(pool, connection))

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        opening = self._pools.get(loop)
        if opening is None:
            opening = self._pools[loop] = loop.create_task(self._open_pool())
        return await asyncio.shield(opening)

    async def _open_pool(self) -> Pool:
        pool = make_async_pool(self.store.url, self.store.connections)
        await pool.open()
        return pool


async def _give_back(pool: Pool, connection: AsyncConnection) -> None:
    """Undo what was left open; a connection that cannot do so is of no use any more."""
    status = connection.pgconn.transaction_status
    if status != TransactionStatus.IDLE:
        clean = False
        if status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
            with suppress(psycopg.Error):
                await connection.execute("rollback")
                clean = True
        if not clean:
            await connection.close()
    await pool.putconn(connection)


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end whatever cancels, and let the cancellation take effect after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001 - `result` below raises it
            break
    if cancelled is not None:
        task.exception()  # seen
        raise cancelled
    return task.result()


async def arun(connection: psycopg.AsyncConnection[Any], actions: Actions[T]) -> T:
    """Carry out actions on one connection, giving each answer or error back."""
    try:
        action = next(actions)
        while True:
            try:
                answer = await _do(connection, action)
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = actions.throw(error)
            else:
                action = actions.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        actions.close()


async def _do(connection: psycopg.AsyncConnection[Any], action: Action) -> Any:
    match action:
        case Execute(sql, params):
            async with connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(sql, params)
                return await cursor.fetchall() if cursor.description else []
        case Control(sql):
            return await connection.execute(sql)
        case Lend(function):
            with lent_async(connection) as guarded:
                return await function(guarded)
        case _:
            assert_never(action)
