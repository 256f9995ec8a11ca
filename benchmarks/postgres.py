"""What do an effect, an answer, a superstep and a look at the past cost on PostgreSQL?

Beside two commits by hand, and beside LangGraph's own saver. The server is the one that the tests start, over TCP on
this machine, with the durability that PostgreSQL ships.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from benchmarks.checkpoints import NODES, graph
from benchmarks.kit import Comparison, Work, compare, median, wall
from counterfoil import Counterfoil, Provider, Statement, effect
from counterfoil.storage import rights
from tests.postgres import binaries, servers

GIVEN: dict[str, Any] = {"tenant": "t", "title": "Printer on fire"}
SHORT, LONG = 100, 1000


@effect("bench.postgres-ticket", key="{request_id}/ticket")
def create_ticket(call: Any, *, title: str) -> dict[str, Any]:
    return {"id": 1, "title": title}


@effect("bench.postgres-row", key="{request_id}/row", provider=Provider.transactional())
def row(tx: Any, *, title: str) -> dict[str, Any]:
    tx.execute("insert into business (title) values (%s)", (title,))
    return {"title": title}


@effect("bench.postgres-statement", key="{request_id}/row", provider=Provider.one_statement())
def stated_row(call: Any, *, title: str) -> Statement[Any]:
    return Statement("insert into business (title) values (:title) returning id", title=title)


class Floor:
    """What a careful person would write by hand: one connection, an intent, the effect, the receipt; two commits."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(
            "create table op (tenant text, id text, state text, payload bytea, receipt bytea, primary key (tenant, id))"
        )
        self.connection.execute("create table business (id bigint generated always as identity, title text)")

    def bare(self) -> None:
        self.connection.execute("insert into business (title) values (%s)", ("a",))

    def perform(self, key: str) -> None:
        payload = json.dumps({"title": "Printer on fire"}).encode()
        new = "insert into op values (%s, %s, 'in_flight', %s, null) on conflict do nothing returning id"
        assert self.connection.execute(new, ("t", key, payload)).fetchone()
        receipt = json.dumps({"id": 1, "title": "Printer on fire"}).encode()
        done = "update op set state = 'succeeded', receipt = %s where tenant = %s and id = %s and state = 'in_flight'"
        self.connection.execute(done, (receipt, "t", key))

    def read(self, key: str) -> None:
        found = self.connection.execute("select state, receipt from op where tenant = %s and id = %s", ("t", key))
        assert found.fetchone()


@contextmanager
def server() -> Iterator[servers.PrivateServer]:
    found = binaries.find()
    assert found is not None, binaries.MISSING
    running = servers.PrivateServer(servers.new_plan(found))
    try:
        yield running
    finally:
        running.close()


def run(_disk: Path, _memory: Path) -> list[Comparison]:
    with ExitStack() as stack:
        running = stack.enter_context(server())
        cf = stack.enter_context(Counterfoil.open(running.create_database("ours")))
        floor = Floor(running.create_database("floor"))
        stack.callback(floor.connection.close)
        stock = stack.enter_context(PostgresSaver.from_conn_string(running.create_database("stock")))
        stock.setup()
        return [*effects(cf, floor), *supersteps(cf, stock), *past(cf, stock), *held(running.create_database("held"))]


def effects(cf: Counterfoil, floor: Floor) -> list[Comparison]:
    ids = (f"r-{number}" for number in itertools.count())
    with psycopg.connect(cf.desk.store.url.text, autocommit=True) as own:  # type: ignore[attr-defined]  # PostgreSQL's
        own.execute("create table business (id bigint generated always as identity, title text)")
    floor.perform("once")
    cf.perform(create_ticket, request_id="once", **GIVEN)
    remote: dict[str, Work] = {
        "one bare commit": floor.bare,
        "two commits by hand": lambda: floor.perform(next(ids)),
        "perform": lambda: cf.perform(create_ticket, request_id=next(ids), **GIVEN),
        "perform, a local effect in a transaction of ours": lambda: cf.perform(row, request_id=next(ids), **GIVEN),
        "perform, a local effect that is one statement": lambda: cf.perform(stated_row, request_id=next(ids), **GIVEN),
    }
    answered: dict[str, Work] = {
        "a bare read by key": lambda: floor.read("once"),
        "perform, answered from the receipt": lambda: cf.perform(create_ticket, request_id="once", **GIVEN),
    }
    return [
        compare("One effect, PostgreSQL", remote, rounds=25, calls=20, clock=wall),
        compare("One effect, PostgreSQL, the median", dict(islice(remote.items(), 3)), calls=20, clock=median),
        compare("An answer from a receipt, PostgreSQL", answered, rounds=25, calls=50, clock=wall),
    ]


