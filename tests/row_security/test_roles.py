"""Roles that row security holds: those for one tenant at a time, owners, and what each is told of itself."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors, sql

from counterfoil import Counterfoil, Retention, effect
from counterfoil.cli.main import cli
from counterfoil.errors import RightsMissing, SchemaAltered
from counterfoil.storage.tenants import SETTING
from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role

ONE, TWO = "team-A", "team-B"
STRANGE = ('o"hara (web)', "agent web", "Ünïcode", "select")
IDS = "select tenant, operation_id from counterfoil_operation order by 1, 2"
WHY = {"by": "eve", "reason": "x"}
posted: list[str] = []


@effect("roles.ticket", key="{request_id}/ticket", retention=Retention(receipt="1d"))
def ticket(call: Any, *, title: str) -> str:
    posted.append(title)
    return title


def line(url: str, *command: str, exit_code: int = 0) -> Any:
    done = CliRunner().invoke(cli, [*command, "--json", "--url", url])
    assert done.exit_code == exit_code, (done.output, done.exception)
    return json.loads(done.stdout or done.stderr)


def granted(role: Role, *options: str) -> None:
    """Run what the command prints, as the owner of the tables does."""
    printed = CliRunner().invoke(cli, ["db", "grants", role.name, *options])
    assert printed.exit_code == 0
    role.database.execute(printed.stdout)


@pytest.fixture
def somebody(fresh_database: Database) -> Iterator[Role]:
    """A role without rights, in a database of the test's own where two tenants have an operation and an intent."""
    with Counterfoil.open(fresh_database.url) as cf:
        for tenant in (ONE, TWO):
            cf.perform(ticket, tenant=tenant, request_id="r-1", title="done")
            cf.enqueue(ticket, tenant=tenant, request_id="r-2", title="later")
    yield from new_role(fresh_database)


@pytest.fixture
def frontend(somebody: Role) -> Role:
    """A role that may work for one tenant at a time."""
    granted(somebody, "--one-tenant")
    return somebody


@contextmanager
def said(role: Role, word: str) -> Iterator[psycopg.Connection[Any]]:
    """Let a session of the role's own set the setting itself."""
    with psycopg.connect(role.url) as connection:
        connection.execute(f"set {SETTING} = '{word}'".encode())
        yield connection
        connection.rollback()


# --- one tenant at a time --------------------------------------------------------------------------------------------


def test_it_serves_each_tenant_that_is_named(frontend: Role) -> None:
    granted(frontend, "--one-tenant")  # as after an upgrade
    with Counterfoil.open(frontend.url) as cf:
        for tenant in (ONE, TWO):
            assert cf.perform(ticket, tenant=tenant, request_id="r-1", title="done").value == "done"
            assert cf.perform(ticket, tenant=tenant, request_id="r-3", title="three").value == "three"
            cf.enqueue(ticket, tenant=tenant, request_id="r-4", title="four")
            assert len(cf.operations.list(tenant=tenant).items) == 4
            assert cf.outbox.pause(tenant=tenant, **WHY).tenant == tenant
            assert cf.tokens.list(tenant=tenant).items == ()
        config = cf.config(tenant=ONE, thread_id="t", request_id="r-5")
        assert cf.saver().get_tuple(config) is None
    assert len(frontend.database.execute(IDS)) == 8


def test_for_all_tenants_it_finds_and_sends_and_removes_nothing(frontend: Role) -> None:
    before = frontend.database.execute(IDS)
    with Counterfoil.open(frontend.url) as cf:
        seen = len(posted)
        cf.drain(ticket)
        assert len(posted) == seen
        assert cf.outbox.pauses() == ()
        assert cf.audit.list(tenant=None).items == ()
        purged = cf.purge()
        assert (purged.payloads, purged.receipts, purged.tombstones) == (0, 0, 0)
        for act in (
            lambda: cf.outbox.pause(effect=ticket.name, **WHY),
            lambda: cf.tenants.create(ONE, by="eve"),
            lambda: cf.tokens.issue(tenant=None, name="x", role="viewer"),
        ):
            with pytest.raises(RightsMissing):
                act()
    assert line(frontend.url, "ops", "list") == []
    assert [row["tenant"] for row in line(frontend.url, "ops", "list", "--tenant", ONE)] == [ONE, ONE]
    assert frontend.database.execute(IDS) == before
    assert frontend.database.execute("select count(*) from counterfoil_pause") == [(0,)]


def test_what_its_own_sql_sets_shows_one_tenant_and_never_all(frontend: Role) -> None:
    for word, expected in ((f"={ONE}", [ONE, ONE]), (f"={TWO}", [TWO, TWO]), ("*", []), ("", []), (ONE, [])):
        with said(frontend, word) as connection:
            assert [tenant for tenant, _ in connection.execute(IDS).fetchall()] == expected
    with said(frontend, "*") as connection:
        assert connection.execute("update counterfoil_operation set version = 9").rowcount == 0
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("insert into counterfoil_thread (tenant, thread_id, state, created_at, updated_at)"
                               " values ('team-A', 't', 'idle', 0, 0)")  # fmt: skip


