"""Open PostgreSQL connections: sessions that a pooler may share, and no wait without a bound."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.sql import Literal

from counterfoil.drivers.pgstate import ReadOnlySession, ServerSilent
from counterfoil.errors import Retry, StoreUnavailable
from counterfoil.storage.tenants import SETTING

if TYPE_CHECKING:
    from collections.abc import Generator

    from counterfoil.drivers.urls import PostgresUrl

T = TypeVar("T")

COMMIT, ROLLBACK = "commit", "rollback"
ENDS = {COMMIT, ROLLBACK}
UNLOCK = "select pg_advisory_unlock_all()"
OLDEST_SERVER = 130000  # PostgreSQL 13
CONNECTIONS = 10
"""Connections of one process and colour: transactions are short, and a server gives each connection a process."""
WAIT_S = 10.0
"""How long a caller waits for a free connection or for a server that is away, and a statement for a row lock."""
SILENCE_S = 30.0
"""How long a statement may take: a server that answers nothing for longer counts as gone."""
ANSWER_SHARE = 0.8
"""The server gives a statement up by itself before its silence would count: then what became of it is known.

It gives up no COMMIT that waits for its disk or a standby. There the silence counts, and is a `CommitUnknown`.
"""
ABANDONED_SHARE = 10
"""So many silences a transaction may idle: then it is a transactional effect that hangs, or the client is gone."""
_LOOK_S = 0.1
_LONGEST_MS = 2**31 - 1
_CONNECT_S = 10
_DEFAULTS = {
    "application_name": "counterfoil",
    "client_encoding": "UTF8",
    # A peer that vanished without a word is noticed after 25 seconds and not after two hours; one that acknowledges
    # nothing while it is spoken to, after 15.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# What a shared session was set to by another client is no wish of the administrator's: the default is what counts.
_ABOUT = """select pg_backend_pid(), cast(current_setting('server_version_num') as integer),
  current_setting('server_encoding'), (
    select cast(reset_val as boolean) from pg_settings where name = 'default_transaction_read_only'),
  coalesce(row_security_active(to_regclass('counterfoil_operation')), false)"""
# A shorter limit that the role, the database or the URL sets stays. Statements that stand alone, outside of a
# transaction that says how it wants to be, go by the defaults.
_SESSION = """select set_config('default_transaction_isolation', 'read committed', false), (
    select count(set_config(name, cast(least(
      nullif(cast(extract(epoch from cast(current_setting(name) as interval)) * 1000 as integer), 0), wanted) as text),
      false))
    from (values ('lock_timeout', {}), ('statement_timeout', {}), ('idle_in_transaction_session_timeout', {}))
      as limits (name, wanted))"""
_CLEAN = """close all; set session authorization default; reset role; reset all; unlisten *;
  select pg_advisory_unlock_all(); discard temp"""
"""What `discard all` does, which takes no other statement beside it, but for what is no setting and harms nobody."""
_FOLLOWED = ("client_encoding", "DateStyle", "TimeZone", "IntervalStyle", "application_name")
"""What a pooler gives back to each of its clients, for which it goes by what the server reports."""


class Connection(psycopg.Connection[Any]):
    """A connection that does not wait for ever for a server that answers nothing."""

    home: int | None = None
    """The process that opened it."""
    silence: float | None = None
    """How long a statement may take, if another time than usual."""
    reads_only = False
    """Whether the role's, the database's or the URL's default is to write nothing."""
    walled = False
    """Whether row security holds its role to the tenant that a transaction names."""
    hosts = False
    """Whether its transaction holds user code, which may go on as another role."""
    soiled = False
    """Whether user code ran statements in its session, which it may have set for longer than its transaction."""
    unsaid = False
    """Whether user code may have changed, since it was said, whose rows the transaction may touch."""
    cleaning = ""
    """The statements that undo what user code set, and set what is ours."""

    def wait(self, gen: Generator[Any, Any, T], interval: float = _LOOK_S, timeout: float | None = None) -> T:
        """Consume a generator that operates on the connection, within a bound."""
        return super().wait(_bounded(gen, timeout or self.silence or SILENCE_S), interval)

    def __del__(self, *_: object) -> None:
        """Say nothing: a connection that a shelf still holds at the end of its process or event loop is no leak."""


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for callers on an event loop."""

    home: int | None = None
    silence: float | None = None
    reads_only = False
    walled = False
    hosts = False
    soiled = False
    unsaid = False
    cleaning = ""

    async def wait(
        self,
        gen: Generator[Any, Any, T],
        interval: float = _LOOK_S,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's own signature
    ) -> T:
        """Consume a generator that operates on the connection, within a bound."""
        return await super().wait(_bounded(gen, timeout or self.silence or SILENCE_S), interval)

    def __del__(self, *_: object) -> None:
        """Say nothing, as the blocking one."""


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


# --- a new connection ------------------------------------------------------------------------------------------------


def connect(url: PostgresUrl, silence: float | None = None) -> tuple[Connection, bool]:
    """Open a connection; say whether the session behind it is its own, which it is not where a pooler stands before it.

    Args:
        url: The database.
        silence: How many seconds each answer may take, if not as long as usual; a migration sets no bound.

    Raises:
        psycopg.Error: it cannot be opened now.
        StoreUnavailable: the server is too old, or its database has another encoding than UTF8.
    """
    connection = Connection.connect(url.conninfo(_defaults(silence)), autocommit=True)
    try:
        connection.home, connection.silence = os.getpid(), silence
        own = _is_its_own(connection, connection.execute(_ABOUT).fetchone())
        ours = _settings(connection, own=own, ever=silence == math.inf)
        connection.cleaning = f"{_CLEAN}; {ours}"
        if own:
            connection.execute(ours)
    except BaseException:
        connection.close()
        raise
    return connection, own


async def connect_async(url: PostgresUrl) -> AsyncConnection:
    """Open a connection for an event loop; see `connect`."""
    connection = await AsyncConnection.connect(url.conninfo(_defaults(None)), autocommit=True)
    try:
        connection.home = os.getpid()
        own = _is_its_own(connection, await (await connection.execute(_ABOUT)).fetchone())
        ours = _settings(connection, own=own)
        connection.cleaning = f"{_CLEAN}; {ours}"
        if own:
            await connection.execute(ours)
    except BaseException:
        connection.pgconn.finish()
        raise
    return connection


def _defaults(silence: float | None) -> dict[str, Any]:
    seconds = min(_CONNECT_S, silence or _CONNECT_S)
    return {**_DEFAULTS, "connect_timeout": math.ceil(seconds)}


def _limits(*, ever: bool = False) -> tuple[int, int, int]:
    """Return in milliseconds how long the server lets a statement wait for a lock and run, and a transaction idle."""
    running, idle = SILENCE_S * ANSWER_SHARE, SILENCE_S * ABANDONED_SHARE
    return round(WAIT_S * 1000), _LONGEST_MS if ever else round(running * 1000), round(idle * 1000)


def _settings(connection: Connection | AsyncConnection, *, own: bool, ever: bool = False) -> str:
    """Return the statement that sets a session as we want it: our own, or a pooler's as this client found it."""
    if own:
        return _SESSION.format(*_limits(ever=ever))
    found = [(name, connection.info.parameter_status(name)) for name in _FOLLOWED]
    as_found = [
        f"set_config('{name}', {Literal(value).as_string(connection)}, false)" for name, value in found if value
    ]
    return f"select {', '.join(as_found)}"


