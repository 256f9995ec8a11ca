from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.testing.provider_client import CountingProvider
from tests.cases.counted import Counted
from tests.cases.journeys import Journeys, journeys
from tests.cases.stock import Ours, Stock
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


@pytest.fixture
def ways(url: str, tmp_path: Path) -> Iterator[Journeys]:
    yield from journeys(url, tmp_path)
