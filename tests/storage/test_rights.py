"""A role of PostgreSQL needs what the statements do and nothing more; what it lacks is named before any effect."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import psycopg
import pytest
from click.testing import CliRunner
from langgraph.graph import END, START, StateGraph

from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.cli.main import cli
from counterfoil.errors import OutcomeUnknown, RightsMissing
from counterfoil.langgraph import perform
from counterfoil.storage import catalog, migrator, rights
from counterfoil.storage.migrator import Migration, migrations
from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role

STATEMENTS = {name: one.sql for name, one in catalog.load("postgres").items() if name not in rights.OWNERS}
LOCKING = {name for name, sql in STATEMENTS.items() if re.search(r"\bfor (no key |key )?(update|share)\b", sql)}
LOOKING = {name for name, sql in STATEMENTS.items() if not {"insert", "update", "delete"} & {*sql.split()}} - LOCKING
LAST = migrations("postgres")[-1].number
NEEDED = [(table, right) for table, found in rights.needed("postgres").items() for right in found]
sent: list[str] = []


@effect("rights.ticket", key="{request_id}/ticket")
def ticket(call: Any, *, title: str) -> dict[str, str]:
    sent.append(title)
    if title == "lost":
        raise OSError("the wire broke")
    return {"title": title}


@pytest.fixture
def role(fresh_database: Database) -> Iterator[Role]:
    """A role without rights in a database that has our tables."""
    yield from new_role(fresh_database)


@pytest.fixture
def newcomer(empty_database: Database) -> Iterator[Role]:
    """A role without rights in a database without our tables."""
    empty_database.execute("revoke create on schema public from public")
    yield from new_role(empty_database)


def refused(url: str, *, upgrade: bool = False) -> str:
    with pytest.raises(RightsMissing) as caught:
        Counterfoil.open(url, upgrade=upgrade)
    return str(caught.value)


# --- what is needed --------------------------------------------------------------------------------------------------


def explained(connection: psycopg.Connection[Any], name: str) -> str | None:
    """Return None if the server would run the statement for this role, otherwise what it says."""
    statement = catalog.Statement(name, "", STATEMENTS[name])
    sql = f"explain {catalog.pyformat(statement.sql)}"
    try:
        connection.execute(sql.encode(), dict.fromkeys(statement.params))
    except psycopg.errors.InsufficientPrivilege as error:
        return str(error)
    return None


def test_what_is_granted_is_enough_for_every_statement(role: Role) -> None:
    role.let()
    with psycopg.connect(role.url, autocommit=True) as connection:
        assert {name: said for name in STATEMENTS if (said := explained(connection, name))} == {}


def test_each_right_that_is_granted_is_needed_by_a_statement(role: Role) -> None:
    role.let()
    spare = []
    with psycopg.connect(role.url, autocommit=True) as connection:
        for table, right in NEEDED:
            names = [name for name, sql in STATEMENTS.items() if table in sql]
            with role.without(table, right):
                if not any(explained(connection, name) for name in names):
                    spare.append((table, right))
    assert spare == []


def test_a_reader_needs_to_read_only(role: Role) -> None:
    role.let(read_only=True)
    with psycopg.connect(role.url, autocommit=True) as connection:
        assert {name for name in STATEMENTS if not explained(connection, name)} >= LOOKING
        assert {name for name in STATEMENTS.keys() - LOOKING if not explained(connection, name)} == set()


class State(TypedDict, total=False):
    title: str


def test_the_application_needs_no_right_to_make_tables(role: Role) -> None:
    role.let()

    def create(state: State) -> State:
        return {"title": perform(ticket, title=state["title"]).value["title"]}

    builder = StateGraph(State).add_node("create", create).add_edge(START, "create").add_edge("create", END)
    with Counterfoil.open(role.url) as cf:
        assert cf.perform(ticket, tenant="t", request_id="r-1", title="one").value == {"title": "one"}
        with pytest.raises(OutcomeUnknown):
            cf.perform(ticket, tenant="t", request_id="r-2", title="lost")
        (case,) = cf.review.list(tenant="t").items
        settled: dict[str, Any] = {"by": "eve", "reason": "seen", "expect_version": case.version}
        cf.review.resolve(case.case_id, tenant="t", verdict="did_not_happen_close", **settled)
        run: dict[str, Any] = {"tenant": "t", "request_id": "r-3", "thread_id": "thread"}
        assert cf.run(cf.compile(builder), {"title": "three"}, **run) == {"title": "three"}
        cf.saver().delete_thread("thread")
        assert cf.operations.counts(tenant="t")["succeeded"] == 2


async def test_neither_does_an_awaiting_one(role: Role) -> None:
    role.let()
    async with AsyncCounterfoil.open(role.url) as cf:
        done = await cf.perform(ticket, tenant="t", request_id="r-1", title="one")
    assert done.value == {"title": "one"}


# --- what is missing -------------------------------------------------------------------------------------------------


def test_each_right_that_is_missing_is_named_when_it_is_opened(role: Role) -> None:
    role.let()
    for table, right in NEEDED:
        with role.without(table, right):
            said = refused(role.url)
        if (table, right) == ("counterfoil_migration", "select"):
            assert f"The role {role.name} may not read the tables of Counterfoil" in said
        else:
            assert f"The role {role.name} lacks rights" in said
            assert f": {right} on {table}. Nothing was written." in said
        assert f"counterfoil db grants {role.name}" in said
    Counterfoil.open(role.url).close()


def test_several_are_named_together(role: Role) -> None:
    role.let()
    with role.without("counterfoil_case", "update"), role.without("counterfoil_write", "delete"):
        assert ": update on counterfoil_case, delete on counterfoil_write." in refused(role.url)


def test_tables_that_may_not_be_seen_are_not_taken_for_an_empty_database(role: Role) -> None:
    before = role.tables()
    assert "may not read the tables of Counterfoil" in refused(role.url, upgrade=True)
    role.database.execute("revoke usage on schema public from public")
    said = refused(role.url, upgrade=True)
    assert "holds tables of Counterfoil in the schema public, which" in said
    role.database.execute(f"create schema {role.name} authorization {role.name}")  # where "$user" leads
    assert refused(role.url, upgrade=True) == said
    assert role.tables() == before
    role.let()
    Counterfoil.open(role.url).close()


def test_a_role_may_keep_apart_from_tables_that_it_may_not_see(role: Role) -> None:
    role.database.execute("revoke usage on schema public from public")
    role.database.execute(f"create schema {role.name} authorization {role.name}")
    url = f"{role.url}?options=-csearch_path%3D{role.name}"
    Counterfoil.open(url).close()
    assert f"{role.name}.counterfoil_operation" in role.tables()


def test_an_empty_database_is_made_by_who_may(newcomer: Role) -> None:
    said = refused(newcomer.url)
    assert f"the role {newcomer.name} may not make them in the schema public" in said
    assert newcomer.tables() == []
    newcomer.database.execute(f"grant create on schema public to {newcomer.name}")
    Counterfoil.open(newcomer.url).close()
    assert "public.counterfoil_operation" in newcomer.tables()


def test_a_search_path_that_leads_nowhere_is_named(newcomer: Role) -> None:
    assert "names no schema that is there" in refused(f"{newcomer.url}?options=-csearch_path%3Dnowhere")


@pytest.fixture
def newer_code(monkeypatch: pytest.MonkeyPatch) -> None:
    added = Migration(number=LAST + 1, name="added", sql="alter table counterfoil_case alter reason set default '';")
    known = (*migrations("postgres"), added)
    monkeypatch.setattr(migrator, "migrations", lambda _dialect: known)
    case = migrator.expected_schema("postgres")["counterfoil_case"].replace(
        'reason text collate "C" not null', "reason text collate \"C\" not null default ''::text"
    )
    schema = {**migrator.expected_schema("postgres"), "counterfoil_case": case}
    monkeypatch.setattr(migrator, "expected_schema", lambda _dialect: schema)


@pytest.mark.usefixtures("newer_code")
def test_an_upgrade_is_for_the_owner_or_a_member_of_it(role: Role) -> None:
    role.let()
    ((owner,),) = role.database.execute(
        "select tableowner from pg_tables where schemaname = 'public' and tablename = 'counterfoil_case'"
    )
    said = refused(role.url, upgrade=True)
    assert f"belong to {owner}, so the role {role.name} may not change them" in said
    assert f"Run as {owner}: counterfoil db upgrade" in said
    assert role.database.execute("select max(number) from counterfoil_migration") == [(LAST,)]
    role.database.execute(f"create role {role.name}_owner; grant {role.name}_owner to {role.name}")
    try:
        for table in role.tables():
            role.database.execute(f"alter table {table} owner to {role.name}_owner")
        Counterfoil.open(role.url, upgrade=True).close()
        assert role.database.execute("select max(number) from counterfoil_migration") == [(LAST + 1,)]
    finally:
        role.database.execute(f"reassign owned by {role.name}_owner to {owner}; drop role {role.name}_owner")


# --- a reader --------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(role: Role) -> Role:
    with Counterfoil.open(role.database.url) as cf:
        cf.perform(ticket, tenant="t", request_id="r-1", title="one")
        with pytest.raises(OutcomeUnknown):
            cf.perform(ticket, tenant="t", request_id="r-2", title="lost")
    role.let(read_only=True)
    return role


def test_a_reader_opens_and_reads_and_is_refused_before_any_effect(reader: Role) -> None:
    with Counterfoil.open(reader.url) as cf:
        assert [each.operation_id for each in cf.operations.list(tenant="t").items] == ["r-2/ticket", "r-1/ticket"]
        before = len(sent)
        with pytest.raises(RightsMissing, match="lacks a right"):
            cf.perform(ticket, tenant="t", request_id="r-3", title="three")
        assert len(sent) == before


@pytest.fixture
def line(reader: Role) -> Callable[..., Any]:
    def run(command: str, exit_code: int = 0) -> Any:
        done = CliRunner().invoke(cli, [*command.split(), "--json", "--url", reader.url])
        assert done.exit_code == exit_code, (done.output, done.exception)
        return json.loads(done.stdout or done.stderr)

    return run


def test_the_verbs_that_look_need_a_reader_only(line: Callable[..., Any]) -> None:
    assert len(line("ops list")) == 2
    assert line("ops show r-1/ticket")["state"] == "succeeded"
    assert line("find r-2")
    assert line("explain r-2/ticket")
    assert line("receipts show r-1/ticket")
    (case,) = line("review list")
    assert line(f"review show {case['case_id']}")
    status = line("db status")
    assert (status["current"], status["rights"]) == (True, "read only")
    assert "create table" not in line("db sql --missing")["sql"]


def test_a_reader_gives_no_verdict(line: Callable[..., Any]) -> None:
    (case,) = line("review list")
    command = f"review resolve {case['case_id']} --expect-version 1 --did-not-happen --close --reason x"
    assert line(command, exit_code=4)["error"]["code"] == "rights-missing"
    assert line(f"review show {case['case_id']}")["version"] == 1


def test_status_names_what_a_role_lacks(role: Role) -> None:
    role.let()
    for missing, expected in (((), "all that is needed"), (("counterfoil_case", "update"), "too few: update on")):
        with role.without(*missing) if missing else contextmanager(iter)([None]):
            done = CliRunner().invoke(cli, ["db", "status", "--json", "--url", role.url])
            assert json.loads(done.stdout)["rights"].startswith(expected)


def test_any_name_of_a_role_or_schema_is_quoted() -> None:
    text = rights.grants('o"hara', "Our Ledger", read_only=False)
    assert 'grant usage on schema "Our Ledger" to "o""hara";' in text
    assert 'grant select, insert on "Our Ledger".counterfoil_evidence to "o""hara";' in text
