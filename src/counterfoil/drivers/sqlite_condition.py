"""What can be said of a SQLite file without changing it: its mode, where it lies, how large it has grown."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from counterfoil.drivers.filesystems import NETWORK_TYPES, filesystem_type
from counterfoil.drivers.sqlstate import from_sqlite

_MODE = slice(18, 20)  # sqlite.org/fileformat.html: write and read version, 2 for a write-ahead log
_WAL = b"\x02\x02"


def condition(connection: sqlite3.Connection, path: str) -> dict[str, Any]:
    """Return what a file's owner should know of it; sizes in bytes, and None for what the system does not tell.

    How a commit is flushed is no property of the file but of each connection; ours say `synchronous=full`.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        pages, free, size = (_pragma(connection, name) for name in ("page_count", "freelist_count", "page_size"))
    except sqlite3.Error as error:
        raise from_sqlite(error, path) from error
    kind = filesystem_type(Path(path))
    return {
        "sqlite": sqlite3.sqlite_version,
        "write_ahead_log": has_log(path),
        "file_system": kind,
        "network_file_system": kind in NETWORK_TYPES,
        "page_size": size,
        "pages": pages,
        "free_pages": free,
        "bytes": _bytes(path),
        "log_bytes": _bytes(f"{path}-wal"),
    }


def has_log(path: str) -> bool:
    """Say whether a file is written through a write-ahead log: its header says so, also while nobody has it open."""
    with Path(path).open("rb") as file:
        return file.read(_MODE.stop)[_MODE] == _WAL


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"pragma {name}").fetchone()[0])


def _bytes(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
