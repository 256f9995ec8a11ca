"""One PostgreSQL database for all worlds of a scenario, one after the other.

Opening connections costs ten times as much as what a world does with them, and cloning a database a hundred times as
much as emptying its tables. So the connections, and the event loop that async ones belong to, outlive the worlds; each
world has a view of its own on them, whose probe stays its own: what is left of a crashed one reaches nothing any more.
A crash is thus one of the client: the server rolls back what is open, and loses nothing that was committed.
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from counterfoil.core.durations import milliseconds
from counterfoil.desk import Desk
from counterfoil.drivers.postgres import PostgresStore
from counterfoil.drivers.postgres_async import AsyncPostgresStore
from counterfoil.drivers.postgres_lend_async import AsyncLender
from counterfoil.drivers.probes import Probe, no_probe
from counterfoil.drivers.urls import PostgresUrl
from counterfoil.storage.tenants import ALL_TENANTS
from counterfoil.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from counterfoil.clock import Clock
    from counterfoil.core.durations import Duration
    from counterfoil.storage.script import Maker

T = TypeVar("T")

LOCK_LIMIT = "5s"
"""How long a new world waits for locks: longer than any honest crash leaves one."""

OURS = "counterfoil_migration"
"""The table that every database of ours has."""

_TABLES = "select tablename from pg_catalog.pg_tables where schemaname = 'public' order by tablename"
_GUARDED = """
select tgrelid::regclass::text
from pg_catalog.pg_trigger
where not tgisinternal
"""
"""Tables whose triggers hear of a row that is deleted, and may refuse it; of one that is truncated they do not."""
_NUMBERS = "select sequencename, last_value from pg_catalog.pg_sequences where schemaname = 'public'"
_WAITING = """
select count(distinct lock.pid)
from pg_catalog.pg_locks lock
join pg_catalog.pg_stat_activity session on session.pid = lock.pid
where not lock.granted
  and session.datname = current_database()
"""
_END_OPEN = """
select pg_terminate_backend(pid)
from pg_catalog.pg_stat_activity
where datname = current_database()
  and pid <> pg_backend_pid()
  and state like 'idle in transaction%'
"""


@contextmanager
def postgres_ground(url: str) -> Iterator[PostgresGround]:
    """Make a database on a server, and drop it in the end.

    Args:
        url: Any database of the server; its role must be allowed to create databases.
    """
    name = f"counterfoil_crash_{secrets.token_hex(6)}"
    own = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(own))
        # The server survives every crash there is here, so nobody has to wait for its disk.
        server.execute(sql.SQL("alter database {} set synchronous_commit = off").format(own))
        ground = PostgresGround(urlsplit(url)._replace(path=f"/{name}").geturl())
        try:
            yield ground
        finally:
            ground.close()
            server.execute(sql.SQL("drop database if exists {} with (force)").format(own))


class KeptStore(PostgresStore):
    """A store whose connections outlive the Counterfoils on it."""

    def __init__(self, url: PostgresUrl) -> None:
        super().__init__(url, clock=FakeClock())
        self.async_lender = AsyncLender(self.lender)

    def seen_by(self, clock: Clock, probe: Probe) -> KeptStore:
        """Return a view for one world."""
        view = copy(self)
        view.protocol = replace(self.protocol, clock=clock, probe=probe)
        return view

    def awaiting(self) -> KeptAsyncStore:
        """Return the twin, on connections that are kept as well."""
        return KeptAsyncStore(self)

    def close(self) -> None:
        """Do nothing: the next world goes on with the connections."""

    def end(self) -> None:
        """Close the connections."""
        self.async_lender.close()
        super().close()


class KeptAsyncStore(AsyncPostgresStore):
    """The same for callers on the ground's event loop."""

    def __init__(self, store: KeptStore) -> None:
        super().__init__(store)
        self.lender = store.async_lender

    def retire(self) -> None:
        """Do nothing: the next world goes on with the connections."""


