"""A provider that counts in a process of its own, and a database on which workers meet."""

from collections.abc import Iterator

import pytest

from counterfoil.testing.provider_client import CountingProvider
from tests.processes.scene import Scene


@pytest.fixture(scope="module")
def running() -> Iterator[CountingProvider]:
    with CountingProvider() as provider:
        yield provider


@pytest.fixture
def scene(url: str, running: CountingProvider) -> Scene:
    running.reset()
    return Scene(url, running)
