"""A listing of checkpoints, a page at a time; nothing is held between two pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.arguments import CALLED, LARGEST, text_flaw
from counterfoil.errors import InvalidArguments
from counterfoil.langgraph.context import CONF, checkpoint_of, conf_of, namespace_of, storable
from counterfoil.storage.rows import NEWEST
from counterfoil.storage.scripts import checkpoints
from counterfoil.storage.scripts.checkpoints import Stored, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from counterfoil.langgraph.saver import CounterfoilSaver
    from counterfoil.storage.script import Script

PAGE = 50
"""Checkpoints that `list` reads at a time; nothing is held between two pages."""
_COLUMNS: Final[Mapping[str, type]] = {"source": str, "step": int, "run_id": str}
"""Metadata that is also a column: by these the database narrows a page, and the metadata itself decides."""


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
        self._filter = checked_filter(wanted)
        self._before = before
        self._left = None if limit is None else CALLED.number("limit", limit)
        self._seq = NEWEST
        self._ended = False

    @property
    def tenant(self) -> str:
        """Return whose checkpoints are listed."""
        found = self._saver.carried(self._config)
        return self._saver.tenant if found is None else found.trusted.tenant

    @property
    def wanted(self) -> bool:
        """Say whether another page is wanted."""
        return not self._ended and self._left != 0

    def first(self) -> Script[int | None]:
        """Return the script that finds where to begin."""
        checkpoint_id = checkpoint_of(self._before)
        if checkpoint_id is None:
            return _ready(NEWEST)
        address: RunnableConfig = {CONF: {**self._conf, **conf_of(self._before)}}
        return checkpoints.seq_before(self._saver.place(address), checkpoint_id)

    def start(self, seq: int | None) -> None:
        """Begin below a seq; below nothing if there is no such checkpoint."""
        self._seq = seq if seq is not None else 0

    def next(self) -> Script[list[Stored]]:
        """Return the script that reads the next page."""
        return checkpoints.page(self._scope(), before=self._seq, size=self._size)

    def take(self, page: Sequence[Stored]) -> Iterator[CheckpointTuple]:
        """Yield what is wanted of a page."""
        self._ended = len(page) < self._size
        for stored in page:
            self._seq = stored.row["seq"]
            if self._left != 0 and self._fits(self._saver.metadata(stored)):
                self._left = None if self._left is None else self._left - 1
                yield self._saver.loaded(self._config, stored)

    @property
    def _size(self) -> int:
        """Return how many checkpoints to read: no more than are wanted, where the database alone can tell which."""
        if self._left is None or self._filter.keys() - self._narrowing().keys():
            return PAGE
        return min(PAGE, self._left)

    def _scope(self) -> Wanted:
        thread, namespace = self._conf.get("thread_id"), self._conf.get("checkpoint_ns")
        return Wanted(
            tenant=self.tenant,
            thread_id=None if thread is None else storable("thread id", thread),
            checkpoint_ns=None if namespace is None else namespace_of(self._config),
            checkpoint_id=checkpoint_of(self._config),
            **self._narrowing(),
        )

    def _narrowing(self) -> dict[str, Any]:
        return {name: value for name, value in self._filter.items() if _narrows(name, value)}

    def _fits(self, metadata: Mapping[str, Any]) -> bool:
        """Say whether metadata has all that the filter asks for: a key that it lacks fits no value, not even None."""
        return all(name in metadata and metadata[name] == value for name, value in self._filter.items())


def checked_filter(wanted: object) -> dict[str, Any]:
    """Return what metadata must hold.

    Raises:
        InvalidArguments: it is no mapping from names to values; it would be taken for no filter.
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, dict) or not all(isinstance(name, str) for name in wanted):
        raise InvalidArguments("The filter of a list of checkpoints is a dictionary of metadata, each name a string.")
    return wanted


def _narrows(name: str, value: object) -> bool:
    """Say whether the database can compare a value: one that no row can hold is left to the metadata."""
    if isinstance(value, str):
        return _COLUMNS.get(name) is str and text_flaw(value) is None
    return type(value) is _COLUMNS.get(name) is int and -LARGEST <= value <= LARGEST


def _ready(value: int) -> Script[int | None]:
    """Return a script that answers without asking the database."""
    yield from ()
    return value
