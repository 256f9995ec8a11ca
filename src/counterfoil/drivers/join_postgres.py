"""PostgreSQL: run scripts inside the transaction that a caller has open on a psycopg connection of its own.

What a script costs more than its statements goes along with them: the savepoint and the check that this is our database
are sent with the first, the savepoint's release with the last. Measured on the loopback, that takes as long as sending
each by itself; on a network every round trip that it saves takes 0.2 to 1 ms.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, assert_never
from weakref import WeakKeyDictionary

import psycopg
from psycopg import adapt
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import DictRow, dict_row

from counterfoil.drivers.driving import drive
from counterfoil.drivers.join import not_joinable
from counterfoil.drivers.pgstate import READ_ONLY, from_psycopg, is_lost, may_run_again
from counterfoil.drivers.postgres_guard import lent
from counterfoil.drivers.postgres_run import Execute, Lend, Progress, Tell
from counterfoil.drivers.postgres_wall import SAY
from counterfoil.errors import ForeignTransaction
from counterfoil.storage.script import Ddl
from counterfoil.storage.tenants import SETTING, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.drivers.postgres_run import Inners, Protocol
    from counterfoil.storage.script import Maker, Row, Script
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")

SAVEPOINT = "savepoint counterfoil_joined"
RELEASE = "release savepoint counterfoil_joined"
UNDO = f"rollback to {SAVEPOINT}; {RELEASE}"
OPEN = {TransactionStatus.INTRANS, TransactionStatus.INERROR}
ADAPTERS = adapt.AdaptersMap(psycopg.adapters)
"""How our values are read and written, whatever the caller has registered on its connection."""

_WHERE = """cast(extract(epoch from pg_postmaster_start_time()) * 1000000 as bigint) as started,
  cast(current_database() as text) as database,
  cast(cast(to_regclass('counterfoil_operation') as oid) as bigint) as relation"""
"""What tells databases apart, and schemas that hold Counterfoil's tables, in words that every role may use."""
WHERE = f"select {_WHERE}"
_BEFORE = "counterfoil.before"
_CHECK = f"""select 1 / cast(coalesce(
    (started, database, relation) = (%(started)s, cast(%(database)s as text), %(relation)s), false) as integer),
  set_config('{SETTING}', %(wall)s, true)
from (
  select {_WHERE}, set_config('{_BEFORE}', coalesce(current_setting('{SETTING}', true), ''), true)
  offset 0
) here"""  # noqa: S608 - texts of this module
"""Breaks, and so keeps what is sent behind it from being run, where this is another database; and says whose rows a
script may touch, for row security, to which the caller's role may be subject."""
BACK = f"select set_config('{SETTING}', current_setting('{_BEFORE}', true), true)"
"""Gives the caller back what it had said itself, if anything; a roll-back to the savepoint does so, too."""


class Place(NamedTuple):
    """One database of one running server, and the table of operations that is visible in it."""

    started: int
    database: str
    relation: int | None


PLACES: WeakKeyDictionary[PostgresStore, Place] = WeakKeyDictionary()


class Elsewhere(Exception):
    """The connection does not lead to where the store's did."""


def where() -> Script[Place]:
    """Read where a connection leads."""
    (row,) = yield Ddl(WHERE)
    return Place(**row)


# --- actions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Together:
    """Send statements in one go and return the rows of one; the savepoint and the check come first, if at all."""

    statements: tuple[Execute, ...]
    wanted: int
    opens: bool

    @property
    def at_once(self) -> bool:
        """Say whether they are several, and can be sent without waiting for each other; libpq 13 cannot."""
        return len(self.statements) > 1 and psycopg.Pipeline.is_supported()


class Undo:
    """Undo what was done since the savepoint, if the transaction still is."""


_CLOSING = (Execute(BACK, {}), Execute(RELEASE, {}))

Joint: TypeAlias = Together | Lend | Tell | Undo
Joints: TypeAlias = Generator[Joint, Any, T]


def joining(protocol: Protocol, maker: Maker[T], place: Place, tenant: Whose, progress: Progress) -> Joints[T]:
    """Run a script between a savepoint and its release; if it fails, undo what it did."""
    try:
        return (yield from _framed(protocol.inside(maker, progress), place, setting(tenant)))
    except psycopg.Error as error:
        yield Undo()
        if (meaning := _meaning(protocol, error, progress)) is error:
            raise
        raise meaning from error
    except BaseException:
        yield Undo()
        raise


def _framed(inner: Inners[T], place: Place, wall: str) -> Joints[T]:
    says = {"wall": wall}
    opening: tuple[Execute, ...] = (Execute(SAVEPOINT, {}), Execute(_CHECK, {**place._asdict(), **says}))
    released = False
    unsaid: tuple[Execute, ...] = ()
    try:
        action = next(inner)
        while True:
            try:
                if opening and not isinstance(action, Execute):
                    yield Together(opening, wanted=0, opens=True)
                    opening = ()
                if isinstance(action, Execute):
                    answer = yield _together(opening or unsaid, action, opens=bool(opening))
                    unsaid = ()
                    released = action.ends
                    if released and opening and not answer:  # nothing is written yet, and the script goes on
                        yield Together((Execute(SAVEPOINT, {}), Execute(SAY, says)), wanted=0, opens=False)
                        released = False
                    opening = ()
                else:
                    answer = yield action
                    unsaid = (Execute(SAY, says),)  # user code may have set or reset it
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = inner.throw(error)
            else:
                action = inner.send(answer)
    except StopIteration as stop:
        if not opening and not released:
            yield Together(_CLOSING, wanted=0, opens=False)
        result: T = stop.value
        return result
    finally:
        inner.close()


