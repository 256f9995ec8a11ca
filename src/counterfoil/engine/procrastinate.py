"""Procrastinate, in the same PostgreSQL database: many machines, woken by notifications.

A wake-up is a job that is deferred on the connection and in the transaction of whoever makes a workflow enterable. A
queueing lock lets the wake-ups of one workflow become one, and a lock lets one of them be at work. Its queue names the
graph, so that only workers that register that get it. Timers stay in our rows: a job for later would hold up its lock.

Of its API only what is public is used: `configure_task(...).defer`, `run_worker_async`, and its manager's
`get_stalled_jobs`, `retry_job`, `finish_job`, `list_jobs_async` and `list_queues_async`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import procrastinate
import psycopg
from procrastinate import exceptions
from procrastinate.jobs import Job, Status
from procrastinate.schema import SchemaManager

from counterfoil.bell import on_this_loop
from counterfoil.engine.port import AT_ONCE, PAUSE_S, Finder, Health
from counterfoil.errors import StoreClosed, StoreError
from counterfoil.storage.script import Ddl, Wake
from counterfoil.storage.scripts import workflows
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from counterfoil.desk import Desk
    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.engine.port import Handler
    from counterfoil.storage.script import Script
    from counterfoil.storage.scripts.workflows import Due

TASK: Final = "counterfoil:enter"
REAP: Final = "counterfoil:reap"
"""The task that takes back what dead workers held, and its queue."""
LONGEST_LOCK: Final = 1_000
"""Characters of a lock's name: an entry of an index of PostgreSQL's holds no more than 2,704 bytes."""
LONGEST_QUEUE: Final = 40
"""Bytes of a queue's name: with what Procrastinate puts before it, it is the name of a channel, which has 63."""
POLL_S = 0.5
"""How often a worker looks for jobs that it was not notified of: those that waited for a lock, behind a pooler all."""
SWEEP_S = 1.0
"""How often the rows are searched for what is due: timers, and what the engine lost."""
SWEPT = 200
"""Workflows of one graph that a sweep looks at."""
TOLD_AGAIN_S = 30.0
"""How long a sweeper leaves a workflow alone whose job it has seen or made and that has not moved."""
HEARTBEAT_S, STALLED_S = 2.0, 6.0
"""How often a worker says that it lives, and after how long a silence its jobs are taken back: a row's lease is longer,
so a worker that was merely busy loses nothing by it."""
REAP_AT = "* * * * * */5"
"""When jobs are taken back: every five seconds, by one of the workers."""
CONNECTIONS: Final = 3
"""Connections of a worker to its jobs: each is needed for a moment."""
CONNECT_S = 10
"""Seconds to wait for a connection."""
FAILURES: Final = (exceptions.ProcrastinateException, AssertionError)
"""What a deferral ends with that fails; it asserts that the server tells of a lock that is taken in English."""
SAVEPOINT: Final = "savepoint counterfoil_wake"
RELEASE: Final = "release savepoint counterfoil_wake"
UNDO: Final = f"rollback to {SAVEPOINT}; {RELEASE}"
_WAITING_LOCK: Final = "procrastinate_jobs_queueing_lock"

LOG = logging.getLogger("counterfoil.engine")


def queue_of(graph: str, graph_version: int) -> str:
    """Return the name of a graph's queue."""
    name = f"counterfoil:{graph}@{graph_version}"
    if len(name.encode()) <= LONGEST_QUEUE:
        return name
    return f"counterfoil:{hashlib.sha256(name.encode()).hexdigest()[:24]}"


def lock_of(tenant: str, thread_id: str) -> str:
    """Return the name of a workflow's lock: no other workflow has it, and it is plain ASCII on one line."""
    name = f"counterfoil:{json.dumps([tenant, thread_id], separators=(',', ':'))}"
    return name if len(name) <= LONGEST_LOCK else f"counterfoil:{hashlib.sha256(name.encode()).hexdigest()}"


def defer(app: procrastinate.App, wake: Wake, connection: Any = None) -> Any:
    """Return what defers the job that wakes a workflow."""
    lock = lock_of(wake.tenant, wake.thread_id)
    return app.configure_task(
        TASK,
        queue=queue_of(wake.graph, wake.graph_version),
        lock=lock,
        queueing_lock=lock,
        task_kwargs={"tenant": wake.tenant, "thread_id": wake.thread_id},
        connection=connection,
    )


def refused(error: Exception) -> psycopg.Error | None:
    """Return the driver's error behind one of Procrastinate's, or None where a wake-up waits for its turn already."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, psycopg.Error):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        raise error
    waits = isinstance(cause, psycopg.errors.UniqueViolation) and (cause.diag.constraint_name or "")
    return None if waits and waits.startswith(_WAITING_LOCK) else cause


# --- the schema ------------------------------------------------------------------------------------------------------


def has_schema() -> Script[bool]:
    """Say whether the database has Procrastinate's tables, new enough for wake-ups with a lock."""
    names = "to_regclass('procrastinate_workers'), to_regtype('procrastinate_job_to_defer_v1')"
    (row,) = yield Ddl(f"select num_nulls({names}) as lacking")
    return not row["lacking"]