def supersteps(cf: Counterfoil, stock: PostgresSaver) -> list[Comparison]:
    theirs, ours, managed = graph().compile(stock), graph().compile(cf.saver()), cf.compile(graph())
    ids = itertools.count()

    def invoke(compiled: Any, config: Any) -> None:
        compiled.invoke({"n": 0, "text": "x" * 200}, config, durability="sync")

    def thread() -> str:
        return f"t-{next(ids)}"

    variants: dict[str, Work] = {
        "PostgresSaver": lambda: invoke(theirs, {"configurable": {"thread_id": thread()}}),
        "cf.saver(), compiled plainly": lambda: invoke(ours, {"configurable": {"thread_id": thread()}}),
        "cf.compile: claimed and fenced": lambda: invoke(managed, cf.config(tenant="t", thread_id=thread())),
    }
    return [compare(f"A run of {NODES} nodes, PostgreSQL", variants, rounds=15, calls=5, clock=wall)]


def past(cf: Counterfoil, stock: PostgresSaver) -> list[Comparison]:
    """Compare reads of long threads with those of short ones: what they cost must not grow with the thread."""
    return [*reads("cf.saver()", cf.saver()), *reads("PostgresSaver", stock)]


def reads(name: str, saver: Any) -> list[Comparison]:
    compiled = graph().compile(saver)
    configs = {size: filled(compiled, size) for size in (1, SHORT, LONG)}
    newest: dict[str, Work] = {f"of {size}": partial(compiled.get_state, each) for size, each in configs.items()}
    listed: dict[str, Work] = {f"of {size}": partial(ten, saver, configs[size]) for size in (SHORT, LONG)}
    return [
        compare(f"{name}: the newest state, by checkpoints, PostgreSQL", newest, rounds=20, calls=20, clock=wall),
        compare(f"{name}: list(limit=10), by checkpoints, PostgreSQL", listed, rounds=20, calls=10, clock=wall),
    ]


def held(url: str) -> list[Comparison]:
    """Compare a role that row security holds to a tenant with one that may do the same and is not held."""
    Counterfoil.open(url).close()
    parts, names = urlsplit(url), {"bench_free": "bypassrls", "bench_held": "nobypassrls"}
    with psycopg.connect(url, autocommit=True) as owner:
        for name, kind in names.items():
            owner.execute(f"create role {name} login password 'secret' {kind}".encode())
            owner.execute(rights.grants(name, "public", read_only=False).encode())
    urls = [parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}").geturl() for name in names]
    ids = (f"h-{number}" for number in itertools.count())
    with Counterfoil.open(urls[0]) as free, Counterfoil.open(urls[1]) as bound:
        free.perform(create_ticket, request_id="once", **GIVEN)
        graphs = {cf: cf.compile(graph()) for cf in (free, bound)}

        def answer(cf: Counterfoil) -> None:
            cf.perform(create_ticket, request_id="once", **GIVEN)

        def send(cf: Counterfoil) -> None:
            cf.perform(create_ticket, request_id=next(ids), **GIVEN)

        def invoke(cf: Counterfoil) -> None:
            graphs[cf].invoke({"n": 0, "text": "x" * 200}, cf.config(tenant="t", thread_id=next(ids)))

        works = {"An answer from a receipt": answer, "One effect": send, f"A run of {NODES} nodes": invoke}
        return [
            compare(
                f"{name}, PostgreSQL, row security",
                {"a role that is not held": partial(work, free), "a role that is held": partial(work, bound)},
                rounds=20,
                calls=10,
                clock=wall,
            )
            for name, work in works.items()
        ]


def ten(saver: Any, config: Any) -> None:
    assert len(list(saver.list(config, limit=10))) == 10


def filled(compiled: Any, checkpoints: int) -> Any:
    """Fill a thread by as many updates of its state."""
    config = {"configurable": {"thread_id": f"long-{checkpoints}"}}
    for number in range(checkpoints):
        compiled.update_state(config, {"n": number, "text": "x" * 50}, as_node="n0")
    return config
