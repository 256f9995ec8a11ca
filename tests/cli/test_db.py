"""The SQL that `db` prints for others to run: of either dialect, without a database, and for a role."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from counterfoil.errors import Exit
from counterfoil.storage import rights
from counterfoil.storage.migrator import migrations, plain_sql
from tests.cli.conftest import Line
from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role

NOWHERE = Line("")


@pytest.fixture
def role(fresh_database: Database) -> Iterator[Role]:
    """A role without rights in a database that has our tables."""
    yield from new_role(fresh_database)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_sql_of_a_dialect_needs_no_database(dialect: str) -> None:
    assert NOWHERE(f"db sql --dialect {dialect}").stdout == plain_sql(dialect)
    assert NOWHERE.json(f"db sql --dialect {dialect}") == {"dialect": dialect, "sql": plain_sql(dialect)}


def test_what_is_printed_can_be_run() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(NOWHERE("db sql --dialect sqlite").stdout)
        names = [name for (name,) in connection.execute("select name from counterfoil_migration")]
        assert names == [each.name for each in migrations("sqlite")]


def test_what_is_missing_is_asked_of_a_database() -> None:
    assert "Leave out --dialect" in NOWHERE.error("db sql --missing --dialect postgres", exit_code=2)["message"]


def test_the_grants_of_a_role_need_no_database() -> None:
    text = NOWHERE("db grants agent_app").stdout
    assert text == rights.grants("agent_app", "public", read_only=False)
    assert 'grant select, insert on "public".counterfoil_evidence to "agent_app";' in text.splitlines()


def test_the_grants_of_a_reader_let_it_read_only() -> None:
    found = NOWHERE.json("db grants agent_reader --read-only --schema ledger")
    assert (found["role"], found["schema"], found["read_only"]) == ("agent_reader", "ledger", True)
    first, *others = found["sql"].splitlines()
    assert first == 'grant usage on schema "ledger" to "agent_reader";'
    assert all(line.startswith('grant select on "ledger".counterfoil_') for line in others)


@pytest.mark.parametrize("name", ["", "  ", "x" * 64])
@pytest.mark.parametrize("place", ["role", "schema"])
def test_the_grants_of_what_cannot_be_a_name_are_refused(place: str, name: str) -> None:
    given = [name] if place == "role" else ["agent_app", "--schema", name]
    for option in ([], ["--read-only"]):
        assert NOWHERE.error("db grants", *given, *option, exit_code=2)["code"] == "invalid-command"


def test_a_role_that_lacks_rights_is_found(role: Role) -> None:
    line = Line(role.url)
    role.let()
    assert line.json("db status")["lacking"] == []
    for right, table in (("insert", "counterfoil_evidence"), ("select", "counterfoil_operation")):
        with role.without(table, right):
            shown = line("db status", exit_code=Exit.CHECK_FOUND).stdout
            assert f"{right} on {table}" in shown
            assert "counterfoil db grants" in shown
            found = json.loads(line("db status --json", exit_code=Exit.CHECK_FOUND).stdout)
            assert found["lacking"] == [f"{right} on {table}"]
    assert line("db status").exit_code == 0


def test_a_reader_lacks_nothing_to_read(role: Role) -> None:
    role.let(read_only=True)
    found = Line(role.url).json("db status")
    assert (found["rights"], found["lacking"]) == ("read only", [])
