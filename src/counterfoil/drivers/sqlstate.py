"""Turn driver errors into ours, by error code and never by text."""

from __future__ import annotations

import sqlite3

from counterfoil.errors import Busy, ConstraintViolated, StoreError, StoreUnavailable

_PRIMARY = 0xFF  # extended result codes carry the primary one in their low byte
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another connection holds the lock."""
    return (getattr(error, "sqlite_errorcode", 0) & _PRIMARY) in _BUSY


def from_sqlite(error: sqlite3.Error, path: str) -> StoreError:
    """Return our error for one of the `sqlite3` module's."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code in _BUSY:
        return Busy(
            f"The database {path} stayed locked by another connection for the whole time-out; nothing was written."
            " Try again, or look for a process, or a connection of your own, that holds a write transaction open; to"
            " work inside that transaction use cf.join(connection)."
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return ConstraintViolated(f"The database {path} refused a row ({name}); nothing was written.")
    return StoreUnavailable(
        f"The database {path} could not do its work ({name}: {error}). Nothing was written; check the file, its"
        " folder's permissions and the free disk space."
    )
