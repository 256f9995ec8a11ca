"""Notice that a database file was removed or replaced while it is open: a process would go on with one nobody sees."""

from __future__ import annotations

import os
import time

from counterfoil.errors import StoreUnavailable

FRESH_S = 0.005
"""How long a look at the file holds for who only ends what he began after it."""


class OpenedFile:
    """The file that was opened, to be compared with the one that its path names now."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        found = self._now()
        self._device, self._number = (found.st_dev, found.st_ino) if found else (0, 0)
        self._until = 0.0

    def check(self) -> None:
        """Refuse to write where nobody else would read it.

        Raises:
            StoreUnavailable: the path names no file, or another one.
        """
        if self._path is None:
            return
        found = self._now()
        if found is None or found.st_ino != self._number or found.st_dev != self._device:
            raise StoreUnavailable(
                f"The database {self._path} was removed or replaced while it was open; nothing was written. What this"
                " process wrote to it lately may be in no file any more. Close this Counterfoil, find out which file is"
                " the right one, and open that."
            )
        self._until = time.monotonic() + FRESH_S

    def check_again(self) -> None:
        """Do the same for who ends what he began after the last look, unless that was a moment ago.

        Raises:
            StoreUnavailable: the path names no file, or another one.
        """
        if time.monotonic() >= self._until:
            self.check()

    def _now(self) -> os.stat_result | None:
        try:
            return None if self._path is None else os.stat(self._path)  # noqa: PTH116 - on the path of every write
        except OSError:
            return None


NO_FILE = OpenedFile(None)
"""A database in memory, which nobody can take away."""
