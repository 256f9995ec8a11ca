"""Protocols that people write by hand, each with the hole that it has."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from counterfoil.drivers.stores import open_store
from counterfoil.drivers.urls import parse_url
from counterfoil.model import OperationKey
from counterfoil.storage.script import Ddl, Script
from counterfoil.storage.store import Store
from counterfoil.testing.invariants import one_effect_each
from counterfoil.testing.scenario import Aftermath, Check, Scenario
from counterfoil.testing.world import World

TICKET = OperationKey(tenant="team-A", operation_id="ticket-1")


@contextmanager
def database(world: World) -> Iterator[Store]:
    store = open_store(parse_url(world.url), clock=world.clock, probe=world.probe)
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


def mark(store: Store) -> bool:
    return bool(
        store.write(lambda: statement("insert into done values ('ticket-1') on conflict do nothing returning id"))
    )


def is_marked(store: Store) -> bool:
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


# --- holes that only a second worker finds ---------------------------------------------------------------------------


def several(*statements: str) -> Script[None]:
    for each in statements:
        yield Ddl(each)


def make_counters(world: World) -> None:
    store = world.open().desk.store
    store.write(lambda: several("create table done (id text)", "create table counter (name text, n integer)"))
    store.write(lambda: several("insert into counter values ('a', 0)", "insert into counter values ('b', 0)"))


def check_then_send(world: World) -> None:
    """Look whether it was done, do it, and say so, each by itself."""
    store = world.open().desk.store
    if not store.read(lambda: statement("select id from done")):
        send(world)
        store.write(lambda: statement("insert into done values ('ticket-1')"))


def read_then_write(world: World) -> None:
    """Count with a number that was read before, in a transaction that locks nothing."""

    def script() -> Script[None]:
        (row,) = yield from statement("select n from counter where name = 'a'")
        yield from statement("insert into done values ('one')")
        yield from statement(f"update counter set n = {row['n'] + 1} where name = 'a'")  # noqa: S608 - a number

    world.open().desk.store.write(script)


def one_more(world: World, names: str) -> None:
    """Count several things in one transaction, in an order of the caller's own."""
    add = [f"update counter set n = n + 1 where name = '{name}'" for name in names]  # noqa: S608 - our own letters
    world.open().desk.store.write(lambda: several(*add))


def counted_right(after: Aftermath) -> Iterator[str]:
    (row,) = after.world.rows("select n from counter where name = 'a'")
    if row["n"] != (done := len(after.world.rows("select id from done"))):
        yield f"{row['n']} was counted, {done} happened"


def nothing(world: World) -> None:
    pass


def contended(run: Any, *checks: Check) -> Scenario:
    fields: dict[str, Any] = {"prepare": make_counters, "recover": nothing, "checks": checks, "entries": 1}
    return Scenario(name="contended", run=run, **fields)
