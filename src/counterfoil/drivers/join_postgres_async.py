"""PostgreSQL: run scripts inside the transaction that a caller has open on an async psycopg connection of its own."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import psycopg
from psycopg.rows import DictRow, dict_row

from counterfoil.drivers.driving import adrive
from counterfoil.drivers.join import not_joinable
from counterfoil.drivers.join_postgres import (
    ADAPTERS,
    OPEN,
    PLACES,
    UNDO,
    Elsewhere,
    Together,
    Undo,
    check_open,
    elsewhere,
    joining,
    raise_if_elsewhere,
    where,
)
from counterfoil.drivers.postgres_guard import lent_async
from counterfoil.drivers.postgres_run import Lend, Progress, Tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import adapt

    from counterfoil.drivers.join_postgres import Joint, Place
    from counterfoil.drivers.postgres_async import AsyncPostgresStore
    from counterfoil.storage.script import Maker, Row
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")


class AsyncCursor(psycopg.AsyncCursor[DictRow]):
    """A cursor for statements of ours: nothing that the caller set on the connection changes what it reads."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=dict_row)

    @property
    def adapters(self) -> adapt.AdaptersMap:
        """Return our own adapters."""
        return ADAPTERS


class AsyncJoinedPostgres:
    """The transaction that is open on a `psycopg.AsyncConnection`."""

    def __init__(self, store: AsyncPostgresStore, connection: Any) -> None:
        if not isinstance(connection, psycopg.AsyncConnection):
            raise not_joinable(store, connection, awaits=True)
        check_open(connection)
        self._store = store
        self._connection = connection

    async def run(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script; if it fails, what it did is undone and the transaction stays open."""
        check_open(self._connection)  # it may have been ended since it was joined
        place = PLACES.get(self._store.store) or await self._place()
        try:
            return await self._run(maker, place, tenant)
        except Elsewhere:
            if (now := await self._place()) == place:  # it is not that the server was restarted
                raise elsewhere(self._store.path) from None
            return await self._run(maker, now, tenant)

    async def _run(self, maker: Maker[T], place: Place, tenant: Whose) -> T:
        return await adrive(
            joining(self._store.store.protocol, maker, place, tenant, Progress()), partial(_do, self._connection)
        )

    async def _place(self) -> Place:
        place = PLACES[self._store.store] = await self._store.read(where)
        return place


async def _do(connection: psycopg.AsyncConnection[Any], joint: Joint) -> Any:
    match joint:
        case Together():
            return await _send(connection, joint)
        case Lend(function):
            with lent_async(connection) as guarded:
                return await function(guarded)
        case Tell(waker, wake):
            return await waker.atell(connection, wake)
        case Undo():
            await _undo(connection)
            return None
        case _:
            assert_never(joint)


async def _send(connection: psycopg.AsyncConnection[Any], together: Together) -> Sequence[Row]:
    cursors = [AsyncCursor(connection) for _ in together.statements]
    try:
        async with connection.pipeline() if together.at_once else nullcontext():
            for cursor, each in zip(cursors, together.statements, strict=True):
                await cursor.execute(each.sql, each.params, prepare=each.prepare)
    except psycopg.errors.DivisionByZero as error:
        raise_if_elsewhere(together, cursors, error)
        raise
    wanted = cursors[together.wanted]
    return await wanted.fetchall() if wanted.description else []


async def _undo(connection: psycopg.AsyncConnection[Any]) -> None:
    if connection.pgconn.transaction_status in OPEN:
        with suppress(psycopg.Error):  # what broke it says more
            await AsyncCursor(connection).execute(UNDO, prepare=False)
