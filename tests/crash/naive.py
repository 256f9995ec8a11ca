"""Three protocols that people write by hand, each with the hole that it has."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.urls import SqliteUrl, parse_url
from counterfoil.model import OperationKey
from counterfoil.storage.script import Ddl, Script
from counterfoil.testing.invariants import one_effect_each
from counterfoil.testing.scenario import Scenario
from counterfoil.testing.world import World

TICKET = OperationKey(tenant="team-A", operation_id="ticket-1")


@contextmanager
def database(world: World) -> Iterator[SqliteStore]:
    store = SqliteStore(SqliteUrl(parse_url(world.url).path), clock=world.clock, probe=world.probe)
    try:
        yield store
    finally:
        store.close()


def statement(sql: str) -> Script[list[Any]]:
    rows: list[Any] = yield Ddl(sql)
    return rows


def make_table(world: World) -> None:
    with database(world) as store:
        store.write(lambda: statement("create table done (id text primary key)"))


def mark(store: SqliteStore) -> bool:
    return bool(store.write(lambda: statement("insert or ignore into done values ('ticket-1') returning id")))


def is_marked(store: SqliteStore) -> bool:
    return bool(store.read(lambda: statement("select id from done")))


def send(world: World) -> None:
    world.provider.accept(TICKET)


def lose_reply(world: World) -> None:
    send(world)
    if world.provider.count(TICKET) == 1:
        raise TimeoutError


def mark_then_send(world: World) -> None:
    with database(world) as store:
        if mark(store):
            send(world)


def send_then_mark(world: World) -> None:
    with database(world) as store:
        if not is_marked(store):
            send(world)
            mark(store)


def retry_on_time_out(world: World) -> None:
    with database(world) as store:
        if mark(store):
            try:
                lose_reply(world)
            except TimeoutError:
                send(world)


def naive(run: Any) -> Scenario:
    return Scenario(name=run.__name__, run=run, prepare=make_table, checks=(one_effect_each,), fresh=True)
