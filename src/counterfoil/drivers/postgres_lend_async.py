"""Lend PostgreSQL connections to callers on an event loop; each loop has its own, which no other may use."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from counterfoil.drivers import postgres_open
from counterfoil.drivers.finishing import to_the_end
from counterfoil.drivers.pgstate import leads_astray
from counterfoil.drivers.postgres_open import ROLLBACK, connect_async, control, soil
from counterfoil.drivers.postgres_pool import LOOK_S, Shelf, Waiter, exhausted, is_in_transaction, pauses
from counterfoil.drivers.postgres_refused import lasting, unreachable
from counterfoil.errors import CommitUnknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from counterfoil.drivers.postgres_lend import Lender
    from counterfoil.drivers.postgres_open import AsyncConnection
    from counterfoil.drivers.postgres_pool import Lease

T = TypeVar("T")


class AsyncLender:
    """The connections of this process for its event loops."""

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._url = lender.url
        self._mutex = threading.Lock()
        self._shelves: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Shelf[AsyncConnection]] = (
            weakref.WeakKeyDictionary()
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection; what it leaves open is undone, and one that broke is dropped."""
        self._lender.check_usable()
        shelf = self.shelf()
        lease = shelf.take() or await self._in_turn(shelf)
        try:
            yield lease.usable() or await self._opened(lease)
        except (psycopg.Error, CommitUnknown) as error:
            if leads_astray(error):
                shelf.forsake(lease)
            raise
        finally:
            try:
                await _undo(lease.connection)
            finally:
                shelf.give_back(lease)

    def close(self) -> None:
        """Close the connections of all loops, whether they run or are gone; those in use as they come back."""
        with self._mutex:
            shelves = list(self._shelves.values())
            self._shelves.clear()
        for shelf in shelves:
            shelf.close()

    def shelf(self) -> Shelf[AsyncConnection]:
        """Return the connections of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._shelves.get(loop)
        return self._new_shelf(loop) if found is None else found

    def _new_shelf(self, loop: asyncio.AbstractEventLoop) -> Shelf[AsyncConnection]:
        with self._mutex:
            for ended in [each for each in self._shelves if each.is_closed()]:
                self._shelves.pop(ended).close()
            made = self._shelves[loop] = Shelf(self._lender.shelf.size)
        return made

    async def _in_turn(self, shelf: Shelf[AsyncConnection]) -> Lease[AsyncConnection]:
        """Wait until those that came before have had their leases.

        Raises:
            PoolExhausted: it took too long.
        """
        waiter, until = _Waiting(), time.monotonic() + postgres_open.WAIT_S
        try:
            while waiter.lease is None:
                shelf.stand_in_line(waiter)
                if (left := until - time.monotonic()) <= 0:
                    raise exhausted(self._url.path, shelf.size, postgres_open.WAIT_S)
                await waiter.wait(min(left, LOOK_S))
            return waiter.taken()
        finally:
            shelf.leave_line(waiter)

    async def _opened(self, lease: Lease[AsyncConnection]) -> AsyncConnection:
        """Open a connection, trying again while the server is away.

        Raises:
            StoreUnavailable: it took too long, or the server refuses for good.
        """
        further = pauses(time.monotonic() + postgres_open.WAIT_S)
        while True:
            try:
                return lease.opened(await connect_async(self._url))
            except psycopg.Error as error:
                refused = unreachable(self._url, error)
                if lasting(refused) or (pause := next(further, None)) is None:
                    raise refused from None
            await asyncio.sleep(pause)
            self._lender.check_usable()


class _Waiting(Waiter[Any]):
    """A task that waits for a lease."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()

    def wake(self) -> None:
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._awake.set)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()


async def _undo(connection: AsyncConnection | None) -> None:
    """Roll back what was left open; a connection that cannot do so is out of order, and is dropped for that."""
    if connection is not None and is_in_transaction(connection):
        sql, _ = control(connection, ROLLBACK)
        with suppress(psycopg.Error):
            await to_the_end(connection.execute(sql, prepare=False))
            soil(connection, soiled=False)
