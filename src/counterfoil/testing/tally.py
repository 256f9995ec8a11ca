"""Count accepted effects in a plain file, for thousands of quick calls in one process.

The file is the provider: it lies outside of every database under test, so no rollback
takes anything back, and it survives a SIGKILL of the caller, since what one `os.write`
has handed over belongs to the operating system. (It does not survive a power cut, and
need not.)
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any, Final


class KeyMismatch(ValueError):
    """Refuse a key that came before with another kind or body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tallied:
    """Record one accepted effect, numbered from 1."""

    number: int
    kind: str
    key: str | None
    body: dict[str, Any]


class TallyFile:
    """Accept effects by appending one JSON line each; any number of processes may."""

    def __init__(self, path: str | os.PathLike[str], *, honours_keys: bool = False) -> None:
        """Name the file; it comes into being with the first effect."""
        self.path: Final = Path(path)
        self._honours_keys: Final = honours_keys

    def accept(
        self,
        kind: str,
        key: str | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> int:
        """Accept an effect, or recognise its key, and return its number."""
        with self._locked() as file:
            seen = self.accepted()
            one = Tallied(number=len(seen) + 1, kind=kind, key=key, body=dict(body or {}))
            earlier = self._earlier(one, seen)
            if earlier is not None:
                return earlier.number
            _append(file, one)
            return one.number

    def find(self, key: str) -> Tallied | None:
        """Return the first effect accepted under a key."""
        return next((one for one in self.accepted() if one.key == key), None)

    def count(self, kind: str | None = None, key: str | None = None) -> int:
        """Count the accepted effects that match every filter given."""
        return sum(kind in (None, one.kind) and key in (None, one.key) for one in self.accepted())

    def accepted(self) -> list[Tallied]:
        """Return everything accepted so far, in order."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [one for line in lines if (one := _parsed(line)) is not None]

    def _earlier(self, one: Tallied, seen: list[Tallied]) -> Tallied | None:
        if not self._honours_keys or one.key is None:
            return None
        earlier = next((other for other in seen if other.key == one.key), None)
        if earlier is not None and _meaning(earlier) != _meaning(one):
            raise KeyMismatch(f"key {one.key!r} came before with another kind or body")
        return earlier

    @contextmanager
    def _locked(self) -> Iterator[int]:
        # Opened anew each time: a descriptor shared by fork would share its lock too.
        # The kernel lets go of the lock when the holder dies.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            flock(file, LOCK_EX)
            yield file
        finally:
            os.close(file)


def _meaning(one: Tallied) -> tuple[str, str]:
    # As text: Python holds True and 1 for equal, JSON does not.
    return one.kind, json.dumps(one.body, sort_keys=True)


def _append(file: int, one: Tallied) -> None:
    # The line feed comes first as well, so that a line torn by a kill (at a page
    # boundary) stays alone on its line: it never returned, and is not counted.
    line = f"\n{json.dumps(asdict(one))}\n".encode()
    if os.write(file, line) != len(line):
        raise OSError("the tally file took only part of a line")


def _parsed(line: bytes) -> Tallied | None:
    try:
        return Tallied(**json.loads(line))
    except ValueError:
        return None
