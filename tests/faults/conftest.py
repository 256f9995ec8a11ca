"""Servers, wires and subjects for the tests of faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.drivers import postgres_open
from counterfoil.testing.wire import Wire
from tests.conformance.subject import COLOURS, SYNC
from tests.faults.subject import Wired, wired
from tests.postgres import fixtures, servers
from tests.postgres.databases import Database
from tests.postgres.servers import PrivateServer

FAULTS = "faults"


@pytest.fixture(scope="session")
def _own_server() -> Iterator[PrivateServer]:
    server = PrivateServer(servers.new_plan(fixtures.programs()))
    yield server
    server.close()


@pytest.fixture
def own_server(_own_server: PrivateServer) -> Iterator[PrivateServer]:
    """A server that tests may stop and crash, one after another; each finds it running, with none of our tables."""
    _own_server.start()
    yield _own_server
    _own_server.start()
    if _own_server.execute("select pg_is_in_recovery()") == [(True,)]:
        _own_server.execute("select pg_promote()")
    _own_server.drop_database(FAULTS)


@pytest.fixture
def own_url(own_server: PrivateServer) -> str:
    """A new database on it."""
    return own_server.create_database(FAULTS)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wire(postgres_database: Database) -> Iterator[Wire]:
    with Wire(postgres_database.server.host, postgres_database.server.port) as made:
        yield made


@pytest.fixture
def wired_url(wire: Wire, postgres_database: Database) -> str:
    return f"{wire.through(postgres_database.url)}?sslmode=disable&gssencmode=disable"


@pytest.fixture
def subject(wired_url: str, colour: str, tmp_path: Path) -> Iterator[Wired]:
    made = wired(wired_url, colour, tmp_path)
    yield made
    made.close()


@pytest.fixture
def blocking(wired_url: str, tmp_path: Path) -> Iterator[Wired]:
    """A subject for what has nothing to do with its colour."""
    made = wired(wired_url, SYNC, tmp_path)
    yield made
    made.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that tests can wait for; the server's share of them is in proportion."""
    monkeypatch.setattr(postgres_open, "WAIT_S", 0.4)
    monkeypatch.setattr(postgres_open, "SILENCE_S", 0.8)
