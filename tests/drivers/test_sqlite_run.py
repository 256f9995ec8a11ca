"""Scripts get what their statements need, and a transactional effect cannot leave its transaction."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from counterfoil.drivers.probes import Point
from counterfoil.drivers.sqlite_run import GuardedConnection, Runner
from counterfoil.errors import ConstraintViolated, GuardedTransaction
from counterfoil.storage.catalog import Statement
from counterfoil.storage.script import Ddl, Script, one_row, user_code
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.crash import enter, prepare
from counterfoil.testing.crash_report import Manner
from counterfoil.testing.scenario import Scenario
from counterfoil.testing.world import no_interference
from tests.crash.scenarios import ALL
from tests.drivers.scripts import sql


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        opened.execute("create table t (n integer unique)")
        opened.execute("begin immediate")
        yield opened


def test_a_statement_is_bound_with_the_time_and_probed_on_both_sides() -> None:
    points: list[tuple[Point, str]] = []
    now = {"now": Statement("now", "Tell the time.", "select :now as now")}
    clock = FakeClock(1_234)
    runner = Runner(path="x", clock=clock, probe=lambda *point: points.append(point), statements=now)
    with closing(sqlite3.connect(":memory:")) as connection:
        assert runner.run(connection, one_row("now")) == {"now": 1_234}
    assert points == [(Point.BEFORE_STATEMENT, "now"), (Point.AFTER_STATEMENT, "now")]


def test_rows_are_mappings_whatever_the_connections_row_factory(connection: sqlite3.Connection) -> None:
    connection.row_factory = lambda _cursor, row: f"mine: {row}"
    assert Runner(path="x").run(connection, sql("select 1 as a, 'x' as b")()) == [{"a": 1, "b": "x"}]


def test_an_error_is_thrown_into_the_script_which_may_go_on(connection: sqlite3.Connection) -> None:
    def script() -> Script[str]:
        yield Ddl("insert into t values (1)")
        try:
            yield Ddl("insert into t values (1)")
        except ConstraintViolated as error:
            return type(error.__cause__).__name__
        return "no error"

    assert Runner(path="x").run(connection, script()) == "IntegrityError"


def test_a_script_that_fails_is_closed(connection: sqlite3.Connection) -> None:
    closed = []

    def script() -> Script[None]:
        try:
            yield Ddl("select nonsense from nowhere")
        finally:
            closed.append(True)

    with pytest.raises(Exception, match="no such table"):
        Runner(path="x").run(connection, script())
    assert closed == [True]


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_scripts_pass_exactly_the_parameters_of_their_statements(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, frozenset[str], frozenset[str]]] = []
    call = Runner._call

    def note(self: Runner, connection: sqlite3.Connection, name: str, params: Mapping[str, Any]) -> Any:
        called.append((name, self.statements[name].params - {"now"}, frozenset(params)))
        return call(self, connection, name, params)

    monkeypatch.setattr(Runner, "_call", note)
    shop = prepare(scenario, tmp_path)
    enter(scenario.run, shop.world(Manner.UNDISTURBED, no_interference))
    assert called
    assert [(name, wanted ^ given) for name, wanted, given in called if wanted != given] == []


# --- the guard -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "begin",
        "BEGIN IMMEDIATE",
        "commit",
        "  Commit Transaction",
        "end",
        "rollback",
        "rollback transaction",
        "-- a remark\ncommit",
        "/* a remark */ commit",
        "/* a */ -- b\n ; commit",
        "\ufeffcommit",
        "attach 'other.db' as other",
        "detach other",
        "vacuum",
    ],
)
def test_the_guard_refuses_what_begins_ends_or_leaves_the_transaction(
    connection: sqlite3.Connection, statement: str
) -> None:
    guarded = GuardedConnection(connection)
    with pytest.raises(GuardedTransaction):
        guarded.execute(statement)
    with pytest.raises(GuardedTransaction):
        guarded.executemany(statement, [])
    assert connection.in_transaction


@pytest.mark.parametrize(
    "name", ["commit", "rollback", "executescript", "cursor", "close", "backup", "isolation_level", "create_function"]
)
def test_the_guard_offers_nothing_but_execute(connection: sqlite3.Connection, name: str) -> None:
    with pytest.raises(GuardedTransaction, match=name):
        getattr(GuardedConnection(connection), name)


def test_the_guard_allows_savepoints(connection: sqlite3.Connection) -> None:
    guarded = GuardedConnection(connection)
    for statement in (
        "insert into t values (1)",
        "savepoint mine",
        "insert into t values (2)",
        "rollback to mine",
        "ROLLBACK TRANSACTION TO SAVEPOINT mine",
        "release mine",
    ):
        guarded.execute(statement)
    assert guarded.execute("select n from t").fetchall() == [(1,)]


def run(connection: sqlite3.Connection, function: Any) -> Any:
    return Runner(path="x").run(connection, user_code(function))


def test_a_body_gets_the_open_transaction_and_returns_through_it(connection: sqlite3.Connection) -> None:
    assert run(connection, lambda tx: tx.execute("insert into t values (7) returning n").fetchone()) == (7,)
    assert connection.in_transaction


def test_the_loan_ends_with_the_body(connection: sqlite3.Connection) -> None:
    kept = run(connection, lambda tx: tx)
    with pytest.raises(GuardedTransaction, match="after it had returned"):
        kept.execute("select 1")


def test_a_body_that_ends_the_transaction_behind_the_guard_is_told(connection: sqlite3.Connection) -> None:
    def body(tx: GuardedConnection) -> None:
        tx.execute("insert into t values (1)")
        with suppress(sqlite3.IntegrityError):
            tx.execute("insert or rollback into t values (1)")

    with pytest.raises(GuardedTransaction, match="ended the transaction"):
        run(connection, body)


@pytest.mark.parametrize("name", ["connection", "execute", "executemany", "executescript", "row_factory", "close"])
def test_a_result_leads_neither_to_the_connection_nor_to_other_statements(
    connection: sqlite3.Connection, name: str
) -> None:
    guarded = GuardedConnection(connection)
    insert = "insert into t values (?)"
    for result in (guarded.execute("select 1"), guarded.executemany(insert, [(1,), (2,)])):
        with pytest.raises(GuardedTransaction, match=name):
            getattr(result, name)


def test_a_result_has_rows_and_counts(connection: sqlite3.Connection) -> None:
    guarded = GuardedConnection(connection)
    many = guarded.executemany("insert into t values (?)", [(n,) for n in range(5)])
    assert many.rowcount == 5
    assert guarded.execute("insert into t values (5)").lastrowid == 6
    found = guarded.execute("select n from t order by n")
    assert [column[0] for column in found.description] == ["n"]
    assert (found.fetchone(), found.fetchmany(), found.fetchmany(2)) == ((0,), [(1,)], [(2,), (3,)])
    assert (next(found), list(found), found.fetchone(), found.fetchall()) == ((4,), [(5,)], None, [])


def test_a_result_has_the_rows_that_the_connection_makes(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    assert GuardedConnection(connection).execute("select 7 as n").fetchone()["n"] == 7


@pytest.mark.parametrize("use", [lambda kept: kept.fetchone(), lambda kept: kept.fetchall(), list])
def test_a_result_is_read_before_the_loan_ends(connection: sqlite3.Connection, use: Any) -> None:
    kept = run(connection, lambda tx: tx.execute("select 1"))
    with pytest.raises(GuardedTransaction, match="after it had returned"):
        use(kept)


def test_a_body_cannot_go_on_after_a_statement_undid_the_whole_transaction(connection: sqlite3.Connection) -> None:
    def body(tx: GuardedConnection) -> None:
        tx.execute("insert into t values (1)")
        try:
            tx.execute("insert or rollback into t values (1)")
        except sqlite3.IntegrityError:
            tx.execute("insert into t values (2)")  # would be committed by itself, without a receipt

    with pytest.raises(GuardedTransaction):
        run(connection, body)
    assert connection.execute("select count(*) from t").fetchone() == (0,)


def test_an_error_of_the_body_is_its_callers_own(connection: sqlite3.Connection) -> None:
    def body(tx: GuardedConnection) -> None:
        tx.execute("insert into t values (1), (1)")

    with pytest.raises(sqlite3.IntegrityError):
        run(connection, body)