def make_schema() -> Script[bool]:
    """Make Procrastinate's tables where they are missing; say whether they were."""
    yield Ddl("select pg_advisory_xact_lock(hashtext('counterfoil: tables of procrastinate'))")
    if (yield from has_schema()):
        return False
    yield Ddl(SchemaManager.get_schema())
    return True


# --- wake-ups in the caller's transaction ----------------------------------------------------------------------------


class Waker:
    """Defers a job on a connection of ours, whose transaction goes on where one waits already."""

    def __init__(self) -> None:
        self._blocking = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
        self._awaiting = procrastinate.App(connector=procrastinate.PsycopgConnector())

    def tell(self, connection: psycopg.Connection[Any], wake: Wake) -> None:
        """Defer a job in the open transaction.

        Raises:
            psycopg.Error: it cannot be; the transaction is over, as with any other statement.
        """
        connection.execute(SAVEPOINT)
        try:
            defer(self._blocking, wake, connection).defer()
        except FAILURES as error:
            if (failure := refused(error)) is not None:
                raise failure from None
            connection.execute(UNDO, prepare=False)
        else:
            connection.execute(RELEASE)

    async def atell(self, connection: psycopg.AsyncConnection[Any], wake: Wake) -> None:
        """Defer a job on an async connection."""
        await connection.execute(SAVEPOINT)
        try:
            await defer(self._awaiting, wake, connection).defer_async()
        except FAILURES as error:
            if (failure := refused(error)) is not None:
                raise failure from None
            await connection.execute(UNDO, prepare=False)
        else:
            await connection.execute(RELEASE)


