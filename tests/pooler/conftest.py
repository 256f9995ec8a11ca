"""Behaviour that must hold behind a pooler as well: each transaction may run on another session of the server."""

from pathlib import Path

import pytest

from tests import stores
from tests.conformance.conftest import awaiting, blocking, patient, subject
from tests.conformance.subject import ASYNC, SYNC
from tests.langgraph.conftest import shop
from tests.postgres.databases import Database
from tests.postgres.pooler import Pooler

__all__ = ["awaiting", "blocking", "patient", "shop", "subject"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what a test that names its stores would do once more for another one: here is only this."""
    items[:] = [item for item in items if not (is_ours(item) and names_another(item))]


def is_ours(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent


def names_another(item: pytest.Item) -> bool:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return parameters.get("store", stores.POSTGRES) != stores.POSTGRES


@pytest.fixture
def store() -> str:
    return "pooler"


@pytest.fixture
def url(postgres_pooler: Pooler, postgres_database: Database) -> str:
    return postgres_pooler.url(postgres_database.name)


@pytest.fixture(params=[SYNC, ASYNC])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)
