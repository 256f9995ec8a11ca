"""The schema file, the CHECK lists and the statements agree with the migrations and with the tables of states."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from importlib import resources

import pytest

from counterfoil.core import states
from counterfoil.core.access import Role
from counterfoil.storage import catalog, migrator

STATEMENTS = catalog.load("sqlite")
# Whole-table reads, for people and tests.
COLD = {
    "list_all_attempts",
    "list_all_cases",
    "list_all_evidence",
    "list_all_operations",
    "list_migrations",
    "list_pauses",
}
# On the way of every operation: one search by key each.
HOT = {
    "look_at_operation": "SEARCH counterfoil_operation USING INDEX sqlite_autoindex_counterfoil_operation_1",
    "get_operation": "SEARCH counterfoil_operation USING INDEX sqlite_autoindex_counterfoil_operation_1",
    "take_operation_if_unmoved": "SEARCH counterfoil_operation USING INDEX sqlite_autoindex_counterfoil_operation_1",
    "settle_if_fenced": "SEARCH counterfoil_operation USING INDEX sqlite_autoindex_counterfoil_operation_1",
    "archive_attempt": "SEARCH counterfoil_operation USING INDEX sqlite_autoindex_counterfoil_operation_1",
    "renew_lease_if_fenced": "SEARCH counterfoil_operation USING INDEX sqlite_autoindex_counterfoil_operation_1",
    "end_attempt_if_weaker": "SEARCH counterfoil_attempt USING PRIMARY KEY",
    "get_open_case": "SEARCH counterfoil_case USING INDEX counterfoil_case_",
}


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(migrator.plain_sql("sqlite"))
        yield connection


def definitions(database: sqlite3.Connection) -> dict[str, str]:
    query = "select name, sql from sqlite_master where name like 'counterfoil~_%' escape '~' and sql is not null"
    return dict(database.execute(f"{query} order by name").fetchall())


def test_the_schema_file_is_what_all_migrations_make(database: sqlite3.Connection) -> None:
    made = definitions(database)
    text = "-- Made from all migrations; a test compares the two.\n\n" + "\n\n".join(f"{sql};" for sql in made.values())
    file = resources.files("counterfoil.storage").joinpath("migrations", "sqlite", "schema.sql")
    stored = file.read_text("utf-8")
    assert stored.strip() == text, f"Write this into {file}:\n\n{text}\n"


def test_the_schema_file_is_read_whole(database: sqlite3.Connection) -> None:
    made = {name: migrator.squeeze(sql).lower() for name, sql in definitions(database).items()}
    read = {name: sql.lower() for name, sql in migrator.expected_schema("sqlite").items()}
    assert read == made


def listed(sql: str, column: str) -> set[str]:
    one = rf"{column} = '\w+'"
    match = re.search(rf"\b{column} \w+[^,]*? check \(({column} in \([^)]*\)|{one}(?: or {one})*)\)", sql)
    assert match is not None, column
    return set(re.findall(r"'(\w+)'", match[1]))


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("counterfoil_operation", "state", states.OperationState),
        ("counterfoil_operation", "sender", states.Sender),
        ("counterfoil_operation", "settled_by", states.EvidenceKind),
        ("counterfoil_attempt", "outcome", states.AttemptOutcome),
        ("counterfoil_evidence", "kind", states.EvidenceKind),
        ("counterfoil_case", "kind", states.CaseKind),
        ("counterfoil_case", "state", states.CaseState),
        ("counterfoil_case", "verdict", states.Verdict),
        ("counterfoil_thread", "state", states.ThreadState),
        ("counterfoil_thread", "status", states.WorkflowStatus),
        ("counterfoil_wait", "state", states.WaitState),
        ("counterfoil_approval", "state", states.ApprovalState),
        ("counterfoil_event", "state", states.InboxState),
        ("counterfoil_tenant", "status", states.TenantStatus),
        ("counterfoil_token", "role", Role),
    ],
)
def test_check_lists_equal_the_tables_of_states(
    database: sqlite3.Connection, table: str, column: str, values: type[StrEnum]
) -> None:
    sql = migrator.squeeze(definitions(database)[table])
    assert listed(sql, column) == {value.value for value in values}


def test_every_check_list_is_compared(database: sqlite3.Connection) -> None:
    text = " ".join(migrator.squeeze(sql) for sql in definitions(database).values())
    assert len(re.findall(r"check \((\w+) (?:in \(|= '\w+' or \1 = )", text)) == 15


def test_the_terminal_states_are_those_that_have_a_time_of_settling(database: sqlite3.Connection) -> None:
    sql = migrator.squeeze(definitions(database)["counterfoil_operation"])
    match = re.search(r"check \(\((state = [^()]*)\) = \(settled_at is not null\)\)", sql)
    assert match is not None
    assert set(re.findall(r"'(\w+)'", match[1])) == {state.value for state in states.TERMINAL}


def plan(database: sqlite3.Connection, name: str) -> list[str]:
    statement = STATEMENTS[name]
    steps = database.execute(f"explain query plan {statement.sql}", dict.fromkeys(statement.params))
    return [step[3] for step in steps]


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_prepares_and_none_but_the_cold_ones_scans_a_table(
    database: sqlite3.Connection, name: str
) -> None:
    scans = [step for step in plan(database, name) if step.startswith("SCAN counterfoil_")]
    assert bool(scans) == (name in COLD), scans


@pytest.mark.parametrize("name", HOT)
def test_hot_statements_search_by_key(database: sqlite3.Connection, name: str) -> None:
    (step,) = plan(database, name)
    assert step.startswith(HOT[name])


@pytest.mark.parametrize(
    "name",
    ["insert_claimed_operation", "settle_if_fenced", "insert_claimed_thread",
     "advance_thread_if_claimed", "leave_thread_if_claimed"],
)  # fmt: skip
def test_a_hot_write_builds_no_table_but_that_of_what_it_returns(database: sqlite3.Connection, name: str) -> None:
    statement = STATEMENTS[name]
    program = database.execute(f"explain {statement.sql}", dict.fromkeys(statement.params))
    assert [step[1] for step in program].count("OpenEphemeral") == ("returning" in statement.sql)


def test_new_syntax_of_sqlite_is_not_used() -> None:
    # 3.37 is the oldest that is supported: `->`, `is distinct from`, `iif` of two and full joins came later.
    later = re.compile(
        r"->|\bis (?:not )?distinct from\b|\b(?:full|right)(?: outer)? join\b|\bunixepoch\(", re.IGNORECASE
    )
    assert [name for name, statement in STATEMENTS.items() if later.search(statement.sql)] == []
