"""Lend PostgreSQL connections to blocking callers, who wait in bounds: for their turn, and for an absent server."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg

from counterfoil.drivers import postgres_open
from counterfoil.drivers.pgstate import leads_astray
from counterfoil.drivers.postgres_open import ROLLBACK, connect, control, soil
from counterfoil.drivers.postgres_pool import LOOK_S, Shelf, Waiter, closed, exhausted, is_in_transaction, pauses
from counterfoil.drivers.postgres_refused import check_options, lasting, unreachable
from counterfoil.errors import CommitUnknown, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from counterfoil.drivers.postgres_open import Connection
    from counterfoil.drivers.postgres_pool import Lease
    from counterfoil.drivers.urls import PostgresUrl


class Lender:
    """The connections of this process for its blocking callers."""

    def __init__(self, url: PostgresUrl, size: int) -> None:
        self.url = url
        self.shelf: Shelf[Connection] = Shelf(size)
        self._home = os.getpid()

    @property
    def forked(self) -> bool:
        """Say whether this is a child of the process that opened it."""
        return self._home != os.getpid()

    def check_usable(self) -> None:
        """Refuse use after close and in a forked child, which shares the parent's connections.

        Raises:
            StoreClosed: it was closed, or belongs to the parent process.
        """
        if self.forked:
            raise StoreClosed(
                "This Counterfoil was opened before the process forked; connections must not be carried across a fork."
                " Call Counterfoil.open(url) in the child process."
            )
        if self.shelf.closed:
            raise closed()

    def open_first(self) -> bool:
        """Open a connection, or say at once why not; say whether the sessions behind connections are their own.

        Raises:
            InvalidUrl: libpq does not understand it.
            StoreUnavailable: none can be opened.
        """
        check_options(self.url)
        try:
            connection, own = connect(self.url)
        except psycopg.Error as error:
            raise unreachable(self.url, error) from None
        self.shelf.add(connection)
        return own

    @contextmanager
    def connection(self, within: float | None = None) -> Iterator[Connection]:
        """Lend a connection; what it leaves open is undone, and one that broke is dropped.

        Args:
            within: How many seconds to wait for it, and for the answer to each statement, if not as long as usual.
        """
        self.check_usable()
        wait = postgres_open.WAIT_S if within is None else within
        lease = self.shelf.take() or self._in_turn(wait)
        try:
            connection = lease.usable() or self._opened(lease, wait, within)
            connection.silence = within
            yield connection
        except (psycopg.Error, CommitUnknown) as error:
            if leads_astray(error):
                self.shelf.forsake(lease)
            raise
        finally:
            try:
                _undo(lease.connection)
            finally:
                self.shelf.give_back(lease)

    def close(self) -> None:
        """Close all connections, those in use as they come back; twice, or in a forked child, it does nothing."""
        if not self.forked:
            self.shelf.close()

    def _in_turn(self, seconds: float) -> Lease[Connection]:
        """Wait until those that came before have had their leases.

        Raises:
            PoolExhausted: it took too long.
        """
        waiter, until = _Waiting(), time.monotonic() + seconds
        try:
            while waiter.lease is None:
                self.shelf.stand_in_line(waiter)
                if (left := until - time.monotonic()) <= 0:
                    raise exhausted(self.url.path, self.shelf.size, seconds)
                waiter.wait(min(left, LOOK_S))
            return waiter.taken()
        finally:
            self.shelf.leave_line(waiter)

    def _opened(self, lease: Lease[Connection], seconds: float, silence: float | None) -> Connection:
        """Open a connection, trying again while the server is away.

        Raises:
            StoreUnavailable: it took too long, or the server refuses for good.
        """
        further = pauses(time.monotonic() + seconds)
        while True:
            try:
                return lease.opened(connect(self.url, silence)[0])
            except psycopg.Error as error:
                refused = unreachable(self.url, error)
                if lasting(refused) or (pause := next(further, None)) is None:
                    raise refused from None
            time.sleep(pause)
            self.check_usable()


class _Waiting(Waiter[Any]):
    """A thread that waits for a lease."""

    def __init__(self) -> None:
        super().__init__()
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._asleep.release()

    def wait(self, seconds: float) -> None:
        self._asleep.acquire(timeout=seconds)


def _undo(connection: Connection | None) -> None:
    """Roll back what was left open; a connection that cannot do so is out of order, and is dropped for that."""
    if connection is not None and is_in_transaction(connection):
        sql, _ = control(connection, ROLLBACK)
        with suppress(psycopg.Error):
            connection.execute(sql, prepare=False)
            soil(connection, soiled=False)
