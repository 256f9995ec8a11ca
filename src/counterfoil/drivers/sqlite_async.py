"""SQLite for callers on an event loop: the same writer and readers, one thread hop per unit of work."""

from __future__ import annotations

import asyncio
import queue
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.drivers.sqlite_unit import Unit
from counterfoil.drivers.sqlite_writer import WAIT_S, busy
from counterfoil.errors import StoreUnavailable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterable

    from counterfoil.drivers.sqlite import SqliteStore
    from counterfoil.drivers.sqlite_run import GuardedConnection
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")

READER_THREADS = 4
LOOP_CHECK_S = 0.5
"""How often a silent effect's loop is looked at: rare enough to cost nothing beside an open transaction."""


class AsyncSqliteStore:
    """One SQLite database, used from one or more event loops; a `SqliteStore` does the work."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.dialect = store.dialect
        self.claims_at_once = store.claims_at_once
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="counterfoil-reader")

    @property
    def path(self) -> str:
        """Return the file's path, or `:memory:`."""
        return self.store.path

    async def write(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in a transaction; when cancelled, the transaction is done whole or not at all."""
        del tenant
        result: T = await self._submit(Unit(maker))
        return result

    async def write_alone(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds blocking user code, alone in its transaction on the writer's thread."""
        del tenant
        result: T = await self._submit(Unit(maker, alone=True))
        return result

    async def write_lent(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds async user code, which the writer's thread waits for."""
        del tenant
        return await self.write_alone(maker)

    @staticmethod
    def lend(function: Callable[[Any], Awaitable[T]]) -> Callable[[Any], T]:
        """Return async user code as a script on the writer's thread takes it."""
        return on_loop(asyncio.get_running_loop(), function)

    async def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads."""
        del tenant
        if self.store.url.in_memory:
            result: T = await self._submit(Unit(maker, transaction=False))
            return result
        self.store.writer.check_usable()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.store.read, maker)

    async def migrate(self, *, upgrade: bool) -> None:
        """Make, check or upgrade the schema."""
        await asyncio.get_running_loop().run_in_executor(self._readers, lambda: self.store.migrate(upgrade=upgrade))

    async def close(self) -> None:
        """Close all connections; closing twice is harmless."""
        await asyncio.to_thread(self.store.close)
        self.retire()

    def retire(self) -> None:
        """End the readers' threads; the connections belong to the blocking store."""
        self._readers.shutdown(wait=False)

    async def _submit(self, unit: Unit) -> Any:
        """Queue a unit and wait for it; a cancelled caller takes it back or, too late for that, waits for its end."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        unit.notify = lambda: _tell(loop, ended)
        self.store.writer.submit(unit)
        try:
            await self._wait(unit, ended)
        except asyncio.CancelledError:
            if not self.store.writer.withdraw(unit):
                await _uncancelled(ended)
            raise
        return unit.answer()

    async def _wait(self, unit: Unit, ended: asyncio.Event) -> None:
        """Wait for a unit's end; one that nobody has begun for too long is taken back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await ended.wait()
        if not ended.is_set():
            if self.store.writer.withdraw(unit):
                raise busy(self.path)
            await ended.wait()


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Wake the caller; its loop may be closed by now, which must not hurt the writer."""
    try:
        loop.call_soon_threadsafe(ended.set)
    except RuntimeError:
        return


async def _uncancelled(ended: asyncio.Event) -> None:
    """Wait to the end whatever cancels: a transaction is never left half known."""
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError:
            continue


class LeasedConnection:
    """The open transaction as an async transactional effect sees it: each statement runs on the writer's thread."""

    def __init__(self, guarded: GuardedConnection, work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        self._guarded = guarded
        self._work = work
        self._over = False

    def end_loan(self) -> None:
        """Refuse what comes from now on, and let the writer's thread go on after what came before."""
        self._over = True
        self._guarded.close_guard()
        self._work.put(None)

    async def execute(self, sql: str, parameters: Any = (), /) -> list[Any]:
        """Execute one statement inside the transaction and return its rows."""
        return await self._do(lambda: self._guarded.execute(sql, parameters).fetchall())

    async def executemany(self, sql: str, parameters: Iterable[Any], /) -> int:
        """Execute one statement for each set of parameters and return the number of rows changed."""
        return await self._do(lambda: self._guarded.executemany(sql, parameters).rowcount)

    async def _do(self, function: Callable[[], T]) -> T:
        if self._over:
            return function()  # nobody serves it any more; the guard refuses
        done: Future[T] = Future()
        self._work.put(lambda: _fulfil(done, function))
        return await asyncio.wrap_future(done)

    def __getattr__(self, name: str) -> Any:
        """Refuse everything else, with the guard's own words."""
        return getattr(self._guarded, name)


def _fulfil(done: Future[T], function: Callable[[], T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(function())
    except BaseException as error:  # noqa: BLE001 - belongs to the awaiting effect
        done.set_exception(error)


def on_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[[Any], Awaitable[T]]
) -> Callable[[GuardedConnection | sqlite3.Connection], T]:
    """Make an async effect callable from the writer's thread, which serves its statements until it returns."""

    def run(guarded: Any) -> T:
        work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

        lent = LeasedConnection(guarded, work)

        async def effect() -> T:
            try:
                return await function(lent)
            finally:
                lent.end_loan()

        running = asyncio.run_coroutine_threadsafe(effect(), loop)
        while (job := _next_job(work, loop)) is not None:
            job()
        return running.result()

    return run


def _next_job(
    work: queue.SimpleQueue[Callable[[], None] | None], loop: asyncio.AbstractEventLoop
) -> Callable[[], None] | None:
    """Wait for the effect's next statement; an effect whose loop was closed under it can never return.

    Raises:
        StoreUnavailable: its loop was closed; the transaction is rolled back and the writer serves others again.
    """
    while True:
        try:
            return work.get(timeout=LOOP_CHECK_S)
        except queue.Empty:
            if loop.is_closed():
                raise StoreUnavailable(
                    "The event loop of an async transactional effect was closed before the effect returned; its rows"
                    " and its receipt were rolled back. Await cf.perform to its end before closing the loop."
                ) from None
