"""Checkpoints at named key nodes alone: what other steps would store stays in memory until it is needed.

What a step came to is stored once a key node has ended in it, once it enqueues, waits, mints, is interrupted or fails,
and at the end of the run. After a crash the steps since then run again; what they performed is answered from receipts.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import WRITES_IDX_MAP

from counterfoil.langgraph.intents import CHANNEL
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from counterfoil.langgraph.context import Run
    from counterfoil.storage.script import Maker

NEEDING: Final = frozenset({*WRITES_IDX_MAP, CHANNEL})
"""Channels of a task that ended in another way than with a result alone."""
LOOP: Final = "loop"
"""The source of a checkpoint that a step of the graph makes, and not an input or a person."""


class Skipping:
    """What one run has not stored: its newest checkpoint, and the writes of tasks on it."""

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._held: list[Maker[Any]] = []
        self._leaving: list[Maker[Any]] = []
        self._versions: dict[str, Any] = {}
        self._parent: str | None = None

    def note_end(self, node: str) -> None:
        """Note that a node of the root graph came to its end."""
        with self._lock:
            self._ended.add(node)

    def begin(self, parent: str | None, versions: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """Return on which checkpoint the next one is stored, and which values have changed since that one."""
        with self._lock:
            return self._parent or parent, {**self._versions, **versions}

    def may_skip(self, metadata: Mapping[str, Any]) -> bool:
        """Say whether a step's checkpoint may be left in memory; what its tasks wrote before it is a part of it."""
        with self._lock:
            ended, self._ended = self._ended, set()
        if metadata.get("source") != LOOP or metadata.get("counters_since_delta_snapshot"):
            return False
        return bool(ended) and not ended & self._keys

    def hold(self, parent: str | None, versions: Mapping[str, Any], maker: Maker[Any]) -> None:
        """Keep a checkpoint in memory, in the place of the one before it."""
        with self._lock:
            self._held = [maker]
            self._parent, self._versions = parent, dict(versions)

    def forget(self) -> Sequence[Maker[Any]]:
        """Forget what is held: the next checkpoint holds all of it. Return what must be stored before that.

        That is what another task is just storing: a checkpoint must not be committed before the one that it hangs on.
        """
        with self._lock:
            self._held, self._parent, self._versions = [], None, {}
            return tuple(self._leaving)

    def must_flush(self, writes: Sequence[tuple[str, Any]], task_path: str) -> bool:
        """Say whether a task's writes need what is held: those of a key node, or of one that paused or failed."""
        channels = {channel for channel, _ in writes}
        return bool(channels & NEEDING) or task_path.rpartition(", ")[2] in self._keys

    def hold_writes(self, maker: Maker[Any]) -> None:
        """Keep a task's writes in memory, behind the checkpoint that they hang on."""
        with self._lock:
            self._held.append(maker)

    def flush(self) -> Sequence[Maker[Any]]:
        """Return what stores all that is held, in order, for its caller to store and to say so.

        Until then others store it, too, before anything that hangs on it: it is the same again.
        """
        with self._lock:
            self._leaving += self._held
            self._held, self._parent, self._versions = [], None, {}
            return tuple(self._leaving)

    def stored(self, maker: Maker[Any]) -> None:
        """Note that something is stored, if it was held."""
        with self._lock:
            self._leaving = [one for one in self._leaving if one is not maker]


def store_held(run: Run | None) -> None:
    """Store what a run has left in memory; a write that is refused is of a run that lost its thread."""
    for skipping, maker in _held(run):
        write(run.desk, maker, refuses=bool, tenant=run.key.tenant)  # type: ignore[union-attr]  # nothing is held without one
        skipping.stored(maker)


async def astore_held(run: Run | None) -> None:
    """Store what a run on an event loop has left in memory."""
    for skipping, maker in _held(run):
        await asyncio.shield(awrite(run.desk, maker, refuses=bool, tenant=run.key.tenant))  # type: ignore[union-attr]
        skipping.stored(maker)


def _held(run: Run | None) -> Sequence[tuple[Skipping, Maker[Any]]]:
    skipping = None if run is None else run.skipping
    return () if skipping is None else [(skipping, maker) for maker in skipping.flush()]
