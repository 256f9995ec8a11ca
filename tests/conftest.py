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
    worker_sweeper,
)
from tests.stores import sqlite_template, store, url

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
    "sqlite_template",
    "store",
    "url",
    "worker_database",
    "worker_sweeper",
]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """End what a test that failed in the middle has left running, before its database goes."""
    children.end_all()
