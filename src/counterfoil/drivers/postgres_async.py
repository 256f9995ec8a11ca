"""PostgreSQL for callers on an event loop: psycopg's own async connections, each loop's own."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import psycopg
from psycopg.rows import tuple_row

from counterfoil.drivers.driving import adrive
from counterfoil.drivers.finishing import to_the_end
from counterfoil.drivers.postgres_guard import lent_async
from counterfoil.drivers.postgres_lend_async import AsyncLender
from counterfoil.drivers.postgres_open import check_writes, control, soil
from counterfoil.drivers.postgres_rows import has_rows, named
from counterfoil.drivers.postgres_run import Control, Execute, Lend, Progress, Tell
from counterfoil.drivers.postgres_wall import SAY, aone, must_say, said
from counterfoil.storage.tenants import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.drivers.postgres_run import Action, Protocol
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")


class AsyncPostgresStore:
    """One PostgreSQL database, used from one or more event loops."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.dialect = store.dialect
        self.claims_at_once = store.claims_at_once
        self.lender = AsyncLender(store.lender)

    @property
    def _protocol(self) -> Protocol:
        return self.store.protocol

    @property
    def path(self) -> str:
        """Return where the database is, without a password."""
        return self.store.path

    async def write(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in a transaction; when cancelled, the transaction is done whole or not at all."""
        return await to_the_end(self._write(maker, setting(tenant)))

    async def write_alone(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds blocking user code, in a thread."""
        return await to_the_end(asyncio.to_thread(self.store.write_alone, maker, tenant=tenant))

    async def write_lent(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds async user code, on this loop; a cancellation reaches that code."""
        return await self._write(maker, setting(tenant), hosts=True)

    @staticmethod
    def lend(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return async user code as a script takes it: as it is."""
        return function

    async def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads."""
        for runs in count(1):
            try:
                async with self.lender.connection() as connection:
                    return await adrive(self._protocol.reading(maker), partial(_do, connection, setting(tenant)))
            except psycopg.Error as error:
                self._protocol.again_or_raise(error, Progress(), runs=runs)
        raise AssertionError("unreachable")

    async def migrate(self, *, upgrade: bool) -> None:
        """Make, check or upgrade the schema."""
        await asyncio.to_thread(lambda: self.store.migrate(upgrade=upgrade))

    async def close(self) -> None:
        """Close all connections, those in use as they come back; closing twice is harmless."""
        self.retire()
        await asyncio.to_thread(self.store.close)

    def retire(self) -> None:
        """Close the connections of all loops; the blocking twin closes the rest."""
        if not self.store.forked:
            self.lender.close()

    async def _write(self, maker: Maker[T], wall: str, *, hosts: bool = False) -> T:
        for runs in count(1):
            progress = Progress()
            try:
                async with self.lender.connection() as connection:
                    check_writes(connection)
                    connection.hosts = hosts
                    return await adrive(self._protocol.writing(maker, progress), partial(_do, connection, wall))
            except psycopg.Error as error:
                self._protocol.again_or_raise(error, progress, runs=runs)
        raise AssertionError("unreachable")


async def _do(connection: psycopg.AsyncConnection[Any], wall: str, action: Action) -> Any:
    match action:
        case Execute():
            return await _execute(connection, wall, action)
        case Control(sql):
            text, prepare = control(connection, sql, wall)
            await connection.execute(text, prepare=prepare)
            return soil(connection, soiled=False)
        case Lend(function):
            with lent_async(connection) as guarded:
                soil(connection)
                return await function(guarded)
        case Tell(waker, wake):
            return await waker.atell(connection, wake)
        case _:
            assert_never(action)


async def _execute(connection: psycopg.AsyncConnection[Any], wall: str, execute: Execute) -> Any:
    async with connection.cursor(row_factory=tuple_row) as cursor:
        if must_say(connection):
            async with aone(connection):
                await connection.execute(SAY, {"wall": wall})
                await cursor.execute(execute.sql, execute.params, prepare=execute.prepare)
            said(connection)
        else:
            await cursor.execute(execute.sql, execute.params, prepare=execute.prepare)
        return named(cursor, execute.sql, await cursor.fetchall()) if has_rows(cursor) else []
