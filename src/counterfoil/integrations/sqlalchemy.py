"""SQLAlchemy's transactions: the driver's connection behind one, what an effect is lent, and whose errors are raised.

Counterfoil's own statements go to the driver's connection. What an effect's body does goes through SQLAlchemy: its
handle takes SQLAlchemy's statements, with a session also its objects, and texts for the driver as everywhere else.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.orm import Session, scoped_session

from counterfoil.drivers.join import begins_late, kind
from counterfoil.errors import ForeignTransaction, GuardedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy.engine import Dialect
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from counterfoil.aio.joining import AsyncHost
    from counterfoil.joining import Host
    from counterfoil.transacting import Body

CORE = frozenset({"scalar", "scalars"})
ORM = CORE | {"add", "add_all", "delete", "flush", "get", "get_one", "merge", "no_autoflush", "query", "refresh"}
"""What an effect may do with a connection and with a session, besides `execute`."""
_BEGIN = "begin immediate"


def host(transaction: Any) -> Host:
    """Return the host of a connection or session.

    Raises:
        ForeignTransaction: it is neither, or must be awaited.
    """
    match transaction:
        case scoped_session():
            return SessionHost(transaction())
        case Session():
            return SessionHost(transaction)
        case Connection():
            return ConnectionHost(transaction)
        case _ if _is_async(transaction):
            raise ForeignTransaction(
                f"The statements of {kind(transaction)} must be awaited. Write:"
                " await AsyncCounterfoil.open(url).join(...).perform(...)"
            )
        case _:
            raise ForeignTransaction(
                f"{kind(transaction)} is no open transaction. Pass the connection or the session that has one: with"
                " engine.begin() as connection: cf.join(connection), or: with Session(engine) as session,"
                " session.begin(): cf.join(session)"
            )


def async_host(transaction: Any) -> AsyncHost:
    """Return the host of an async connection or session.

    Raises:
        ForeignTransaction: it is neither, or blocks.
    """
    if _is_async(transaction):
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session  # noqa: PLC0415 - as above

        match transaction:
            case async_scoped_session():
                return AsyncSessionHost(transaction())
            case AsyncSession():
                return AsyncSessionHost(transaction)
            case AsyncConnection():
                return AsyncConnectionHost(transaction)
    raise ForeignTransaction(
        f"{kind(transaction)} is no open transaction, or blocks and would hold up the event loop. Pass an"
        " AsyncConnection or AsyncSession: async with engine.begin() as connection: cf.join(connection). In code that"
        " runs on no loop, join it with a Counterfoil.open(url)."
    )


def _is_async(transaction: Any) -> bool:
    """Say whether it comes from SQLAlchemy's asyncio part, which is imported only then."""
    return any(cls.__module__.startswith("sqlalchemy.ext.asyncio") for cls in type(transaction).__mro__)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InvalidRequestError as error:
        raise ForeignTransaction(
            f"SQLAlchemy has no usable transaction here ({type(error).__name__}: {error}). Begin one, or roll back the"
            " broken one and run it again."
        ) from error


@contextmanager
def _translating(dialect: Callable[[], Dialect | None]) -> Iterator[None]:
    """Raise a driver's error as SQLAlchemy does, so that its users' own handlers know it."""
    try:
        yield
    except Exception as error:
        known = dialect()
        driver = known.loaded_dbapi.Error if known is not None else ()
        if not isinstance(error, driver):
            raise
        raise DBAPIError.instance(None, None, error, driver, dialect=known) from error  # type: ignore[arg-type]


# --- blocking --------------------------------------------------------------------------------------------------------


class ConnectionHost:
    """A `Connection` with a transaction; one that begins with its first statement begins here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection(self) -> Any:
        """Return the driver's connection."""
        with _refusing():
            return driver_connection(self._connection)

    def prepare(self) -> None:
        """Do nothing: a connection keeps nothing back."""

    def lend(self, body: Body) -> Body:
        """Lend the connection to the body."""
        return lambda guarded: _lent(body, View(guarded, self._connection, CORE))

    def errors(self) -> AbstractContextManager[None]:
        """Raise the driver's errors as SQLAlchemy's."""
        return _translating(lambda: self._connection.dialect)


