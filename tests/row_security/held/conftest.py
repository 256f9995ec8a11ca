"""Behaviour that must hold for whoever row security holds as well."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import stores
from tests.conformance.conftest import awaiting, blocking, patient, subject
from tests.conformance.subject import COLOURS
from tests.langgraph.conftest import shop
from tests.postgres.databases import Database, Sweeper
from tests.postgres.roles import Role, new_role
from tests.postgres.servers import Server
from tests.row_security.held import choice
from tests.row_security.held.choice import FORCED, GRANTED, ONE_TENANT

__all__ = ["awaiting", "blocking", "patient", "shop", "subject"]

HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test as the roles that are chosen for it."""
    if "lasting_role" in metafunc.fixturenames:
        named = choice.roles(Path(str(metafunc.module.__file__)).stem, metafunc.function.__name__)
        metafunc.parametrize("lasting_role", named, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not for these roles, and what a change need not run."""
    mine = [item for item in items if item.path.parent == HERE]
    if gone := set(mine) - choice.chosen(mine):
        config.hook.pytest_deselected(items=[item for item in mine if item in gone])
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def owner(postgres_server: Server, postgres_names: Iterator[str], postgres_template: str) -> Iterator[Role]:
    """A role that owns the tables of a database, and is held like any other."""
    name = next(postgres_names)
    postgres_server.create_database(name, template=postgres_template)
    for role in new_role(Database(server=postgres_server, name=name)):
        role.let_make_tables()
        role.give_tables()
        for table in role.tables():
            role.database.execute(f"alter table {table} force row level security")
        yield role
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def lasting_role(request: pytest.FixtureRequest) -> Iterator[Role]:
    named = {GRANTED: "application", ONE_TENANT: "frontend", FORCED: "owner"}
    role: Role = request.getfixturevalue(named[request.param])
    with stores.seen_as(role.database.url, role.url):
        yield role


@pytest.fixture(scope="session")
def sweeper(lasting_role: Role) -> Iterator[Sweeper]:
    made = Sweeper(lasting_role.database)
    yield made
    made.close()


@pytest.fixture
def role(lasting_role: Role, sweeper: Sweeper) -> Iterator[Role]:
    """A role that row security holds, in a database with our tables and no rows."""
    yield lasting_role
    sweeper.empty()


@pytest.fixture(params=[stores.POSTGRES])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(store: str, role: Role) -> str:
    assert store == stores.POSTGRES
    return role.url
