"""Joining a transaction on PostgreSQL leaves everything of the caller's as it was, and it may go on."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from counterfoil.drivers.join import AsyncTransaction, Transaction, ajoined, joined
from counterfoil.drivers.postgres import PostgresStore
from counterfoil.drivers.urls import PostgresUrl
from counterfoil.errors import Busy, ForeignTransaction, RightsMissing
from counterfoil.storage.script import Ddl, Maker, Script, user_code
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import ThreadKey
from tests.postgres.databases import Database
from tests.postgres.servers import PrivateServer

T = TypeVar("T")
SYNC, ASYNC = "sync", "async"


class Caller:
    """A caller with a connection of its own, in either colour behind one blocking interface."""

    def __init__(self, colour: str, url: str, *, autocommit: bool = True, **options: Any) -> None:
        self.colour = colour
        self.runner = asyncio.Runner()
        self.store = PostgresStore(PostgresUrl(url), **options)
        kind: Any = psycopg.Connection if colour == SYNC else psycopg.AsyncConnection
        self.connection = self.settle(kind.connect(url, autocommit=autocommit))

    def settle(self, answer: Any) -> Any:
        if asyncio.iscoroutine(answer):
            return self.runner.run(answer)
        return answer

    def join(self, connection: Any = None) -> Transaction | AsyncTransaction:
        given = self.connection if connection is None else connection
        if self.colour == SYNC:
            return joined(self.store, given)
        return self.runner.run(self._ajoin(given))

    async def _ajoin(self, connection: Any) -> AsyncTransaction:
        self.astore = self.store.awaiting()
        return ajoined(self.astore, connection)

    def run(self, maker: Maker[T]) -> T:
        found: T = self.settle(self.join().run(maker))
        return found

    def execute(self, sql: str, params: Any = None) -> list[Any]:
        return (
            self.settle(_execute(self.connection, sql, params))
            if self.colour == ASYNC
            else _rows(self.connection.execute(sql, params))
        )

    def numbers(self) -> list[int]:
        return [row["n"] for row in self.store.read(lambda: ddl("select n from t order by n"))]

    @property
    def status(self) -> TransactionStatus:
        return TransactionStatus(self.connection.pgconn.transaction_status)

    def lend(self, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a body of this colour that does what a blocking one says with `execute` alone."""
        if self.colour == SYNC:
            return lambda tx: body(lambda sql: tx.execute(sql).fetchall())

        async def awaiting(tx: Any) -> Any:
            done = body(tx.execute)
            return await done if asyncio.iscoroutine(done) else done

        return awaiting

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.settle(self.connection.close())
        if self.colour == ASYNC:
            self.runner.run(self._retire())
        self.store.close()
        self.runner.close()

    async def _retire(self) -> None:
        if hasattr(self, "astore"):
            await self.astore.close()


async def _execute(connection: Any, sql: str, params: Any) -> list[Any]:
    cursor = await connection.execute(sql, params)
    return await cursor.fetchall() if cursor.description else []


def _rows(cursor: Any) -> list[Any]:
    return list(cursor.fetchall()) if cursor.description else []


def ddl(*statements: str) -> Script[Any]:
    rows: Any = None
    for sql in statements:
        rows = yield Ddl(sql)
    return rows


def add(*numbers: int) -> Maker[Any]:
    return lambda: ddl(*(f"insert into t values ({n})" for n in numbers))  # noqa: S608 - numbers


@pytest.fixture(params=[SYNC, ASYNC])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(postgres_database: Database) -> Database:
    postgres_database.execute("create table t (n integer not null unique deferrable initially immediate)")
    return postgres_database


@pytest.fixture
def caller(colour: str, database: Database) -> Iterator[Caller]:
    made = Caller(colour, database.url)
    yield made
    made.close()


def test_it_commits_with_the_caller(caller: Caller) -> None:
    caller.execute("begin")
    caller.execute("insert into t values (1)")
    caller.run(add(2))
    assert caller.numbers() == []
    caller.execute("commit")
    assert caller.numbers() == [1, 2]


def test_it_rolls_back_with_the_caller(caller: Caller) -> None:
    caller.execute("begin")
    caller.run(add(1))
    caller.execute("rollback")
    assert caller.numbers() == []


