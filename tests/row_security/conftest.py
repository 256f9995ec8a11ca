"""Roles that row security holds to the tenant that each transaction names."""

from collections.abc import Iterator

import pytest

from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role


@pytest.fixture(scope="session")
def application(worker_database: Database) -> Iterator[Role]:
    """The role of an application in this worker's database, which makes its own tables beside ours."""
    for role in new_role(worker_database):
        role.let()
        role.let_make_tables()
        yield role


@pytest.fixture
def role(application: Role, postgres_database: Database) -> Role:
    """The role of an application, in a database with our tables and no rows."""
    assert application.database == postgres_database
    return application


@pytest.fixture(scope="session")
def frontend(worker_database: Database) -> Iterator[Role]:
    """The role of a process that serves requests, in this worker's database: it may not work for all tenants."""
    for role in new_role(worker_database, "one"):
        role.let(one_tenant=True)
        role.let_make_tables()
        yield role
