"""PostgreSQL for blocking callers: short transactions on pooled connections."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import psycopg
from psycopg.rows import tuple_row

from counterfoil.drivers.driving import drive
from counterfoil.drivers.postgres_guard import lent
from counterfoil.drivers.postgres_lend import Lender
from counterfoil.drivers.postgres_open import CONNECTIONS, check_writes, connect, control, soil
from counterfoil.drivers.postgres_rows import has_rows, named
from counterfoil.drivers.postgres_run import Control, Execute, Lend, Progress, Protocol, Tell, statements
from counterfoil.drivers.postgres_wall import SAY, must_say, one, said
from counterfoil.drivers.probes import Probe, no_probe
from counterfoil.errors import CommitUnknown
from counterfoil.storage.migrator import prepare
from counterfoil.storage.tenants import setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from counterfoil.clock import Clock
    from counterfoil.drivers.postgres_async import AsyncPostgresStore
    from counterfoil.drivers.postgres_open import Connection
    from counterfoil.drivers.postgres_run import Action, Actions
    from counterfoil.drivers.urls import PostgresUrl
    from counterfoil.drivers.waking import Waker
    from counterfoil.storage.migrator import Migration
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

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
        self.lender = Lender(url, connections)
        self.behind_pooler = not self.lender.open_first()
        self.protocol = Protocol(
            path=url.path, clock=clock, probe=probe, statements=statements(clock), pooled=self.behind_pooler
        )

    @property
    def path(self) -> str:
        """Return where the database is, without a password."""
        return self.url.path

    def tell(self, waker: Waker) -> None:
        """Tell a waker, from now on, of each workflow that can be entered, in the transaction that makes it so."""
        self.protocol = replace(self.protocol, waker=waker)

    @property
    def forked(self) -> bool:
        """Say whether this is a child of the process that opened it."""
        return self.lender.forked

    def write(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in a transaction, again where nothing of it can have been kept."""
        return self._write(self.protocol, self.lender.connection, maker, setting(tenant))

    def write_alone(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds user code; that may go on as another role, which row security holds."""
        return self._write(self.protocol, self.lender.connection, maker, setting(tenant), hosts=True)

    def _write(
        self,
        protocol: Protocol,
        lend: Callable[[], AbstractContextManager[Connection]],
        maker: Maker[T],
        wall: str = "",
        *,
        hosts: bool = False,
    ) -> T:
        for runs in count(1):
            progress = Progress()
            try:
                with lend() as connection:
                    check_writes(connection)
                    connection.hosts = hosts
                    return run(connection, protocol.writing(maker, progress), wall)
            except psycopg.Error as error:
                protocol.again_or_raise(error, progress, runs=runs)
        raise AssertionError("unreachable")

    def renew(self, maker: Maker[T], *, within: float, tenant: Whose = None) -> T:
        """Run a script that renews a lease, once more where nobody heard what became of it; each in so many seconds."""
        lend, wall = partial(self.lender.connection, within), setting(tenant)
        try:
            return self._write(self.protocol, lend, maker, wall)
        except CommitUnknown as lost:
            with lost.outlasting():
                return self._write(self.protocol, lend, maker, wall)

    def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads; several reads may see several states of the database."""
        for runs in count(1):
            try:
                with self.lender.connection() as connection:
                    return run(connection, self.protocol.reading(maker), setting(tenant))
            except psycopg.Error as error:
                self.protocol.again_or_raise(error, Progress(), runs=runs)
        raise AssertionError("unreachable")

    def look(self, looking: Maker[T], claiming: Maker[T], *, tenant: Whose = None) -> T:
        """Run the script that only looks: here one statement does both, and a claim after that was lost to another."""
        del claiming
        return self.read(looking, tenant=tenant)

    def awaiting(self) -> AsyncPostgresStore:
        """Return the twin for callers on an event loop."""
        from counterfoil.drivers.postgres_async import AsyncPostgresStore  # noqa: PLC0415 - brings asyncio

        return AsyncPostgresStore(self)

    def migrate(self, *, upgrade: bool) -> tuple[Migration, ...]:
        """Make the schema in an empty database; check it, or upgrade it, in one that has ours."""
        unlimited = replace(self.protocol, pooled=False)  # limits of single transactions are for shared sessions
        return prepare(self, partial(self._write, unlimited, self._patient_connection), upgrade=upgrade)

    def close(self) -> None:
        """Close all connections, those in use as they come back; twice, or in a forked child, it does nothing."""
        self.lender.close()

    @contextmanager
    def _patient_connection(self) -> Iterator[Connection]:
        self.lender.check_usable()
        with connect(self.url, silence=math.inf)[0] as connection:
            yield connection


def run(connection: psycopg.Connection[Any], actions: Actions[T], wall: str = "") -> T:
    """Carry out actions on one connection; row security, where it holds this role, goes by `wall`."""
    return drive(actions, partial(_do, connection, wall))


def _do(connection: psycopg.Connection[Any], wall: str, action: Action) -> Any:
    match action:
        case Execute():
            return _execute(connection, wall, action)
        case Control(sql):
            text, prepare = control(connection, sql, wall)
            connection.execute(text, prepare=prepare)
            return soil(connection, soiled=False)
        case Lend(function):
            with lent(connection) as guarded:
                soil(connection)
                return function(guarded)
        case Tell(waker, wake):
            return waker.tell(connection, wake)
        case _:
            assert_never(action)


def _execute(connection: psycopg.Connection[Any], wall: str, execute: Execute) -> Any:
    with connection.cursor(row_factory=tuple_row) as cursor:
        if must_say(connection):
            with one(connection):
                connection.execute(SAY, {"wall": wall})
                cursor.execute(execute.sql, execute.params, prepare=execute.prepare)
            said(connection)
        else:
            cursor.execute(execute.sql, execute.params, prepare=execute.prepare)
        return named(cursor, execute.sql, cursor.fetchall()) if has_rows(cursor) else []
