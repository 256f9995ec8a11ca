"""What an error means for who called: whether to call again, and the exit code of the command line."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Retry(StrEnum):
    """Whether the same call may simply be made again."""

    NEVER = "never"
    SAFE = "safe"
    AFTER_RECONCILE = "after_reconcile"


class Exit(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    CONFLICT = 5
    OUTCOME_UNKNOWN = 6
    TIMED_OUT = 7
    CHECK_FOUND = 8
