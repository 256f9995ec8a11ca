"""Each engine on each database on which it works."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil import Counterfoil
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.engine.fleet import Fleet
from tests.engine.names import EMBEDDED_SQLITE, ENGINES, PROCRASTINATE
from tests.engine.program import Place, opened_at
from tests.postgres.servers import Server


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def jobs_url(postgres_server: Server, postgres_names: Iterator[str], jobs_template: str) -> Iterator[str]:
    """The URL of a database of the test's own with both schemas."""
    name = next(postgres_names)
    yield postgres_server.create_database(name, template=jobs_template)
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def running() -> Iterator[CountingProvider]:
    with CountingProvider() as provider:
        yield provider


@pytest.fixture
def provider(running: CountingProvider) -> CountingProvider:
    running.reset()
    running.configure(Settings(keys=False, lookup=True))
    return running


@pytest.fixture
def place(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    name = "procrastinate" if engine == PROCRASTINATE else "embedded"
    database = f"sqlite:///{tmp_path}/engine.db" if engine == EMBEDDED_SQLITE else request.getfixturevalue("jobs_url")
    provider = request.getfixturevalue("provider")
    return Place(database=database, folder=str(tmp_path), provider=provider.url, engine=name)


@pytest.fixture
def cf(place: Place) -> Iterator[Counterfoil]:
    """A program that starts workflows and tells them events, and works on none."""
    with opened_at(place) as opened:
        yield opened


@pytest.fixture
def fleet(place: Place) -> Iterator[Fleet]:
    """Workers in processes of their own."""
    made = Fleet(place)
    yield made
    made.close()
