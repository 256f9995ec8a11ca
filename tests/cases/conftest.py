from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.stock import Ours, Stock
from tests.langgraph.shop import Shop, make_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = make_shop(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ours(shop: Shop) -> Ours:
    return Ours(shop)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    return Stock(tmp_path)
