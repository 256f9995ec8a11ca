"""Fixtures for all tests."""

import pytest

from tests import children
from tests.engine.databases import jobs_database, jobs_template, jobs_worker_database
from tests.postgres.fixtures import (
    build_schema,
    fresh_database,
    postgres_database,
    postgres_names,
    postgres_pooler,
    postgres_server,
    postgres_template,
    private_server,
    worker_database,
)
from tests.stores import store, url

__all__ = [
    "build_schema",
    "fresh_database",
    "jobs_database",
    "jobs_template",
    "jobs_worker_database",
    "postgres_database",
    "postgres_names",
    "postgres_pooler",
    "postgres_server",
    "postgres_template",
    "private_server",
    "store",
    "url",
    "worker_database",
]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """End what a test that failed in the middle has left running, before its database goes."""
    children.end_all()