def test_a_connection_that_begins_by_itself_is_begun(colour: str, database: Database) -> None:
    caller = Caller(colour, database.url, autocommit=False)
    caller.run(add(1))
    assert (caller.status, caller.numbers()) == (TransactionStatus.INTRANS, [])
    caller.settle(caller.connection.rollback())
    caller.run(add(2))
    caller.settle(caller.connection.commit())
    assert caller.numbers() == [2]
    caller.close()


def test_a_failure_undoes_its_own_part_only_and_leaves_the_transaction_open(caller: Caller) -> None:
    caller.execute("begin")
    caller.execute("insert into t values (1)")
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        caller.run(lambda: user_code(caller.lend(lambda do: do("insert into t values (2), (1)"))))
    assert caught.value.__cause__ is None
    assert caller.status is TransactionStatus.INTRANS
    caller.execute("commit")
    assert caller.numbers() == [1]


def test_a_failure_of_a_later_statement_undoes_the_earlier_ones(caller: Caller) -> None:
    caller.execute("begin")
    caller.execute("insert into t values (1)")
    with pytest.raises(Exception, match="refused a row"):
        caller.run(add(2, 3, 1))
    caller.execute("insert into t values (4)")
    caller.execute("commit")
    assert caller.numbers() == [1, 4]


def lone_and_then(*numbers: int) -> Maker[Any]:
    """Begin with a statement that ends the script if it returns a row, which it does not."""

    def script() -> Script[Any]:
        key = ThreadKey(tenant="team-a", thread_id="nobody-s")
        assert not (yield from threads.renew(key, attempt=1, lease=1))
        return (yield from add(*numbers)())

    return script


def test_a_failure_behind_a_lone_statement_without_a_row_undoes_its_own_part_only(caller: Caller) -> None:
    caller.execute("begin")
    caller.execute("insert into t values (1)")
    with pytest.raises(Exception, match="refused a row"):
        caller.run(lone_and_then(2, 1))
    assert caller.status is TransactionStatus.INTRANS
    caller.run(lone_and_then(3))
    caller.run(lone_and_then())
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
        caller.execute("release savepoint counterfoil_joined")
    caller.execute("rollback")
    caller.execute("begin")
    caller.run(lone_and_then(4))
    caller.execute("commit")
    assert caller.numbers() == [4]


def test_an_interrupt_undoes_its_part_too(caller: Caller) -> None:
    def script() -> Script[None]:
        yield Ddl("insert into t values (2)")
        raise KeyboardInterrupt

    caller.execute("begin")
    with pytest.raises(KeyboardInterrupt):
        caller.run(script)
    caller.execute("insert into t values (1)")
    caller.execute("commit")
    assert caller.numbers() == [1]


# --- the caller's own settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_settings_and_savepoints_stay(caller: Caller, *, fails: bool) -> None:
    connection = caller.connection
    connection.row_factory = psycopg.rows.namedtuple_row
    connection.prepare_threshold = 0
    connection.cursor_factory = psycopg.ClientCursor if caller.colour == SYNC else psycopg.AsyncClientCursor
    connection.adapters.register_loader("text", psycopg.types.string.TextBinaryLoader)
    caller.execute("begin isolation level repeatable read")
    caller.execute("set local lock_timeout = '1234ms'")
    caller.execute("savepoint counterfoil_joined")  # even one of our own name
    caller.execute("insert into t values (1)")
    if fails:
        with pytest.raises(Exception, match="refused a row"):
            caller.run(add(2, 1))
    else:
        caller.run(add(2))
    ((isolation, lock_timeout),) = caller.execute(
        "select current_setting('transaction_isolation') as a, current_setting('lock_timeout') as b"
    )
    assert (isolation, lock_timeout) == ("repeatable read", "1234ms")
    assert connection.row_factory is psycopg.rows.namedtuple_row
    assert connection.autocommit is True
    assert connection.prepare_threshold == 0
    assert issubclass(connection.cursor_factory, psycopg.ClientCursor | psycopg.AsyncClientCursor)
    assert connection.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF
    caller.execute("rollback to counterfoil_joined")
    caller.execute("release counterfoil_joined")
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
        caller.execute("release counterfoil_joined")  # none of ours is left
    caller.execute("rollback")
    assert caller.numbers() == []


