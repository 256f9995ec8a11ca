"""Which entries and runs of this process are under way: what close waits for, and whose claims are forsaken."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from counterfoil.liveness import is_dead

if TYPE_CHECKING:
    from collections.abc import Iterator


class Activity:
    """The holders of this process that are at work now."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}/"
        self._entries: set[str] = set()
        self._runs: set[str] = set()
        self._change = threading.Condition()

    @contextmanager
    def entry(self, holder: str) -> Iterator[None]:
        """Count an entry into `perform` as under way."""
        self._entries.add(holder)
        try:
            yield
        finally:
            with self._change:
                self._entries.discard(holder)
                self._change.notify_all()

    def begin_run(self, holder: str) -> None:
        """Count a graph's run as under way; close does not wait for runs, which may be left without an end."""
        self._runs.add(holder)

    def end_run(self, holder: str) -> None:
        """Count a graph's run as ended."""
        self._runs.discard(holder)

    def is_gone(self, holder: str) -> bool:
        """Say whether a holder is certainly gone: its process is dead, or it is ours and not at work any more.

        The latter was interrupted, by a signal or a cancellation, in the moment in which its claim was committed.
        """
        if holder.startswith(self._prefix):
            return holder not in self._entries and holder not in self._runs
        return is_dead(holder)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no entry is under way, no longer than this; say whether that is so."""
        with self._change:
            return self._change.wait_for(lambda: not self._entries, seconds)
