"""Effects inside a transaction that the application has open: they share its fate, and leave it as it was."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil import Effect, Provider, Statement
from counterfoil.errors import (
    AsyncEffectInSync,
    FingerprintMismatch,
    ForeignTransaction,
    GuardedTransaction,
    NestedEffect,
    NotOneRow,
    SyncOnEventLoop,
)
from tests.conformance.conftest import make
from tests.conformance.own import Own
from tests.conformance.subject import ASYNC, SYNC, THREADED, Background, Subject
from tests.conformance.test_statement import book as stated
from tests.conformance.test_statement import stating
from tests.conformance.test_transactional import FORBIDDEN, TABLE, NoSeat, book, bookings, dialect
from tests.stores import SHARED

BODY, STATEMENT = "body", "statement"


@pytest.fixture(params=SHARED)
def store(request: pytest.FixtureRequest) -> str:
    """A database in memory belongs to one connection, so there is nothing to join."""
    return str(request.param)


@pytest.fixture(params=[SYNC, ASYNC])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def own(subject: Subject) -> Iterator[Own]:
    made = Own(subject)
    made.execute(TABLE[dialect(subject)])
    yield made
    made.close()


@pytest.fixture(params=[BODY, STATEMENT])
def booking(request: pytest.FixtureRequest, subject: Subject) -> Effect[Any]:
    """The same effect in its two forms."""
    return book(subject) if request.param == BODY else stated()


def own_seat(own: Own) -> None:
    own.begin()
    own.execute("insert into booking (seat) values ('own')")


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_it_shares_the_fate_of_the_transaction(own: Own, booking: Effect[Any], ending: str) -> None:
    own_seat(own)
    first = own.perform(booking, seat="12a")
    again = own.perform(booking, seat="12a")
    assert first.value == again.value == {"id": 2, "seat": "12a"}
    assert (first.answered_from, again.answered_from) == ("effect", "receipt")
    assert own.in_transaction
    assert (bookings(own.subject), own.subject.rows("operation")) == ([], [])  # nobody else sees any of it
    own.execute(ending)
    kept = ending == "commit"
    assert bookings(own.subject) == (["own", "12a"] if kept else [])
    assert len(own.subject.rows("operation")) == kept
    assert own.subject.perform(booking, seat="12a").already_happened is kept


def test_what_was_performed_before_is_answered_and_does_nothing(own: Own, booking: Effect[Any]) -> None:
    own.subject.perform(booking, seat="12a")
    own_seat(own)
    assert own.perform(booking, seat="12a").already_happened
    with pytest.raises(FingerprintMismatch):
        own.perform(booking, seat="12b")
    own.execute("commit")
    assert bookings(own.subject) == ["12a", "own"]


def test_several_effects_in_one_transaction(own: Own, booking: Effect[Any]) -> None:
    own.begin()
    for seat in ("a", "b", "c"):
        own.perform(booking, request_id=seat, seat=seat)
    own.execute("commit")
    assert (bookings(own.subject), len(own.subject.rows("operation"))) == (["a", "b", "c"], 3)


def test_two_transactions_with_one_operation_make_one_row(own: Own, booking: Effect[Any]) -> None:
    other = Own(own.subject)
    own.begin()
    own.perform(booking, seat="12a")

    def second() -> Any:
        other.begin()
        receipt = other.perform(booking, seat="12a")
        other.execute("commit")
        return receipt

    waiting = Background(second)
    own.execute("commit")
    assert waiting.result().already_happened
    assert bookings(own.subject) == ["12a"]
    other.close()


# --- what fails ------------------------------------------------------------------------------------------------------


def test_a_failing_body_takes_back_its_own_rows_only(own: Own) -> None:
    error = NoSeat("full")

    def fail(tx: Any) -> None:
        raise error

    broken = [True]
    made = book(own.subject, lambda tx: fail(tx) if broken else None)
    own_seat(own)
    with pytest.raises(NoSeat) as caught:
        own.perform(made, seat="12a")
    assert caught.value is error
    broken.clear()
    assert own.perform(made, seat="12a").value["seat"] == "12a"
    own.execute("commit")
    assert bookings(own.subject) == ["own", "12a"]
    assert len(own.subject.rows("operation")) == 1


def test_a_statement_of_its_own_that_fails_does_so_as_the_drivers_error(own: Own, booking: Effect[Any]) -> None:
    own_seat(own)
    with pytest.raises(own.errors):
        own.perform(booking, seat="own")
    own.execute("insert into booking (seat) values ('later')")
    own.execute("commit")
    assert bookings(own.subject) == ["own", "later"]
    assert own.subject.rows("operation") == []


@pytest.mark.parametrize("where", ["false", "true"])
def test_a_statement_that_returns_anything_but_one_row_is_undone(own: Own, where: str) -> None:
    own_seat(own)
    own.execute("insert into booking (seat) values ('second')")
    with pytest.raises(NotOneRow):
        own.perform(stated(f"update booking set seat = seat || '!' where {where} returning seat"))  # noqa: S608
    own.execute("commit")
    assert bookings(own.subject) == ["own", "second"]
    assert own.subject.rows("operation") == []


def test_a_body_whose_statement_fails_may_catch_the_error_behind_a_savepoint(own: Own) -> None:
    async def awaiting(tx: Any) -> Any:
        await tx.execute("savepoint mine")
        with pytest.raises(own.errors):
            await tx.execute("insert into booking (seat) values ('own')")
        await tx.execute("rollback to mine")
        return "caught"

    def blocking(tx: Any) -> Any:
        tx.execute("savepoint mine")
        with pytest.raises(own.errors):
            tx.execute("insert into booking (seat) values ('own')")
        tx.execute("rollback to mine")
        return "caught"

    made = own.subject.effect(awaiting if own.subject.colour == ASYNC else blocking, provider=Provider.transactional())
    own_seat(own)
    assert own.perform(made).value == "caught"
    own.execute("commit")
    assert (bookings(own.subject), len(own.subject.rows("operation"))) == (["own"], 1)


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_the_body_may_not_end_the_transaction(own: Own, sql: str) -> None:
    own_seat(own)
    with pytest.raises(GuardedTransaction):
        own.perform(book(own.subject, lambda tx: tx.execute(sql)), seat="12a")
    assert own.in_transaction
    own.execute("commit")
    assert (bookings(own.subject), own.subject.rows("operation")) == (["own"], [])


def test_the_handle_is_of_no_use_after_the_body(own: Own) -> None:
    kept: list[Any] = []
    own.begin()
    own.perform(book(own.subject, kept.append), seat="12a")
    with pytest.raises(GuardedTransaction, match="after it had returned"):
        own.subject.settle(kept[0].execute("select 1"))
    own.execute("rollback")


def test_a_call_inside_the_body_is_refused(own: Own) -> None:
    joined = own.subject.cf.join
    inner = stated()

    async def awaiting(tx: Any) -> Any:
        await joined(own.connection).perform(inner, tenant="team-a", request_id="inner")

    def blocking(tx: Any) -> Any:
        joined(own.connection).perform(inner, tenant="team-a", request_id="inner")

    made = own.subject.effect(awaiting if own.subject.colour == ASYNC else blocking, provider=Provider.transactional())
    own.begin()
    with pytest.raises(NestedEffect):
        own.perform(made)
    own.execute("commit")
    assert own.subject.rows("operation") == []


# --- what cannot be joined -------------------------------------------------------------------------------------------


def test_an_effect_that_leaves_the_database_is_not_sent_inside_a_transaction(own: Own) -> None:
    own.begin()
    with pytest.raises(NestedEffect, match="Commit first"):
        own.perform(own.subject.ticket(), title="a")
    own.execute("rollback")
    assert len(own.subject.sent) == 0


def test_no_open_transaction(own: Own, booking: Effect[Any]) -> None:
    with pytest.raises(ForeignTransaction, match="Begin one first"):
        own.perform(booking, seat="12a")


def test_one_that_was_ended_since_it_was_joined(own: Own, booking: Effect[Any]) -> None:
    own.begin()
    joined = own.subject.cf.join(own.connection)
    own.execute("commit")
    with pytest.raises(ForeignTransaction, match="Begin one first"):
        own.subject.settle(joined.perform(booking, tenant="team-a", request_id="r-1", seat="12a"))
    assert bookings(own.subject) == []


def test_a_connection_that_is_closed(own: Own, booking: Effect[Any]) -> None:
    closed = Own(own.subject)
    closed.close()
    with pytest.raises(ForeignTransaction):
        closed.perform(booking, seat="12a")


@pytest.mark.parametrize("given", [object(), None, "postgresql://", 7])
def test_something_else_than_a_connection(own: Own, given: Any) -> None:
    with pytest.raises(ForeignTransaction, match=rf"{type(given).__name__} holds no transaction"):
        own.subject.cf.join(given)


def test_a_connection_of_another_database(own: Own, booking: Effect[Any], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make(f"sqlite:///{tmp_path}/other/ledger.db", own.subject.colour, tmp_path / "other")
    own.begin()
    with pytest.raises(ForeignTransaction, match=r"another database|rows of two"):
        other.settle(other.cf.join(own.connection).perform(booking, tenant="team-a", request_id="r-1", seat="12a"))
    own.execute("commit")
    assert (bookings(own.subject), other.rows("operation")) == ([], [])
    other.close()


def test_a_connection_of_the_other_colour(own: Own, booking: Effect[Any], tmp_path: Path) -> None:
    other = make(own.subject.url, THREADED if own.subject.colour == SYNC else SYNC, tmp_path)
    own.begin()
    with pytest.raises(ForeignTransaction, match="must be awaited" if own.subject.colour == ASYNC else "event loop"):
        other.cf.join(own.connection)
    own.execute("commit")
    other.close()


def test_an_effect_of_the_other_colour(own: Own) -> None:
    async def awaiting(tx: Any) -> Any:
        return await tx.execute("select 1")

    made = stating(lambda tx, seat: None, provider=Provider.transactional())
    own.begin()
    if own.subject.colour == ASYNC:
        with pytest.raises(ForeignTransaction, match="async def"):
            own.perform(made)
    else:
        with pytest.raises(AsyncEffectInSync, match="Join an async one"):
            own.perform(own.subject.effect(awaiting, provider=Provider.transactional()))
    own.execute("commit")
    assert own.subject.rows("operation") == []


def test_a_blocking_transaction_is_not_used_on_a_running_loop(tmp_path: Path) -> None:
    subject = make(f"sqlite:///{tmp_path}/ledger.db", SYNC, tmp_path)
    own = Own(subject)
    own.begin()
    joined = subject.cf.join(own.connection)

    async def on_loop() -> Any:
        return joined.perform(stating(lambda call, seat: Statement("select 1 as n")), tenant="team-a", request_id="r-1")

    with pytest.raises(SyncOnEventLoop, match="AsyncCounterfoil"):
        subject.loop.run(on_loop())
    own.close()
    subject.close()
