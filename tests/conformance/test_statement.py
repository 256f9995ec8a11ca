"""Effects that are one SQL statement: its row is the receipt, and both are written by it, or neither."""

import sqlite3
from collections.abc import Callable
from decimal import Decimal
from itertools import count
from typing import Any

import psycopg
import pytest

from counterfoil import Effect, Provider, Statement, effect
from counterfoil.drivers.probes import Point
from counterfoil.errors import (
    CommitUnknown,
    ContradictoryDeclaration,
    DifferentEffect,
    FingerprintMismatch,
    InvalidArguments,
    NestedEffect,
    NotOneRow,
)
from counterfoil.storage.script import Ddl, Script
from tests.conformance.subject import KEY, Subject
from tests.conformance.test_commits import LostCommit
from tests.conformance.test_transactional import POSTGRES, SQLITE, bookings, dialect

NAMES = (f"statement.effect-{n}" for n in count(1))
INSERT = "insert into booking (seat) values (:seat) returning id, seat"
ID = {SQLITE: "integer primary key", POSTGRES: "integer generated always as identity primary key"}
TABLES = (
    "create table booking (id {id}, seat text not null unique, n integer, price numeric, data {bytes})",
    "create table stock (sku text primary key, n integer not null check (n >= 0))",
    "insert into stock values ('nut', 2), ('bolt', 2)",
)


@pytest.fixture
def booking(subject: Subject) -> Subject:
    for sql in TABLES:
        words = {"id": ID[dialect(subject)], "bytes": "bytea" if dialect(subject) == POSTGRES else "blob"}
        do(subject, sql.format(**words))
    return subject


def do(subject: Subject, sql: str) -> list[Any]:
    def script() -> Script[Any]:
        return (yield Ddl(sql))

    rows: list[Any] = subject.cf.desk.store.write(script)
    return rows


def stock(subject: Subject) -> dict[str, int]:
    return {row["sku"]: row["n"] for row in do(subject, "select * from stock")}


def stating(state: Callable[[Any, str], Any], **contract: Any) -> Effect[Any]:
    """Declare an effect that returns what `state` makes of its call and argument: one function for every colour."""

    def one(call: Any, *, seat: str = "") -> Any:
        return state(call, seat)

    whole = {"name": next(NAMES), "key": KEY, "provider": Provider.one_statement(), **contract}
    return effect(**whole)(one)


def book(sql: str = INSERT, **contract: Any) -> Effect[Any]:
    return stating(lambda call, seat: Statement(sql, seat=seat), **contract)


def untouched(subject: Subject) -> bool:
    return (bookings(subject), subject.rows("operation"), subject.rows("case")) == ([], [], [])


def test_its_row_is_the_receipt_and_is_written_once(booking: Subject) -> None:
    made = book()
    first = booking.perform(made, seat="12a")
    again = booking.perform(made, seat="12a")
    assert first.value == again.value == {"id": 1, "seat": "12a"}
    assert (first.answered_from, again.answered_from) == ("effect", "receipt")
    assert (first.attempt, first.settled_at) == (again.attempt, again.settled_at) == (1, booking.clock.now_ms())
    assert bookings(booking) == ["12a"]
    assert (booking.state, booking.operation["settled_by"], booking.attempts()) == ("succeeded", "reply", [])
    assert (booking.operation["payload"], booking.operation["holder"]) == (None, None)


def test_the_same_id_with_other_arguments_or_another_effect_is_refused(booking: Subject) -> None:
    made = book()
    booking.perform(made, seat="12a")
    with pytest.raises(FingerprintMismatch):
        booking.perform(made, seat="12b")
    with pytest.raises(DifferentEffect):
        booking.perform(book(), seat="12a")
    assert bookings(booking) == ["12a"]


def test_many_callers_at_once_make_one_row(booking: Subject) -> None:
    made = book()
    results = booking.at_once(lambda: booking.perform(made, seat="12a"), 16)
    assert [r for r in results if isinstance(r, BaseException)] == []
    assert bookings(booking) == ["12a"]


