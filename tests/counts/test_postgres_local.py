"""What an effect costs that is rows in the same PostgreSQL: as one statement, and inside the caller's transaction.

The yardstick is the caller's own statement without us, on a connection of its own through the same wire.
"""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from counterfoil import Provider, Statement, effect
from tests.counts.test_postgres import FLUSHES_COUNTED, Bench, Cost, bench, row

__all__ = ["bench"]  # the fixture
INSERT = "insert into business (title) values (%s) returning title"
BEGIN_AND_COMMIT = 2


@effect("counts.postgres-statement", key="{request_id}/statement", provider=Provider.one_statement())
def statement(call: Any, *, title: str) -> Statement[Any]:
    return Statement("insert into business (title) values (:title) returning title", title=title)


@pytest.fixture(scope="module")
def own(bench: Bench) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(bench.wire.through(bench.server.url("counts")), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def bare(bench: Bench, own: psycopg.Connection[Any]) -> Cost:
    return measured(bench, own, lambda: own.execute(INSERT, ("a",)))


def measured(bench: Bench, own: psycopg.Connection[Any], work: Callable[[], object]) -> Cost:
    """Measure, and have the caller's connection tell its flushes, too."""

    def told() -> None:
        work()
        if bench.server.major >= FLUSHES_COUNTED:
            with own.pipeline():  # costs a round trip, taken off below
                own.execute("select pg_stat_force_next_flush()")

    seen = bench.measure(told)
    beside = 1 if bench.server.major >= FLUSHES_COUNTED else 0
    return Cost(seen.round_trips - beside, seen.connections, seen.flushes, seen.log_bytes, seen.commits)


def in_transaction(own: psycopg.Connection[Any], work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        own.execute("begin")
        work()
        own.execute("commit")

    return run


def given(bench: Bench) -> dict[str, str]:
    return {"tenant": "t", "request_id": str(next(bench.ids)), "title": "a"}


# --- by itself -------------------------------------------------------------------------------------------------------


def test_one_statement_takes_one_round_trip_and_one_flush_as_the_bare_insert_does(bench: Bench, bare: Cost) -> None:
    seen = bench.measure(lambda: bench.cf.perform(statement, **given(bench)))
    assert (seen.round_trips, seen.connections, seen.commits) == (1, 0, 1)
    assert (bare.round_trips, bare.commits) == (1, 1)
    if bench.server.major >= FLUSHES_COUNTED:
        assert seen.flushes == bare.flushes == 1
    assert seen.log_bytes < bare.log_bytes + 1_500


def test_its_repetition_takes_two_round_trips_and_no_flush_of_its_own(bench: Bench) -> None:
    same = {**given(bench), "request_id": "same"}
    seen = bench.measure(lambda: bench.cf.perform(statement, **same))
    assert (seen.round_trips, seen.connections) == (2, 0)  # what breaks, and a look
    if bench.server.major >= FLUSHES_COUNTED:
        assert seen.flushes < 0.2  # none of its own: what it undid is flushed when the server finds time


# --- inside the caller's transaction ---------------------------------------------------------------------------------


def test_joined_it_costs_no_round_trip_more_than_the_callers_own_statement(
    bench: Bench, own: psycopg.Connection[Any]
) -> None:
    alone = measured(bench, own, in_transaction(own, lambda: own.execute(INSERT, ("a",))))
    seen = measured(bench, own, in_transaction(own, lambda: bench.cf.join(own).perform(statement, **given(bench))))
    assert alone.round_trips == seen.round_trips == BEGIN_AND_COMMIT + 1
    assert seen.connections == 0
    if bench.server.major >= FLUSHES_COUNTED:
        assert seen.flushes == alone.flushes == 1


def test_joined_a_body_costs_two_round_trips_more_than_its_own_statements(
    bench: Bench, own: psycopg.Connection[Any]
) -> None:
    seen = measured(bench, own, in_transaction(own, lambda: bench.cf.join(own).perform(row, **given(bench))))
    assert seen.round_trips == BEGIN_AND_COMMIT + 1 + 2  # the claim before, the receipt after
    assert seen.connections == 0
    if bench.server.major >= FLUSHES_COUNTED:
        assert seen.flushes == 1


def test_a_joined_statement_is_one_of_five_that_are_sent_at_once(bench: Bench, own: psycopg.Connection[Any]) -> None:
    """The receipt takes no statement of its own; around the effect's stand a savepoint, a check of the place that also
    says whose rows may be touched, and what the caller gets back of that.
    """
    told: list[str] = []
    own.execute("set log_statement = 'all'")
    own.execute("set client_min_messages = 'log'")
    own.add_notice_handler(lambda notice: told.append((notice.message_primary or "").split(": ", 1)[-1].strip()))
    try:
        own.execute("begin")
        del told[:]
        bench.cf.join(own).perform(statement, **given(bench))
        sent = [text for text in told if text]
        own.execute("commit")
    finally:
        own.execute("reset client_min_messages")
        own.execute("reset log_statement")
    assert [text.split()[0] for text in sent] == ["savepoint", "select", "with", "select", "release"]
