"""Enter workflows that are due, as often as it takes: a few at once, each until it waits or ends.

Rows are the truth: a workflow is found by what is due, whoever woke whom, and its thread's claim lets one worker enter
it. A run that died is found by its lease, or at once where its process is known to be gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.errors import GraphMismatch, StoreError, ThreadBusy, VersionConflict, WorkflowEnded, WorkflowParked
from counterfoil.storage.scripts import workflows

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.desk import Desk
    from counterfoil.storage.scripts.threads import ThreadKey
    from counterfoil.storage.scripts.workflows import Due, Kept

AT_ONCE = 10
"""Workflows that one process runs at once, unless it is told otherwise: most of them wait for something slow."""
FIRST_POLL_S, LONGEST_POLL_S = 0.05, 1.0
"""How long after an empty search the next one follows, longer each time; whoever starts or delivers here wakes us."""
LOST_EVERY_S = 5.0
"""How often running workflows are looked through for those whose process died on this machine."""
LOOKED_THROUGH = 200
"""Running workflows that are looked through at once."""
PAUSE_S = 0.5
"""How long after a failure of the database the next search follows."""
ELSEWHERE = (VersionConflict, ThreadBusy, WorkflowEnded, WorkflowParked)
"""What an entry ends with that another worker, or a person, was faster than."""

LOG = logging.getLogger("counterfoil.workflows")


@dataclass(slots=True)
class Counts:
    """What a worker did with workflows."""

    entered: int = 0
    raised: int = 0
    elsewhere: int = 0
    held: int = 0


@dataclass(slots=True, eq=False)
class WorkflowRunner:
    """Enters the workflows of a database whose graphs this process registers."""

    desk: Desk
    at_once: int = AT_ONCE
    counts: Counts = field(default_factory=Counts)
    _stopping: bool = False
    _running: dict[asyncio.Task[None], tuple[Due, Any]] = field(default_factory=dict)
    _change: asyncio.Event = field(default_factory=asyncio.Event)
    _is_idle: bool = False
    _poll: float = FIRST_POLL_S
    _poll_at: float = 0.0
    _lost_at: float = 0.0

    async def run(self) -> None:
        """Enter workflows until `stop` is called; then let those that run stop at their next node."""
        await self._run(until_idle=False)

    async def drain(self) -> None:
        """Enter what is due now, and what becomes due meanwhile, until nothing is."""
        await self._run(until_idle=True)

    def stop(self) -> None:
        """Enter nothing more, and ask what runs to stop at its next node; safe to call from the loop."""
        self._stopping = True
        for _, control in self._running.values():
            control.request_drain("counterfoil: the worker stops")
        self._change.set()

    def wake(self) -> None:
        """Search at once."""
        self._poll, self._poll_at, self._is_idle = FIRST_POLL_S, 0.0, False
        self._change.set()

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def _run(self, *, until_idle: bool) -> None:
        self.wake()
        self.desk.bell.listen(self, _waker(self))
        try:
            while not self._is_over(until_idle=until_idle):
                self._change.clear()
                if not (await self._search_if_due() or self._is_over(until_idle=until_idle)):
                    await self._wait()
        finally:
            self.desk.bell.leave(self)
            await self._finish()

    def _is_over(self, *, until_idle: bool) -> bool:
        if self._running:
            return False
        return self._stopping or not self.desk.graphs or (until_idle and self._is_idle)

    async def _search_if_due(self) -> bool:
        """Find what is due and enter it; say whether there was anything."""
        free, now = self.at_once - len(self._running), time.monotonic()
        if self._stopping or free < 1 or now < self._poll_at:
            return False
        try:
            found = [
                (graph, due) for graph in tuple(self.desk.graphs.values()) for due in await self._find(graph, free)
            ]
        except StoreError as error:
            LOG.warning("workflows could not be searched, which is done again: %s", error)
            await asyncio.sleep(PAUSE_S)
            return False
        entering = [(graph, due) for graph, due in found if due.key not in self._running_keys]
        for graph, due in entering[:free]:
            self._begin(graph, due)
        self._is_idle = not entering
        self._poll = FIRST_POLL_S if entering else min(self._poll * 2, LONGEST_POLL_S)
        self._poll_at = 0.0 if entering else now + self._poll
        return bool(entering)

    async def _find(self, graph: Any, limit: int) -> list[Due]:
        """Find what is due of one graph, and now and then whose process on this machine died."""
        store = self.desk.async_store
        found = await store.write(lambda: workflows.find_due(graph.name, graph.version, limit=limit))
        if time.monotonic() < self._lost_at:
            return found
        running = await store.read(lambda: workflows.find_running(graph.name, graph.version, limit=LOOKED_THROUGH))
        gone = [due for due in running if due.lost and self.desk.activity.is_gone(due.lost)]
        self._lost_at = time.monotonic() + LOST_EVERY_S
        return [*found, *(due for due in gone if due not in found)]

    @property
    def _running_keys(self) -> set[ThreadKey]:
        return {due.key for due, _ in self._running.values()}

    async def _wait(self) -> None:
        """Wait until a workflow waits or ends, or the next search is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_POLL_S if self._running else max(0.0, self._poll_at - time.monotonic())):
                await self._change.wait()

    async def _finish(self) -> None:
        """Stop what runs still where the loop was left by an error or a cancellation."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    # --- one workflow ------------------------------------------------------------------------------------------------

    def _begin(self, graph: Any, due: Due) -> None:
        control = graph.control()
        task = asyncio.get_running_loop().create_task(self._enter(graph, due, control))
        self._running[task] = (due, control)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task)
        self._is_idle, self._poll_at = False, 0.0
        self._change.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("a workflow could not be entered", exc_info=error)

    async def _enter(self, graph: Any, due: Due, control: Any) -> None:
        """Enter a workflow; what its nodes raise is in its row by now, and in the log."""
        kept = await self.desk.async_store.read(lambda: workflows.entry(due.key))
        if kept is None or await self._is_held(graph, due, kept):
            return
        self.counts.entered += 1
        try:
            await graph.enter(due, kept, control)
        except ELSEWHERE as error:
            self.counts.elsewhere += 1
            LOG.debug("workflow %s: %s", due.key.thread_id, error)
        except Exception:
            self.counts.raised += 1
            LOG.exception("workflow %s of tenant %s raised", due.key.thread_id, due.key.tenant)

    async def _is_held(self, graph: Any, due: Due, kept: Kept) -> bool:
        """Say whether a workflow began in another graph than is registered under its version; it is told in its row."""
        told = graph.differences(kept.shape)
        if not told:
            return False
        self.counts.held += 1
        text = (
            f"It began in another graph than is registered as {graph.name} version {graph.version}: {'; '.join(told)}."
            " Register the graph that it began in under this version, and the changed one under a new version."
        )
        LOG.error("workflow %s of tenant %s is held: %s", due.key.thread_id, due.key.tenant, text)
        held = {"error_class": GraphMismatch.__name__, "error_text": text}
        await self.desk.async_store.write(lambda: workflows.hold(due, **held))
        return True


def _waker(runner: WorkflowRunner) -> Callable[[], None]:
    """Return what wakes a runner from any thread."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(runner.wake)

    return wake