# --- the engine ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Procrastinate:
    """Wakes workflows by jobs, on any number of machines."""

    desk: Desk
    at_once: int = AT_ONCE
    name: str = "procrastinate"
    waker: Waker = field(default_factory=Waker)
    _finder: Finder = field(init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _served: list[str] = field(default_factory=list)
    _opened: procrastinate.App | None = None
    _told: dict[Due, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make what finds what is due."""
        self._finder = Finder(self.desk)

    @property
    def store(self) -> PostgresStore:
        """Return the database, which is a PostgreSQL one."""
        return cast("PostgresStore", self.desk.store)

    # --- the port ----------------------------------------------------------------------------------------------------

    def wake(self, transaction: Any, key: Wake, not_before: int | None = None) -> None:
        """Defer a job in an open transaction; one for later is left to the sweeper."""
        if not_before is None:
            self.waker.tell(transaction, key)

    async def awake(self, transaction: Any, key: Wake, not_before: int | None = None) -> None:
        """Defer a job in an open transaction of an async connection."""
        if not_before is None:
            await self.waker.atell(transaction, key)

    def stop(self) -> None:
        """Take no more jobs; safe to call from the loop."""
        self._stopping.set()

    async def run(self, handler: Handler) -> None:
        """Work on jobs and sweep the rows until `stop` is called."""
        self.desk.bell.listen(self, on_this_loop(self._notice))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._often(PAUSE_S, lambda: self._work(handler)))
                group.create_task(self._often(SWEEP_S, self.sweep))
        finally:
            self.desk.bell.leave(self)

    async def reap(self) -> int:
        """Give the jobs of workers that are silent to others."""
        async with self._lent() as app:
            found = [
                job
                for task in (TASK, REAP)
                for job in await app.job_manager.get_stalled_jobs(task_name=task, seconds_since_heartbeat=STALLED_S)
            ]
            for job in found:
                await _again(app, job)
        return len(found)

    async def health(self) -> Health:
        """Say whether its tables are there, and how many jobs wait, are at work, or failed."""
        if not await self.desk.async_store.read(has_schema):
            return Health(engine=self.name, is_well=False, problem="its tables are missing")
        async with self._lent() as app:
            queues = [queue for queue in await app.job_manager.list_queues_async() if queue["name"] in self._queues]
        details = {state: sum(int(queue[state]) for queue in queues) for state in ("todo", "doing", "failed")}
        return Health(engine=self.name, is_well=True, details=details)

    async def sweep(self) -> int:
        """Tell of what is due and has neither lease nor job, be it by its time or lost; say of how many workflows."""
        for gone in await self._finder.gone():
            await self.desk.async_store.write(partial(workflows.end_lease, gone), tenant=gone.key.tenant)
        now = time.monotonic()
        self._told = {one: at for one, at in self._told.items() if now - at < TOLD_AGAIN_S}
        due = [one for one in await self._finder.unreserved(SWEPT) if one not in self._told]
        return await self._tell_all(due, now) if due else 0

    async def _tell_all(self, due: list[Due], now: float) -> int:
        told = 0
        async with self._lent() as app:
            for one in due:
                self._told[one] = now
                try:
                    told += await _tell(app, one)
                except (*FAILURES, psycopg.Error) as error:
                    if _is_away(error):
                        raise
                    LOG.warning(
                        "nobody could be told of workflow %s of tenant %s",
                        one.key.thread_id,
                        one.key.tenant,
                        exc_info=error,
                    )
        return told

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _queues(self) -> list[str]:
        return [queue_of(*graph) for graph in self.desk.graphs]

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[procrastinate.App]:
        """Lend Procrastinate with the connections that it has open, or with some for the moment."""
        if self._opened is not None:
            yield self._opened
            return
        async with self._app().open_async() as app:
            yield app

    def _app(self) -> procrastinate.App:
        """Return Procrastinate with connections of its own, of which few are needed, and each for a moment."""
        info = self.store.url.conninfo({"application_name": "counterfoil engine", "connect_timeout": CONNECT_S})
        shared = {"prepare_threshold": None} if self.store.behind_pooler else {}
        pool: dict[str, Any] = {"min_size": 1, "max_size": CONNECTIONS, "timeout": CONNECT_S, "kwargs": shared}
        return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=info, **pool))

    @asynccontextmanager
    async def opened(self, handler: Handler) -> AsyncIterator[procrastinate.App]:
        """Lend Procrastinate with connections of its own, as it knows what to do with our jobs."""
        app = self._app()

        @app.task(name=TASK)
        async def enter(tenant: str, thread_id: str) -> None:
            await handler(ThreadKey(tenant=tenant, thread_id=thread_id))

        @app.periodic(cron=REAP_AT)
        @app.task(name=REAP, queue=REAP, queueing_lock=REAP)
        async def reap(timestamp: int) -> None:  # noqa: ARG001 - Procrastinate passes it by name
            await self.reap()

        async with app.open_async():
            self._opened = app
            try:
                yield app
            finally:
                self._opened = None

    @property
    def options(self) -> dict[str, Any]:
        """Return how a worker of Procrastinate's works on our jobs."""
        return {
            "queues": [*self._queues, REAP],
            "name": "counterfoil",
            "concurrency": self.at_once,
            "listen_notify": not self.store.behind_pooler,
            "fetch_job_polling_interval": POLL_S,
            "delete_jobs": "always",
            "install_signal_handlers": False,
            "update_heartbeat_interval": HEARTBEAT_S,
            "stalled_worker_timeout": STALLED_S,
        }

    def _notice(self) -> None:
        """Look whether other graphs are registered than a worker works for."""
        if self._served != self._queues:
            self._changed.set()

    async def _work(self, handler: Handler) -> None:
        """Let a worker of Procrastinate's work until it breaks or is to stop; without graphs there is nothing to do."""
        if self._queues:
            async with self.opened(handler) as app:
                await self._until_stopped(app)

    async def _until_stopped(self, app: procrastinate.App) -> None:
        """Let a worker work; when it is to stop, its jobs come to their end first.

        It asks for jobs of the graphs that it began with: where others are registered, another one takes its place.
        """
        workers = [self._begun(app)]
        try:
            while not (self._stopping.is_set() or workers[-1].done()):
                await self._until_moved(workers[-1])
                if self._changed.is_set():
                    workers.append(self._begun(app))
                    workers[-2].cancel()
        finally:
            for worker in workers:
                worker.cancel()
            ended = await asyncio.gather(*workers, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def _begun(self, app: procrastinate.App) -> asyncio.Future[None]:
        self._changed.clear()
        self._served = self._queues
        return asyncio.ensure_future(app.run_worker_async(**self.options))

    async def _until_moved(self, worker: asyncio.Future[None]) -> None:
        """Wait until a worker breaks, the engine is to stop, or other graphs are registered."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._stopping, self._changed)]
        waited: tuple[asyncio.Future[Any], ...] = (worker, *events)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()

    async def _often(self, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do something again and again, whatever becomes of it, until the engine is to stop."""
        while not self._stopping.is_set():
            try:
                await work()
            except StoreClosed:
                raise
            except (StoreError, exceptions.ProcrastinateException, psycopg.Error, OSError) as error:
                LOG.warning("Procrastinate could not go on, and is tried again: %s", str(error) or type(error).__name__)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()


async def _tell(app: procrastinate.App, due: Due) -> bool:
    """Defer the job of a workflow, in a transaction of its own, unless one waits already; say whether it did."""
    wake = Wake(due.key.tenant, due.key.thread_id, due.graph, due.graph_version)
    lock = lock_of(wake.tenant, wake.thread_id)
    if list(await app.job_manager.list_jobs_async(queueing_lock=lock, status=Status.TODO.value)):
        return False  # asked, since an insertion in vain is a line in the server's log
    try:
        await defer(app, wake).defer_async()
    except FAILURES as error:
        if (failure := refused(error)) is not None:
            raise failure from None
        return False
    return True


def _is_away(error: Exception) -> bool:
    """Say whether an error is about the server and not about what it was asked for."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)


async def _again(app: procrastinate.App, job: Job) -> None:
    """Let a job be taken by others; it ends where another one of its workflow waits, which it would hold up."""
    try:
        await app.job_manager.retry_job(job)
    except exceptions.ProcrastinateException as error:
        if refused(error) is None:
            await app.job_manager.finish_job(job, status=Status.FAILED, delete_job=True)
        else:
            LOG.debug("job %s was taken back by somebody else", job.id)
