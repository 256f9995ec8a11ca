"""Joined effects where PostgreSQL's transactions see and lock less than SQLite's: what comes of two that meet."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from counterfoil import Effect, Provider
from counterfoil.errors import Busy
from tests.conformance.own import Own
from tests.conformance.subject import ASYNC, SYNC, Background, Subject
from tests.conformance.test_statement import book as stated
from tests.conformance.test_transactional import TABLE, book, bookings, dialect
from tests.stores import POSTGRES

WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and wait_event_type = 'Lock'
"""


@pytest.fixture(params=[POSTGRES])
def store(request: pytest.FixtureRequest) -> str:
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


@pytest.fixture(params=["body", "statement"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_what_a_snapshot_does_not_show_is_done_once_all_the_same(own: Own, form: str, isolation: str) -> None:
    """Nothing but the operation's own row stands in the way of a second time."""
    made = noting(own) if form == "body" else stated("insert into note values (1) returning n")
    own.execute("create table note (n integer)")
    own.execute(f"begin isolation level {isolation}")
    own.execute("select * from note")
    own.subject.perform(made)  # committed after the snapshot was taken
    expected = psycopg.errors.SerializationFailure if form == "body" else Busy
    with pytest.raises(expected):
        own.perform(made)
    own.execute("rollback")
    own.execute(f"begin isolation level {isolation}")
    assert own.perform(made).already_happened
    own.execute("commit")
    assert own.execute("select count(*) from note") == [(1,)]


def noting(own: Own) -> Effect[Any]:
    async def awaiting(tx: Any) -> Any:
        await tx.execute("insert into note values (1)")

    def blocking(tx: Any) -> Any:
        tx.execute("insert into note values (1)")

    return own.subject.effect(awaiting if own.subject.colour == ASYNC else blocking, provider=Provider.transactional())


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_who_wants_the_same_operation_waits_for_the_transaction_that_has_it(own: Own, form: str, ending: str) -> None:
    made = book(own.subject) if form == "body" else stated()
    own.begin()
    own.perform(made, seat="12a")
    waiting = Background(lambda: own.subject.perform(made, seat="12a"))
    while own.execute(WAITING) != [(1,)]:
        assert waiting._thread.is_alive()
    own.execute(ending)
    assert waiting.result().already_happened is (ending == "commit")
    assert bookings(own.subject) == ["12a"]
