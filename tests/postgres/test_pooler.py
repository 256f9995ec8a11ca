"""The tests' own PgBouncer pools transactions, not sessions: what hangs on a session is lost."""

import psycopg
import pytest

from tests.postgres.databases import Database
from tests.postgres.pooler import Pooler


def backend(session: "psycopg.Connection[tuple[int]]") -> int:
    row = session.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return row[0]


def test_two_sessions_meet_on_one_backend_between_their_transactions(
    postgres_pooler: Pooler, postgres_database: Database
) -> None:
    url = postgres_pooler.url(postgres_database.name)
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as other:
        assert backend(one) == backend(other)


def test_two_open_transactions_have_a_backend_each(postgres_pooler: Pooler, postgres_database: Database) -> None:
    url = postgres_pooler.url(postgres_database.name)
    with psycopg.connect(url) as one, psycopg.connect(url) as other:
        assert backend(one) != backend(other)


def test_a_prepared_statement_is_not_where_it_was(postgres_pooler: Pooler, postgres_database: Database) -> None:
    url = postgres_pooler.url(postgres_database.name)
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as other:
        one.execute("prepare mine as select 1")
        with other.transaction():
            other.execute("select 1")  # holds the backend that knows the statement
            with pytest.raises(psycopg.errors.InvalidSqlStatementName):
                one.execute("execute mine")


def test_its_console_answers(postgres_pooler: Pooler) -> None:
    assert ("pool_mode", "transaction") in [row[:2] for row in postgres_pooler.console("show config")]
