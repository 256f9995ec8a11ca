"""The port to engines. An engine wakes workflows, spreads them over workers, and notices the death of a worker.

It is trusted with nothing: it may deliver a wake-up twice, late or out of order, and it may lose one. What must be true
is in Counterfoil's rows. Whether a workflow can be entered, its row says; who enters it, the claim of its thread says,
which one worker gets, and by which whoever was too slow can store nothing; when a timer is over, `due_at` says, by the
database's clock. Each engine therefore has a sweeper, which tells it once more of every row that is due and has no
lease. What one engine must do is what `tests/engine` asks of all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from counterfoil.engine.stranded import tell_stranded
from counterfoil.storage.scripts import workflows
from counterfoil.storage.tenants import ALL_TENANTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from counterfoil.desk import Desk
    from counterfoil.storage.script import Wake
    from counterfoil.storage.scripts.threads import ThreadKey
    from counterfoil.storage.scripts.workflows import Due

AT_ONCE = 10
"""Workflows that one process runs at once, unless it is told otherwise: most of them wait for something slow."""
PAUSE_S = 0.5
"""How long after a failure of the database an engine goes on."""
LOST_EVERY_S = 5.0
"""How often running workflows are looked through for those whose process died on this machine."""
LOOKED_THROUGH = 200
"""Running workflows that are looked through at once."""


class Handler(Protocol):
    """What enters a workflow, if its row says that it can be entered; it raises nothing."""

    async def __call__(self, key: ThreadKey, found: Due | None = None) -> None:
        """Enter a workflow until it waits or ends.

        Args:
            key: Which one.
            found: What the engine knows of it that has reserved its row; otherwise the row is looked at.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What an engine says of itself."""

    engine: str
    is_well: bool
    problem: str | None = None
    details: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """What spreads the work on workflows."""

    @property
    def name(self) -> str:
        """Return what it is called on the command line."""
        ...

    def wake(self, transaction: Any, key: Wake, not_before: int | None = None) -> None:
        """Have a workflow handed out once the caller's transaction is committed; if it is not, nothing was said.

        Wake-ups of one workflow may become one. One for later may be ignored: then the sweeper says it in time.

        Args:
            transaction: The driver's connection, with the transaction open.
            key: Which workflow, and in which graph.
            not_before: When, in milliseconds UTC.
        """
        ...

    async def awake(self, transaction: Any, key: Wake, not_before: int | None = None) -> None:
        """Do the same on an async connection."""
        ...

    async def run(self, handler: Handler) -> None:
        """Hand out what is due until `stop` is called: at least once, and one at a time for each key as best it can."""
        ...

    def stop(self) -> None:
        """Hand out nothing more; `run` returns when the handlers have. Safe to call from the loop."""
        ...

    async def reap(self) -> int:
        """Take back what was handed to workers that are dead, to be handed out anew; say how many."""
        ...

    async def health(self) -> Health:
        """Say whether it can work, and how much waits."""
        ...


class Finder:
    """Finds the workflows of this process's graphs that can be entered."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lost_at = 0.0
        self._turn = -1

    async def reserve(self, limit: int) -> list[Due]:
        """Find some, no more than `limit`, and reserve them for this process; another graph comes first each time."""
        found: list[Due] = []
        graphs = tuple(self._desk.graphs)
        self._turn = (self._turn + 1) % max(len(graphs), 1)
        for graph in graphs[self._turn :] + graphs[: self._turn]:
            if (room := limit - len(found)) > 0:
                found += await self._desk.async_store.write(
                    partial(workflows.find_due, *graph, limit=room), tenant=ALL_TENANTS
                )
        return [*found, *(due for due in await self.gone() if due not in found)]

    async def unreserved(self, limit: int) -> list[Due]:
        """Find some and leave them to anybody."""
        found: list[Due] = []
        for graph in tuple(self._desk.graphs):
            found += await self._desk.async_store.write(
                partial(workflows.list_due, *graph, limit=limit), tenant=ALL_TENANTS
            )
        return found

    async def gone(self) -> list[Due]:
        """Find, now and then, those whose process on this machine is gone: their leases need not be waited for."""
        if time.monotonic() < self._lost_at:
            return []
        self._lost_at = time.monotonic() + LOST_EVERY_S
        await tell_stranded(self._desk, limit=LOOKED_THROUGH)
        running: list[Due] = []
        for graph in tuple(self._desk.graphs):
            listed = partial(workflows.find_running, *graph, limit=LOOKED_THROUGH)
            running += await self._desk.async_store.read(listed, tenant=ALL_TENANTS)
        return [due for due in running if due.lost and self._desk.activity.is_gone(due.lost)]