def _together(before: tuple[Execute, ...], execute: Execute, *, opens: bool) -> Together:
    closing = _CLOSING if execute.ends else ()
    return Together((*before, execute, *closing), wanted=len(before), opens=opens)


def _meaning(protocol: Protocol, error: psycopg.Error, progress: Progress) -> Exception:
    """Return what is raised of an error: what ends or repeats the caller's transaction stays as the driver says it."""
    if error is progress.user_error or is_lost(error) or may_run_again(error):
        return error
    if error.sqlstate == READ_ONLY:
        return ForeignTransaction(
            "The transaction to join is read-only, so no receipt can be written in it. Nothing was done; begin one that"
            " may write."
        )
    return from_psycopg(error, protocol.path)


# --- the caller's connection -----------------------------------------------------------------------------------------


def check_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection whose transaction takes no statement now; one that begins by itself counts as open.

    Raises:
        ForeignTransaction: it is closed, in autocommit, aborted, in a pipeline, or does not speak UTF-8.
    """
    status = connection.pgconn.transaction_status
    if connection.closed or status == TransactionStatus.UNKNOWN:
        raise ForeignTransaction("The connection is closed or lost, and its transaction with it. Begin it again.")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise ForeignTransaction(
            "The connection has no transaction open, so there is nothing to commit with. Begin one first:"
            " with connection.transaction(): ..."
        )
    if status == TransactionStatus.INERROR:
        raise ForeignTransaction(
            "The transaction was aborted by an error before, and keeps nothing any more. Roll back and run it again, or"
            " put a savepoint before what may fail."
        )
    if status == TransactionStatus.ACTIVE or connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ForeignTransaction(
            "The connection is in pipeline mode, or in the middle of a statement: what an effect returns could not be"
            " read before it is recorded. Leave the pipeline first, or read the statement's rows to the end."
        )
    if connection.info.encoding != "utf-8":
        raise ForeignTransaction(
            f"The connection speaks {connection.info.encoding}, which cannot hold every id and receipt. Write:"
            " connection.execute(\"set client_encoding to 'UTF8'\")"
        )


def elsewhere(path: str) -> ForeignTransaction:
    """Return the refusal of a connection to another database."""
    return ForeignTransaction(
        f"The connection belongs to another database than {path}, or its search_path does not lead to the tables"
        " counterfoil_* that are there; nothing was done. One transaction cannot hold rows of two databases: open a"
        " Counterfoil on the database of the business rows."
    )


class Cursor(psycopg.Cursor[DictRow]):
    """A cursor for statements of ours: nothing that the caller set on the connection changes what it reads."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=dict_row)

    @property
    def adapters(self) -> adapt.AdaptersMap:
        """Return our own adapters."""
        return ADAPTERS


class JoinedPostgres:
    """The transaction that is open on a `psycopg.Connection`."""

    def __init__(self, store: PostgresStore, connection: Any) -> None:
        if not isinstance(connection, psycopg.Connection):
            raise not_joinable(store, connection, awaits=False)
        check_open(connection)
        self._store = store
        self._connection = connection

    def run(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script; if it fails, what it did is undone and the transaction stays open."""
        check_open(self._connection)  # it may have been ended since it was joined
        place = PLACES.get(self._store) or self._place()
        try:
            return self._run(maker, place, tenant)
        except Elsewhere:
            if (now := self._place()) == place:  # it is not that the server was restarted
                raise elsewhere(self._store.path) from None
            return self._run(maker, now, tenant)

    def leads_here(self) -> bool:
        """Say whether it belongs to the store's own database."""
        row = Cursor(self._connection).execute(WHERE).fetchone()
        return row is not None and Place(**row) == self._place()

    def _run(self, maker: Maker[T], place: Place, tenant: Whose) -> T:
        return drive(joining(self._store.protocol, maker, place, tenant, Progress()), partial(_do, self._connection))

    def _place(self) -> Place:
        place = PLACES[self._store] = self._store.read(where)
        return place


def _do(connection: psycopg.Connection[Any], joint: Joint) -> Any:
    match joint:
        case Together():
            return _send(connection, joint)
        case Lend(function):
            with lent(connection) as guarded:
                return function(guarded)
        case Tell(waker, wake):
            return waker.tell(connection, wake)
        case Undo():
            undo(connection)
            return None
        case _:
            assert_never(joint)


def _send(connection: psycopg.Connection[Any], together: Together) -> Sequence[Row]:
    cursors = [Cursor(connection) for _ in together.statements]
    try:
        with connection.pipeline() if together.at_once else nullcontext():
            for cursor, each in zip(cursors, together.statements, strict=True):
                cursor.execute(each.sql, each.params, prepare=each.prepare)
    except psycopg.errors.DivisionByZero as error:
        raise_if_elsewhere(together, cursors, error)
        raise
    wanted = cursors[together.wanted]
    return wanted.fetchall() if wanted.description else []


def raise_if_elsewhere(together: Together, cursors: Sequence[Any], error: psycopg.Error) -> None:
    """Say that it was the check that broke, and not a statement of the effect's own.

    Raises:
        Elsewhere: the check returned nothing.
    """
    if together.opens and cursors[1].description is None:
        raise Elsewhere from error


def undo(connection: psycopg.Connection[Any]) -> None:
    """Undo what was done since the savepoint, if the transaction still is."""
    if connection.pgconn.transaction_status in OPEN:
        with suppress(psycopg.Error):  # what broke it says more
            Cursor(connection).execute(UNDO, prepare=False)
