from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.langgraph.shop import Shop, make_shop


@pytest.fixture
def shop(url: str, tmp_path: Path) -> Iterator[Shop]:
    """A shop over each store, as most tests want it."""
    made = make_shop(tmp_path, url=url)
    yield made
    made.close()
