"""B41: ids are handed out before COMMIT; a reader that remembers the highest never sees a lower one that comes later.

Sources: https://github.com/kamu-data/kamu-cli/issues/1398, https://github.com/google/nomulus/pull/1539
"""

import random
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from counterfoil import Counterfoil, Delivery, effect
from tests.stores import is_postgres

sent: list[int] = []


@effect("cases.late-row", key="{request_id}/{number}")
def post(call: Any, *, number: int) -> int:
    sent.append(number)
    return number


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    sent.clear()


def connect(url: str) -> Any:
    if is_postgres(url):
        return closing(psycopg.connect(url, autocommit=True))
    return closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None))


def ask(cf: Counterfoil, own: Any, number: int, **terms: Any) -> None:
    delivery = Delivery(**terms) if terms else None
    cf.join(own).enqueue(post, number=number, tenant="t", request_id="r", delivery=delivery)


@pytest.mark.parametrize("terms", [{}, {"stream": "s"}])
def test_one_that_began_first_and_committed_last_is_sent(url: str, terms: dict[str, str]) -> None:
    if not is_postgres(url):
        pytest.skip("writers of a SQLite file come one after the other")
    with Counterfoil.open(url) as cf, connect(url) as slow, connect(url) as fast:
        slow.execute("begin")
        ask(cf, slow, 1, **terms)
        fast.execute("begin")
        ask(cf, fast, 2, **terms)
        fast.execute("commit")
        cf.drain(post)
        assert sent == [2]
        slow.execute("commit")
        cf.drain(post)
    assert sent == [2, 1]


def test_what_was_rolled_back_leaves_gaps_that_stop_nothing(url: str) -> None:
    chance = random.Random(41)
    committed = []
    with Counterfoil.open(url) as cf, connect(url) as own:
        for number in range(200):
            own.execute("begin")
            ask(cf, own, number)
            kept = chance.random() >= 0.1
            own.execute("commit" if kept else "rollback")
            committed += [number] if kept else []
            if number % 50 == 0:
                cf.drain(post)
        cf.drain(post)
    assert sorted(sent) == committed
    assert 150 < len(committed) < 200