class SessionHost:
    """A `Session` with a transaction; one that begins with its first statement begins here."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._dialect: Dialect | None = None

    def connection(self) -> Any:
        """Return the driver's connection."""
        with _refusing():
            connection = self._session.connection()
            self._dialect = connection.dialect
            return driver_connection(connection)

    def prepare(self) -> None:
        """Write the session's pending objects: rows of the effect may point to them."""
        self._session.flush()

    def lend(self, body: Body) -> Body:
        """Lend the session to the body, in a savepoint of its own: only so does it forget what is undone."""

        def lent(guarded: Any) -> Any:
            with self._session.begin_nested():
                return _lent(body, View(guarded, self._session, ORM))

        return lent

    def errors(self) -> AbstractContextManager[None]:
        """Raise the driver's errors as SQLAlchemy's."""
        return _translating(lambda: self._dialect)


def driver_connection(connection: Connection) -> Any:
    """Return the driver's connection with the transaction begun that SQLAlchemy has begun in name only."""
    if not connection.in_transaction():
        connection.begin()
    driver: Any = connection.connection.driver_connection
    if begins_late(driver):
        driver.execute(_BEGIN)
    return driver


class View:
    """An open transaction as an effect sees it: SQLAlchemy's statements and objects, and no way to end it."""

    def __init__(self, guarded: Any, host: Any, offered: Collection[str]) -> None:
        self._guarded = guarded
        self._host = host
        self._offered = offered
        self._over = False

    def end_loan(self) -> None:
        """Refuse what comes from now on."""
        self._over = True

    def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
        """Execute one of SQLAlchemy's statements, or a text of the driver's own as every transactional effect may."""
        if isinstance(statement, str | bytes):
            return self._guarded.execute(statement, *args, **options)
        self._check(getattr(statement, "text", ""))
        return self._host.execute(statement, *args, **options)

    def executemany(self, sql: Any, parameters: Any, /) -> Any:
        """Execute one text of the driver's own for each set of parameters."""
        return self._guarded.executemany(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        """Return what is offered, and refuse everything else that a connection or session can do."""
        if name not in self._offered:
            raise GuardedTransaction(
                f"A transactional effect may not use {name!r} of its transaction. Counterfoil commits its rows together"
                f" with the receipt; it can execute, executemany, {', '.join(sorted(self._offered))}."
            )
        self._check("")
        return getattr(self._host, name)

    def _check(self, text: object) -> None:
        if self._over:
            raise GuardedTransaction("A transactional effect used its transaction after it had returned.")
        self._guarded.opened(text if isinstance(text, str) else "")


def _lent(body: Body, view: View) -> Any:
    try:
        return body(view)
    finally:
        view.end_loan()


# --- awaiting --------------------------------------------------------------------------------------------------------


class AsyncConnectionHost:
    """An `AsyncConnection` with a transaction; one that begins with its first statement begins here."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def connection(self) -> Any:
        """Return the driver's connection."""
        with _refusing():
            return await async_driver_connection(self._connection)

    async def prepare(self) -> None:
        """Do nothing: a connection keeps nothing back."""

    def lend(self, body: Body) -> Body:
        """Lend the connection to the body."""

        async def lent(guarded: Any) -> Any:
            return await _alent(body, View(guarded, self._connection, CORE))

        return lent

    def errors(self) -> AbstractContextManager[None]:
        """Raise the driver's errors as SQLAlchemy's."""
        return _translating(lambda: self._connection.dialect)


class AsyncSessionHost:
    """An `AsyncSession` with a transaction; one that begins with its first statement begins here."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._dialect: Dialect | None = None

    async def connection(self) -> Any:
        """Return the driver's connection."""
        with _refusing():
            connection = await self._session.connection()
            self._dialect = connection.dialect
            return await async_driver_connection(connection)

    async def prepare(self) -> None:
        """Write the session's pending objects: rows of the effect may point to them."""
        await self._session.flush()

    def lend(self, body: Body) -> Body:
        """Lend the session to the body, in a savepoint of its own: only so does it forget what is undone."""

        async def lent(guarded: Any) -> Any:
            async with self._session.begin_nested():
                return await _alent(body, View(guarded, self._session, ORM))

        return lent

    def errors(self) -> AbstractContextManager[None]:
        """Raise the driver's errors as SQLAlchemy's."""
        return _translating(lambda: self._dialect)


async def async_driver_connection(connection: AsyncConnection) -> Any:
    """Return the driver's connection with the transaction begun that SQLAlchemy has begun in name only."""
    if not connection.in_transaction():
        _ = await connection.begin()
    driver: Any = (await connection.get_raw_connection()).driver_connection
    if begins_late(driver):
        await driver.execute(_BEGIN)
    return driver


async def _alent(body: Body, view: View) -> Any:
    try:
        return await body(view)
    finally:
        view.end_loan()
