"""Which entries and runs of this process are under way: what close waits for, and whose claims are forsaken."""

from __future__ import annotations

import threading

from counterfoil.liveness import is_dead


class Activity:
    """The holders of this process that are at work now."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}/"
        self._entries: set[str] = set()
        self._runs: set[str] = set()
        self._change = threading.Condition()
        self._waiting = 0

    def entry(self, holder: str) -> Entry:
        """Count an entry into `perform` as under way."""
        return Entry(self, holder)

    def begin_entry(self, holder: str) -> None:
        """Count an entry as under way from now on."""
        self._entries.add(holder)

    def end_entry(self, holder: str) -> None:
        """Count an entry as ended; whoever waits began to before it looked, so that nobody is missed."""
        self._entries.discard(holder)
        if self._waiting:
            with self._change:
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
            self._waiting += 1
            try:
                return self._change.wait_for(lambda: not self._entries, seconds)
            finally:
                self._waiting -= 1


class Entry:
    """An entry into `perform`, under way inside the block."""

    __slots__ = ("_activity", "_holder")

    def __init__(self, activity: Activity, holder: str) -> None:
        self._activity = activity
        self._holder = holder

    def __enter__(self) -> None:
        self._activity.begin_entry(self._holder)

    def __exit__(self, *_exc: object) -> None:
        self._activity.end_entry(self._holder)
