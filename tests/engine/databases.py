"""PostgreSQL databases in which Procrastinate's tables stand beside ours."""

from collections.abc import Iterator

import pytest

from counterfoil import Counterfoil
from counterfoil.engine.choosing import made_for
from tests.postgres.databases import Database
from tests.postgres.servers import Server

FORGET = """
delete from procrastinate_events; delete from procrastinate_periodic_defers;
delete from procrastinate_jobs; delete from procrastinate_workers
"""
"""Of rows so few a deletion takes a fraction of what emptying their tables takes."""


@pytest.fixture(scope="session")
def jobs_template(postgres_server: Server, postgres_names: Iterator[str], postgres_template: str) -> Iterator[str]:
    """A database with our schema and Procrastinate's, to be cloned."""
    name = next(postgres_names)
    with Counterfoil.open(postgres_server.create_database(name, template=postgres_template)) as cf:
        made_for(cf.desk.store)
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def jobs_worker_database(
    postgres_server: Server, postgres_names: Iterator[str], jobs_template: str
) -> Iterator[Database]:
    name = next(postgres_names)
    postgres_server.create_database(name, template=jobs_template)
    yield Database(server=postgres_server, name=name)
    postgres_server.drop_database(name)


@pytest.fixture
def jobs_database(jobs_worker_database: Database) -> Iterator[Database]:
    """A database with both schemas and no rows. It is emptied after the test, which must not hold it open."""
    yield jobs_worker_database
    jobs_worker_database.execute(FORGET)
    jobs_worker_database.empty()
