"""One unit of work for the writer of a SQLite database, and how its caller learns what became of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.storage.script import Maker


@dataclass(eq=False, slots=True)
class Unit:
    """One script to run in a transaction, alone or with others."""

    maker: Maker[Any]
    alone: bool = False
    transaction: bool = True
    notify: Callable[[], None] | None = None
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    queued: bool = False
    leads: bool = False
    wake: threading.Event | None = None

    @property
    def shares(self) -> bool:
        """Say whether it may share a transaction with others."""
        return self.transaction and not self.alone

    def waking(self) -> threading.Event:
        """Return what wakes its caller; made only for one that must wait, as it costs as much as a statement."""
        if self.wake is None:
            self.wake = threading.Event()
        return self.wake

    def finish(self) -> None:
        """Publish the result to whoever waits."""
        self.done = True
        if self.wake is not None:
            self.wake.set()
        if self.notify is not None:
            self.notify()

    def answer(self) -> Any:
        """Return the result or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result
