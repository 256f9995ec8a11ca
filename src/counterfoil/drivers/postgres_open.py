"""Open PostgreSQL connections: pools of each colour, sessions that a pooler may share, and no wait without a bound."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import psycopg_pool

from counterfoil.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

    from counterfoil.drivers.urls import PostgresUrl

T = TypeVar("T")

OLDEST_SERVER = 130000  # PostgreSQL 13
CONNECTIONS = 10
"""Connections of one process and colour: transactions are short, and a server gives each connection a process."""
WAIT_S = 10.0
"""How long a caller waits for a free connection, and a statement for another transaction's row lock."""
SILENCE_S = 30.0
"""How long a statement may take: a server that answers nothing for longer counts as gone."""
IDLE_S = 300.0
_LOOK_S = 0.1
_DEFAULTS = {
    "connect_timeout": 10,
    "application_name": "counterfoil",
    # A peer that vanished without a word is noticed after 25 seconds and not after two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_ABOUT = """select pg_backend_pid(), cast(current_setting('server_version_num') as integer),
  current_setting('server_encoding')"""
_SESSION = "select set_config('lock_timeout', %s, false), set_config('idle_in_transaction_session_timeout', %s, false)"


class ServerSilent(psycopg.OperationalError):
    """The server answered nothing for too long; what became of the statement must be looked up."""


class Connection(psycopg.Connection[Any]):
    """A connection that does not wait for ever for a server that answers nothing."""

    def wait(self, gen: Generator[Any, Any, T], interval: float = _LOOK_S, timeout: float | None = None) -> T:
        """Consume a generator that operates on the connection, within a bound."""
        return super().wait(_bounded(gen, timeout or SILENCE_S), interval)


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for callers on an event loop."""

    async def wait(
        self,
        gen: Generator[Any, Any, T],
        interval: float = _LOOK_S,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's own signature
    ) -> T:
        """Consume a generator that operates on the connection, within a bound."""
        return await super().wait(_bounded(gen, timeout or SILENCE_S), interval)


def _bounded(gen: Generator[Any, Any, T], limit: float) -> Generator[Any, Any, T]:
    """Pass a generator of psycopg on, which is sent a zero whenever nothing came for a while."""
    until = time.monotonic() + limit
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= until:
                raise ServerSilent(f"the server answered nothing for {limit:.0f} seconds")
            wanted = gen.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result


def make_pool(url: PostgresUrl, size: int) -> psycopg_pool.ConnectionPool[Connection]:
    """Return a pool for blocking callers; it opens no connection before one is needed."""
    return psycopg_pool.ConnectionPool(
        url.conninfo(_DEFAULTS),
        connection_class=Connection,
        kwargs={"autocommit": True},
        configure=_configure,
        check=_check,
        open=True,
        **_sizes(size),
    )


def make_async_pool(url: PostgresUrl, size: int) -> psycopg_pool.AsyncConnectionPool[AsyncConnection]:
    """Return a pool for callers on the running event loop, to be opened there."""
    return psycopg_pool.AsyncConnectionPool(
        url.conninfo(_DEFAULTS),
        connection_class=AsyncConnection,
        kwargs={"autocommit": True},
        configure=_configure_async,
        check=_check_async,
        open=False,
        **_sizes(size),
    )


def _sizes(size: int) -> dict[str, Any]:
    return {"min_size": 0, "max_size": size, "timeout": WAIT_S, "max_idle": IDLE_S, "reconnect_timeout": WAIT_S}


def check_server(url: PostgresUrl) -> bool:
    """Refuse a server that cannot be used, with its own reason; say whether a pooler stands before it.

    Raises:
        StoreUnavailable: it cannot be reached, is too old, or its database has another encoding than UTF8.
    """
    try:
        with Connection.connect(url.conninfo(_DEFAULTS), autocommit=True) as connection:
            return not _is_ours_alone(connection, connection.execute(_ABOUT).fetchone())
    except psycopg.Error as error:
        raise StoreUnavailable(
            f"The database {url.path} cannot be opened: {str(error).strip() or type(error).__name__}. Nothing was"
            " written; check the URL, the role and that the server runs."
        ) from error


def connect_patiently(url: PostgresUrl) -> psycopg.Connection[Any]:
    """Open a connection for changes to the schema, which may take longer than a server may be silent elsewhere."""
    connection = psycopg.Connection[Any].connect(url.conninfo(_DEFAULTS), autocommit=True)
    _configure(connection)
    return connection


# --- a new connection ------------------------------------------------------------------------------------------------


def _configure(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(_ABOUT).fetchone()
    if _is_ours_alone(connection, row):
        connection.execute(_SESSION, _limits())


async def _configure_async(connection: AsyncConnection) -> None:
    row = await (await connection.execute(_ABOUT)).fetchone()
    if _is_ours_alone(connection, row):
        await connection.execute(_SESSION, _limits())


def _limits() -> tuple[str, str]:
    return (f"{WAIT_S:.0f}s", f"{SILENCE_S * 10:.0f}s")


def _is_ours_alone(connection: psycopg.Connection[Any] | AsyncConnection, row: Any) -> bool:
    """Refuse a server that does not fit; say whether the session belongs to this connection alone.

    Behind a pooler the process that answers is not the one that greeted. Settings and prepared statements would then
    meet another client, or be gone.
    """
    process, version, encoding = row
    if version < OLDEST_SERVER or encoding != "UTF8":
        raise StoreUnavailable(
            f"The PostgreSQL server has version {version // 10000} and encoding {encoding}; Counterfoil needs version"
            " 13 or newer and a database in UTF8. Nothing was written. Use another server or create the database with:"
            " create database ... encoding 'UTF8' template template0"
        )
    alone = bool(process == connection.info.backend_pid)
    if not alone:
        connection.prepare_threshold = None
    return alone


# --- a connection that was idle --------------------------------------------------------------------------------------


def _check(connection: Connection) -> None:
    """Notice without a round trip that an idle connection has died: only then has the server said anything."""
    if _has_news(connection):
        connection.execute("")


async def _check_async(connection: AsyncConnection) -> None:
    if _has_news(connection):
        await connection.execute("")


def _has_news(connection: Connection | AsyncConnection) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
