"""Open SQLite connections: WAL, full durability, bounded waits, and no network file systems."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.drivers.filesystems import refuse_network
from counterfoil.drivers.sqlstate import from_sqlite, is_busy
from counterfoil.errors import StoreUnavailable

if TYPE_CHECKING:
    from counterfoil.drivers.urls import SqliteUrl

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
BUSY_TIMEOUT_MS = 10_000
"""How long a transaction waits for another process; long enough for a 3-second write and a queue behind it."""
_WAL_PAUSE_S = 0.02


def open_file(url: SqliteUrl, *, network_filesystem: bool = False, busy_timeout: int = BUSY_TIMEOUT_MS) -> None:
    """Check that the database may be used and put it into WAL mode; the file is made if it is missing.

    Raises:
        NetworkFilesystem: it lies on a network file system.
        StoreUnavailable: it cannot be opened, or SQLite is too old.
        Busy: others kept it locked.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed.")
    if url.in_memory:
        return
    path = Path(url.path)
    if not network_filesystem:
        refuse_network(path)
    if not path.absolute().parent.is_dir():
        raise StoreUnavailable(f"The database {path} cannot be made: its folder does not exist.")
    connection = connect(url, busy_timeout=busy_timeout)
    try:
        _enter_wal(connection, url.path, busy_timeout)
    finally:
        connection.close()


def connect(url: SqliteUrl, *, busy_timeout: int = BUSY_TIMEOUT_MS, read_only: bool = False) -> sqlite3.Connection:
    """Open one connection; it may be used by any thread, by one at a time."""
    try:
        connection = sqlite3.connect(
            url.path, isolation_level=None, check_same_thread=False, timeout=busy_timeout / 1000
        )
    except sqlite3.Error as error:
        raise from_sqlite(error, url.path) from error
    try:
        connection.execute("pragma synchronous=full")  # NORMAL would lose a committed claim to a power cut
        connection.execute("pragma foreign_keys=on")
        if read_only:
            connection.execute("pragma query_only=on")
    except sqlite3.Error as error:
        connection.close()
        raise from_sqlite(error, url.path) from error
    return connection


def _enter_wal(connection: sqlite3.Connection, path: str, busy_timeout: int) -> None:
    """Switch to WAL, trying again: on a fresh file this can say "locked" at once, whatever the time-out."""
    until = time.monotonic() + busy_timeout / 1000
    mode = None
    while mode is None:
        try:
            (mode,) = connection.execute("pragma journal_mode=wal").fetchone()
        except sqlite3.Error as error:
            if time.monotonic() >= until or not is_busy(error):
                raise from_sqlite(error, path) from error
            time.sleep(_WAL_PAUSE_S)
    if mode != "wal":
        raise StoreUnavailable(
            f"The database {path} cannot use SQLite's write-ahead log (it stays in mode {mode!r}): its file system has"
            " no shared memory for it. Put the file on a local disk."
        )
