"""PostgreSQL for blocking callers: short transactions on pooled connections."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import psycopg
import psycopg_pool
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from counterfoil.drivers.postgres_guard import lent
from counterfoil.drivers.postgres_open import CONNECTIONS, WAIT_S, check_server, connect_patiently, make_pool
from counterfoil.drivers.postgres_run import Control, Execute, Lend, Progress, Protocol, statements
from counterfoil.drivers.probes import Probe, no_probe
from counterfoil.errors import PoolExhausted, StoreClosed, StoreUnavailable
from counterfoil.storage.migrator import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from counterfoil.clock import Clock
    from counterfoil.drivers.postgres_async import AsyncPostgresStore
    from counterfoil.drivers.postgres_open import Connection
    from counterfoil.drivers.postgres_run import Action, Actions
    from counterfoil.drivers.urls import PostgresUrl
    from counterfoil.storage.migrator import Migration
    from counterfoil.storage.script import Maker

T = TypeVar("T")


class PostgresStore:
    """One PostgreSQL database, used by this process."""

    dialect = "postgres"
    claims_at_once = True

    def __init__(
        self,
        url: PostgresUrl,
        *,
        clock: Clock | None = None,
        probe: Probe = no_probe,
        connections: int = CONNECTIONS,
    ) -> None:
        self.url = url
        self.connections = connections
        self.behind_pooler = check_server(url)
        self.protocol = Protocol(path=url.path, clock=clock, probe=probe, statements=statements(clock))
        self._pid = os.getpid()
        self._closed = False
        self._pool = make_pool(url, connections)

    @property
    def path(self) -> str:
        """Return where the database is, without a password."""
        return self.url.path

    @property
    def forked(self) -> bool:
        """Say whether this is a child of the process that opened it."""
        return self._pid != os.getpid()

    def write(self, maker: Maker[T]) -> T:
        """Run a script in a transaction, again where nothing of it can have been kept."""
        return self._write(self.connection, maker)

    def _write(self, lend: Callable[[], AbstractContextManager[psycopg.Connection[Any]]], maker: Maker[T]) -> T:
        for runs in count(1):
            progress = Progress()
            try:
                with lend() as connection:
                    return run(connection, self.protocol.writing(maker, progress))
            except psycopg.Error as error:
                self.protocol.again_or_raise(error, progress, runs=runs)
        raise AssertionError("unreachable")

    write_alone = write

    def read(self, maker: Maker[T]) -> T:
        """Run a script of reads; several reads may see several states of the database."""
        for runs in count(1):
            try:
                with self.connection() as connection:
                    return run(connection, self.protocol.reading(maker))
            except psycopg.Error as error:
                self.protocol.again_or_raise(error, Progress(), runs=runs)
        raise AssertionError("unreachable")

    def awaiting(self) -> AsyncPostgresStore:
        """Return the twin for callers on an event loop."""
        from counterfoil.drivers.postgres_async import AsyncPostgresStore  # noqa: PLC0415 - brings asyncio

        return AsyncPostgresStore(self)

    def migrate(self, *, upgrade: bool) -> tuple[Migration, ...]:
        """Make the schema in an empty database; check it, or upgrade it, in one that has ours."""
        return prepare(self, partial(self._write, self._patient_connection), upgrade=upgrade)

    def close(self) -> None:
        """Close all connections; twice, or in a forked child, it does nothing."""
        if self._closed or self.forked:
            return
        self._closed = True
        self._pool.close()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection; what it leaves open is undone, and one that broke is dropped."""
        self.check_usable()
        try:
            connection = self._pool.getconn()
        except psycopg_pool.PoolTimeout as error:
            raise no_connection(self.path, self._pool.get_stats()) from error
        except psycopg_pool.PoolClosed as error:
            raise closed() from error
        try:
            yield connection
        finally:
            _tidy(connection)
            self._pool.putconn(connection)

    @contextmanager
    def _patient_connection(self) -> Iterator[psycopg.Connection[Any]]:
        self.check_usable()
        with connect_patiently(self.url) as connection:
            yield connection

    def check_usable(self) -> None:
        """Refuse use after close and in a forked child, which shares the parent's connections.

        Raises:
            StoreClosed: it was closed, or belongs to the parent process.
        """
        if self.forked:
            raise StoreClosed(
                "This Counterfoil was opened before the process forked; connections must not be carried across a fork."
                " Call Counterfoil.open(url) in the child process."
            )
        if self._closed:
            raise closed()


def closed() -> StoreClosed:
    """Return what a closed Counterfoil answers."""
    return StoreClosed("This Counterfoil is closed. Open a new one with Counterfoil.open(url).")


def no_connection(path: str, stats: dict[str, int]) -> PoolExhausted | StoreUnavailable:
    """Say why no connection was had in time: all are in use, or the server gives none."""
    if stats.get("pool_size", 0) >= stats.get("pool_max", 0) and not stats.get("connections_errors"):
        return PoolExhausted(
            f"All {stats['pool_max']} connections to {path} were in use for {WAIT_S:.0f} seconds; nothing was written."
            " Try again, or open with more: Counterfoil.open(url, connections=...), as far as the server's"
            " max_connections allows. A transactional effect holds one for as long as it runs."
        )
    return StoreUnavailable(
        f"No connection to {path} could be opened within {WAIT_S:.0f} seconds; nothing was written. Check that the"
        " server runs, can be reached, and has connections left."
    )


def _tidy(connection: Connection) -> None:
    """Undo what was left open; a connection that cannot do so is of no use any more."""
    status = connection.pgconn.transaction_status
    if status == TransactionStatus.IDLE:
        return
    with suppress(psycopg.Error):
        if status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
            connection.execute("rollback")
            return
    connection.close()


def run(connection: psycopg.Connection[Any], actions: Actions[T]) -> T:
    """Carry out actions on one connection, giving each answer or error back."""
    try:
        action = next(actions)
        while True:
            try:
                answer = _do(connection, action)
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = actions.throw(error)
            else:
                action = actions.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        actions.close()


def _do(connection: psycopg.Connection[Any], action: Action) -> Any:
    match action:
        case Execute(sql, params):
            with connection.cursor(row_factory=dict_row) as cursor:
                cursor.execute(sql, params)
                return cursor.fetchall() if cursor.description else []
        case Control(sql):
            return connection.execute(sql)
        case Lend(function):
            with lent(connection) as guarded:
                return function(guarded)
        case _:
            assert_never(action)
