"""A listing of checkpoints, a page at a time; nothing is held between two pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.langgraph.context import CONF, conf_of
from counterfoil.storage.scripts import checkpoints
from counterfoil.storage.scripts.checkpoints import NEWEST, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from counterfoil.langgraph.saver import CounterfoilSaver
    from counterfoil.storage.script import Script

PAGE = 50
"""Checkpoints that `list` reads at a time; nothing is held between two pages."""


class Pages:
    """A listing under way: where it is, and what of each page is wanted."""

    def __init__(
        self,
        saver: CounterfoilSaver,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._saver = saver
        self._config: RunnableConfig = config if config is not None else {CONF: {}}
        self._conf = conf_of(config)
        self._filter = wanted or {}
        self._before = before
        self._left = limit
        self._seq = NEWEST
        self._ended = False

    @property
    def wanted(self) -> bool:
        """Say whether another page is wanted."""
        return not self._ended and self._left != 0

    def first(self) -> Script[int | None]:
        """Return the script that finds where to begin."""
        before = conf_of(self._before)
        if not before.get("checkpoint_id"):
            return _ready(NEWEST)
        address: RunnableConfig = {CONF: {**self._conf, **before}}
        return checkpoints.seq_of(self._saver.place(address), before["checkpoint_id"])

    def start(self, seq: int | None) -> None:
        """Begin below a seq; below nothing if there is no such checkpoint."""
        self._seq = seq if seq is not None else 0

    def next(self) -> Script[list[Stored]]:
        """Return the script that reads the next page."""
        found = self._saver.carried(self._config)
        tenant = self._saver.tenant if found is None else found.trusted.tenant
        thread = self._conf.get("thread_id")
        return checkpoints.page(
            tenant,
            thread_id=None if thread is None else str(thread),
            checkpoint_ns=self._conf.get("checkpoint_ns"),
            before=self._seq,
            size=PAGE,
        )

    def take(self, page: Sequence[Stored]) -> Iterator[CheckpointTuple]:
        """Yield what is wanted of a page."""
        self._ended = len(page) < PAGE
        for stored in page:
            self._seq = stored.row["seq"]
            found = self._saver.loaded(self._config, stored)
            if self.wanted_of(stored, found) and self._left != 0:
                self._left = None if self._left is None else self._left - 1
                yield found
        self._ended = self._ended or not page

    def wanted_of(self, stored: Stored, found: CheckpointTuple) -> bool:
        """Say whether a checkpoint is the addressed one and its metadata has what the filter asks for."""
        checkpoint_id = self._conf.get("checkpoint_id")
        if checkpoint_id and stored.row["checkpoint_id"] != checkpoint_id:
            return False
        return all(found.metadata.get(name) == value for name, value in self._filter.items())


def _ready(value: int) -> Script[int | None]:
    """Return a script that answers without asking the database."""
    yield from ()
    return value
