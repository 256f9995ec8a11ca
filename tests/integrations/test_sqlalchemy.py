"""SQLAlchemy's connections and sessions, blocking and awaiting: joined, lent, and left as they were."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ForeignKey, create_engine, event, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from counterfoil import AsyncCounterfoil, Counterfoil, Effect, Provider, Receipt, Statement, effect
from counterfoil.errors import ForeignTransaction, GuardedTransaction, NotOneRow

SQLITE, POSTGRES = "sqlite", "postgres"
CONNECTION, SESSION, ASYNC_CONNECTION, ASYNC_SESSION = "connection", "session", "async-connection", "async-session"
ASYNC = {ASYNC_CONNECTION, ASYNC_SESSION}
DRIVERS = {
    (SQLITE, False): ("sqlite:", "sqlite+pysqlite:"),
    (SQLITE, True): ("sqlite:", "sqlite+aiosqlite:"),
    (POSTGRES, False): ("postgresql:", "postgresql+psycopg:"),
    (POSTGRES, True): ("postgresql:", "postgresql+psycopg:"),
}
TENANT = {"tenant": "team-a"}


class Base(DeclarativeBase):
    """The application's own tables."""


class Customer(Base):
    __tablename__ = "customer"
    name: Mapped[str] = mapped_column(primary_key=True)


class Booking(Base):
    __tablename__ = "booking"
    id: Mapped[int] = mapped_column(primary_key=True)
    seat: Mapped[str] = mapped_column(unique=True)
    customer: Mapped[str | None] = mapped_column(ForeignKey("customer.name"))


# --- effects: the body of each form in both colours -------------------------------------------------------------------


class Full(Exception):
    """A business error."""


def fail_if_asked(seat: str) -> None:
    if seat == "full":
        raise Full


@effect("alchemy.core", key="{request_id}", provider=Provider.transactional())
def core(tx: Any, *, seat: str) -> Any:
    booking = tx.scalar(insert(Booking).values(seat=seat).returning(Booking.id))
    tx.execute(text("update booking set seat = :seat where id = :id"), {"id": booking, "seat": seat})
    fail_if_asked(seat)
    return {"id": booking, "seats": sorted(tx.scalars(select(Booking.seat)))}


@effect("alchemy.acore", key="{request_id}", provider=Provider.transactional())
async def acore(tx: Any, *, seat: str) -> Any:
    booking = await tx.scalar(insert(Booking).values(seat=seat).returning(Booking.id))
    await tx.execute(text("update booking set seat = :seat where id = :id"), {"id": booking, "seat": seat})
    fail_if_asked(seat)
    return {"id": booking, "seats": sorted(await tx.scalars(select(Booking.seat)))}


@effect("alchemy.orm", key="{request_id}", provider=Provider.transactional())
def orm(tx: Any, *, seat: str) -> Any:
    booking = Booking(seat=seat)
    tx.add(booking)
    tx.flush()
    fail_if_asked(seat)
    return {"id": booking.id, "seats": sorted(tx.scalars(select(Booking.seat)))}


@effect("alchemy.aorm", key="{request_id}", provider=Provider.transactional())
async def aorm(tx: Any, *, seat: str) -> Any:
    booking = Booking(seat=seat)
    tx.add(booking)
    await tx.flush()
    fail_if_asked(seat)
    return {"id": booking.id, "seats": sorted(await tx.scalars(select(Booking.seat)))}


@effect("alchemy.statement", key="{request_id}", provider=Provider.one_statement())
def statement(call: Any, *, seat: str) -> Statement[Any]:
    return Statement("insert into booking (seat) values (:seat) returning id, seat", seat=seat)


@effect("alchemy.no-row", key="{request_id}", provider=Provider.one_statement())
def no_row(call: Any) -> Statement[Any]:
    return Statement("delete from booking where seat = 'none' returning seat")


@effect("alchemy.changing", key="{request_id}", provider=Provider.one_statement())
def changing(call: Any) -> Statement[Any]:
    return Statement("update booking set seat = seat || '!' returning seat")