def test_no_granted_role_removes_what_is_known(somebody: Role) -> None:
    granted(somebody)
    with Counterfoil.open(somebody.url) as cf:
        cf.drain(ticket)
        before = somebody.database.execute(IDS)
        for whose in ({}, {"tenant": ONE}):
            assert cf.purge(**whose).receipts == 0  # nothing is due
    with pytest.raises(errors.InsufficientPrivilege), said(somebody, "*") as connection:
        connection.execute("delete from counterfoil_operation")
    with pytest.raises(errors.InsufficientPrivilege), said(somebody, "*") as connection:
        connection.execute("alter table counterfoil_operation disable row level security")
    with pytest.raises(errors.InsufficientPrivilege), said(somebody, "*") as connection:
        connection.execute("set session_replication_role = replica")
    assert somebody.database.execute(IDS) == before


@pytest.mark.parametrize("name", STRANGE)
def test_whatever_a_role_is_called_it_can_be_held_to_one_tenant(fresh_database: Database, name: str) -> None:
    fresh_database.execute(sql.SQL("create role {}").format(sql.Identifier(name)).as_string())
    role = Role(name=name, database=fresh_database)
    try:
        granted(role, "--one-tenant")
        granted(role, "--one-tenant")
        with Counterfoil.open(fresh_database.url) as cf:
            assert cf.operations.list(tenant=ONE).items == ()
        assert line(fresh_database.url, "db", "status")["differing"] == []
    finally:
        fresh_database.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)).as_string())


def test_a_token_is_honoured_where_its_tenant_is_not_known_yet(somebody: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    granted(somebody)
    with Counterfoil.open(somebody.url) as cf:
        _, secret = cf.tokens.issue(tenant=TWO, name="bo", role="viewer", expires_in=None)
        assert cf.tokens.authenticate(secret).tenant == TWO
    monkeypatch.setenv("COUNTERFOIL_TOKEN", secret)
    assert {row["tenant"] for row in line(somebody.url, "ops", "list")} == {TWO}
    granted(somebody, "--one-tenant")
    assert line(somebody.url, "ops", "list", exit_code=4)["error"]["code"] == "token-refused"


# --- what a role is told ---------------------------------------------------------------------------------------------


def told(url: str, exit_code: int = 0) -> str:
    """Return what the status says of row security."""
    return str(line(url, "db", "status", exit_code=exit_code)["row_security"])


def test_the_status_says_who_is_held(somebody: Role) -> None:
    database, name = somebody.database, somebody.name
    assert told(database.url).startswith("not active: ")
    granted(somebody)
    assert told(somebody.url) == f"active: {name} sees the rows of the tenant that each transaction names"
    database.execute(f"alter role {name} bypassrls")
    assert told(somebody.url).startswith(f"not active: {name} ")
    database.execute(f"alter role {name} nobypassrls; alter table counterfoil_case owner to {name}")
    assert told(somebody.url) == f"active for some tables only, since {name} owns the others"
    database.execute("alter table counterfoil_case force row level security")
    assert told(somebody.url).startswith("active: ")
    database.execute("alter table counterfoil_case disable row level security")
    found = line(database.url, "db", "status", exit_code=8)
    assert found["differing"] == ["counterfoil_case"]
    with pytest.raises(SchemaAltered, match="in counterfoil_case"):
        Counterfoil.open(somebody.url)


def test_the_status_says_who_may_work_for_one_tenant_alone(frontend: Role) -> None:
    assert told(frontend.url).endswith("names, and none where that is all of them at once")
    found = line(frontend.url, "db", "status")
    assert found["for_one_tenant"] is True
    assert not {"operations", "clock"} & found.keys()
    assert line(frontend.url, "db", "status", "--tenant", ONE)["operations"]["succeeded"] == 1


# --- owners ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def owner(somebody: Role) -> Role:
    """The owner of tables that hold it, too."""
    somebody.give_tables()
    for table in somebody.tables():
        somebody.database.execute(f"alter table {table} force row level security")
    return somebody


def test_an_owner_that_is_held_works_and_purges(owner: Role, hours_later: Callable[[], None]) -> None:
    assert told(owner.url).startswith(f"active: {owner.name} ")
    assert line(owner.url, "db", "upgrade")["applied"] == []
    with Counterfoil.open(owner.url) as cf:
        cf.drain(ticket)
        assert [each.state for each in cf.operations.list(tenant=TWO).items] == ["succeeded"] * 2
    hours_later()
    with Counterfoil.open(owner.url) as cf:
        assert cf.purge(tenant=ONE).receipts == 2
        assert cf.purge().receipts == 2
    with said(owner, "") as connection:
        assert connection.execute(IDS).fetchall() == []


@pytest.fixture
def hours_later(owner: Role) -> Callable[[], None]:
    """Let all that is settled be settled two days ago."""

    def pass_by() -> None:
        owner.database.execute("update counterfoil_operation set settled_at = settled_at - 172800000")

    return pass_by
