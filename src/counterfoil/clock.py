"""Time as an argument: milliseconds since the epoch, UTC."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a driver takes the time from."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The host's clock, which is also SQLite's."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
