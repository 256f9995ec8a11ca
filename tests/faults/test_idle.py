"""Connections that died while nobody used them: the next call does not notice."""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from counterfoil.drivers.postgres_async import AsyncPostgresStore
from counterfoil.testing.wire import Wire
from tests.conformance.subject import SYNC
from tests.faults.subject import Wired, wired
from tests.postgres.databases import END_SESSIONS, Database
from tests.postgres.servers import Mode, PrivateServer

MANY = 10


def make_idle(subject: Wired) -> None:
    """Leave as many connections on the shelf as it holds."""
    if subject.colour == SYNC:
        shelf = subject.cf.desk.store.lender.shelf
        with ExitStack() as at_once:
            for _ in range(MANY):
                at_once.enter_context(subject.cf.desk.store.lender.connection())
    else:
        shelf = subject.settle(make_idle_on_loop(subject.cf.store))
    assert (shelf.idle, shelf.lent) == (MANY, 0)


async def make_idle_on_loop(store: AsyncPostgresStore) -> object:
    async with AsyncExitStack() as at_once:
        for _ in range(MANY):
            await at_once.enter_async_context(store.lender.connection())
    return store.lender.shelf()


def performs_at_once(subject: Wired, *, within: float = 3.0) -> None:
    """Perform one operation as if nothing had happened: no error, one effect, and no long wait."""
    create, began = subject.ticket(), time.monotonic()
    assert subject.perform(create, title="a").value == {"id": 1, "title": "a"}
    assert time.monotonic() - began < within
    assert (len(subject.sent), subject.state, subject.attempts()) == (1, "succeeded", ["succeeded"])


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server(
    own_server: PrivateServer, own_url: str, mode: Mode, colour: str, tmp_path: Path
) -> None:
    subject = wired(own_url, colour, tmp_path)
    make_idle(subject)
    own_server.restart(mode)
    performs_at_once(subject)
    subject.close()


def terminated(wire: Wire, database: Database) -> None:
    database.execute(END_SESSIONS)


def broken_off(wire: Wire, database: Database) -> None:
    wire.cut()


@pytest.mark.parametrize("kill", [terminated, broken_off])
def test_the_end_of_all_idle_connections(
    subject: Wired, wire: Wire, postgres_database: Database, kill: Callable[[Wire, Database], None]
) -> None:
    make_idle(subject)
    kill(wire, postgres_database)
    performs_at_once(subject)


def test_a_way_that_was_lost_without_a_word(
    wire: Wire, postgres_database: Database, colour: str, tmp_path: Path, impatient: None
) -> None:
    """As by a firewall that forgets idle connections: one is given up, the others are not even tried."""
    server = postgres_database.server
    with Wire(server.host, server.port) as other_way:
        both = f"{wire.host}:{wire.port},{other_way.host}:{other_way.port}"
        parts = urlsplit(postgres_database.url)
        user = parts.netloc.rpartition("@")[0]
        subject = wired(f"postgresql://{user}@{both}{parts.path}", colour, tmp_path)
        make_idle(subject)
        wire.black_hole()
        wire.refuse()
        performs_at_once(subject)
        subject.close()
