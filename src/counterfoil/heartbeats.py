"""Renew the leases of long attempts from a thread of its own, which a blocked event loop or effect cannot stop."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BEATS_PER_LEASE = 3
"""One lost beat does not lose the lease."""
TRIES_PER_BEAT = 2
"""A beat over a connection that nobody answers is given up in time for another one before the next is due."""


@dataclass(eq=False, slots=True)
class Beat:
    """Something to renew: `renew` is told how many seconds it may take, and says whether to go on."""

    renew: Callable[[float], bool]
    every: float
    due: float
    stopped: bool = field(default=False)

    def stop(self) -> None:
        """Stop renewing."""
        self.stopped = True

    def __enter__(self) -> None:
        """Renew until the block ends."""

    def __exit__(self, *_exc: object) -> None:
        self.stop()


class Heartbeats:
    """One daemon thread for all beats of a Counterfoil; it starts with the first."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Beat]] = []
        self._numbers = itertools.count()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, renew: Callable[[float], bool], *, lease_ms: int) -> Beat:
        """Renew every third of the lease until `renew` returns False or the beat is stopped."""
        every = lease_ms / BEATS_PER_LEASE / 1000
        beat = Beat(renew, every, time.monotonic() + every)
        with self._change:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="counterfoil-heartbeat", daemon=True)
                thread.start()  # where that fails, the next beat tries again
                self._thread = thread
            self._push(beat)
            self._change.notify()
        return beat

    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _push(self, beat: Beat) -> None:
        heapq.heappush(self._due, (beat.due, next(self._numbers), beat))

    def _run(self) -> None:
        while (beat := self._next()) is not None:
            if not beat.stopped and self._renew(beat):
                beat.due = max(time.monotonic(), beat.due + beat.every)  # one that took long is followed at once
                with self._change:
                    self._push(beat)

    def _next(self) -> Beat | None:
        with self._change:
            while not self._closed:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._change.wait(wait)
            return None

    @staticmethod
    def _renew(beat: Beat) -> bool:
        """Renew once; what fails is tried again at the next beat, while the lease still runs."""
        try:
            return beat.renew(beat.every / TRIES_PER_BEAT)
        except Exception:  # noqa: BLE001 - one beat that fails, in whatever way, must not end all the others
            return True
