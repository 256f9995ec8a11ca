"""Effects that are rows in the same database: committed with their receipt in one transaction, or not at all."""

import sqlite3
from inspect import isawaitable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from counterfoil import Effect, Provider
from counterfoil.errors import (
    ConstraintViolated,
    FingerprintMismatch,
    GuardedTransaction,
    NestedEffect,
)
from counterfoil.storage.script import Ddl, Script
from tests.conformance.subject import ASYNC, Subject

SQLITE, POSTGRES = "sqlite", "postgres"
TABLE = {
    SQLITE: "create table booking (id integer primary key, seat text not null unique)",
    POSTGRES: "create table booking (id integer generated always as identity, seat text not null unique)",
}
INSERT = {
    SQLITE: "insert into booking (seat) values (?) returning id",
    POSTGRES: "insert into booking (seat) values (%s) returning id",
}


def dialect(subject: Subject) -> str:
    return str(subject.cf.desk.store.dialect)


@pytest.fixture
def booking(subject: Subject) -> Subject:
    def script() -> Script[None]:
        yield Ddl(TABLE[dialect(subject)])

    subject.cf.desk.store.write(script)
    return subject


def bookings(subject: Subject) -> list[str]:
    def script() -> Script[Any]:
        return (yield Ddl("select seat from booking order by id"))

    return [row["seat"] for row in subject.cf.desk.store.read(script)]


def book(subject: Subject, then: Any = None, **contract: Any) -> Effect[Any]:
    """Declare the effect in the subject's colour: an async one awaits its statements."""

    insert = INSERT[dialect(subject)]

    def blocking(tx: Any, *, seat: str) -> Any:
        (row,) = tx.execute(insert, (seat,)).fetchall()
        if then is not None:
            then(tx)
        return {"id": row[0], "seat": seat}

    async def awaiting(tx: Any, *, seat: str) -> Any:
        (row,) = await tx.execute(insert, (seat,))
        if then is not None and isawaitable(doing := then(tx)):
            await doing
        return {"id": row[0], "seat": seat}

    return subject.effect(
        awaiting if subject.colour == ASYNC else blocking, provider=Provider.transactional(), **contract
    )


def test_rows_and_receipt_are_committed_together_once(booking: Subject) -> None:
    made = book(booking)
    first = booking.perform(made, seat="12a")
    again = booking.perform(made, seat="12a")
    assert first.value == again.value == {"id": 1, "seat": "12a"}
    assert (first.answered_from, again.answered_from) == ("effect", "receipt")
    assert bookings(booking) == ["12a"]
    assert (booking.state, booking.operation["settled_by"]) == ("succeeded", "reply")
    with pytest.raises(FingerprintMismatch):
        booking.perform(made, seat="12b")


def test_many_callers_at_once_make_one_booking(booking: Subject) -> None:
    made = book(booking)
    results = booking.at_once(lambda: booking.perform(made, seat="12a"), 16)
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert bookings(booking) == ["12a"]


class NoSeat(Exception):
    """A business error."""


@pytest.mark.parametrize("error", [NoSeat("full"), KeyError("seat"), ConnectionResetError()])
def test_an_exception_rolls_both_back_and_passes_untouched(booking: Subject, error: Exception) -> None:
    def fail(tx: Any) -> None:
        raise error

    broken = [True]
    made = book(booking, lambda tx: fail(tx) if broken else None)
    with pytest.raises(type(error)) as caught:
        booking.perform(made, seat="12a")
    assert caught.value is error
    assert (bookings(booking), booking.rows("operation"), booking.rows("case")) == ([], [], [])
    broken.clear()
    assert booking.perform(made, seat="12a").value["seat"] == "12a"


def test_a_violated_constraint_leaves_nothing(booking: Subject) -> None:
    made = book(booking, key="seat:{request_id}")
    booking.perform(made, request_id="r-1", seat="12a")
    with pytest.raises((ConstraintViolated, sqlite3.IntegrityError, psycopg.IntegrityError)):
        booking.perform(made, request_id="r-2", seat="12a")
    assert (len(booking.rows("operation")), bookings(booking)) == (1, ["12a"])


FORBIDDEN = ["commit", "rollback", " /* x */ COMMIT", "begin", "end", "-- x\ncommit", ";commit"]
OWN_FORBIDDEN: dict[str, list[Any]] = {
    SQLITE: ["attach 'x' as y", "vacuum"],
    POSTGRES: [
        "start transaction",
        "abort",
        "commit and chain",
        "/* /* x */ */ commit",
        "-- x\rcommit",
        b"commit",
        bytearray(b"commit"),
        sql.SQL("commit"),
        sql.SQL("{} {}").format(sql.SQL("/* x */"), sql.SQL("commit")),
        None,
    ],
}


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_transaction_may_not_be_ended_from_inside(booking: Subject, statement: str) -> None:
    with pytest.raises(GuardedTransaction):
        booking.perform(book(booking, lambda tx: tx.execute(statement)), seat="12a")
    assert (bookings(booking), booking.rows("operation")) == ([], [])


def test_nor_by_what_only_one_database_knows(booking: Subject) -> None:
    for each in OWN_FORBIDDEN[dialect(booking)]:
        with pytest.raises(GuardedTransaction):
            booking.perform(book(booking, lambda tx, each=each: tx.execute(each)), seat="12a")
        with pytest.raises(GuardedTransaction):
            booking.perform(book(booking, lambda tx, each=each: tx.executemany(each, [()])), seat="12a")
        assert (bookings(booking), booking.rows("operation")) == ([], [])


def test_a_statement_may_be_composed(booking: Subject) -> None:
    if dialect(booking) == POSTGRES:
        counted = sql.SQL("/* /* x */ y */ select count(*) from {}").format(sql.Identifier("booking"))
        assert booking.perform(book(booking, lambda tx: tx.execute(counted)), seat="12a").value["seat"] == "12a"


def test_several_statements_at_once_are_refused(booking: Subject) -> None:
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        booking.perform(book(booking, lambda tx: tx.execute("select 1; commit")), seat="12a")
    assert (bookings(booking), booking.rows("operation")) == ([], [])


@pytest.mark.parametrize("name", ["commit", "rollback", "executescript", "close", "backup", "cursor"])
def test_the_handle_offers_nothing_else(booking: Subject, name: str) -> None:
    with pytest.raises(GuardedTransaction):
        booking.perform(book(booking, lambda tx: getattr(tx, name)()), seat="12a")
    assert bookings(booking) == []


def test_a_call_inside_its_body_is_refused_at_once(booking: Subject) -> None:
    inner = book(booking)
    if booking.colour == ASYNC:

        async def nested(tx: Any, *, seat: str) -> Any:
            return await booking.cf.perform(inner, tenant="team-a", request_id="inner", seat=seat)
    else:

        def nested(tx: Any, *, seat: str) -> Any:  # type: ignore[misc]
            return booking.perform(inner, request_id="inner", seat=seat)

    made = booking.effect(nested, provider=Provider.transactional())
    with pytest.raises(NestedEffect):
        booking.perform(made, seat="12a")
    assert (bookings(booking), booking.rows("operation")) == ([], [])


def test_a_result_that_cannot_be_stored_still_commits(booking: Subject) -> None:
    made = booking.effect(lambda tx: object(), provider=Provider.transactional())
    if booking.colour != ASYNC:
        assert booking.perform(made).marker is not None
        assert booking.state == "succeeded"
