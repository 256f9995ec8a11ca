"""Counterfoil for blocking callers: open a database, perform effects, read receipts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, assert_never

from counterfoil.active import is_on_loop, on_loop, refuse_nested, refuse_on_loop, refuse_unjoined
from counterfoil.config import database_url
from counterfoil.core.branches import validate_path
from counterfoil.core.trusting import trusted_context
from counterfoil.desk import EMBEDDED, NOWHERE, Desk, check_effect, open_desk
from counterfoil.drivers.driving import drive
from counterfoil.enqueuing import Enqueuing, Several, recorded
from counterfoil.errors import AsyncEffectInSync
from counterfoil.graphs import Graphs
from counterfoil.keeping import FOREVER
from counterfoil.operations import check_tenant
from counterfoil.performing import Job, Read, Write, perform
from counterfoil.resources import Resources, close_all
from counterfoil.rooms import Rooms
from counterfoil.runners import Runner
from counterfoil.storage.tenants import whose
from counterfoil.transacting import Step, WriteAlone, blocking_body, transact
from counterfoil.verifying import Verification, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from counterfoil.clock import Clock
    from counterfoil.core.durations import Duration
    from counterfoil.delivery import Delivery
    from counterfoil.drivers.probes import Probe
    from counterfoil.effects import Effect
    from counterfoil.enqueuing import Asked
    from counterfoil.joining import Joined
    from counterfoil.keeping import Retention
    from counterfoil.model import Intent, Origin, Receipt, Trusted
    from counterfoil.runtime.background import WorkerThread
    from counterfoil.shown import Branch, Purged

T = TypeVar("T")
R = TypeVar("R")

CLOSE_WAIT_S = 30.0
"""How long close waits for effects that are under way: their results would be lost."""
DEFAULT_BATCH = 10
"""Intents that are sent between two commits: a crash leaves no more than two batches unknown."""
DEFAULT_WAIT = "5s"
"""How long a caller waits for another one that performs the same operation."""


class Counterfoil(Rooms, Graphs):
    """One database with its operations, resources and heartbeats, for blocking callers of any thread."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._runner = Runner(desk.store, desk.heartbeats, desk.activity)

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
        """Open a database; a new one gets its schema.

        Args:
            url: `sqlite:///file.db`, `sqlite:////absolute/file.db`, `sqlite:///:memory:` or
                `postgresql://user@host/database`; else `COUNTERFOIL_URL`, else `[tool.counterfoil] url` in
                `pyproject.toml`.
            wait: How long a caller waits for another one that performs the same operation.
            upgrade: Whether to apply missing migrations to a database that has ours already.
            network_filesystem: Accept a SQLite file on a network file system, at your own risk.
            connections: Connections to a PostgreSQL server at the most, 10 unless given; for each colour its own.
            retention: How long what is known of settled operations is kept; `purge` removes what is over.
            engine: What wakes workflows: `"embedded"`, or `"procrastinate"` on many machines with one PostgreSQL.
            strict: Whether an operation must have been granted (`cf.grants`) or approved by a person before it can be
                claimed: then code that invents an id, an effect or arguments sends nothing.
            clock: Where times come from; for tests.
            probe: Called around every statement and commit; for tests.

        Raises:
            NoDatabase: no database is named.
            InvalidUrl: the URL cannot be read.
            ContradictoryDeclaration: the retention is shorter than an effect may be tried, or its provider's key lives.
            NetworkFilesystem: the file lies on a network file system.
            SchemaMismatch: the database is older or newer than this code, or was altered.
            StoreError: the database cannot be opened.
        """
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

    def close(self) -> None:
        """End the workers of this process, wait for what is being performed, close its resources and the database.

        An effect that takes longer than half a minute is left alone: its outcome counts as unknown.
        """
        refuse_nested("close")
        self.desk.wait_until_idle(CLOSE_WAIT_S)
        self.desk.heartbeats.close()
        close_all(self.desk.resources.drain())
        self.desk.async_store.retire()
        self.desk.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def perform(
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
        """Perform an operation once: claim it, run its effect, settle it, return the receipt.

        Called again with the same id and arguments it returns the same receipt and sends nothing.

        Args:
            effect: A declared effect.
            tenant: Whose operation it is; part of its identity.
            request_id: The business request that asks for it; trusted.
            workflow_id: The workflow that it belongs to; trusted.
            principal: Who asks for it; trusted.
            **arguments: The effect's business arguments.

        Raises:
            OutcomeUnknown: it may or may not have happened, and that is not settled yet.
            EffectNotSent: it provably did not happen; call again.
            EffectRefused: the provider refused it for good.
            FingerprintMismatch: the id was used with other arguments.
            OperationInProgress: another caller is at it for longer than the wait.
            FenceLost: this caller was too slow and another one took over.
            UsageError: the caller's code is wrong.
        """
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        return self.perform_as(effect, arguments, trusted, NOWHERE)

    def perform_as(
        self, effect: Effect[T], arguments: Mapping[str, Any], trusted: Trusted, origin: Origin
    ) -> Receipt[T]:
        """Perform an operation for a run whose trusted context and place are known."""
        refuse_nested("perform")
        check_effect(effect)
        if is_on_loop():
            raise on_loop(
                f"perform({effect.__name__})",
                f"await cf.perform({effect.__name__}, ...) with an AsyncCounterfoil, or await aperform(...) in an async"
                " node. In a notebook, where a loop always runs: cf = AsyncCounterfoil.open(url), await cf.run(graph,"
                " ...)",
            )
        refuse_async(effect)
        refuse_unjoined("perform", self.desk.store)
        job = self.desk.job(effect, arguments, trusted, origin)
        if effect.facts.transactional:
            return self._transactional(job)
        with self.desk.activity.entry(job.request.holder):
            return self._runner.run(perform(job), wait_ms=self.desk.wait_ms, tenant=trusted.tenant)

    def enqueue(
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
        """Record an operation that a dispatcher sends; in a transaction of the caller's own, see `join`.

        Called again with the same id and arguments it records nothing more.

        Args:
            effect: A declared effect, not a transactional one.
            tenant: Whose operation it is; part of its identity.
            request_id: The business request that asks for it; trusted.
            workflow_id: The workflow that it belongs to; trusted.
            principal: Who asks for it; trusted.
            delivery: When it is sent, in which order, how often, and until when.
            **arguments: The effect's business arguments.

        Raises:
            FingerprintMismatch: the id was used with other arguments.
            DifferentEffect: the id belongs to another effect.
            UsageError: the caller's code is wrong.
        """
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        self._check_call("enqueue")
        return self._record(Enqueuing(self.desk, effect, arguments, trusted, NOWHERE, delivery))

    def enqueue_all(
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
        """Record several operations of one effect in one transaction: all, or none where one is refused.

        Args:
            effect: A declared effect, not a transactional one.
            several: The business arguments of each operation.
            tenant: Whose operations they are; part of their identity.
            request_id: The business request that asks for them; trusted.
            workflow_id: The workflow that they belong to; trusted.
            principal: Who asks for them; trusted.
            delivery: When they are sent, in which order, how often, and until when.

        Raises:
            FingerprintMismatch: an id was used with other arguments.
            DifferentEffect: an id belongs to another effect.
            UsageError: the caller's code is wrong.
        """
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        self._check_call("enqueue_all")
        return self._record(Several(self.desk, effect, several, trusted, delivery))

    def _record(self, asked: Asked[R]) -> R:
        intents = asked.conclude(drive(recorded(asked.maker), lambda step: self._do(step, asked.tenant)))
        self.desk.bell.ring()
        return intents

    def _check_call(self, name: str) -> None:
        refuse_nested(name)
        refuse_on_loop(name, f"await cf.{name}(...) with an AsyncCounterfoil")
        refuse_unjoined(name, self.desk.store)

    def drain(self, *effects: Effect[Any], batch: int = DEFAULT_BATCH, concurrency: int | None = None) -> None:
        """Look up outcomes that nobody knows, and send what is due, in this process, until nothing is.

        For programs that have no `counterfoil worker` beside them, and for tests.

        Args:
            *effects: The effects to send; by default all that this process declares.
            batch: Intents that are claimed and recorded in one transaction.
            concurrency: Effects that run at once; by default two batches.

        Raises:
            SyncOnEventLoop: a loop runs in this thread; use an AsyncCounterfoil.
        """
        from counterfoil.runtime.worker import Worker  # noqa: PLC0415 - most processes leave it to a worker

        self._check_call("drain")
        worker = Worker(self.desk, effects, batch, concurrency)
        asyncio.run(worker.drain())

    def working(
        self, *effects: Effect[Any], batch: int = DEFAULT_BATCH, concurrency: int | None = None
    ) -> WorkerThread:
        """Return a block in which a thread of this process sends what is due and looks up what nobody knows.

        At its end what is under way is finished, and nothing more is claimed. For programs that have no
        `counterfoil worker` beside them.

        Args:
            *effects: The effects to send; by default all that this process declares.
            batch: Intents that are claimed and recorded in one transaction.
            concurrency: Effects that run at once; by default two batches.
        """
        from counterfoil.runtime.background import WorkerThread  # noqa: PLC0415 - most processes leave it to a worker
        from counterfoil.runtime.worker import Worker  # noqa: PLC0415

        refuse_nested("working")
        return WorkerThread(Worker(self.desk, effects, batch, concurrency))

    def purge(self, *, tenant: str | None = None) -> Purged:
        """Remove what is kept no longer by the retention of this Counterfoil and of the effects of this process.

        It goes page by page, each in a transaction of its own, by the database's clock. What is not settled stays, and
        so does what a case is open about or a waiting run may ask for. Without a tenant all are purged.

        Raises:
            SyncOnEventLoop: a loop runs in this thread; use an AsyncCounterfoil.
        """
        from counterfoil.purging import purge  # noqa: PLC0415 - most processes leave it to one

        self._check_call("purge")
        only = check_tenant(tenant) if tenant is not None else None
        return drive(purge(self.desk.retention, only), lambda step: self._do(step, only))

    def verify(
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
        """Ask the provider about an operation, also after success, and record the answer.

        Takes the same arguments as `perform`: a settled operation no longer holds its payload. `in_branch` names the
        branch in which it was performed, as `Operation.branch` does; a key that uses the thread is given the id that
        the thread had before any branch.

        Raises:
            OperationNotFound: there is no such operation.
            ContradictoryDeclaration: the provider declares no look-up.
            InvalidId: the branch's name is none.
        """
        refuse_nested("verify")
        check_effect(effect)
        refuse_on_loop("verify", "await cf.verify(...) with an AsyncCounterfoil")
        refuse_unjoined("verify", self.desk.store)
        refuse_async(effect)
        trusted = trusted_context(
            tenant=tenant,
            request_id=request_id,
            workflow_id=workflow_id,
            principal=principal,
            thread_id=thread_id,
            branch=validate_path(in_branch),
        )
        job = self.desk.job(effect, arguments, trusted, NOWHERE)
        return self._runner.run(verify(job), wait_ms=0, tenant=job.key.tenant)

    def join(self, transaction: Any) -> Joined:
        """Work inside a transaction that the caller has open: commits with it, rolls back with it.

        Raises:
            ForeignTransaction: it is not open, or belongs to another database.
        """
        from counterfoil.joining import join  # noqa: PLC0415 - few callers join

        return join(self.desk, transaction)

    def run(
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
        """Run a compiled graph in a trusted context and return what its `invoke` returns.

        Args:
            graph: What `compile` returned.
            input: New input, None to go on, or a `Command`.
            thread_id: The LangGraph thread.
            tenant: Whose run it is; without one, effects are refused.
            request_id: The business request; when a run goes on it is taken from the thread.
            workflow_id: The workflow; when a run goes on it is taken from the thread.
            principal: Who asks; when a run goes on it is taken from the thread.
            config: More LangGraph configuration.
            **options: What `invoke` takes.

        Raises:
            ThreadBusy: another run owns the thread; no node ran.
            TrustedFieldMismatch: a run that goes on was given another request, workflow or principal.
            ThreadParked: a resume value was given to a run that waits for an unknown outcome.
            UnmanagedThread: the graph was not compiled by Counterfoil.
        """
        from counterfoil.langgraph.running import managed  # noqa: PLC0415 - needs LangGraph

        made = self.config(
            thread_id=thread_id,
            tenant=tenant,
            request_id=request_id,
            workflow_id=workflow_id,
            principal=principal,
            config=config,
        )
        return managed(graph).invoke(input, made, **options)

    def fork(
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
        from counterfoil.langgraph.branching import Fork, fork  # noqa: PLC0415 - needs LangGraph

        refuse_nested("fork")
        refuse_on_loop("fork", "await cf.fork(...) with an AsyncCounterfoil")
        return fork(self.desk, Fork.of(tenant, thread_id, checkpoint, branch))

    def _transactional(self, job: Job) -> Receipt[Any]:
        protocol = transact(job, blocking_body(job), at_once=self.desk.store.claims_at_once)
        return drive(protocol, lambda step: self._do(step, job.key.tenant))

    def _do(self, step: Step, tenant: str | None) -> Any:
        match step:
            case Read(maker):
                return self.desk.store.read(maker, tenant=whose(tenant))
            case Write(maker):
                return self.desk.store.write(maker, tenant=whose(tenant))
            case WriteAlone(maker):
                return self.desk.store.write_alone(maker, tenant=whose(tenant))
            case _:
                assert_never(step)


def refuse_async(effect: Effect[Any]) -> None:
    """Refuse an effect that a blocking caller cannot run, or could not ask about once its reply is lost.

    Raises:
        AsyncEffectInSync: the effect or its look-up is async.
    """
    if effect.needs_loop:
        part = "effect" if effect.is_async else "look-up of effect"
        raise AsyncEffectInSync(
            f"The {part} {effect.name} is async. Write: await cf.perform({effect.__name__}, ...) with an"
            f" AsyncCounterfoil, or await aperform({effect.__name__}, ...) in an async node."
        )
