"""The stores and colours on which every behaviour of the ledger must hold. A new store is one more entry here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests.conformance import pairs
from tests.conformance.subject import COLOURS, SYNC, Sent, Subject
from tests.stores import STORES

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the pairs of store and colour out that a change need not run."""
    mine = [item for item in items if HERE in item.path.parents]
    kept = pairs.chosen(mine)
    if left := [item for item in mine if item not in kept]:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def make(url: str, colour: str, folder: Path, *, wait: str = "0s") -> Subject:
    sent = Sent(TallyFile(folder / "tally"))
    return Subject(colour=colour, url=url, clock=FakeClock(), sent=sent, wait=wait)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def subject(url: str, colour: str, tmp_path: Path) -> Iterator[Subject]:
    made = make(url, colour, tmp_path)
    yield made
    made.close()


@pytest.fixture
def patient(url: str, colour: str, tmp_path: Path) -> Iterator[Subject]:
    """A subject whose losers wait for the winner."""
    made = make(url, colour, tmp_path, wait="20s")
    yield made
    made.close()


@pytest.fixture
def blocking(url: str, tmp_path: Path) -> Iterator[Subject]:
    """A subject for what only blocking callers meet."""
    made = make(url, SYNC, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[colour for colour in COLOURS if colour != SYNC])
def awaiting(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Subject]:
    """A subject for what only awaiting callers meet."""
    made = make(url, str(request.param), tmp_path)
    yield made
    made.close()
