"""A dispatcher, a reconciler and what enters workflows side by side: what one process does until it is told to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.desk import EMBEDDED
from counterfoil.engine.choosing import chosen
from counterfoil.ledger import DEFAULT_BATCH
from counterfoil.runtime.dispatcher import Dispatcher
from counterfoil.runtime.reconciler import Reconciler
from counterfoil.runtime.workflows import WorkflowRunner

if TYPE_CHECKING:
    from collections.abc import Collection

    from counterfoil.desk import Desk
    from counterfoil.effects import Effect


@dataclass(slots=True)
class Worker:
    """Sends what is due and settles what nobody knows, for the effects that this process declares.

    Args:
        desk: What an opened Counterfoil works with.
        effects: The effects to send; by default all that are declared in this process.
        batch: Intents that are claimed and recorded in one transaction.
        concurrency: Effects that run at once; by default two batches.
        engine: What wakes its workflows; unless it is named, what the Counterfoil was opened with.
    """

    desk: Desk
    effects: Collection[Effect[Any]] = ()
    batch: int = DEFAULT_BATCH
    concurrency: int | None = None
    engine: str | None = None
    dispatcher: Dispatcher = field(init=False)
    reconciler: Reconciler = field(init=False)
    workflows: WorkflowRunner = field(init=False)

    def __post_init__(self) -> None:
        """Make the three."""
        self.dispatcher = Dispatcher(self.desk, self.effects, self.batch, self.concurrency)
        self.reconciler = Reconciler(self.desk, self.effects)
        name = self.engine or self.desk.engine
        self.workflows = WorkflowRunner(self.desk, None if name == EMBEDDED else chosen(self.desk, name))

    async def run(self) -> None:
        """Work until `stop` is called, then finish what is under way."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reconciler.run())
            group.create_task(self.dispatcher.run())
            group.create_task(self.workflows.run())

    async def drain(self) -> None:
        """Settle what can be and send what is due, until nothing is."""
        while True:
            await self.reconciler.settle()
            self.dispatcher.wake()
            await self.dispatcher.drain()
            entered = self.workflows.counts.entered
            if self.desk.graphs:
                await self.workflows.drain()
            if self.workflows.counts.entered == entered:  # what a workflow enqueued is sent, too
                return

    def stop(self) -> None:
        """Claim nothing more; safe to call from a signal handler of the loop."""
        self.dispatcher.stop()
        self.workflows.stop()
        self.reconciler.stop()