FORMS = {CONNECTION: core, SESSION: orm, ASYNC_CONNECTION: acore, ASYNC_SESSION: aorm}


class Application:
    """An application with a transaction of one kind open, behind one blocking interface."""

    def __init__(self, kind: str, dialect: str, url: str) -> None:
        self.kind, self.dialect, self.url, self.runner = kind, dialect, url, asyncio.Runner()
        self.awaits = kind in ASYNC
        opened: Any = (AsyncCounterfoil if self.awaits else Counterfoil).open(url, wait="0s")
        self.cf = opened
        self.engine = self.make_engine()
        self.form: Effect[Any] = FORMS[kind]
        self.aside = create_engine(url.replace(*DRIVERS[dialect, False], 1), poolclass=NullPool)
        with self.aside.begin() as connection:
            Base.metadata.create_all(connection)
        self.tx = self.begin()

    def make_engine(self, **options: Any) -> Any:
        url = self.url.replace(*DRIVERS[self.dialect, self.awaits], 1)
        return (create_async_engine if self.awaits else create_engine)(url, **options)

    def do(self, answer: Any) -> Any:
        return self.runner.run(answer) if asyncio.iscoroutine(answer) else answer

    def open(self, engine: Any = None) -> Any:
        """Return a connection or session that has done nothing yet."""
        engine = engine or self.engine
        match self.kind:
            case "connection":
                return engine.connect()
            case "async-connection":
                return self.do(_connected(engine))
            case "session":
                return Session(engine)
            case _:
                return AsyncSession(engine)

    def begin(self) -> Any:
        tx = self.open()
        self.do(_begun(tx) if self.awaits else tx.begin() and None)
        return tx

    def perform(self, made: Effect[Any] | None = None, /, *, tx: Any = None, **given: Any) -> Receipt[Any]:
        joined = self.cf.join(self.tx if tx is None else tx)
        done: Receipt[Any] = self.do(joined.perform(made or self.form, **{**TENANT, "request_id": "r-1", **given}))
        return done

    def execute(self, sql: str, tx: Any = None) -> list[Any]:
        result = self.do((tx or self.tx).execute(text(sql)))
        return list(result) if result.returns_rows else []

    def end(self, how: str, tx: Any = None) -> None:
        self.do(getattr(tx or self.tx, how)())

    def seats(self) -> list[str]:
        """Return what is committed."""
        with self.aside.connect() as connection:
            return list(connection.scalars(select(Booking.seat).order_by(Booking.id)))

    def operations(self) -> int:
        with self.aside.connect() as connection:
            return int(connection.scalar(text("select count(*) from counterfoil_operation")) or 0)

    def close(self) -> None:
        self.do(self.tx.close())
        self.do(self.engine.dispose())
        self.do(self.cf.close())
        self.runner.close()


async def _connected(engine: Any) -> Any:
    return await engine.connect()


async def _begun(tx: Any) -> None:
    _ = await tx.begin()


@pytest.fixture(params=[SQLITE, POSTGRES])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if dialect == POSTGRES:
        return str(request.getfixturevalue("postgres_database").url)
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture(params=[CONNECTION, SESSION, ASYNC_CONNECTION, ASYNC_SESSION])
def app(request: pytest.FixtureRequest, dialect: str, url: str) -> Iterator[Application]:
    made = Application(str(request.param), dialect, url)
    yield made
    made.close()


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("form", ["body", "statement"])
def test_it_shares_the_fate_of_the_transaction(app: Application, form: str, ending: str) -> None:
    made = app.form if form == "body" else statement
    app.execute("insert into booking (seat) values ('own')")
    first, again = app.perform(made, seat="12a"), app.perform(made, seat="12a")
    assert first.value == again.value
    assert (first.value["id"], first.already_happened, again.already_happened) == (2, False, True)
    if form == "body":
        assert first.value["seats"] == ["12a", "own"]
    app.end(ending)
    kept = ending == "commit"
    assert (app.seats(), app.operations()) == ((["own", "12a"], 1) if kept else ([], 0))


