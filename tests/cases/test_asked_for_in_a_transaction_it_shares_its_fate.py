"""B49: the effect was asked for before COMMIT, and the worker did not find the row; or after it, and a crash lost it.

Sources: https://github.com/AlmaLinux/build-system/issues/541, https://github.com/RealOrangeOne/django-tasks/issues/189,
https://github.com/mohamedboukari/bunmail/issues/184

Here for effects that are rows of the caller's own database, joined to its transaction. One that leaves the database is
refused there, before it is sent, and is enqueued instead: in a step of a graph together with the step's result. Kills
of such steps are in the case about results and checkpoints.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any, TypedDict

import psycopg
import pytest
from langgraph.graph import START, StateGraph

from counterfoil import Counterfoil, Provider, Statement, effect
from counterfoil.errors import NestedEffect
from counterfoil.langgraph import enqueue

POINTS = ("before", "after")
TABLES = ("create table orders (id text)", "create table mail (id text)", "create table stock (sku text, n integer)")
WHO: dict[str, Any] = {"tenant": "t", "request_id": "r-1"}
sent: list[str] = []


@effect("cases.joined-mail", key="{request_id}/mail", provider=Provider.transactional())
def queue_mail(tx: Any, *, order: str) -> str:
    tx.execute("insert into mail values ('m')")
    return order


@effect("cases.joined-stock", key="{request_id}/stock", provider=Provider.one_statement())
def take_from_stock(call: Any, *, order: str) -> Statement[Any]:
    return Statement("update stock set n = n - 1 where sku = 'nut' returning n")


@effect("cases.joined-remote", key="{request_id}/remote")
def post(call: Any, *, order: str) -> None:
    sent.append(order)


class Order(TypedDict, total=False):
    order: str


def connect(url: str) -> Any:
    if url.startswith("sqlite:///"):
        return closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None))
    return closing(psycopg.connect(url, autocommit=True))


def order(url: str, *, die: str = "") -> list[bool]:
    """Take an order in one transaction with its effects; say which of them had happened before."""
    with Counterfoil.open(url) as cf, connect(url) as connection:
        connection.execute("begin immediate" if url.startswith("sqlite") else "begin")
        joined = cf.join(connection)
        happened = [joined.perform(each, **WHO, order="o-1").already_happened for each in (queue_mail, take_from_stock)]
        if not any(happened):
            connection.execute("insert into orders values ('o-1')")
        if die == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        connection.execute("commit")
        if die == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return happened


def found(url: str) -> list[Any]:
    with connect(url) as connection:
        asked = ("select count(*) from orders", "select count(*) from mail", "select n from stock")
        return [connection.execute(sql).fetchone()[0] for sql in asked]


@pytest.fixture
def shop(url: str) -> str:
    Counterfoil.open(url).close()
    with connect(url) as connection:
        for sql in (*TABLES, "insert into stock values ('nut', 5)"):
            connection.execute(sql)
    return url


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_around_commit_leaves_all_of_it_or_nothing(shop: str, point: str) -> None:
    killed = subprocess.run([sys.executable, __file__, shop, point], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    committed = point == "after"
    assert found(shop) == ([1, 1, 4] if committed else [0, 0, 5])
    assert order(shop) == [committed, committed]  # what a restart does
    assert found(shop) == [1, 1, 4]


def test_a_roll_back_takes_the_effects_along(shop: str) -> None:
    with Counterfoil.open(shop) as cf, connect(shop) as connection:
        connection.execute("begin immediate" if shop.startswith("sqlite") else "begin")
        for each in (queue_mail, take_from_stock):
            cf.join(connection).perform(each, **WHO, order="o-1")
        connection.execute("rollback")  # the business changed its mind
        assert cf.operations.list(tenant="t").items == ()
    assert found(shop) == [0, 0, 5]
    assert order(shop) == [False, False]
    assert found(shop) == [1, 1, 4]


def test_what_a_roll_back_could_not_take_back_is_not_sent(shop: str) -> None:
    with Counterfoil.open(shop) as cf, connect(shop) as connection:
        connection.execute("begin immediate" if shop.startswith("sqlite") else "begin")
        with pytest.raises(NestedEffect, match="Commit first"):
            cf.join(connection).perform(post, **WHO, order="o-1")
        connection.execute("commit")
        assert sent == []
        cf.perform(post, **WHO, order="o-1")
    assert sent == ["o-1"]
    del sent[:]


def test_what_a_step_of_a_graph_asked_for_shares_the_fate_of_its_result(url: str) -> None:
    told: list[str] = []

    def step(state: dict[str, Any]) -> dict[str, Any]:
        enqueue(post, order="o-1")
        with Counterfoil.open(url) as other:  # a worker beside it
            other.drain(post)
        told.append(f"asked, {len(sent)} sent")
        if len(told) == 1:
            raise ConnectionError("after asking")
        return {"order": "o-1"}

    builder: Any = StateGraph(Order)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    with Counterfoil.open(url) as cf:
        graph = cf.compile(builder)
        with pytest.raises(ConnectionError):
            cf.run(graph, {}, **WHO, thread_id="t-1")
        cf.drain(post)
        assert (cf.operations.list(tenant="t").items, sent) == ((), [])  # rolled back: never sent
        cf.run(graph, None, **WHO, thread_id="t-1")
    with Counterfoil.open(url) as restarted:
        restarted.drain(post)
        restarted.drain(post)
    assert (told, sent) == (["asked, 0 sent"] * 2, ["o-1"])
    del sent[:]


if __name__ == "__main__":
    order(sys.argv[1], die=sys.argv[2])
