from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.langgraph.shop import Shop


@pytest.fixture
def shop(url: str, tmp_path: Path) -> Iterator[Shop]:
    """A shop over each store, as most tests want it."""
    made = Shop(url, tmp_path)
    yield made
    made.close()