def test_an_isolation_level_that_the_connection_sets_stays(colour: str, database: Database) -> None:
    caller = Caller(colour, database.url, autocommit=False)
    connection = caller.connection
    if colour == SYNC:
        connection.isolation_level, connection.read_only = IsolationLevel.SERIALIZABLE, False
    else:
        caller.settle(connection.set_isolation_level(IsolationLevel.SERIALIZABLE))
    caller.run(add(1))
    assert caller.execute("show transaction_isolation") == [("serializable",)]
    assert connection.isolation_level is IsolationLevel.SERIALIZABLE
    caller.settle(connection.commit())
    caller.close()


def test_our_values_are_read_as_ours_whatever_the_caller_registered(caller: Caller) -> None:
    class Shout(psycopg.adapt.Loader):
        def load(self, data: Any) -> str:
            return bytes(data).decode().upper() + "!"

    caller.connection.adapters.register_loader("text", Shout)
    caller.execute("begin")
    seen = caller.run(lambda: ddl("select cast('a' as text) as word"))
    assert seen == [{"word": "a"}]
    assert caller.execute("select cast('a' as text)") == [("A!",)]
    caller.execute("rollback")


def test_it_runs_inside_the_callers_own_blocks(caller: Caller) -> None:
    async def awaiting() -> None:
        async with caller.connection.transaction(), caller.connection.transaction():
            await ajoined(caller.store.awaiting(), caller.connection).run(add(1))

    if caller.colour == ASYNC:
        caller.settle(awaiting())
    else:
        with caller.connection.transaction(), caller.connection.transaction():
            caller.run(add(1))
    assert caller.numbers() == [1]


# --- what cannot be joined -------------------------------------------------------------------------------------------


def test_an_aborted_transaction(caller: Caller) -> None:
    caller.execute("begin")
    with suppress(psycopg.Error):
        caller.execute("select 1 / 0")
    with pytest.raises(ForeignTransaction, match="aborted"):
        caller.join()


def test_a_pipeline(caller: Caller) -> None:
    async def awaiting() -> None:
        async with caller.connection.pipeline():
            ajoined(caller.store.awaiting(), caller.connection)

    def blocking() -> Any:
        with caller.connection.pipeline():
            return caller.join()

    caller.execute("begin")
    with pytest.raises(ForeignTransaction, match="pipeline"):
        caller.settle(awaiting() if caller.colour == ASYNC else blocking())


def test_a_connection_that_does_not_speak_utf_8(caller: Caller) -> None:
    for encoding in ("LATIN1", "SQL_ASCII"):
        caller.execute(f"set client_encoding to '{encoding}'")
        caller.execute("begin")
        with pytest.raises(ForeignTransaction, match="client_encoding"):
            caller.join()
        caller.execute("rollback")


def test_a_read_only_transaction(caller: Caller) -> None:
    caller.execute("begin read only")
    with pytest.raises(ForeignTransaction, match="read-only"):
        caller.run(add(1))
    caller.execute("commit")


def test_a_connection_of_another_driver(caller: Caller) -> None:
    connection = type("Connection", (), {"__module__": "psycopg2.extensions"})()
    with pytest.raises(ForeignTransaction, match=r"postgresql\+psycopg://"):
        caller.join(connection)


def test_another_database_of_the_same_server(caller: Caller, fresh_database: Database, database: Database) -> None:
    fresh_database.execute("create table t (n integer)")
    other = Caller(caller.colour, fresh_database.url)
    caller.execute("begin")
    other.connection, theirs = caller.connection, other.connection
    with pytest.raises(ForeignTransaction, match="another database"):
        other.run(add(1))
    assert caller.status is TransactionStatus.INTRANS
    caller.execute("insert into t values (2)")
    caller.execute("commit")
    assert caller.numbers() == [2]
    other.connection = theirs
    other.close()


