"""Named points around every statement and commit, where the test kit may interfere."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Point(StrEnum):
    """Where a probe stands. A statement's name goes with the first two, a transaction's with the others."""

    BEFORE_STATEMENT = "before-statement"
    AFTER_STATEMENT = "after-statement"
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"


class Probe(Protocol):
    """What a driver calls at each point; what it raises there reaches the caller as if the point had failed."""

    def __call__(self, point: Point, name: str, /) -> None:
        """Do nothing, or interfere."""
        ...


def no_probe(point: Point, name: str) -> None:
    """Do nothing: the probe of every driver outside tests."""
