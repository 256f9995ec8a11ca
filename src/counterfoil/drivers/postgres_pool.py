"""A few connections for many callers: who may use one, in which order, and for how long it is kept.

A signal may raise in any caller at any moment, a cancellation at any `await`. So there is no lock here that could stay
locked, and a right that nobody holds any more comes back by itself: all that is shared are deques, whose single steps
no interrupt divides. Nothing here blocks or awaits; both colours wait for their turn in their own way.
"""

from __future__ import annotations

import os
import random
import select
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from psycopg.pq import PipelineStatus, TransactionStatus

from counterfoil.errors import PoolExhausted, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

C = TypeVar("C", bound="psycopg.Connection[Any] | psycopg.AsyncConnection[Any]")

IDLE_S = 300.0
"""How long a connection is kept that nobody uses; one that a burst has left is closed with a later call."""
LIFETIME_S = 3600.0
"""How long a connection is kept at all, so that processes find servers that were added or moved behind one name."""
LOOK_S = 0.25
"""How often one who waits looks for himself: a call to wake him is lost where an interrupt comes between."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class Lease(Generic[C]):
    """The right to use one connection. One that was dropped, as by an interrupt, returns to its shelf without it."""

    __slots__ = ("__weakref__", "_shelf", "connection", "idle_since", "opened_at")

    def __init__(self, shelf: weakref.ref[Shelf[C]]) -> None:
        self._shelf = shelf
        self.connection: C | None = None
        self.opened_at = self.idle_since = 0.0

    def opened(self, connection: C) -> C:
        """Take a new connection in."""
        self.opened_at = time.monotonic()
        self.connection = connection
        return connection

    @property
    def is_in_order(self) -> bool:
        """Say whether nothing is under way on the connection, no transaction open, and nothing of user code's set."""
        if self.connection is None or getattr(self.connection, "soiled", False):
            return False
        link = self.connection.pgconn
        return link.transaction_status == TransactionStatus.IDLE and link.pipeline_status == PipelineStatus.OFF

    def is_idle_for_long(self, now: float) -> bool:
        """Say whether nobody has used the connection for long."""
        return now - self.idle_since > IDLE_S

    def usable(self) -> C | None:
        """Return the connection, unless it has to be opened: it died, is old, or there was none."""
        now = time.monotonic()
        if self.connection is not None and (
            now - self.opened_at > LIFETIME_S or self.is_idle_for_long(now) or has_news(self.connection)
        ):
            self.end()
        return self.connection

    def end(self) -> None:
        """Close the connection."""
        connection, self.connection = self.connection, None
        if connection is not None and home_of(connection) == os.getpid():
            connection.pgconn.finish()  # at once, for both colours; in a forked child it would end the parent's session

    def __del__(self) -> None:
        self.end()
        shelf = self._shelf()
        if shelf is not None:
            shelf.replace()


class Waiter(Generic[C]):
    """Somebody who waits for a lease; each colour waits in its own way."""

    def __init__(self) -> None:
        self.lease: Lease[C] | None = None

    def hand(self, lease: Lease[C]) -> None:
        """Give the lease over and end the waiting."""
        self.lease = lease
        self.wake()

    def taken(self) -> Lease[C]:
        """Return what was handed over, and keep nothing."""
        lease, self.lease = self.lease, None
        if lease is None:
            raise LookupError("nothing was handed over")
        return lease

    def wake(self) -> None:
        """End the waiting."""
        raise NotImplementedError