def for_one_transaction() -> str:
    """Return what BEGIN goes on with where the session is shared, so that nothing can be set for longer."""
    waiting, running, _ = _limits()
    return f"read write; set local lock_timeout = {waiting}; set local statement_timeout = {running}"


def _is_its_own(connection: Connection | AsyncConnection, row: Any) -> bool:
    """Refuse a server that does not fit; say whether the session belongs to this connection alone.

    Behind a pooler the process that answers is not the one that greeted. Settings and prepared statements would then
    meet another client, or be gone.
    """
    process, version, encoding, connection.reads_only, connection.walled = row
    if version < OLDEST_SERVER or encoding != "UTF8":
        unfit = StoreUnavailable(
            f"The PostgreSQL server has version {version // 10000} and encoding {encoding}; Counterfoil needs version"
            " 13 or newer and a database in UTF8. Nothing was written. Use another server or create the database with:"
            " create database ... encoding 'UTF8' template template0"
        )
        unfit.retry = Retry.NEVER
        raise unfit
    own = bool(process == connection.info.backend_pid)
    if not own:
        connection.prepare_threshold = None
    return own


# --- a connection in use ---------------------------------------------------------------------------------------------


def check_writes(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse to write where an administrator made reading the default; another connection may find it changed.

    Raises:
        ReadOnlySession: it is so.
    """
    if getattr(connection, "reads_only", False):
        raise ReadOnlySession("default_transaction_read_only is on")


def soil(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], *, soiled: bool = True) -> None:
    """Note on a connection of ours that user code runs statements in its session, or that nothing is left of that."""
    if isinstance(connection, Connection | AsyncConnection):
        connection.soiled = connection.unsaid = soiled


def control(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], sql: str, wall: str = ""
) -> tuple[str, bool | None]:
    """Return how a transaction begins or ends, and whether that may be prepared.

    Whose rows it may touch is said in the round trip of its BEGIN, where row security goes by that, or may once user
    code went on as another role.
    What user code set for longer is undone in the round trip of its COMMIT, and behind it: deferred triggers may go by
    such settings. A rollback takes settings back, but no lock of the session's.
    """
    if sql not in ENDS and (getattr(connection, "walled", False) or getattr(connection, "hosts", False)):
        return f"{sql}; set local {SETTING} = {Literal(wall).as_string(connection)}", False
    if not getattr(connection, "soiled", False):
        return sql, None
    return f"{sql}; {connection.cleaning if sql == COMMIT else UNLOCK}", False  # type: ignore[union-attr]
