"""The migration that makes the wall keeps every row of every table, and each tenant sees its own."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
import pytest

from counterfoil import Counterfoil, CounterfoilError
from counterfoil.errors import SchemaOutdated
from counterfoil.storage import migrator
from counterfoil.storage.migrator import migrations
from counterfoil.storage.tenants import SETTING
from tests.cases.neighbours import ACTS, WAITS, letter, pay
from tests.postgres.databases import Database
from tests.postgres.roles import Role, new_role
from tests.postgres.servers import Server
from tests.row_security.test_wall import WALLED

ONE, TWO = "team-A", "team-B"
WALL = 7
"""The number of the migration."""
MINT = "insert into counterfoil_mint values (%s, 't-1', '', 'invite', 'c-1', 'task', 'minted', 0)"
COLUMNS = """
select attname from pg_attribute where attrelid = cast(%s as regclass) and attnum > 0 and not attisdropped
order by attnum
"""
NUMBERED = "select attname from pg_attribute where attrelid = cast(%s as regclass) and attidentity <> ''"
Connection: TypeAlias = "psycopg.Connection[Any]"


def fill(cf: Counterfoil, tenant: str) -> None:
    """Let a tenant have something of each kind."""
    who: dict[str, Any] = {"tenant": tenant, "principal": "ann"}
    cf.perform(pay, request_id="r-1", title="paid", **who)
    with suppress(CounterfoilError):
        cf.perform(pay, request_id="r-2", title="lost", **who)
    (case,) = cf.review.list(tenant=tenant).items
    settled: dict[str, Any] = {"verdict": "happened", "value": 1, "by": "eve", "evidence": "in the books"}
    cf.review.resolve(case.case_id, tenant=tenant, expect_version=case.version, **settled)
    cf.enqueue(pay, request_id="r-3", title="pending", **who)
    cf.approvals.request(letter, request_id="r-4", to="ann", **who)
    cf.compile(ACTS).invoke({"title": "x"}, cf.config(thread_id="t-1", request_id="r-5", **who))
    cf.workflows.start("waits", {"title": "x"}, workflow_id="w-1", **who)
    cf.drain()
    cf.workflows.deliver("other", tenant=tenant, workflow_id="w-1", event_id="e-1", payload="x")
    cf.outbox.pause(tenant=tenant, by="eve", reason="x")
    cf.grants.issue(pay, request_id="r-6", title="x", by="eve", **who)
    cf.tenants.create(tenant, by="eve")
    cf.tokens.issue(tenant=tenant, name="bo", role="viewer", expires_in=None)


def before_the_wall(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text of the schema as it was."""
    older = tuple(each for each in migrations("postgres") if each.number < WALL)
    with monkeypatch.context() as patched:
        patched.setattr(migrator, "migrations", lambda _dialect: older)
        return migrator.plain_sql("postgres", ())


@pytest.fixture
def older(
    fresh_database: Database,
    postgres_server: Server,
    postgres_names: Iterator[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Database]:
    """A database without the wall, with rows of two tenants in every table."""
    made = Database(server=postgres_server, name=next(postgres_names))
    postgres_server.create_database(made.name)
    made.execute(before_the_wall(monkeypatch))
    with Counterfoil.open(fresh_database.url) as cf:
        cf.workflows.register(WAITS, name="waits")
        for tenant in (ONE, TWO):
            fill(cf, tenant)
            fresh_database.execute(MINT, tenant)
    with psycopg.connect(made.url) as into, psycopg.connect(fresh_database.url) as out:
        for table in WALLED:
            copy(out, into, table)
    yield made
    postgres_server.drop_database(made.name)


def copy(out: Connection, into: Connection, table: str) -> None:
    """Copy a table's rows to where it has the columns of then; numbers go on behind them."""
    names = ", ".join(name for (name,) in into.execute(COLUMNS, (table,)).fetchall())
    reading, writing = f"copy {table} ({names}) to stdout", f"copy {table} ({names}) from stdin"
    with out.cursor().copy(reading.encode()) as lines, into.cursor().copy(writing.encode()) as to:
        for line in lines:
            to.write(line)
    for (column,) in into.execute(NUMBERED, (table,)).fetchall():
        last = f"select max({column}) from {table}"  # noqa: S608 - names of ours
        into.execute(f"select setval(pg_get_serial_sequence('{table}', '{column}'), ({last}))".encode())


def rows(database: Database, columns: dict[str, str]) -> dict[str, list[Any]]:
    return {table: sorted(database.execute(f"select {columns[table]} from {table}"), key=repr) for table in WALLED}  # noqa: S608


def columns(database: Database) -> dict[str, str]:
    return {table: ", ".join(name for (name,) in database.execute(COLUMNS, table)) for table in WALLED}


def counts(url: str, word: str | None) -> dict[str, dict[str, int]]:
    """Count by table what a role sees of whom."""
    found: dict[str, dict[str, int]] = {}
    with psycopg.connect(url) as connection:
        if word is not None:
            connection.execute(f"set {SETTING} = '{word}'".encode())
        for table in WALLED:
            asked = f"select tenant, count(*) from {table} group by tenant"  # noqa: S608 - a name of ours
            found[table] = dict(connection.execute(asked.encode()).fetchall())
    return found


def test_nothing_is_lost_and_each_tenant_sees_its_own(older: Database) -> None:
    of_then = columns(older)
    before, whose = rows(older, of_then), counts(older.url, None)
    assert {table for table, seen in whose.items() if not seen.get(ONE) or seen[ONE] != seen.get(TWO)} == set()
    with pytest.raises(SchemaOutdated):
        Counterfoil.open(older.url, upgrade=False)
    Counterfoil.open(older.url, upgrade=True).close()
    assert older.execute("select max(number) >= %s from counterfoil_migration", WALL) == [(True,)]
    assert rows(older, of_then) == before
    for role in new_role(older):
        role.let()
        for table in role.tables():
            older.execute(f"grant select on {table} to {role.name}")
        for tenant in (ONE, TWO):
            assert counts(role.url, f"={tenant}") == {table: {tenant: seen[tenant]} for table, seen in whose.items()}
        assert counts(role.url, "*") == whose
        assert counts(role.url, None) == {table: {} for table in WALLED}
        goes_on(role)


def goes_on(role: Role) -> None:
    """Use what was there before, and add to it."""
    with Counterfoil.open(role.url) as cf:
        for tenant in (ONE, TWO):
            assert cf.perform(pay, tenant=tenant, request_id="r-1", title="paid").value["tenant"] == tenant
            assert cf.perform(pay, tenant=tenant, request_id="r-7", title="more").value["tenant"] == tenant
            (asked,) = cf.approvals.list(tenant=tenant).items[:1]
            assert cf.approvals.approve(asked.approval_id, tenant=tenant, by="bo").state == "approved"
