"""A bell that wakes those of this process who wait for work; who hears none of it finds the work all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Bell:
    """Rings for everybody who listens; from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}

    def listen(self, who: object, wake: Callable[[], None]) -> None:
        """Call `wake` with every ring until `leave`; it must return at once and may be called from any thread."""
        self._listeners[who] = wake

    def leave(self, who: object) -> None:
        """Listen no more."""
        self._listeners.pop(who, None)

    def ring(self) -> None:
        """Wake all."""
        for wake in tuple(self._listeners.values()):
            wake()


def on_this_loop(call: Callable[[], None]) -> Callable[[], None]:
    """Return what makes a call on the running loop, from any thread; none once the loop is over."""
    loop = asyncio.get_running_loop()

    def ring() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call)

    return ring
