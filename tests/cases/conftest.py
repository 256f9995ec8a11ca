from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.runtime.workflows import WorkflowRunner
from counterfoil.testing.provider_client import CountingProvider
from tests.cases.counted import Counted
from tests.cases.journeys import Journeys, journeys
from tests.cases.stock import Ours, Stock
from tests.engine.names import EMBEDDED_POSTGRES, EMBEDDED_SQLITE, ENGINES
from tests.langgraph.shop import Shop
from tests.storage.conftest import empty_database, place

__all__ = ["counted", "counting", "empty_database", "ours", "place", "shop", "stock"]


@pytest.fixture
def shop(url: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def ours(shop: Shop) -> Ours:
    return Ours(shop)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    return Stock(tmp_path)


@pytest.fixture(scope="session")
def counting() -> Iterator[CountingProvider]:
    with CountingProvider() as provider:
        yield provider


@pytest.fixture
def counted(counting: CountingProvider) -> Counted:
    counting.reset()
    return Counted(counting)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What wakes workflows, and on which database."""
    return str(request.param)


@pytest.fixture
def ways(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Journeys]:
    """Processes whose workflows an engine hands out, wherever they are drained."""
    if engine == EMBEDDED_SQLITE:
        yield from journeys(f"sqlite:///{tmp_path}/ledger.db", tmp_path)
    elif engine == EMBEDDED_POSTGRES:
        yield from journeys(request.getfixturevalue("postgres_database").url, tmp_path)
    else:
        from tests.engine import passes  # it needs the package

        monkeypatch.setattr(WorkflowRunner, "drain", passes.drain)
        yield from journeys(request.getfixturevalue("jobs_database").url, tmp_path, engine)
