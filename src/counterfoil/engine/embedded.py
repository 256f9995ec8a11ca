"""The engine that is there always: a loop that searches the rows, in this process alone.

On SQLite, or on PostgreSQL. Several processes may search one database: what one finds it reserves, so that they seldom
meet, and the claim decides where they do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.bell import on_this_loop
from counterfoil.engine.port import AT_ONCE, PAUSE_S, Finder, Health
from counterfoil.errors import StoreClosed, StoreError

if TYPE_CHECKING:
    from counterfoil.desk import Desk
    from counterfoil.engine.port import Handler
    from counterfoil.storage.script import Wake
    from counterfoil.storage.scripts.threads import ThreadKey
    from counterfoil.storage.scripts.workflows import Due

FIRST_POLL_S, LONGEST_POLL_S = 0.05, 1.0
"""How long after an empty search the next one follows, longer each time; whoever starts or delivers here wakes us."""

LOG = logging.getLogger("counterfoil.workflows")


@dataclass(slots=True, eq=False)
class Embedded:
    """Searches the rows of the workflows whose graphs this process registers."""

    desk: Desk
    at_once: int = AT_ONCE
    name: str = "embedded"
    _finder: Finder = field(init=False)
    _stopping: bool = False
    _running: dict[asyncio.Task[None], ThreadKey] = field(default_factory=dict)
    _change: asyncio.Event = field(default_factory=asyncio.Event)
    _is_idle: bool = False
    _poll: float = FIRST_POLL_S
    _poll_at: float = 0.0

    def __post_init__(self) -> None:
        """Make what finds them."""
        self._finder = Finder(self.desk)

    # --- the port ----------------------------------------------------------------------------------------------------

    def wake(self, transaction: Any, key: Wake, not_before: int | None = None) -> None:
        """Say nothing: the row is found by a search, which this process's bell makes at once."""

    async def awake(self, transaction: Any, key: Wake, not_before: int | None = None) -> None:
        """Say nothing, as the blocking one."""

    async def run(self, handler: Handler) -> None:
        """Enter workflows until `stop` is called; then let those that run come to their end."""
        await self._run(handler, until_idle=False)

    async def drain(self, handler: Handler) -> None:
        """Enter what is due now, and what becomes due meanwhile, until nothing is."""
        await self._run(handler, until_idle=True)

    def stop(self) -> None:
        """Enter nothing more; safe to call from the loop."""
        self._stopping = True
        self._change.set()

    async def reap(self) -> int:
        """Take nothing back: a dead worker's workflow is due when its lease is over, and is found like any other."""
        return 0

    async def health(self) -> Health:
        """Say that it works: there is nothing beside the rows that could be wrong."""
        return Health(engine=self.name, is_well=True, details={"running": len(self._running)})

    # --- the loop ----------------------------------------------------------------------------------------------------

    def search(self) -> None:
        """Search at once."""
        self._poll, self._poll_at, self._is_idle = FIRST_POLL_S, 0.0, False
        self._change.set()

    async def _run(self, handler: Handler, *, until_idle: bool) -> None:
        self.search()
        self.desk.bell.listen(self, on_this_loop(self.search))
        try:
            while not self._is_over(until_idle=until_idle):
                self._change.clear()
                if not (await self._search_if_due(handler) or self._is_over(until_idle=until_idle)):
                    await self._wait()
        finally:
            self.desk.bell.leave(self)
            await self._finish()

    def _is_over(self, *, until_idle: bool) -> bool:
        if self._running:
            return False
        return self._stopping or (until_idle and (self._is_idle or not self.desk.graphs))

    async def _search_if_due(self, handler: Handler) -> bool:
        """Find what is due and enter it; say whether there was anything."""
        free, now = self.at_once - len(self._running), time.monotonic()
        if self._stopping or free < 1 or now < self._poll_at or not self.desk.graphs:
            return False
        try:
            found = await self._finder.reserve(free)
        except StoreClosed:
            raise
        except StoreError as error:
            LOG.warning("workflows could not be searched, which is done again: %s", error)
            await asyncio.sleep(PAUSE_S)
            return False
        running = set(self._running.values())
        entering = [due for due in found if due.lost is None or due.key not in running]
        for due in entering[:free]:
            self._begin(handler, due)
        self._is_idle = not entering
        self._poll = FIRST_POLL_S if entering else min(self._poll * 2, LONGEST_POLL_S)
        self._poll_at = 0.0 if entering else now + self._poll
        return bool(entering)

    async def _wait(self) -> None:
        """Wait until a workflow waits or ends, a graph is registered, or the next search is due."""
        poll = LONGEST_POLL_S if self._running else max(0.0, self._poll_at - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(poll if self.desk.graphs else None):
                await self._change.wait()

    async def _finish(self) -> None:
        """Stop what runs still where the loop was left by an error or a cancellation."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _begin(self, handler: Handler, due: Due) -> None:
        task = asyncio.get_running_loop().create_task(_entered(handler, due))
        self._running[task] = due.key
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task)
        self._is_idle, self._poll_at = False, 0.0
        self._change.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("a workflow could not be entered", exc_info=error)


async def _entered(handler: Handler, due: Due) -> None:
    await handler(due.key, due)
