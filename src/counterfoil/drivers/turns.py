"""Take turns between processes in front of SQLite's write lock, which knows no queue.

SQLite's busy handler sleeps up to 100 ms and then races, so the process that just committed wins again: of eight
writers in a tight loop the slowest got 0.007 of the mean share. Behind a lock that the system queues for, it got 0.96.
The turn is for fairness alone: whoever waits too long for it goes on without, and SQLite's own lock keeps writes apart.
To take it and give it back costs as much as a statement, so that a process which alone has the database open does not.
"""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows: no queue, SQLite's own waiting alone
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from typing import IO

LONGEST_WAIT_S = 5.0
"""Longer than eight processes need for a commit each on a slow disk; a stopped process holds nobody up for longer."""


class Turns:
    """The queue in front of one database file; a file of its own beside it carries the lock.

    Its second byte, which all share in memory, says whether anybody but the one who made it has opened it: then all
    queue until the last one takes it away.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._crowd: mmap.mmap | None = None
        self._held = False
        self._waiter: _Waiter | None = None
        if path is not None and fcntl is not None:
            with suppress(OSError, ValueError):  # a folder that takes no new file: fairness is not worth a refusal
                self._open(f"{path}-turn")

    def _open(self, path: str) -> None:
        try:
            self._file = _opened(path, os.O_CREAT | os.O_EXCL)
            is_alone = True
        except FileExistsError:
            self._file = _opened(path, os.O_CREAT)
            is_alone = False
        if is_alone:  # written, not mapped: a place that a full disk has no room for would kill who touches it
            os.pwrite(self._file.fileno(), b"\0", 0)
            os.ftruncate(self._file.fileno(), 2)  # makes it larger, or leaves it as another one made it
        else:
            os.pwrite(self._file.fileno(), b"\1", 1)
        self._crowd = mmap.mmap(self._file.fileno(), 2, access=mmap.ACCESS_READ)

    def __enter__(self) -> None:
        """Take the turn, or go on without it after a bounded wait."""
        if self._file is not None and (self._crowd is None or self._crowd[1]):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._held = True
            except BlockingIOError:
                self._held = self._wait(self._file)
            except OSError:
                self._held = False

    def __exit__(self, *_exc: object) -> None:
        """Give the turn back, if it was had."""
        if self._held and self._file is not None:
            self._held = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave the queue for good; whoever is the last to close the database takes the file away.

        SQLite's own last one takes the write-ahead log away, which is how the last is known. A process that opens the
        database in this very moment may queue at a file of its own for a while: fairness alone would suffer.
        """
        file, self._file = self._file, None
        crowd, self._crowd = self._crowd, None
        if crowd is not None:  # of two who close at once, either may get either
            crowd.close()
        if file is None:
            return
        file.close()
        if not Path(f"{self._path}-wal").exists():
            with suppress(OSError):
                Path(f"{self._path}-turn").unlink(missing_ok=True)

    def _wait(self, file: IO[bytes]) -> bool:
        """Queue; while an earlier wait that was given up is still in the queue, nobody waits again."""
        if self._waiter is not None and self._waiter.queued:
            return False
        self._waiter = _Waiter(file)
        return self._waiter.wait()


def _opened(path: str, how: int) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o666), "r+b", buffering=0)


class _Waiter:
    """Waits for the turn in a thread, since the system's queue knows no time limit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._mutex = threading.Lock()
        self._left = False
        self._held = threading.Event()
        self.queued = True

    def wait(self) -> bool:
        """Return True once the turn is held, False after too long a wait."""
        threading.Thread(target=self._queue, name="counterfoil-turn", daemon=True).start()
        if self._held.wait(LONGEST_WAIT_S):
            return True
        with self._mutex:
            self._left = not self._held.is_set()
            return not self._left

    def _queue(self) -> None:
        with suppress(OSError, ValueError):  # the database was closed meanwhile
            fcntl.flock(self._file, fcntl.LOCK_EX)
            with self._mutex:
                if self._left:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
                else:
                    self._held.set()
        self.queued = False
