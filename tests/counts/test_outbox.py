"""What the outbox costs: commits of a dispatcher, and what an intent adds to its caller's transaction."""

import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import psycopg
import pytest

from counterfoil import Counterfoil, effect
from counterfoil.drivers.probes import Point
from tests.stores import is_postgres

MESSAGES = 1_000


@effect("counts.message", key="{request_id}/{number}")
def post(call: Any, *, number: int) -> int:
    return number


@pytest.mark.parametrize("batch", [10, 100])
def test_a_dispatcher_commits_once_for_each_batch(url: str, batch: int) -> None:
    """End to end, beyond the enqueue: no more than 1/batch + 0.01 for each message."""
    points: Counter[str] = Counter()

    def count(point: Point, _name: str) -> None:
        points[point] += 1

    with Counterfoil.open(url, probe=count) as cf:
        cf.enqueue_all(post, [{"number": n} for n in range(MESSAGES)], tenant="t", request_id="r")
        points.clear()
        cf.drain(post, batch=batch)
        assert len(cf.operations.list(tenant="t", state="succeeded", limit=MESSAGES).items) == MESSAGES
    assert points[Point.AFTER_COMMIT] <= MESSAGES * (1 / batch + 0.01)


def test_an_intent_is_one_statement_of_its_callers_transaction(url: str) -> None:
    seen: list[tuple[Point, str]] = []
    connect: Any = psycopg.connect if is_postgres(url) else sqlite3.connect
    where = url if is_postgres(url) else url.removeprefix("sqlite:///")
    options = {"autocommit": True} if is_postgres(url) else {"isolation_level": None}
    with (
        Counterfoil.open(url, probe=lambda point, name: seen.append((point, name))) as cf,
        closing(connect(where, **options)) as own,
    ):
        own.execute("begin")
        cf.join(own).enqueue(post, number=0, tenant="t", request_id="r")  # asks once which server the connection is at
        seen.clear()
        cf.join(own).enqueue(post, number=1, tenant="t", request_id="r")
        assert seen == [(Point.BEFORE_STATEMENT, "insert_intent"), (Point.AFTER_STATEMENT, "insert_intent")]
        own.execute("commit")