def test_a_transaction_that_begins_with_its_first_statement_is_begun(app: Application) -> None:
    for ending, kept in (("rollback", []), ("commit", ["12a"])):
        tx = app.open()
        app.perform(tx=tx, seat="12a")
        assert tx.in_transaction()
        app.end(ending, tx)
        app.do(tx.close())
        assert app.seats() == kept


def test_a_failing_body_takes_back_its_own_part_only(app: Application) -> None:
    app.execute("insert into booking (seat) values ('own')")
    with pytest.raises(Full):
        app.perform(seat="full")
    app.execute("insert into booking (seat) values ('later')")
    assert app.perform(seat="full2", request_id="r-2").value["seats"] == ["full2", "later", "own"]
    app.end("commit")
    assert (app.seats(), app.operations()) == (["own", "later", "full2"], 1)


@pytest.mark.parametrize("form", ["body", "statement"])
def test_the_databases_refusal_is_sqlalchemys_error_and_the_transaction_goes_on(app: Application, form: str) -> None:
    app.execute("insert into booking (seat) values ('own')")
    with pytest.raises(IntegrityError) as caught:
        app.perform(app.form if form == "body" else statement, seat="own")
    assert caught.value.orig is not None
    app.execute("insert into booking (seat) values ('later')")
    app.end("commit")
    assert (app.seats(), app.operations()) == (["own", "later"], 0)


def test_no_row_is_no_receipt(app: Application) -> None:
    with pytest.raises(NotOneRow):
        app.perform(no_row)
    app.end("commit")
    assert app.operations() == 0


def test_savepoints_of_the_application_stay_its_own(app: Application) -> None:
    app.perform(seat="kept", request_id="r-1")
    nested = app.tx.begin_nested()
    if app.awaits:
        app.do(_started(nested))
    app.perform(seat="undone", request_id="r-2")
    app.do(nested.rollback())
    app.perform(seat="after", request_id="r-3")
    app.end("commit")
    assert (app.seats(), app.operations()) == (["kept", "after"], 2)


async def _started(nested: Any) -> None:
    _ = await nested


def test_the_isolation_level_stays(app: Application) -> None:
    if app.dialect == POSTGRES:
        engine = app.make_engine(isolation_level="SERIALIZABLE")
        tx = app.open(engine)
        app.perform(tx=tx, seat="12a")
        assert app.execute("show transaction_isolation", tx) == [("serializable",)]
        app.end("commit", tx)
        app.do(tx.close())
        app.do(engine.dispose())
        assert app.seats() == ["12a"]


def test_a_serialization_failure_can_be_handled_as_sqlalchemys(app: Application) -> None:
    if app.dialect == SQLITE:
        return
    app.end("rollback")
    with app.aside.begin() as other:
        other.execute(insert(Booking).values(seat="12a"))
    engine = app.make_engine(isolation_level="REPEATABLE READ")
    tx = app.open(engine)
    app.execute("select * from booking", tx)
    with app.aside.begin() as other:
        other.execute(text("update booking set seat = '12b'"))
    with pytest.raises(DBAPIError) as caught:
        app.perform(changing, tx=tx)
    assert getattr(caught.value.orig, "sqlstate", None) == "40001"
    app.end("rollback", tx)
    assert app.perform(changing, tx=tx).value == {"seat": "12b!"}
    app.end("commit", tx)
    app.do(tx.close())
    app.do(engine.dispose())


# --- the session's own objects ---------------------------------------------------------------------------------------


@pytest.fixture(params=[SESSION, ASYNC_SESSION])
def session(request: pytest.FixtureRequest, dialect: str, url: str) -> Iterator[Application]:
    made = Application(str(request.param), dialect, url)
    yield made
    made.close()


@effect("alchemy.for", key="{request_id}", provider=Provider.one_statement())
def book_for(call: Any, *, customer: str) -> Statement[Any]:
    sql = "insert into booking (seat, customer) values ('12a', :customer) returning customer"
    return Statement(sql, customer=customer)