class Loop:
    """One event loop for many entries, each of which leaves it without tasks and threads of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, as `asyncio.run` does."""
        return self._runner.run(self._cleaned(work))

    def close(self) -> None:
        """Close the loop."""
        self._runner.close()

    async def _cleaned(self, work: Coroutine[Any, Any, T]) -> T:
        threads = ThreadPoolExecutor()
        asyncio.get_running_loop().set_default_executor(threads)
        before = asyncio.all_tasks()
        try:
            return await work
        finally:
            left = asyncio.all_tasks() - before
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            with ThreadPoolExecutor(1) as last:  # the threads may still need the loop
                await asyncio.get_running_loop().run_in_executor(last, threads.shutdown)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The rows of every table, as COPY writes them, and the last number of every sequence."""

    tables: dict[str, bytes] = field(default_factory=dict)
    numbers: dict[str, int | None] = field(default_factory=dict)


class PostgresGround:
    """One database, for one world at a time; connections are opened anew in a forked child."""

    def __init__(self, url: str, beginning: Beginning | None = None) -> None:
        self._url = url
        self._beginning = beginning or Beginning()
        self._store: KeptStore | None = None
        self._loop: Loop | None = None
        self._connection: psycopg.Connection[Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process without connections."""
        return PostgresGround, (self._url, self._beginning)

    # --- for worlds --------------------------------------------------------------------------------------------------

    def url(self, _folder: Path) -> str:
        """Return the URL of the one database."""
        return self._url

    def desk(self, _folder: Path, *, wait: Duration, clock: Clock, probe: Probe) -> Desk:
        """Open the database on kept connections; its schema is made and checked only where it may be missing."""
        store = self._kept().seen_by(clock, probe)
        if OURS not in self._beginning.tables:
            store.migrate(upgrade=False)
        return Desk(store, store.awaiting(), milliseconds(wait, "wait"))

    def read(self, _folder: Path, clock: Clock, maker: Maker[T]) -> T:
        """Read on a kept connection."""
        return self._kept().seen_by(clock, no_probe).read(maker, tenant=ALL_TENANTS)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop to which the async connections belong."""
        if self._loop is None:
            self._loop = Loop()
        return self._loop.run(work)

    def bury(self) -> None:
        """End the sessions that hold a transaction open: connections of the scenario's own that nobody closed."""
        self._rows(_END_OPEN)

    @contextmanager
    def beside(self) -> Iterator[PostgresGround]:
        """Yield the same database with connections and an event loop of its own."""
        made = PostgresGround(self._url, Beginning({OURS: b""}))  # no beginning of its own, but a schema is there
        try:
            yield made
        finally:
            made.close()

    def crowd(self, _folder: Path) -> None:
        """Do nothing: the server always says who waits."""

    def waiting(self, _folder: Path) -> int:
        """Count the sessions that wait for a lock."""
        ((found,),) = self._rows(_WAITING)
        return int(found)

    # --- for workshops -----------------------------------------------------------------------------------------------

    def clear(self, *, fresh: bool) -> None:
        """Empty our tables, drop all others; a fresh database has none."""
        ours = [] if fresh else [name for (name,) in self._rows(_TABLES) if name.startswith("counterfoil_")]
        tables = {name: self._copied(name) if name == OURS else b"" for name in ours}
        self._beginning = Beginning(tables, dict.fromkeys(dict(self._rows(_NUMBERS)) if ours else ()))
        self.renew()

    def keep(self) -> None:
        """Copy every row there is."""
        tables = {name: self._copied(name) for (name,) in self._rows(_TABLES)}
        self._beginning = Beginning(tables, dict(self._rows(_NUMBERS)))

    def renew(self) -> None:
        """Remove what a world has left, and put back what was there in the beginning."""
        with self._admin().transaction():
            self._admin().execute(sql.SQL("; ").join(self._removing()))
            for name, rows in self._beginning.tables.items():
                if rows:
                    with self._admin().cursor().copy(_copy(name, "from stdin")) as copying:
                        copying.write(rows)

    def close(self) -> None:
        """Close all connections."""
        if self._store is not None:
            self._store.end()
        if self._loop is not None:
            self._loop.close()
        if self._connection is not None:
            self._connection.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _kept(self) -> KeptStore:
        if self._store is None:
            self._store = KeptStore(PostgresUrl(self._url))
        return self._store

    def _admin(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            options = f"-c lock_timeout={LOCK_LIMIT}"
            self._connection = psycopg.connect(self._url, autocommit=True, options=options)
        return self._connection

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self._admin().execute(statement.encode()).fetchall()

    def _copied(self, table: str) -> bytes:
        with self._admin().cursor().copy(_copy(table, "to stdout")) as copying:
            return b"".join(bytes(part) for part in copying)

    def _removing(self) -> Iterator[sql.Composable]:
        guarded = {name for (name,) in self._rows(_GUARDED)}
        yield sql.SQL("select 1")
        for (name,) in self._rows(_TABLES):
            if name not in self._beginning.tables:
                yield sql.SQL("drop table {} cascade").format(sql.Identifier(name))
            elif name not in guarded:
                yield sql.SQL("delete from {}").format(sql.Identifier(name))
            elif self._admin().execute(sql.SQL("select 1 from {} limit 1").format(sql.Identifier(name))).fetchall():
                yield sql.SQL("truncate {}").format(sql.Identifier(name))
        for name, last in self._beginning.numbers.items():
            number = sql.Literal(last or 1), sql.Literal(last is not None)
            yield sql.SQL("select setval({}, {}, {})").format(sql.Literal(name), *number)


def _copy(table: str, direction: LiteralString) -> sql.Composed:
    return sql.SQL("copy {} {}").format(sql.Identifier(table), sql.SQL(direction))
