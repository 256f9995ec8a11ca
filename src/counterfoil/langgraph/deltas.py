"""A delta channel's history: from a checkpoint back to the nearest value that is stored, some ancestors at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from counterfoil.langgraph.context import checkpoint_of, storable
from counterfoil.storage.scripts import checkpoints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

    from counterfoil.langgraph.saver import CounterfoilSaver
    from counterfoil.storage.script import Script
    from counterfoil.storage.scripts.checkpoints import Stored

FIRST = 16
"""Ancestors that are read at first; each further reading takes twice as many as the one before."""


class Walk:
    """A walk up a checkpoint's line: what it found so far, and where it goes on."""

    def __init__(self, saver: CounterfoilSaver, config: RunnableConfig, channels: Sequence[str]) -> None:
        self._saver = saver
        self._place = saver.place(config)
        self._from: str | None = checkpoint_of(config)
        self._size = FIRST
        self._skips = 1  # the checkpoint itself: what was written on it belongs to its children
        self._channels = [storable("name of a state field", name) for name in channels]
        self._sought = set(channels)
        self._writes: dict[str, list[PendingWrite]] = {name: [] for name in channels}
        self._seeds: dict[str, Any] = {}

    @property
    def tenant(self) -> str:
        """Return whose checkpoints it reads."""
        return self._place.key.tenant

    @property
    def wanted(self) -> bool:
        """Say whether the walk goes on."""
        return bool(self._sought)

    def next(self) -> Script[list[Stored]]:
        """Return the script that reads the next ancestors."""
        return checkpoints.ancestors(self._place, self._from, self._channels, self._size)

    def take(self, line: Sequence[Stored]) -> None:
        """Take what the next ancestors hold, the nearest first."""
        for ancestor in line[self._skips :]:
            self._visit(ancestor)
        if len(line) < self._size or line[-1].row["parent_id"] is None:
            self._sought.clear()
            return
        self._from, self._skips, self._size = line[-1].row["parent_id"], 0, 2 * self._size

    def result(self) -> dict[str, DeltaChannelHistory]:
        """Return what each channel's value is made of: its writes, the oldest first, and what they build on."""
        found: dict[str, DeltaChannelHistory] = {}
        for name in self._channels:
            found[name] = {"writes": self._writes[name][::-1]}
            if name in self._seeds:
                found[name]["seed"] = self._seeds[name]
        return found

    def _visit(self, ancestor: Stored) -> None:
        load = self._saver.serde.loads_typed
        for part in reversed(ancestor.writes):
            if part["name"] in self._sought:
                write = (part["task_id"], part["name"], load((part["type"], part["value"])))
                self._writes[part["name"]].append(write)
        values = {part["name"]: load((part["type"], part["value"])) for part in ancestor.channels}
        if self._sought - values.keys() - set(json.loads(ancestor.row["name"])):
            values |= self._small_values(ancestor)
        for name in self._sought & values.keys():
            self._seeds[name] = values[name]
            self._sought.discard(name)

    def _small_values(self, ancestor: Stored) -> Mapping[str, Any]:
        body = self._saver.serde.loads_typed((ancestor.row["type"], ancestor.row["value"]))
        values: Mapping[str, Any] = body["channel_values"]
        return values