def test_pending_objects_are_written_first_and_not_undone(session: Application) -> None:
    session.tx.add(Customer(name="Ada"))
    with pytest.raises(Full):
        session.perform(seat="full")
    session.tx.add(Customer(name="Grace"))
    assert session.perform(book_for, customer="Grace").value == {"customer": "Grace"}
    with pytest.raises(IntegrityError):
        session.perform(book_for, request_id="r-2", customer="Ada")
    session.end("commit")
    with session.aside.connect() as connection:
        assert sorted(connection.scalars(select(Customer.name))) == ["Ada", "Grace"]


def test_objects_of_a_failing_body_are_forgotten_with_its_rows(session: Application) -> None:
    with pytest.raises(Full):
        session.perform(seat="full")
    assert [each for each in session.tx if isinstance(each, Booking)] == []
    session.end("commit")
    assert session.seats() == []


def test_objects_of_a_body_live_on_in_the_session(session: Application) -> None:
    session.perform(seat="12a")
    (booking,) = session.do(session.tx.scalars(select(Booking)))
    booking.seat = "12b"
    session.end("commit")
    assert session.seats() == ["12b"]


# --- the handle ------------------------------------------------------------------------------------------------------


@effect("alchemy.text", key="{request_id}", provider=Provider.transactional())
def by_text(tx: Any, *, sql: str) -> Any:
    return [list(row) for row in tx.execute(sql).fetchall()]


@effect("alchemy.atext", key="{request_id}", provider=Provider.transactional())
async def aby_text(tx: Any, *, sql: str) -> Any:
    return [list(row) for row in await tx.execute(sql)]


def test_a_text_for_the_driver_is_taken_as_everywhere_else(app: Application) -> None:
    made: Effect[Any] = aby_text if app.awaits else by_text
    sql = "insert into booking (seat) values ('12a') returning seat"
    assert app.perform(made, sql=sql).value == [["12a"]]
    app.end("commit")
    assert app.seats() == ["12a"]
    assert app.do(app.cf.perform(made, **TENANT, request_id="r-1", sql=sql)).already_happened


def trying(app: Application, what: Any) -> Effect[Any]:
    """Declare an effect whose body does one thing with its handle."""

    def blocking(tx: Any) -> Any:
        return what(tx)

    async def awaiting(tx: Any) -> Any:
        done = what(tx)
        return await done if asyncio.iscoroutine(done) else done

    name = f"alchemy.trying-{len(TRIED)}"
    TRIED.append(name)
    made: Effect[Any] = effect(name, key="{request_id}", provider=Provider.transactional())(
        awaiting if app.awaits else blocking
    )
    return made


TRIED: list[str] = []


def test_the_handle_offers_no_way_to_end_the_transaction(app: Application) -> None:
    for name in ("commit", "rollback", "close", "begin_nested", "connection", "exec_driver_sql"):
        with pytest.raises(GuardedTransaction, match=name):
            app.perform(trying(app, lambda tx, name=name: getattr(tx, name)()))
    for sql in ("commit", " ROLLBACK", "begin"):
        for wrap in (text, str):
            with pytest.raises(GuardedTransaction, match="may not begin, end or leave"):
                app.perform(trying(app, lambda tx, sql=sql, wrap=wrap: tx.execute(wrap(sql))))
    assert app.tx.in_transaction()
    app.end("commit")
    assert app.operations() == 0


def test_the_handle_is_of_no_use_after_the_body(app: Application) -> None:
    kept: list[Any] = []
    app.perform(trying(app, kept.append))
    uses: list[Callable[[], Any]] = [
        lambda: kept[0].execute(select(func.count())),
        lambda: kept[0].scalar,
        lambda: kept[0].execute("select 1"),
    ]
    for use in uses:
        with pytest.raises(GuardedTransaction, match="after it had returned"):
            app.do(use())


# --- what cannot be joined -------------------------------------------------------------------------------------------


def test_autocommit_is_no_transaction(app: Application) -> None:
    engine = app.make_engine(isolation_level="AUTOCOMMIT")
    tx = app.open(engine)
    with pytest.raises(ForeignTransaction, match="no transaction open"):
        app.perform(tx=tx, seat="12a")
    app.do(tx.close())
    app.do(engine.dispose())
    assert app.seats() == []


