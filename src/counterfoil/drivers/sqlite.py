"""SQLite for blocking callers: one writer, readers beside it, and `:memory:` through the writer alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from counterfoil.clock import Clock, SystemClock
from counterfoil.drivers.opened import OpenedFile
from counterfoil.drivers.probes import Probe, no_probe
from counterfoil.drivers.sqlite_open import BUSY_TIMEOUT_MS, connect, open_file
from counterfoil.drivers.sqlite_run import Runner
from counterfoil.drivers.sqlite_unit import Unit
from counterfoil.drivers.sqlite_writer import Writer
from counterfoil.drivers.turns import Turns
from counterfoil.storage.migrator import prepare

if TYPE_CHECKING:
    import sqlite3

    from counterfoil.drivers.sqlite_async import AsyncSqliteStore
    from counterfoil.drivers.urls import SqliteUrl
    from counterfoil.storage.migrator import Migration
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")

IDLE_READERS = 8
"""Read connections kept open; more are opened and closed when more threads read at once."""


class SqliteStore:
    """One SQLite database, opened by this process."""

    dialect = "sqlite"
    claims_at_once = False

    def __init__(
        self,
        url: SqliteUrl,
        *,
        clock: Clock | None = None,
        probe: Probe = no_probe,
        network_filesystem: bool = False,
        busy_timeout: int = BUSY_TIMEOUT_MS,
    ) -> None:
        open_file(url, network_filesystem=network_filesystem, busy_timeout=busy_timeout)
        self.url = url
        self._busy_timeout = busy_timeout
        self.runner = Runner(path=url.path, clock=clock or SystemClock(), probe=probe)
        path = None if url.in_memory else url.path
        self._turns = Turns(path)
        self.writer = Writer(self._connect, self.runner, self._turns, OpenedFile(path))
        self._idle: list[sqlite3.Connection] = []
        self._mutex = threading.Lock()

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        return connect(self.url, busy_timeout=self._busy_timeout, read_only=read_only)

    @property
    def path(self) -> str:
        """Return the file's path, or `:memory:`."""
        return self.url.path

    def write(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in a transaction of its own, or together with other callers' scripts in one."""
        del tenant
        result: T = self.writer.run(Unit(maker))
        return result

    def write_alone(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds user code: alone in its transaction and on the caller's thread."""
        del tenant
        result: T = self.writer.run(Unit(maker, alone=True))
        return result

    def renew(self, maker: Maker[T], *, within: float, tenant: Whose = None) -> T:
        """Run a script that renews a lease; waiting for the lock has a bound of its own here."""
        del within, tenant
        return self.write(maker)

    def look(self, looking: Maker[T], claiming: Maker[T], *, tenant: Whose = None) -> T:
        """Peek and then claim on the writer's connection while that is idle; else look beside whoever writes."""
        del tenant
        unit = Unit(claiming)
        if self.writer.run_if_idle(unit):
            result: T = unit.answer()
            return result
        return self.read(looking)

    def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads; several reads may see several states of the database."""
        del tenant
        if self.url.in_memory:
            result: T = self.writer.run(Unit(maker, transaction=False))
            return result
        self.writer.check_usable()
        connection = self._reader()
        try:
            return self.runner.run(connection, maker())
        finally:
            self._give_back(connection)

    def awaiting(self) -> AsyncSqliteStore:
        """Return the twin for callers on an event loop."""
        from counterfoil.drivers.sqlite_async import AsyncSqliteStore  # noqa: PLC0415 - brings asyncio

        return AsyncSqliteStore(self)

    @property
    def forked(self) -> bool:
        """Say whether this is a child of the process that opened it."""
        return self.writer.forked

    def migrate(self, *, upgrade: bool) -> tuple[Migration, ...]:
        """Make the schema in an empty database; check it, or upgrade it, in one that has ours."""
        return prepare(self, self.write_alone, upgrade=upgrade)

    def close(self) -> None:
        """Close all connections; a call that is under way finishes first. In a forked child it does nothing."""
        if self.writer.forked:
            return
        self.writer.close()
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._turns.close()

    def _reader(self) -> sqlite3.Connection:
        with self._mutex:
            connection = self._idle.pop() if self._idle else None
        return connection or self._connect(read_only=True)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._mutex:
            if len(self._idle) < IDLE_READERS and self.writer.usable:
                self._idle.append(connection)
                return
        connection.close()
