"""How fast does a worker empty an outbox on PostgreSQL, and how fast is it filled, beside its peers?

No-op messages, one worker process each, the server that the tests start. The peers promise less: none has a receipt, or
an outcome that nobody knows. Those that are not installed are left out: pip install procrastinate pgqueuer asyncpg
'faststream-outbox[asyncpg]'
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.kit import Comparison, Work, compare, once
from counterfoil import Counterfoil, effect
from tests.postgres import binaries, servers

MESSAGES = 300
ROUNDS = 5
_runs = itertools.count()


@effect("bench.drained", key="{request_id}/{number}")
async def awaiting(call: Any, *, number: int) -> int:
    return number


@effect("bench.drained-blocking", key="{request_id}/{number}")
def blocking(call: Any, *, number: int) -> int:
    return number


class Ours:
    """An outbox of ours; each drain finds the finished rows of all before it."""

    name = "counterfoil"

    def __init__(self, url: str) -> None:
        self.cf = Counterfoil.open(url)

    def fill(self, made: Any = awaiting) -> None:
        numbers = [{"number": number} for number in range(MESSAGES)]
        self.cf.enqueue_all(made, numbers, tenant="t", request_id=f"r-{next(_runs)}")

    def drain(self, batch: int, made: Any = awaiting) -> None:
        self.cf.drain(made, batch=batch)


class Procrastinate:
    """Its jobs are claimed and finished one by one."""

    name = "Procrastinate"

    def __init__(self, url: str) -> None:
        package = import_module("procrastinate")
        self.app = package.App(connector=package.PsycopgConnector(conninfo=url, min_size=1, max_size=4))
        self.app.task(name="noop", queue="d")(_noop)
        asyncio.run(self._in(self.app.schema_manager.apply_schema_async))

    async def _in(self, work: Callable[[], Any]) -> None:
        async with self.app.open_async():
            await work()

    def fill(self) -> None:
        given = [{"i": number} for number in range(MESSAGES)]
        asyncio.run(self._in(lambda: self.app.configure_task("noop", queue="d").batch_defer_async(*given)))

    def drain(self, concurrency: int) -> None:
        options = {"wait": False, "listen_notify": False, "install_signal_handlers": False}
        asyncio.run(self._in(lambda: self.app.run_worker_async(concurrency=concurrency, **options)))


class PgQueuer:
    """It claims batches, and finishes jobs in batches as well."""

    name = "PgQueuer"

    def __init__(self, url: str) -> None:
        self.url = url
        self.asyncpg, self.package = import_module("asyncpg"), import_module("pgqueuer")
        self.queries, self.db = import_module("pgqueuer.queries"), import_module("pgqueuer.db")
        asyncio.run(self._with(lambda queries: queries.install()))

    async def _with(self, work: Callable[[Any], Any]) -> None:
        connection = await self.asyncpg.connect(self.url)
        try:
            await work(self.queries.Queries(self.db.AsyncpgDriver(connection)))
        finally:
            await connection.close()

    def fill(self) -> None:
        names, bodies = ["noop"] * MESSAGES, [b'{"i":1}'] * MESSAGES
        asyncio.run(self._with(lambda queries: queries.enqueue(names, bodies, [0] * MESSAGES)))

    def drain(self, batch: int) -> None:
        asyncio.run(self._drain(batch))

    async def _drain(self, batch: int) -> None:
        mode = import_module("pgqueuer.domain.types").QueueExecutionMode.drain
        connection = await self.asyncpg.connect(self.url)
        queue = self.package.PgQueuer.from_asyncpg_connection(connection)
        queue.entrypoint("noop")(_noop)
        await queue.qm.run(batch_size=batch, mode=mode)
        await connection.close()


class FaststreamOutbox:
    """Its broker polls a table for batches; each of its handlers has a connection of its own, so that ten are many."""

    name = "faststream-outbox"

    def __init__(self, url: str) -> None:
        self.package, self.sql = import_module("faststream_outbox"), import_module("sqlalchemy")
        self.awaiting = import_module("sqlalchemy.ext.asyncio")
        self.url = url.replace("postgresql://", "postgresql+asyncpg://")
        self.metadata = self.sql.MetaData()
        self.table = self.package.make_outbox_table(self.metadata, table_name="outbox")
        asyncio.run(self._with(self._make))

    async def _with(self, work: Callable[[Any], Any]) -> None:
        engine = self.awaiting.create_async_engine(self.url, pool_size=12)
        try:
            await work(engine)
        finally:
            await engine.dispose()

    async def _make(self, engine: Any) -> None:
        async with engine.begin() as connection:
            await connection.run_sync(self.metadata.create_all)

    def fill(self) -> None:
        asyncio.run(self._with(self._fill))

    async def _fill(self, engine: Any) -> None:
        broker = self.package.OutboxBroker(engine, outbox_table=self.table)
        async with engine.begin() as connection:
            await broker.publish_batch(*({"i": number} for number in range(MESSAGES)), queue="d", session=connection)

    def drain(self, batch: int) -> None:
        asyncio.run(self._with(partial(self._drain, batch)))

    async def _drain(self, batch: int, engine: Any) -> None:
        broker = self.package.OutboxBroker(engine, outbox_table=self.table, logger=None)
        left, done = itertools.count(1), asyncio.Event()

        async def handle(body: dict[str, int]) -> None:
            if next(left) == MESSAGES:
                done.set()

        sizes = {"max_workers": 10, "fetch_batch_size": batch, "terminal_flush_batch_size": batch}
        broker.subscriber("d", min_fetch_interval=0.01, **sizes)(handle)
        await broker.start()
        await done.wait()
        await broker.stop()


async def _noop(*_job: object, **_given: object) -> None:
    pass


def filled_and_drained(fill: Work, drain: Work) -> float:
    """Fill, and return the seconds that draining takes, for each message."""
    fill()
    start = time.perf_counter()
    drain()
    return (time.perf_counter() - start) / MESSAGES


def drained_and_filled(fill: Work, drain: Work) -> float:
    """Return the seconds that filling takes, for each message; then drain, so that no queue grows."""
    start = time.perf_counter()
    fill()
    taken = (time.perf_counter() - start) / MESSAGES
    drain()
    return taken


@contextmanager
def server() -> Iterator[servers.PrivateServer]:
    found = binaries.find()
    if found is None:
        raise SystemExit(binaries.MISSING)
    running = servers.PrivateServer(servers.new_plan(found))
    try:
        yield running
    finally:
        running.close()


def contenders(running: servers.PrivateServer) -> dict[str, Any]:
    made = {}
    for kind in (Ours, PgQueuer, Procrastinate, FaststreamOutbox):
        with suppress(ModuleNotFoundError):
            made[kind.name] = kind(running.create_database(f"bench_{kind.__name__.lower()}"))
    return made


def run(_on_disk: Path, _in_memory: Path) -> list[Comparison]:
    logging.disable(logging.WARNING)
    with server() as running:
        by_name = contenders(running)
        ours = by_name["counterfoil"]
        drains: dict[str, tuple[Work, Work]] = {
            "counterfoil, batch 100": (ours.fill, partial(ours.drain, 100)),
            "counterfoil, batch 10": (ours.fill, partial(ours.drain, 10)),
            "counterfoil, batch 100, blocking effect": (
                partial(ours.fill, blocking),
                partial(ours.drain, 100, blocking),
            ),
        }
        for name, sizes in (("PgQueuer", (100, 10)), ("Procrastinate", (10, 1)), ("faststream-outbox", (100, 10))):
            if (peer := by_name.get(name)) is not None:
                word = "concurrency" if name == "Procrastinate" else "batch"
                drains |= {f"{name}, {word} {size}": (peer.fill, partial(peer.drain, size)) for size in sizes}
        fills = {name: pair for name, pair in drains.items() if name.endswith(("100", "concurrency 10"))}
        answers = [
            _compared(f"a message drained, {MESSAGES} in the outbox", filled_and_drained, drains),
            _compared(f"a message enqueued, {MESSAGES} in one call", drained_and_filled, fills),
        ]
        with suppress(psycopg.Error):
            ours.cf.close()
        return answers


def _compared(question: str, measure: Callable[[Work, Work], float], pairs: dict[str, tuple[Work, Work]]) -> Comparison:
    works: dict[str, Work] = {name: partial(measure, *pair) for name, pair in pairs.items()}
    return compare(question, works, rounds=ROUNDS, calls=1, clock=once)
