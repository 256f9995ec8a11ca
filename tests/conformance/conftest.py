"""The stores and colours on which every behaviour of the ledger must hold. A new store is one more entry here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests.conformance.subject import COLOURS, SYNC, Sent, Subject

STORES: dict[str, Callable[[Path], str]] = {
    "sqlite-file": lambda folder: f"sqlite:///{folder}/ledger.db",
    "sqlite-memory": lambda _folder: "sqlite:///:memory:",
}
SHARED = [name for name in STORES if "memory" not in name]
"""Stores that a second Counterfoil or process can open, too."""


def make(store: str, colour: str, folder: Path, *, wait: str = "0s") -> Subject:
    sent = Sent(TallyFile(folder / "tally"))
    return Subject(colour=colour, url=STORES[store](folder), clock=FakeClock(), sent=sent, wait=wait)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def subject(store: str, colour: str, tmp_path: Path) -> Iterator[Subject]:
    made = make(store, colour, tmp_path)
    yield made
    made.close()


@pytest.fixture
def patient(store: str, colour: str, tmp_path: Path) -> Iterator[Subject]:
    """A subject whose losers wait for the winner."""
    made = make(store, colour, tmp_path, wait="20s")
    yield made
    made.close()


@pytest.fixture
def blocking(store: str, tmp_path: Path) -> Iterator[Subject]:
    """A subject for what only blocking callers meet."""
    made = make(store, SYNC, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[colour for colour in COLOURS if colour != SYNC])
def awaiting(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Iterator[Subject]:
    """A subject for what only awaiting callers meet."""
    made = make(store, str(request.param), tmp_path)
    yield made
    made.close()
