"""Look at a SQLite file and leave no trace: no mode is switched, no row written, no file made beside it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.clock import Clock, SystemClock
from counterfoil.drivers.filesystems import refuse_network
from counterfoil.drivers.sqlite_condition import condition, has_log
from counterfoil.drivers.sqlite_open import BUSY_TIMEOUT_MS
from counterfoil.drivers.sqlite_run import Runner
from counterfoil.drivers.sqlstate import from_sqlite
from counterfoil.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.drivers.urls import SqliteUrl
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")


class SqliteLook:
    """One SQLite file, read as it is, whoever made it and whether or not its folder may be written."""

    dialect = "sqlite"

    def __init__(self, url: SqliteUrl, *, clock: Clock | None = None, network_filesystem: bool = False) -> None:
        if not network_filesystem:
            refuse_network(Path(url.path))
        self.path = url.path
        self._runner = Runner(path=url.path, clock=clock or SystemClock())

    def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads, anew if the database came into use while it was read as one that rests.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        del tenant
        while True:
            state = self._state()
            try:
                result = self._read(maker, rests=self._rests())
            except StoreError:
                if self._state() == state:
                    raise
            else:
                if not self._rests() or self._state() == state:
                    return result

    def condition(self) -> dict[str, Any]:
        """Return the file's mode, place and size, as `sqlite_condition` tells them.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        return self._with_connection(lambda connection: condition(connection, self.path), rests=self._rests())

    def close(self) -> None:
        """Do nothing: each read closes what it opened."""

    def _read(self, maker: Maker[T], *, rests: bool) -> T:
        return self._with_connection(lambda connection: self._runner.run(connection, maker()), rests=rests)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T], *, rests: bool) -> T:
        # Even a read-only connection makes two files beside a database with a write-ahead log, and leaves them there.
        # One that nobody has open needs none: all of it is in its file, which may then be called immutable.
        uri = f"{Path(self.path).absolute().as_uri()}?mode=ro{'&immutable=1' if rests else ''}"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)
        except sqlite3.Error as error:
            raise from_sqlite(error, self.path) from error
        try:
            return work(connection)
        finally:
            connection.close()

    def _rests(self) -> bool:
        """Say whether it has a write-ahead log when it is open, and has none now: then nobody has it open."""
        try:
            logs = has_log(self.path)
        except OSError as error:
            raise StoreUnavailable(f"The database {self.path} cannot be read: {error.strerror}.") from error
        if self._beside("-wal").exists():
            self._refuse_unreadable_log()
            return False
        return logs

    def _refuse_unreadable_log(self) -> None:
        folder = Path(self.path).absolute().parent
        may_write = os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        if not may_write and not self._beside("-shm").exists():
            raise StoreUnavailable(
                f"The database {self.path} was left with a write-ahead log, which can be read only by who may write its"
                " folder. Run this as such a user, or while a process has the database open."
            )

    def _state(self) -> tuple[int, int, bool]:
        try:
            seen = Path(self.path).stat()
        except OSError as error:
            raise StoreUnavailable(f"The database {self.path} cannot be read: {error.strerror}.") from error
        return seen.st_mtime_ns, seen.st_size, self._beside("-wal").exists()

    def _beside(self, suffix: str) -> Path:
        return Path(f"{self.path}{suffix}")