def test_many_callers_at_once_change_a_row_once(booking: Subject) -> None:
    """No constraint of the business keeps these apart: only the operation's own row does."""
    made = book("update stock set n = n - 1 where sku = 'nut' returning n")
    results = booking.at_once(lambda: booking.perform(made, seat="12a"), 16)
    assert [r.value for r in results if not isinstance(r, BaseException)] == [{"n": 1}] * 16
    assert stock(booking) == {"nut": 1, "bolt": 2}


def test_a_repetition_is_answered_though_the_business_would_refuse_it(booking: Subject) -> None:
    made = book("update stock set n = n - 2 where sku = 'nut' returning sku, n")
    assert booking.perform(made).value == {"sku": "nut", "n": 0}
    assert booking.perform(made).value == {"sku": "nut", "n": 0}


@pytest.mark.parametrize(
    ("sql", "how"),
    [
        ("update stock set n = n - 1 where sku = 'none' returning n", "no row"),
        ("update stock set n = n - 1 returning sku, n", "several rows"),
        ("insert into booking (seat) values ('a'), ('b'), ('c') returning seat", "several rows"),
    ],
)
def test_a_statement_that_returns_anything_but_one_row_writes_nothing(booking: Subject, sql: str, how: str) -> None:
    with pytest.raises(NotOneRow, match=f"ticket:r-1 .*returned {how}") as caught:
        booking.perform(book(sql))
    assert (caught.value.tenant, caught.value.operation_id) == ("team-a", "ticket:r-1")
    assert untouched(booking)
    assert stock(booking) == {"nut": 2, "bolt": 2}


def test_what_once_was_one_row_and_is_none_now_is_answered_from_the_receipt(booking: Subject) -> None:
    made = book("delete from stock where sku = 'nut' returning sku")
    assert booking.perform(made).value == booking.perform(made).value == {"sku": "nut"}


@pytest.mark.parametrize(
    "sql",
    [
        "update stock set n = n - 3 where sku = 'nut' returning n",
        "insert into booking (seat) values (null) returning id",
        "insert into nowhere (seat) values (:seat) returning seat",
        "insert into booking (seat) value",
    ],
)
def test_the_databases_own_refusal_passes_as_it_is_and_leaves_nothing(booking: Subject, sql: str) -> None:
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        booking.perform(book(sql), seat="12a")
    assert untouched(booking)
    assert stock(booking) == {"nut": 2, "bolt": 2}


def test_two_operations_that_want_the_same_row_are_told_so_by_the_database(booking: Subject) -> None:
    made = book()
    booking.perform(made, request_id="r-1", seat="12a")
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        booking.perform(made, request_id="r-2", seat="12a")
    assert len(booking.rows("operation")) == 1


def test_values_of_all_kinds_come_back_as_json_has_them(booking: Subject) -> None:
    sql = """-- it's :not_this
        insert into booking (seat, n, price, data)
        values (:text, :n, cast(:price as numeric), :data) /* nor :this */
        returning seat, n, price, data, ':text' as "a:b", null as none, 7 % 4 as rest;"""
    text = 'it\'s 100 % \\ "ü" {seat}'
    values = {"text": text, "n": -7, "price": "0.5", "data": b"\x00\xff"}
    made = stating(lambda call, seat: Statement(sql, **values))
    receipt = booking.perform(made)
    assert receipt.value == booking.perform(made).value
    assert receipt.value == {
        "seat": text,
        "n": -7,
        "price": Decimal("0.5"),
        "data": "\\x00ff",
        "a:b": ":text",
        "none": None,
        "rest": 3,
    }
    assert type(receipt.value["price"]) is Decimal


def test_the_statement_may_name_its_operation(booking: Subject) -> None:
    made = stating(lambda call, seat: Statement(INSERT, seat=f"{call.tenant}/{call.operation_id}/{call.attempt}"))
    assert booking.perform(made).value["seat"] == "team-a/ticket:r-1/1"