@pytest.mark.parametrize("path", ["elsewhere", "nowhere"])
def test_a_search_path_that_leads_to_other_tables(caller: Caller, database: Database, path: str) -> None:
    database.execute("create schema elsewhere; create table elsewhere.counterfoil_operation (id integer)")
    try:
        caller.execute("begin")
        caller.run(add(1))
        caller.execute(f"set local search_path = {path}")  # between two effects of one transaction
        with pytest.raises(ForeignTransaction, match="search_path"):
            caller.run(lambda: ddl("insert into public.t values (2)"))
        caller.execute("commit")
        assert caller.numbers() == [1]
    finally:
        database.execute("drop schema elsewhere cascade")


def test_a_division_by_zero_of_the_effects_own_is_not_taken_for_another_database(caller: Caller) -> None:
    caller.execute("begin")
    with pytest.raises(psycopg.errors.DivisionByZero):
        caller.run(lambda: user_code(caller.lend(lambda do: do("select 1 / 0"))))
    with pytest.raises(Exception, match="could not do its work"):
        caller.run(lambda: ddl("select 1 / 0"))
    caller.execute("rollback")


def test_a_server_that_was_restarted_is_the_same_database(colour: str, private_server: PrivateServer) -> None:
    caller = Caller(colour, private_server.root)
    caller.execute("create table t (n integer); create table counterfoil_operation (n integer)")
    caller.execute("begin")
    caller.run(add(1))
    caller.execute("commit")
    private_server.restart()
    again = Caller(colour, private_server.root)
    caller.connection, old = again.connection, caller.connection
    caller.execute("begin")
    caller.run(add(2))
    caller.execute("commit")
    assert caller.numbers() == [1, 2]
    caller.connection = old
    caller.close()
    again.close()


# --- what ends the caller's transaction ------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_serialization_failure_is_the_callers_own_to_repeat(
    caller: Caller, database: Database, isolation: str
) -> None:
    database.execute("insert into t values (1)")
    caller.execute(f"begin isolation level {isolation}")
    caller.execute("select * from t")
    database.execute("update t set n = 2")
    with pytest.raises(psycopg.errors.SerializationFailure):
        caller.run(lambda: ddl("update t set n = n + 10"))
    caller.execute("rollback")
    caller.execute(f"begin isolation level {isolation}")
    caller.run(lambda: ddl("update t set n = n + 10"))
    caller.execute("commit")
    assert caller.numbers() == [12]


def test_a_lock_that_is_not_given_leaves_the_transaction_open(caller: Caller, database: Database) -> None:
    with psycopg.connect(database.url) as other:
        other.execute("lock table t")
        caller.execute("begin")
        caller.execute("set local lock_timeout = '50ms'")
        with pytest.raises(Busy):
            caller.run(add(1))
        assert caller.status is TransactionStatus.INTRANS
        other.rollback()
    caller.run(add(1))
    caller.execute("commit")
    assert caller.numbers() == [1]


def test_a_connection_that_is_lost_is_the_drivers_error(caller: Caller, database: Database) -> None:
    caller.execute("begin")
    pid = caller.connection.info.backend_pid
    database.execute("select pg_terminate_backend(%s)", pid)
    with pytest.raises(psycopg.OperationalError):
        caller.run(add(1))
    with pytest.raises(ForeignTransaction, match="closed or lost"):
        caller.run(add(1))
    assert caller.numbers() == []


def test_a_right_that_is_missing_is_named(caller: Caller, database: Database) -> None:
    role = database.name.replace("test", "joiner")
    database.execute(f"create role {role}; grant usage on schema public to {role}")
    try:
        caller.execute("begin")
        caller.execute(f"set local role {role}")
        with pytest.raises(RightsMissing):
            caller.run(add(1))
        assert caller.status is TransactionStatus.INTRANS
        caller.execute("rollback")
    finally:
        database.execute(f"drop owned by {role}; drop role {role}")


# --- libpq without pipelines -----------------------------------------------------------------------------------------


def test_an_old_libpq_sends_one_statement_after_another(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    caller.execute("begin")
    caller.run(add(1, 2))
    with pytest.raises(Exception, match="refused a row"):
        caller.run(add(3, 1))
    caller.execute("set local search_path = nowhere")
    with pytest.raises(ForeignTransaction, match="search_path"):
        caller.run(lambda: ddl("insert into public.t values (2)"))
    caller.execute("commit")
    assert caller.numbers() == [1, 2]
