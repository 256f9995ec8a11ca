"""How many of the points of a long run every change is struck at; all are struck where the variable says 1."""

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

EVERY = int(os.environ.get("COUNTERFOIL_CRASH_EVERY", "10"))
"""Each n-th point of the long scenarios, and by `make crash` each."""
NEAR = max(1, EVERY // 3)
"""The same for runs that have few points, or where few of them are of the kind that is looked for."""


def first_of(name: str, every: int) -> int:
    """Return where to begin: tests of different names meet different points."""
    return zlib.crc32(name.encode()) % every


def chosen(points: Sequence[T], name: str, every: int) -> Sequence[T]:
    """Return each n-th point, and at least one."""
    return points[first_of(name, min(every, len(points)) or 1) :: every]
