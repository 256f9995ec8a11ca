"""Counterfoil for callers on an event loop: the same names as its blocking twin."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self, TypeVar, assert_never

from counterfoil.active import refuse_nested
from counterfoil.aio.rooms import AsyncRooms
from counterfoil.aio.transacting import awaiting_body
from counterfoil.config import database_url
from counterfoil.core.branches import validate_path
from counterfoil.core.trusting import trusted_context
from counterfoil.desk import EMBEDDED, NOWHERE, Desk, check_effect, open_desk
from counterfoil.drivers.driving import adrive
from counterfoil.enqueuing import Enqueuing, Several, recorded
from counterfoil.graphs import Graphs
from counterfoil.keeping import FOREVER
from counterfoil.ledger import CLOSE_WAIT_S, DEFAULT_BATCH, DEFAULT_WAIT
from counterfoil.operations import check_tenant
from counterfoil.performing import Job, Read, Write, perform
from counterfoil.resources import Resources, close_all
from counterfoil.runners import AsyncRunner
from counterfoil.storage.tenants import whose
from counterfoil.transacting import Body, Step, WriteAlone, blocking_body, transact
from counterfoil.verifying import Verification, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from counterfoil.aio.joining import AsyncJoined
    from counterfoil.clock import Clock
    from counterfoil.core.durations import Duration
    from counterfoil.delivery import Delivery
    from counterfoil.drivers.probes import Probe
    from counterfoil.effects import Effect
    from counterfoil.enqueuing import Asked
    from counterfoil.keeping import Retention
    from counterfoil.model import Intent, Origin, Receipt, Trusted
    from counterfoil.runtime.background import WorkerTask
    from counterfoil.shown import Branch, Purged

T = TypeVar("T")
R = TypeVar("R")


class AsyncCounterfoil(AsyncRooms, Graphs):
    """One database with its operations, resources and heartbeats, for callers on an event loop."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.store = desk.async_store
        self._runner = AsyncRunner(self.store, desk.store, desk.heartbeats, desk.activity)

    @classmethod
    def open(  # noqa: PLR0913 - each is a setting of its own
        cls,
        url: str | None = None,
        *,
        wait: Duration = DEFAULT_WAIT,
        upgrade: bool = False,
        network_filesystem: bool = False,
        connections: int | None = None,
        retention: Retention = FOREVER,
        engine: str = EMBEDDED,
        strict: bool = False,
        clock: Clock | None = None,
        probe: Probe | None = None,
    ) -> Self:
        """Open a database; a new one gets its schema. See `Counterfoil.open`; opening itself blocks for a moment."""
        return cls(
            open_desk(
                database_url(url),
                wait=wait,
                upgrade=upgrade,
                clock=clock,
                probe=probe,
                network_filesystem=network_filesystem,
                connections=connections,
                retention=retention,
                engine=engine,
                strict=strict,
            )
        )

    @property
    def resources(self) -> Resources:
        """Return the registry of live resources that effects ask for by type."""
        return self.desk.resources

    @property
    def retention(self) -> Retention:
        """Return how long what is known of settled operations is kept, where their effect says nothing else."""
        return self.desk.retention

    async def close(self) -> None:
        """End the workers of this process, wait for what is being performed, close its resources and the database."""
        refuse_nested("close")
        await asyncio.to_thread(self.desk.wait_until_idle, CLOSE_WAIT_S)
        await asyncio.to_thread(self.desk.heartbeats.close)
        for close in close_all(self.desk.resources.drain()):
            await close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def perform(
        self,
        effect: Effect[T],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        **arguments: Any,
    ) -> Receipt[T]:
        """Perform an operation once; see `Counterfoil.perform`. Blocking effects run in a thread.

        When the caller is cancelled the outcome is recorded first: `unknown` if the effect had begun.
        """
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return await self.perform_as(effect, arguments, trusted, NOWHERE)

    async def perform_as(
        self, effect: Effect[T], arguments: Mapping[str, Any], trusted: Trusted, origin: Origin
    ) -> Receipt[T]:
        """Perform an operation for a run whose trusted context and place are known."""
        refuse_nested("perform")
        check_effect(effect)
        job = self.desk.job(effect, arguments, trusted, origin)
        if effect.facts.transactional:
            return await self._transactional(job)
        with self.desk.activity.entry(job.request.holder):
            return await self._runner.run(perform(job), wait_ms=self.desk.wait_ms, tenant=job.key.tenant)

    async def enqueue(
        self,
        effect: Effect[Any],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        delivery: Delivery | None = None,
        **arguments: Any,
    ) -> Intent:
        """Record an operation that a dispatcher sends; see `Counterfoil.enqueue`."""
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        refuse_nested("enqueue")
        return await self._record(Enqueuing(self.desk, effect, arguments, trusted, NOWHERE, delivery))

    async def enqueue_all(
        self,
        effect: Effect[Any],
        several: Iterable[Mapping[str, Any]],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        delivery: Delivery | None = None,
    ) -> tuple[Intent, ...]:
        """Record several operations of one effect in one transaction; see `Counterfoil.enqueue_all`."""
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        refuse_nested("enqueue_all")
        return await self._record(Several(self.desk, effect, several, trusted, delivery))

    async def _record(self, asked: Asked[R]) -> R:
        steps = recorded(asked.maker)
        intents = asked.conclude(await adrive(steps, lambda step: self.store.write(step.maker, tenant=asked.tenant)))
        self.desk.bell.ring()
        return intents

    async def drain(self, *effects: Effect[Any], batch: int = DEFAULT_BATCH, concurrency: int | None = None) -> None:
        """Look up outcomes that nobody knows, and send what is due, until nothing is; see `Counterfoil.drain`."""
        from counterfoil.runtime.worker import Worker  # noqa: PLC0415 - most processes leave it to a worker

        refuse_nested("drain")
        await Worker(self.desk, effects, batch, concurrency).drain()

    def working(self, *effects: Effect[Any], batch: int = DEFAULT_BATCH, concurrency: int | None = None) -> WorkerTask:
        """Return a block in which a task of this loop sends what is due; see `Counterfoil.working`."""
        from counterfoil.runtime.background import WorkerTask  # noqa: PLC0415 - most processes leave it to a worker
        from counterfoil.runtime.worker import Worker  # noqa: PLC0415

        refuse_nested("working")
        return WorkerTask(Worker(self.desk, effects, batch, concurrency))

    async def purge(self, *, tenant: str | None = None) -> Purged:
        """Remove what is kept no longer by the retention declared here and with effects; see `Counterfoil.purge`."""
        from counterfoil.purging import purge  # noqa: PLC0415 - most processes leave it to one

        async def do(step: Step) -> Any:
            run = self.store.read if isinstance(step, Read) else self.store.write
            return await run(step.maker, tenant=whose(only))

        refuse_nested("purge")
        only = check_tenant(tenant) if tenant is not None else None
        return await adrive(purge(self.desk.retention, only), do)

    async def verify(
        self,
        effect: Effect[Any],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        thread_id: str | None = None,
        in_branch: str | None = None,
        **arguments: Any,
    ) -> Verification:
        """Ask the provider about an operation, also after success; see `Counterfoil.verify`."""
        refuse_nested("verify")
        trusted = trusted_context(
            tenant=tenant,
            request_id=request_id,
            workflow_id=workflow_id,
            principal=principal,
            thread_id=thread_id,
            branch=validate_path(in_branch),
        )
        job = self.desk.job(effect, arguments, trusted, NOWHERE)
        return await self._runner.run(verify(job), wait_ms=0, tenant=job.key.tenant)

    def join(self, transaction: Any) -> AsyncJoined:
        """Work inside a transaction that the caller has open; see `Counterfoil.join`. It must be an async one."""
        from counterfoil.aio.joining import join  # noqa: PLC0415 - few callers join

        return join(self.desk, transaction)

    async def run(
        self,
        graph: Any,
        input: Any,  # noqa: A002 - LangGraph's name
        /,
        *,
        thread_id: str,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run a compiled graph in a trusted context; see `Counterfoil.run`."""
        from counterfoil.langgraph.running import managed  # noqa: PLC0415 - needs LangGraph

        made = self.config(
            thread_id=thread_id,
            tenant=tenant,
            request_id=request_id,
            workflow_id=workflow_id,
            principal=principal,
            config=config,
        )
        return await managed(graph).ainvoke(input, made, **options)

    async def fork(
        self,
        thread_id: str,
        checkpoint: str | Mapping[str, Any] | None = None,
        *,
        branch: str,
        tenant: str | None = None,
    ) -> Branch:
        """Open a named branch at a checkpoint: a thread of its own, whose operations have ids of their own.

        What was performed before the checkpoint keeps its receipts; what is performed in the branch is sent, under the
        id that it has on the main line with `~branch-NAME` behind it. The thread may be run meanwhile. A branch that is
        open already is returned as it is.

        Args:
            thread_id: The thread to leave; it may be a branch itself.
            checkpoint: A checkpoint's id, or a configuration that addresses it (`snapshot.config`); else the newest.
            branch: Its name: letters, digits, `-` and `_`.
            tenant: Whose thread it is.

        Raises:
            CheckpointNotFound: the thread has no such checkpoint.
            BranchTaken: the name belongs to a branch from another checkpoint.
            InvalidId: the name cannot be part of an id.
        """
        from counterfoil.langgraph.branching import Fork, afork  # noqa: PLC0415 - needs LangGraph

        refuse_nested("fork")
        return await afork(self.desk, Fork.of(tenant, thread_id, checkpoint, branch))

    async def _transactional(self, job: Job) -> Receipt[Any]:
        async def do(step: Step) -> Any:
            match step:
                case Read(maker):
                    return await self.store.read(maker, tenant=job.key.tenant)
                case Write(maker):
                    return await self.store.write(maker, tenant=job.key.tenant)
                case WriteAlone(maker) if job.effect.is_async:
                    return await self.store.write_lent(maker, tenant=job.key.tenant)
                case WriteAlone(maker):
                    return await self.store.write_alone(maker, tenant=job.key.tenant)
                case _:
                    assert_never(step)

        return await adrive(transact(job, self._body(job), at_once=self.store.claims_at_once), do)

    def _body(self, job: Job) -> Body | None:
        if job.effect.is_async:
            return self.store.lend(awaiting_body(job))
        body, context = blocking_body(job), copy_context()  # for another thread, in this one's context
        return None if body is None else lambda transaction: context.run(body, transaction)
