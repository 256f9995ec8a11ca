"""The fixtures of a real PostgreSQL; `tests/conftest.py` makes them known to all tests."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

from counterfoil import Counterfoil
from tests.postgres import binaries, servers
from tests.postgres.databases import Database, Sweeper
from tests.postgres.pooler import Pooler
from tests.postgres.servers import PrivateServer, Server

URL_VARIABLE = "COUNTERFOIL_TEST_POSTGRES_URL"
BuildSchema = Callable[[str], None]


def unavailable(reason: str) -> NoReturn:
    """Skip where somebody looks at the list of skips; fail where nobody does."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def programs() -> Path:
    return binaries.find() or unavailable(binaries.MISSING)


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of this run share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """The server of this run; do not disturb it, others use it too."""
    if url := os.environ.get(URL_VARIABLE):
        return Server(url)
    return servers.shared(run_folder(tmp_path_factory) / "postgres.json", programs())


@pytest.fixture
def private_server() -> Iterator[PrivateServer]:
    """A server of the test's own, which it may stop, start and crash."""
    server = PrivateServer(servers.new_plan(programs()))
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_pooler(postgres_server: Server) -> Iterator[Pooler]:
    """The server of this run, reached through a PgBouncer in transaction mode that only this worker uses."""
    running = Pooler(binaries.find_pgbouncer() or pytest.skip(binaries.MISSING_PGBOUNCER), postgres_server)
    yield running
    running.close()


@pytest.fixture(scope="session")
def build_schema() -> BuildSchema:
    """What puts Counterfoil's schema into an empty database, given its URL."""
    return lambda url: Counterfoil.open(url).close()


@pytest.fixture(scope="session")
def postgres_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Names for this worker's databases; a server that is not ours may hold those of other runs."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    prefix = f"counterfoil_test_{os.getpid()}_{worker}"
    return (f"{prefix}_{number}" for number in count(1))


@pytest.fixture(scope="session")
def postgres_template(
    postgres_server: Server, postgres_names: Iterator[str], build_schema: BuildSchema
) -> Iterator[str]:
    """A database with the schema and nothing else, to be cloned."""
    name = next(postgres_names)
    build_schema(postgres_server.create_database(name))
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def worker_database(
    postgres_server: Server, postgres_names: Iterator[str], postgres_template: str
) -> Iterator[Database]:
    name = next(postgres_names)
    postgres_server.create_database(name, template=postgres_template)
    yield Database(server=postgres_server, name=name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def worker_sweeper(worker_database: Database) -> Iterator[Sweeper]:
    sweeper = Sweeper(worker_database)
    yield sweeper
    sweeper.close()


@pytest.fixture
def postgres_database(worker_database: Database, worker_sweeper: Sweeper) -> Iterator[Database]:
    """A database with the schema and no rows. It is emptied after the test, which must not hold it open."""
    yield worker_database
    worker_sweeper.empty()


@pytest.fixture
def fresh_database(
    postgres_server: Server, postgres_names: Iterator[str], postgres_template: str
) -> Iterator[Database]:
    """A database of the test's own, which it may alter, migrate or leave in any state."""
    name = next(postgres_names)
    postgres_server.create_database(name, template=postgres_template)
    yield Database(server=postgres_server, name=name)
    postgres_server.drop_database(name)