def test_something_else_of_sqlalchemys(app: Application) -> None:
    for thing in (app.engine, select(Booking), Booking(seat="x")):
        with pytest.raises(ForeignTransaction, match=r"no open transaction|holds no transaction"):
            app.cf.join(thing)


def test_a_closed_connection_or_a_broken_transaction(app: Application) -> None:
    if app.kind in {CONNECTION, ASYNC_CONNECTION}:
        closed = app.open()
        app.do(closed.close())
        with pytest.raises(ForeignTransaction):
            app.perform(tx=closed, seat="12a")
        return
    with pytest.raises(IntegrityError):
        app.execute("insert into booking (seat) values (null)")
    app.tx.add(Booking(id=1, seat="a"))
    app.tx.add(Booking(id=1, seat="b"))
    with pytest.raises((IntegrityError, DBAPIError)):
        app.do(app.tx.flush())
    with pytest.raises(ForeignTransaction, match="roll back"):
        app.perform(seat="12a")
    app.end("rollback")
    app.perform(seat="12a")
    app.end("commit")
    assert app.seats() == ["12a"]


def test_another_database(app: Application, tmp_path: Path) -> None:
    kind: Any = AsyncCounterfoil if app.awaits else Counterfoil
    other = kind.open(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(ForeignTransaction, match=r"another database|rows of two"):
        app.do(other.join(app.tx).perform(app.form, **TENANT, request_id="r-1", seat="12a"))
    app.end("commit")
    assert app.seats() == []
    app.do(other.close())


def test_the_other_colour(app: Application) -> None:
    kind: Any = Counterfoil if app.awaits else AsyncCounterfoil
    other = kind.open(app.url)
    with pytest.raises(ForeignTransaction, match="must be awaited" if app.awaits else "event loop"):
        other.join(app.tx)
    asyncio.run(other.close()) if not app.awaits else other.close()


def test_a_driver_that_is_not_supported(postgres_database: Any) -> None:
    """asyncpg is the usual one; what matters is what SQLAlchemy hands out as the driver's connection."""
    pytest.importorskip("asyncpg")
    url = postgres_database.url

    async def main() -> None:
        engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:", 1))
        async with AsyncCounterfoil.open(url) as cf, engine.begin() as connection:
            with pytest.raises(ForeignTransaction, match=r"postgresql\+psycopg://"):
                await cf.join(connection).perform(acore, **TENANT, request_id="r-1", seat="12a")
        await engine.dispose()

    asyncio.run(main())


# --- other ways to hold a session or a transaction -------------------------------------------------------------------


def test_scoped_sessions_and_subclasses(dialect: str, url: str) -> None:
    class MySession(Session):
        """As extensions of web frameworks make one."""

    app = Application(SESSION, dialect, url)
    scoped = scoped_session(sessionmaker(app.engine, class_=MySession))
    app.perform(tx=scoped, seat="a", request_id="r-1")
    scoped.commit()
    app.perform(tx=scoped(), seat="b", request_id="r-2")
    scoped.commit()
    scoped.remove()
    assert app.seats() == ["a", "b"]
    app.close()


def test_async_scoped_sessions(dialect: str, url: str) -> None:
    app = Application(ASYNC_SESSION, dialect, url)

    async def main() -> None:
        scoped = async_scoped_session(async_sessionmaker(app.engine), scopefunc=asyncio.current_task)
        await app.cf.join(scoped).perform(aorm, **TENANT, request_id="r-1", seat="a")
        await scoped.commit()
        await scoped.remove()

    app.do(main())
    assert app.seats() == ["a"]
    app.close()


def test_a_sqlite_engine_whose_transactions_are_begun_by_events(tmp_path: Path) -> None:
    """SQLAlchemy's own recipe for savepoints and serializable isolation on SQLite."""
    app = Application(CONNECTION, SQLITE, f"sqlite:///{tmp_path}/app.db")
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")

    @event.listens_for(engine, "connect")
    def no_begin(driver: Any, _record: Any) -> None:
        driver.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.begin() as connection:
        app.perform(tx=connection, seat="12a")
    assert app.seats() == ["12a"]
    engine.dispose()
    app.close()
