"""Enter workflows that an engine hands out, each until it waits or ends.

Rows are the truth: whether a workflow can be entered, its row says, whoever woke whom, and its thread's claim lets one
worker enter it. A run that died is found by its lease, or at once where its process is known to be gone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.engine.embedded import Embedded
from counterfoil.errors import GraphMismatch, StoreError, ThreadBusy, VersionConflict, WorkflowEnded, WorkflowParked
from counterfoil.standing import fate_of, workflow
from counterfoil.storage.scripts import workflows

if TYPE_CHECKING:
    from counterfoil.desk import Desk
    from counterfoil.engine.port import Engine
    from counterfoil.storage.scripts.threads import ThreadKey
    from counterfoil.storage.scripts.workflows import Due, Kept

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
    """Enters the workflows of a database whose graphs this process registers.

    Args:
        desk: What an opened Counterfoil works with.
        engine: What hands them out; unless it is given, a search of this process's own.
    """

    desk: Desk
    engine: Engine | None = None
    counts: Counts = field(default_factory=Counts)
    _own: Embedded = field(init=False)
    _stopping: bool = False
    _controls: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make the search of its own, which drains in any case."""
        self._own = Embedded(self.desk)

    async def run(self) -> None:
        """Enter workflows until `stop` is called; then let those that run stop at their next node."""
        await (self.engine or self._own).run(self.enter)

    async def drain(self) -> None:
        """Enter what is due now, and what becomes due meanwhile, until nothing is."""
        await self._own.drain(self.enter)

    def stop(self) -> None:
        """Enter nothing more, and ask what runs to stop at its next node; safe to call from the loop."""
        self._stopping = True
        for control in self._controls:
            control.request_drain("counterfoil: the worker stops")
        for engine in {id(one): one for one in (self.engine, self._own) if one is not None}.values():
            engine.stop()

    # --- one workflow ------------------------------------------------------------------------------------------------

    async def enter(self, key: ThreadKey, found: Due | None = None) -> None:
        """Enter a workflow that can be entered; what its nodes raise is in its row by now, and in the log."""
        try:
            due = found or await self.desk.async_store.read(lambda: workflows.look(key), tenant=key.tenant)
            graph = None if due is None else self.desk.graphs.get((due.graph, due.graph_version))
            if due is None or graph is None or self._stopping:
                await self._give_back(found)
                return
            kept = await self.desk.async_store.read(lambda: workflows.entry(key), tenant=key.tenant)
            is_held = kept is None or await self._is_held(graph, due, kept)
        except StoreError as error:
            LOG.warning("workflow %s could not be looked at, which is done again: %s", key.thread_id, error)
            return
        if kept is not None and not is_held:
            await self._enter(graph, due, kept)

    async def _enter(self, graph: Any, due: Due, kept: Kept) -> None:
        self.counts.entered += 1
        control = graph.control()
        self._controls.add(control)
        if self._stopping:  # since it was looked at
            control.request_drain("counterfoil: the worker stops")
        if due.lost is not None:
            told = "workflow %s of tenant %s goes on here: %s, which ran it, is gone or was silent for too long"
            LOG.info(told, due.key.thread_id, due.key.tenant, due.lost)
        try:
            await graph.enter(due, kept, control)
        except Exception as error:  # noqa: BLE001 - whatever a node raises
            await self._note(due, error)
        finally:
            self._controls.discard(control)

    async def _note(self, due: Due, error: Exception) -> None:
        """Count what ended a run: that somebody else owns the workflow is no fault; that a node met another one is."""
        is_own = isinstance(error, ELSEWHERE) and error.facts.get("thread_id", due.key.thread_id) == due.key.thread_id
        if is_own:
            self.counts.elsewhere += 1
            LOG.debug("workflow %s: %s", due.key.thread_id, error)
        else:
            self.counts.raised += 1
            becomes = await self._becomes(due.key)
            LOG.error("workflow %s of tenant %s raised%s", due.key.thread_id, due.key.tenant, becomes, exc_info=error)

    async def _becomes(self, key: ThreadKey) -> str:
        """Say what becomes of a workflow that raised, as far as its row can be read now."""
        try:
            row = await self.desk.async_store.read(lambda: workflows.get(key), tenant=key.tenant)
        except StoreError:
            return ""
        return "" if row is None else f", {fate_of(workflow(row))}"

    async def _give_back(self, reserved: Due | None) -> None:
        """Leave a workflow to others that was reserved for this worker, which stops."""
        if reserved is not None:
            await self.desk.async_store.write(lambda: workflows.give_back(reserved), tenant=reserved.key.tenant)

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
        await self.desk.async_store.write(lambda: workflows.hold(due, **held), tenant=due.key.tenant)
        return True
