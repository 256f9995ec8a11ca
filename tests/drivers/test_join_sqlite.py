"""Joining a caller's open transaction leaves everything of the caller's as it was."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from counterfoil.drivers.join_sqlite import JoinedSqlite
from counterfoil.drivers.probes import Point
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.errors import ConstraintViolated, ForeignTransaction
from counterfoil.storage.script import Ddl, Script, user_code
from tests.drivers.scripts import add, numbers, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = open_store(tmp_path / "t.db")
    yield opened
    opened.close()


@pytest.fixture
def caller(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(store.path)) as connection:
        yield connection


def test_it_commits_with_the_caller(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.execute("insert into t values (1)")
    assert JoinedSqlite(store, caller).run(add(2)) == []
    assert numbers(store) == []
    caller.commit()
    assert numbers(store) == [1, 2]


def test_it_rolls_back_with_the_caller(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.execute("insert into t values (1)")
    JoinedSqlite(store, caller).run(add(2))
    caller.rollback()
    assert numbers(store) == []


def test_a_failure_undoes_its_own_part_only_and_leaves_the_transaction_open(
    store: SqliteStore, caller: sqlite3.Connection
) -> None:
    def script() -> Script[None]:
        yield Ddl("insert into t values (2)")
        yield Ddl("insert into t values (1)")

    caller.execute("insert into t values (1)")
    with pytest.raises(ConstraintViolated):
        JoinedSqlite(store, caller).run(script)
    assert caller.in_transaction
    caller.commit()
    assert numbers(store) == [1]


def test_a_failing_body_undoes_its_own_part_only(store: SqliteStore, caller: sqlite3.Connection) -> None:
    def body(tx: Any) -> None:
        tx.execute("insert into t values (2)")
        raise ZeroDivisionError

    caller.execute("insert into t values (1)")
    with pytest.raises(ZeroDivisionError):
        JoinedSqlite(store, caller).run(lambda: user_code(body))
    caller.commit()
    assert numbers(store) == [1]


def test_an_error_that_undid_the_whole_transaction_reaches_the_caller_as_it_is(
    store: SqliteStore, caller: sqlite3.Connection
) -> None:
    def body(tx: Any) -> None:
        tx.execute("insert or rollback into t values (1)")

    caller.execute("insert into t values (1)")
    with pytest.raises(sqlite3.IntegrityError):
        JoinedSqlite(store, caller).run(lambda: user_code(body))
    assert not caller.in_transaction
    assert numbers(store) == []


def _upper(_cursor: Any, row: Any) -> str:
    return f"row {row}"


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_settings_and_savepoints_stay(
    store: SqliteStore, caller: sqlite3.Connection, *, fails: bool
) -> None:
    caller.isolation_level = "IMMEDIATE"
    caller.row_factory = _upper
    caller.text_factory = bytes
    caller.execute("insert into t values (1)")
    caller.execute("savepoint counterfoil_joined")  # even one of our own name
    caller.execute("insert into t values (2)")
    if fails:
        with pytest.raises(ConstraintViolated):
            JoinedSqlite(store, caller).run(add(2))
    else:
        JoinedSqlite(store, caller).run(add(3))
    assert caller.isolation_level == "IMMEDIATE"
    assert caller.row_factory is _upper
    assert caller.text_factory is bytes
    assert caller.execute("select 'x'").fetchone() == "row (b'x',)"
    caller.execute("rollback to counterfoil_joined")
    caller.execute("release counterfoil_joined")
    caller.commit()
    assert numbers(store) == [1]


def test_the_body_sees_the_callers_own_text_factory(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.text_factory = bytes
    caller.execute("begin")
    seen = JoinedSqlite(store, caller).run(lambda: user_code(lambda tx: tx.execute("select 'x'").fetchone()))
    assert seen == (b"x",)


def test_a_transaction_that_was_begun_deferred_may_be_joined(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.isolation_level = None
    caller.execute("begin")
    JoinedSqlite(store, caller).run(add(1))
    caller.execute("commit")
    assert numbers(store) == [1]


def test_it_has_statement_points_but_no_commit(tmp_path: Path) -> None:
    points: list[Point] = []
    store = open_store(tmp_path / "t.db", lambda point, _name: points.append(point))
    points.clear()
    with closing(sqlite3.connect(store.path)) as caller:
        caller.execute("begin")
        JoinedSqlite(store, caller).run(add(1))
        caller.commit()
    assert points == [Point.BEFORE_STATEMENT, Point.AFTER_STATEMENT]
    store.close()


# --- what cannot be joined -------------------------------------------------------------------------------------------


def test_something_else_than_a_connection(store: SqliteStore) -> None:
    with pytest.raises(ForeignTransaction, match=r"object holds no transaction of .*t\.db"):
        JoinedSqlite(store, object())


def test_no_open_transaction(store: SqliteStore, caller: sqlite3.Connection) -> None:
    with pytest.raises(ForeignTransaction, match="Begin one first"):
        JoinedSqlite(store, caller)


def test_another_file(store: SqliteStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("begin")
        with pytest.raises(ForeignTransaction, match="another database"):
            JoinedSqlite(store, other)


def test_our_file_attached_to_another(store: SqliteStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("attach ? as ours", (store.path,))
        other.execute("begin")
        with pytest.raises(ForeignTransaction):
            JoinedSqlite(store, other)


def test_memory_on_either_side(store: SqliteStore) -> None:
    memory = open_store(":memory:")
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("begin")
        for ours in (store, memory):
            with pytest.raises(ForeignTransaction):
                JoinedSqlite(ours, other)
    memory.close()


def test_the_same_file_by_another_path(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(store.path)
    with closing(sqlite3.connect(tmp_path / "link.db")) as caller:
        caller.execute("begin")
        assert JoinedSqlite(store, caller).leads_here()


def test_a_connection_that_is_closed(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.close()
    with pytest.raises(ForeignTransaction):
        JoinedSqlite(store, caller)


def test_a_connection_with_another_text_factory_is_recognised(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.text_factory = bytes
    caller.execute("begin")
    assert JoinedSqlite(store, caller).leads_here()
