"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from counterfoil.core.durations import milliseconds

if TYPE_CHECKING:
    from datetime import timedelta

START_MS = 1_767_225_600_000
"""2026-01-01 00:00:00 UTC."""


class FakeClock:
    """Bind it as the clock of a Counterfoil: leases, deadlines and lags then end when the test says so."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now = now_ms
        self._mutex = threading.Lock()

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._now

    def advance(self, by: str | timedelta) -> int:
        """Move on by a duration such as `"31s"`, and return the new time."""
        with self._mutex:
            self._now += milliseconds(by, "by")
            return self._now
