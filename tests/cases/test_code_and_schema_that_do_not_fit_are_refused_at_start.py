"""B74: after an update the first query failed on a missing column; version rows were trusted although tables differed.

Sources: https://github.com/langchain-ai/langgraph/issues/3080, https://github.com/langchain-ai/langgraph/pull/6903
"""

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import counterfoil
from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.cli.main import cli
from counterfoil.drivers.urls import parse_url
from counterfoil.errors import SchemaAltered, SchemaMismatch, SchemaNewer, SchemaOutdated
from counterfoil.langgraph import perform
from counterfoil.storage import migrator
from counterfoil.storage.migrator import migrations, statements
from tests.langgraph.shop import State, chain
from tests.storage.conftest import Place
from tests.storage.opener import newer

sent: list[str] = []
OPENED = {"blocking": Counterfoil.open, "awaiting": AsyncCounterfoil.open}
ALTERED = {
    "a column is missing": "alter table counterfoil_operation drop column principal",
    "a column has another name": "alter table counterfoil_thread rename column branched_at to branched",
    "a column is added": "alter table counterfoil_attempt add column shard integer not null default 0",
    "a table is missing": "drop table counterfoil_mint",
    "an index is missing": "drop index counterfoil_case_open",
    "a migration has another content": "update counterfoil_migration set digest = 'other'",
}
CHANGED = {
    "sqlite": "create trigger mine before update on counterfoil_operation begin select raise(ignore); end",
    "postgres": "alter table counterfoil_write alter column idx type smallint",
}


@effect("cases.fitting", key="{request_id}")
def act(call: Any) -> str:
    sent.append(call.operation_id)
    return "done"


@pytest.fixture
def made(place: Place) -> Place:
    """A database with an operation in it."""
    with Counterfoil.open(place.url) as cf:
        cf.perform(act, tenant="t", request_id="r-0")
    del sent[:]
    return place


def know_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in newer(place.dialect).items():
        monkeypatch.setattr(migrator, name, value)


def half_applied(place: Place) -> None:
    """Leave what somebody leaves who runs the text of the schema statement by statement and dies in the middle."""
    initial = migrations(place.dialect)[0]
    made = statements(initial.sql)
    place.run(";\n".join(made[: len(made) // 2]) + ";")


def command(place: Place, *words: str) -> Any:
    return CliRunner().invoke(cli, [*words, "--url", place.url, "--json"])


def refused(place: Place, kind: type[SchemaMismatch], **options: Any) -> str:
    """See that each way to start is refused alike and writes nothing, and return the words."""
    before, told = content(place), set()
    for opened in OPENED.values():
        with pytest.raises(kind) as caught:
            opened(place.url, **options)
        told.add(str(caught.value))
    with transaction(place) as connection:
        connection.execute("delete from counterfoil_migration where number = 7000")  # opens one, on SQLite, too
        with pytest.raises(kind):
            counterfoil.migrate(connection)
    assert content(place) == before
    assert sent == []
    (words,) = told
    return words


def transaction(place: Place) -> Any:
    if place.database is not None:
        return closing(psycopg.connect(place.url))
    return closing(sqlite3.connect(parse_url(place.url).path))


def content(place: Place) -> list[Any]:
    tables = [place.execute(f"select * from {name}") for name in ("counterfoil_migration", "counterfoil_evidence")]  # noqa: S608 - ours
    return [place.ours(), *tables]


def test_a_database_one_version_behind_is_refused_with_the_command_to_run(
    made: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    know_more(made, monkeypatch)
    told = command(made, "db", "status")
    assert told.exit_code == 8
    assert json.loads(told.stdout)["missing"] == [f"{migrations(made.dialect)[-1].number + 1:04} added"]
    assert command(made, "ops", "list").exit_code != 0
    words = refused_behind(made)
    assert "Run: counterfoil db upgrade" in words
    assert command(made, "db", "upgrade").exit_code == 0
    assert_works(made)


def refused_behind(place: Place) -> str:
    told = set()
    for opened in OPENED.values():
        with pytest.raises(SchemaOutdated) as caught:
            opened(place.url)
        told.add(str(caught.value))
    (words,) = told
    return words


def test_a_database_ahead_is_refused_and_not_written_to(made: Place) -> None:
    made.execute("insert into counterfoil_migration values (99, 'later', 'digest', 0)")
    for upgrade in (False, True):
        assert "newer than this code knows" in refused(made, SchemaNewer, upgrade=upgrade)
    told = command(made, "db", "status")
    assert (told.exit_code, json.loads(told.stdout)["unknown_to_this_code"]) == (8, [99])
    for words in (("db", "upgrade"), ("ops", "list"), ("review", "list")):
        assert json.loads(command(made, *words).stderr)["error"]["code"] == "schema-newer"


@pytest.mark.parametrize("change", [*ALTERED, "by its dialect"])
def test_tables_that_differ_are_found_though_the_version_is_right(made: Place, change: str) -> None:
    made.execute(ALTERED.get(change, CHANGED[made.dialect]))
    for upgrade in (False, True):
        refused(made, SchemaAltered, upgrade=upgrade)
    told = command(made, "db", "status")
    assert told.exit_code == 8
    assert json.loads(told.stdout)["differing"] != []


def refused_halves(place: Place) -> None:
    before = place.ours()
    for upgrade in (False, True):
        for opened in OPENED.values():
            with pytest.raises(SchemaAltered, match="applied by halves, or by hand"):
                opened(place.url, upgrade=upgrade)
    told = command(place, "db", "status")
    assert told.exit_code == 8
    assert json.loads(told.stdout)["ours"]
    assert json.loads(told.stdout)["differing"] != []
    for words in (("db", "upgrade"), ("ops", "list")):
        assert json.loads(command(place, *words).stderr)["error"]["code"] == "schema-altered"
    assert place.ours() == before


def test_a_migration_that_was_half_applied_is_refused(place: Place) -> None:
    half_applied(place)
    refused_halves(place)


def test_one_whose_tables_were_made_and_whose_row_was_not_is_refused(made: Place) -> None:
    made.execute("delete from counterfoil_migration")
    refused_halves(made)


def test_one_whose_row_was_written_and_whose_tables_were_not_is_refused(made: Place) -> None:
    for name in ("counterfoil_mint", "counterfoil_write"):
        made.execute(f"drop table {name}")
    words = refused(made, SchemaAltered, upgrade=True)
    found = words.partition("make, in ")[2].partition(". Nothing")[0].split(", ")
    lost = {"counterfoil_mint", "counterfoil_write"}
    assert set(found) == (lost if made.dialect == "sqlite" else lost | {f"{name}_tenant" for name in lost})


def test_an_upgrade_that_was_half_applied_is_refused(made: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made.execute("create table counterfoil_added (id integer primary key)")
    know_more(made, monkeypatch)
    refused_halves(made)


def test_a_database_that_fits_runs_a_step(made: Place) -> None:
    assert_works(made)


def assert_works(place: Place) -> None:
    def node(state: State) -> State:
        return {"answer": perform(act).value}

    with Counterfoil.open(place.url) as cf:
        graph = cf.compile(chain(("n", node)))
        assert cf.run(graph, {}, tenant="t", request_id="r-1", thread_id="t-1")["answer"] == "done"

    async def again() -> Any:
        opened = AsyncCounterfoil.open(place.url)
        try:
            return (await opened.perform(act, tenant="t", request_id="r-1")).already_happened
        finally:
            await opened.close()

    assert asyncio.run(again())
    assert sent == ["r-1"]
    del sent[:]