class Shelf(Generic[C]):
    """The connections that nobody uses, the rights to open more, and the line of those who wait."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.closed = False
        self._me = weakref.ref(self)
        self._idle: deque[Lease[C]] = deque()
        self._unopened: deque[Lease[C]] = deque(Lease(self._me) for _ in range(size))
        self._line: deque[Waiter[C]] = deque()

    @property
    def idle(self) -> int:
        """Return how many open connections nobody uses."""
        return len(self._idle)

    @property
    def lent(self) -> int:
        """Return how many leases are out."""
        return self.size - len(self._idle) - len(self._unopened)

    @property
    def waiting(self) -> int:
        """Return how many stand in line."""
        return len(self._line)

    def take(self) -> Lease[C] | None:
        """Return a lease, the last used connection first, unless none is left or others wait for one.

        Raises:
            StoreClosed: it was closed.
        """
        if self.closed:
            raise closed()
        return None if self._line else self._pop()

    def stand_in_line(self, waiter: Waiter[C]) -> None:
        """Let somebody wait, or wait on: whoever waits longest gets the next lease.

        Raises:
            StoreClosed: it was closed.
        """
        if self.closed:
            raise closed()
        if waiter.lease is None and waiter not in self._line:
            self._line.append(waiter)
        self.serve()

    def leave_line(self, waiter: Waiter[C]) -> None:
        """Let somebody go who does not wait any more; what came too late goes to the next."""
        with suppress(ValueError):
            self._line.remove(waiter)
        if waiter.lease is not None:
            self.give_back(waiter.lease)

    def give_back(self, lease: Lease[C]) -> None:
        """End a lease; a connection that was left in good order is kept, and goes to whoever waits longest."""
        if self.closed or not lease.is_in_order:
            lease.end()
        lease.idle_since = time.monotonic()
        self._put(lease)
        self.serve()
        self._trim()
        if self.closed:
            self.drop_idle()

    def add(self, connection: C) -> None:
        """Take in a connection that was opened before anybody asked."""
        lease = self._unopened.pop()
        lease.opened(connection)
        self.give_back(lease)

    def forsake(self, lease: Lease[C]) -> None:
        """Close a connection that leads nowhere, and all that nobody uses: they may lead to the same place."""
        lease.end()
        self.drop_idle()

    def replace(self) -> None:
        """Put a new right in place of one that was dropped."""
        self._unopened.append(Lease(self._me))

    def serve(self) -> None:
        """Hand what is free to those who wait."""
        while self._line and (lease := self._pop()) is not None:
            try:
                self._line.popleft().hand(lease)
            except IndexError:  # who waited has left
                self._put(lease)

    def drop_idle(self) -> None:
        """Close what nobody uses."""
        with suppress(IndexError):
            while True:
                lease = self._idle.pop()
                lease.end()
                self._unopened.append(lease)

    def close(self) -> None:
        """Refuse new leases and close what nobody uses; what is lent is closed when it comes back."""
        self.closed = True
        self.drop_idle()
        for waiter in list(self._line):
            waiter.wake()

    def _put(self, lease: Lease[C]) -> None:
        (self._unopened if lease.connection is None else self._idle).append(lease)

    def _pop(self) -> Lease[C] | None:
        for leases in (self._idle, self._unopened):
            with suppress(IndexError):
                return leases.pop()
        return None

    def _trim(self) -> None:
        """Close the connection that was idle longest, if that is long: they go one by one, as calls come back."""
        with suppress(IndexError):
            lease = self._idle.popleft()
            if lease.is_idle_for_long(time.monotonic()):
                lease.end()
                self._unopened.append(lease)
            else:
                self._idle.appendleft(lease)


def home_of(connection: Any) -> int | None:
    """Return the process that opened a connection."""
    home: int | None = getattr(connection, "home", None)
    return home


def has_news(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Say, without a round trip, whether an idle connection has died: only then has the server said anything.

    A reload of the server's configuration may say something, too; such a connection is opened anew for nothing.
    """
    if connection.closed:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([connection.pgconn.socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def is_in_transaction(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Say whether a transaction is open on a connection, and nothing under way in it."""
    return connection.pgconn.transaction_status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}


def pauses(until: float) -> Iterator[float]:
    """Yield how long to wait before each further try to connect, up to a time; longer and longer, never in step."""
    pause = _FIRST_PAUSE_S
    while (left := until - time.monotonic()) > 0:
        yield min(pause * random.uniform(0.5, 1.0), left)  # noqa: S311 - jitter, no secret
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def closed() -> StoreClosed:
    """Return what a closed Counterfoil answers."""
    return StoreClosed("This Counterfoil is closed. Open a new one with Counterfoil.open(url).")


def exhausted(path: str, size: int, seconds: float) -> PoolExhausted:
    """Return the refusal of somebody who waited in vain."""
    return PoolExhausted(
        f"All {size} connections to {path} were in use for {seconds:.0f} seconds; nothing was written. Try again, or"
        " open with more: Counterfoil.open(url, connections=...), as far as the server's max_connections allows. A"
        " transactional effect holds one for as long as it runs."
    )
