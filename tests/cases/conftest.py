from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.langgraph.shop import Shop, make_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = make_shop(tmp_path)
    yield made
    made.close()