def test_names_of_parameters_cannot_meet_our_own(booking: Subject) -> None:
    sql = "insert into booking (seat) values (:tenant || :operation_id || :now || :state) returning seat"
    made = stating(lambda call, seat: Statement(sql, tenant="a", operation_id="b", now="c", state="d"))
    assert booking.perform(made).value == {"seat": "abcd"}


def test_what_the_function_raises_passes_and_nothing_is_begun(booking: Subject) -> None:
    error = KeyError("seat")

    def fail(call: Any, seat: str) -> Any:
        raise error

    with pytest.raises(KeyError) as caught:
        booking.perform(stating(fail))
    assert caught.value is error
    assert untouched(booking)


@pytest.mark.parametrize("returned", [None, INSERT, {"id": 1}])
def test_something_else_than_a_statement_is_refused(booking: Subject, returned: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"one_statement.*returned (NoneType|str|dict)"):
        booking.perform(stating(lambda call, seat: returned))
    assert untouched(booking)


def test_a_call_inside_the_function_is_refused(blocking: Subject) -> None:
    def nested(call: Any, seat: str) -> Any:
        return blocking.perform(book(), request_id="inner", seat="12a")

    with pytest.raises(NestedEffect):
        blocking.perform(stating(nested))
    assert blocking.rows("operation") == []


@pytest.mark.parametrize("sql", ["commit", "select 1; commit", f"{INSERT}; commit", "begin", "vacuum"])
def test_a_statement_cannot_end_its_transaction(booking: Subject, sql: str) -> None:
    with pytest.raises(Exception, match=r"."):
        booking.perform(book(sql), seat="12a")
    assert untouched(booking)


@pytest.mark.parametrize("point", [Point.BEFORE_COMMIT, Point.AFTER_COMMIT])
def test_a_lost_commit_is_looked_up(booking: Subject, point: Point) -> None:
    made = book()
    with booking.probe.during(LostCommit(1, point)):
        if point is Point.BEFORE_COMMIT:
            with pytest.raises(CommitUnknown):
                booking.perform(made, seat="12a")
        else:
            assert booking.perform(made, seat="12a").value == {"id": 1, "seat": "12a"}
    assert booking.perform(made, seat="12a").already_happened is (point is Point.AFTER_COMMIT)
    assert bookings(booking) == ["12a"]


def test_an_effect_that_becomes_one_statement_answers_from_its_old_receipts(booking: Subject) -> None:
    """And the other way round: how an effect writes its rows is no part of the operation."""
    name = next(NAMES)
    plain = stating(lambda call, seat: {"id": 0}, name=name, version=1, provider=Provider.transactional())
    stated = book("insert into booking (seat) values (:seat) returning seat", name=name, version=2)
    for made, request_id, value in [
        (plain, "r-1", {"id": 0}),
        (stated, "r-1", {"id": 0}),
        (stated, "r-2", {"seat": ""}),
        (plain, "r-2", {"seat": ""}),
    ]:
        assert booking.perform(made, request_id=request_id).value == value
    assert bookings(booking) == [""]


# --- what cannot be declared ------------------------------------------------------------------------------------------


def test_an_async_function_is_refused_at_import() -> None:
    with pytest.raises(ContradictoryDeclaration, match="write def"):

        @effect("statement.async", key="{request_id}", provider=Provider.one_statement())
        async def one(call: Any) -> Statement[Any]:
            return Statement("select 1 as n")


def test_so_is_redaction_of_a_receipt_that_the_database_writes() -> None:
    with pytest.raises(ContradictoryDeclaration, match="redact"):

        @effect("statement.redacted", key="{request_id}", provider=Provider.one_statement(), redact="secret")
        def one(call: Any) -> Statement[Any]:
            return Statement("select 1 as n")


def test_one_statement_is_transactional() -> None:
    with pytest.raises(ContradictoryDeclaration, match="one_statement"):
        Provider(is_one_statement=True)
