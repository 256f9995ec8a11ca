"""Roles that row security holds to the tenant that each transaction names."""

from collections.abc import Iterator

import pytest

from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role


@pytest.fixture(scope="session")
def lasting_role(worker_database: Database) -> Iterator[Role]:
    """The role of an application in this worker's database."""
    for role in new_role(worker_database):
        role.let()
        yield role


@pytest.fixture
def role(lasting_role: Role, postgres_database: Database) -> Role:
    """The role of an application, in a database with our tables and no rows."""
    assert lasting_role.database == postgres_database
    return lasting_role
