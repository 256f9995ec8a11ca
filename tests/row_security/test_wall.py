"""Row security is a second wall between tenants: it holds where a statement has forgotten whose rows it may touch.

The statements of these tests are written by hand and name no tenant.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors

from counterfoil import AsyncCounterfoil, Counterfoil, Provider, effect
from counterfoil.errors import FingerprintMismatch, OutcomeUnknown
from counterfoil.storage.migrator import expected_schema
from counterfoil.storage.script import Ddl, Maker, Script
from counterfoil.storage.tenants import ALL_TENANTS, SETTING, Whose
from tests.postgres.databases import Database
from tests.postgres.roles import Role

ONE, TWO = "team-A", "*"
"""The second tenant's id reads like the word for all of them."""
SAID = f"select current_setting('{SETTING}', true)"
INTO_THREADS = "insert into counterfoil_thread (tenant, thread_id, state, created_at, updated_at)"
FORGETFUL = "select tenant from counterfoil_operation order by seq"


@effect("wall.ticket", key="{request_id}")
def ticket(call: Any, *, title: str = "") -> str:
    if title == "lost":
        raise OSError("the wire broke")
    return title


@effect("wall.row", key="{request_id}/row", provider=Provider.transactional())
def row(tx: Any) -> list[Any]:
    """Look at what the transaction shows, as a statement of the application's own does."""
    return [list(found) for found in tx.execute(f"{FORGETFUL} for share").fetchall()]


@effect("wall.arow", key="{request_id}/row", provider=Provider.transactional())
async def arow(tx: Any) -> list[Any]:
    return [list(found) for found in await tx.execute(f"{FORGETFUL} for share")]


@pytest.fixture
def app(role: Role) -> Role:
    """The role of an application, in a database where two tenants have rows in most tables, and nobody has some."""
    with Counterfoil.open(role.database.url) as cf:
        for tenant in (ONE, TWO):
            cf.perform(ticket, tenant=tenant, request_id="r-1")
            with pytest.raises(OutcomeUnknown):
                cf.perform(ticket, tenant=tenant, request_id="r-2", title="lost")
            cf.outbox.pause(tenant=tenant, effect="wall.ticket", by="eve", reason="x")
        cf.outbox.pause(effect="wall.row", by="eve", reason="x")
    for tenant in ("", ONE):
        role.database.execute(f"{INTO_THREADS} values (%s, 't', 'idle', 0, 0)", tenant)
    return role


def asked(sql: str) -> Maker[list[Any]]:
    def script() -> Script[list[Any]]:
        rows = yield Ddl(sql)
        return [next(iter(found.values())) for found in rows]

    return script


@contextmanager
def transaction(role: Role, said: str | None) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(role.url) as connection:
        if said is not None:
            connection.execute(f"select set_config('{SETTING}', %s, true)", (said,))
        yield connection
        connection.rollback()


def seen(role: Role, said: str | None, table: str) -> list[str]:
    with transaction(role, said) as connection:
        return [tenant for (tenant,) in connection.execute(f"select distinct tenant from {table} order by 1".encode())]  # noqa: S608 - a name of ours


TABLES = sorted({name for name, sql in expected_schema("postgres").items() if sql.startswith("create table")})
WALLED = [table for table in TABLES if table != "counterfoil_migration"]


# --- the policies ----------------------------------------------------------------------------------------------------


def test_every_table_with_a_tenant_has_the_wall(postgres_database: Database) -> None:
    """A new table is made with its policy: copy the two statements of migration 0004."""
    found = postgres_database.execute(
        "select relname from pg_class join pg_attribute on attrelid = pg_class.oid and attname = 'tenant'"
        " where relname like 'counterfoil%' and relkind = 'r' order by 1"
    )
    assert [name for (name,) in found] == WALLED
    wall = (
        f"using (((current_setting('{SETTING}'::text, true) = ('='::text || tenant))"
        f" OR (current_setting('{SETTING}'::text, true) = '*'::text)))"
    )
    schema = expected_schema("postgres")
    for table in WALLED:
        own = wall.replace("|| tenant", "|| NULLIF(tenant, ''::text)") if table == "counterfoil_pause" else wall
        assert schema[f"{table}_tenant"].partition(f" on {table} ")[2] == own
    assert all(schema[table].endswith(" with row level security") for table in WALLED)


def test_a_transaction_sees_whose_rows_it_named(app: Role) -> None:
    for said in ("=", f"={ONE}", "=*", "*", ONE, "= team-A", "%", "=team-B"):
        expected = {f"={ONE}": [ONE], "=*": ["*"], "*": ["*", ONE]}.get(said, [])
        for table in ("counterfoil_operation", "counterfoil_attempt", "counterfoil_case"):
            assert seen(app, said, table) == expected
        assert seen(app, said, "counterfoil_thread") == {"=": [""], f"={ONE}": [ONE], "*": ["", ONE]}.get(said, [])
        assert seen(app, said, "counterfoil_pause") == ["", *expected]


def test_with_no_setting_there_are_no_rows(app: Role) -> None:
    for table in WALLED:
        app.database.execute(f"grant select on {table} to {app.name}")
        assert seen(app, None, table) == seen(app, "", table) == []


def test_a_row_of_another_tenant_is_neither_made_nor_moved(app: Role) -> None:
    for said in (None, "", f"={ONE}", "="):
        makes_and_moves_nothing(app, said)


def makes_and_moves_nothing(app: Role, said: str | None) -> None:
    rows = "select tenant, operation_id, version from counterfoil_operation order by 1, 2"
    before = app.database.execute(rows)
    with transaction(app, said) as connection, pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
        connection.execute(f"{INTO_THREADS} values ('team-B', 'new', 'idle', 0, 0)".encode())
    with transaction(app, said) as connection:
        moved = connection.execute("update counterfoil_operation set version = 9 where tenant = '*'").rowcount
        lifted = connection.execute("delete from counterfoil_pause where tenant in ('', '*')").rowcount
        connection.commit()
    assert (moved, lifted) == (0, 0)
    assert (
        app.database.execute("select tenant, operation_id, version from counterfoil_operation order by 1, 2") == before
    )
    if said == f"={ONE}":
        with transaction(app, said) as connection, pytest.raises(errors.InsufficientPrivilege):
            connection.execute("update counterfoil_operation set tenant = '*' where tenant = %s", (ONE,))


def test_the_owner_of_the_tables_is_as_it_was(app: Role) -> None:
    with Counterfoil.open(app.database.url) as cf:
        assert cf.desk.store.read(asked(FORGETFUL)) == [ONE, ONE, TWO, TWO]
        assert cf.desk.store.write(asked(SAID), tenant=ONE) == [None]


# --- what a Counterfoil says ------------------------------------------------------------------------------------------


class Both:
    """The stores of both colours, asked by one name."""

    def __init__(self, url: str) -> None:
        self.cf = Counterfoil.open(url, connections=1)
        self.loop = asyncio.Runner()

    def ask(self, sql: str, tenant: Whose) -> list[list[Any]]:
        """Read, and write, in both colours; each answers with what it saw."""
        one, other = self.cf.desk.store, self.cf.desk.async_store
        makes = asked(sql)
        return [
            one.read(makes, tenant=tenant),
            one.look(makes, makes, tenant=tenant),
            one.write(makes, tenant=tenant),
            one.write_alone(makes, tenant=tenant),
            one.renew(makes, within=10, tenant=tenant),
            self.loop.run(other.read(makes, tenant=tenant)),
            self.loop.run(other.write(makes, tenant=tenant)),
            self.loop.run(other.write_alone(makes, tenant=tenant)),
            self.loop.run(other.write_lent(makes, tenant=tenant)),
        ]

    def raw(self) -> Iterator[Any]:
        """Return what is said on the very connections that were used, outside of any transaction of ours."""
        with self.cf.desk.store.lender.connection() as connection:  # type: ignore[attr-defined]  # PostgreSQL's
            yield connection.execute(SAID).fetchone()[0]

        async def awaited() -> Any:
            async with self.cf.desk.async_store.lender.connection() as connection:  # type: ignore[attr-defined]
                return (await (await connection.execute(SAID)).fetchone())[0]

        yield self.loop.run(awaited())

    def close(self) -> None:
        self.cf.close()
        self.loop.close()


@pytest.fixture(params=["itself", "pooler"])
def both(app: Role, request: pytest.FixtureRequest) -> Iterator[Both]:
    url = app.url
    if request.param == "pooler":
        url = request.getfixturevalue("postgres_pooler").url_of(url)
    made = Both(url)
    yield made
    made.close()


def test_each_way_to_the_rows_shows_its_own_tenants(both: Both) -> None:
    whose: dict[Whose, list[str]] = {ONE: [ONE, ONE], TWO: [TWO, TWO], "": [], None: [], "team-B": []}
    for tenant, expected in {**whose, ALL_TENANTS: [ONE, ONE, TWO, TWO]}.items():
        assert both.ask(FORGETFUL, tenant) == [expected] * 9


def test_a_connection_that_comes_back_says_nothing(both: Both) -> None:
    for tenant in (ONE, ALL_TENANTS):
        assert both.ask(SAID, tenant) == [["*" if tenant is ALL_TENANTS else f"={ONE}"]] * 9
        assert [said or "" for said in both.raw()] == ["", ""]
        for broken in ("select 1 / 0", "selec"):
            with pytest.raises(Exception, match=r".") as caught:
                both.ask(broken, tenant)
            assert not isinstance(caught.value, AssertionError)
            assert [said or "" for said in both.raw()] == ["", ""]
        assert both.ask(FORGETFUL, None) == [[]] * 9


async def test_an_effects_own_statement_sees_its_tenants_rows(app: Role) -> None:
    seen = {}
    with Counterfoil.open(app.url) as cf:
        for tenant in (ONE, TWO, "team-B"):
            seen[tenant] = await asyncio.to_thread(cf.perform, row, tenant=tenant, request_id="r-3")
    async with AsyncCounterfoil.open(app.url) as acf:
        assert (await acf.perform(arow, tenant=ONE, request_id="r-4")).value == [[ONE]] * 4
        for tenant, receipt in seen.items():
            found = await acf.operations.get("r-3/row", tenant=tenant)
            assert found.receipt is not None
            assert found.receipt.value == receipt.value
            assert [tenant for (tenant,) in receipt.value] == [tenant] * len(receipt.value)
        assert [len(receipt.value) for receipt in seen.values()] == [3, 3, 1]  # with its own


# --- inside the caller's own transaction ------------------------------------------------------------------------------


class Joining:
    """A Counterfoil that is opened by one role, and a caller's connection as another, in both colours."""

    def __init__(self, colour: str, opened: str, connected: str) -> None:
        self.loop = asyncio.Runner()
        kinds: dict[str, Any] = {
            "sync": (Counterfoil, psycopg.Connection),
            "async": (AsyncCounterfoil, psycopg.AsyncConnection),
        }
        ours, theirs = kinds[colour]
        self.row = {"sync": row, "async": arow}[colour]
        self.cf = ours.open(opened)
        self.connection = self.done(theirs.connect(connected))

    def done(self, answer: Any) -> Any:
        return self.loop.run(answer) if asyncio.iscoroutine(answer) else answer

    def one(self, sql: str, *values: object) -> Any:
        return self.done(self.done(self.connection.execute(sql, values)).fetchone())[0]

    def all(self, sql: str) -> list[str]:
        return [tenant for (tenant,) in self.done(self.done(self.connection.execute(sql)).fetchall())]

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        return self.done(getattr(self.cf.join(self.connection), name)(*given, **named))

    def close(self) -> None:
        self.done(self.connection.close())
        self.done(self.cf.close())
        self.loop.close()


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def joining(app: Role, colour: str) -> Iterator[Joining]:
    made = Joining(colour, app.url, app.url)
    yield made
    made.close()


@pytest.mark.parametrize("before", [None, "", "=team-B", "*"])
def test_a_joined_transaction_gets_back_what_it_had_said(joining: Joining, before: str | None) -> None:
    if before is not None:
        joining.one(f"select set_config('{SETTING}', %s, true)", before)
    shown = joining.all(FORGETFUL)
    first = joining.call("perform", joining.row, tenant=ONE, request_id="j-1")
    assert first.value == [[ONE]] * 3  # with its own
    assert (joining.one(SAID) or "") == (before or "")
    again = joining.call("perform", joining.row, tenant=ONE, request_id="j-1")
    assert again.value == first.value
    joining.call("enqueue", ticket, tenant=TWO, request_id="j-2")
    several = joining.call("enqueue_all", ticket, [{}], tenant=TWO, request_id="j-3")
    assert len(several) == 1
    with pytest.raises(FingerprintMismatch):
        joining.call("enqueue", ticket, tenant=TWO, request_id="j-2", title="another")
    assert (joining.one(SAID) or "") == (before or "")
    assert joining.all(FORGETFUL) == ([*shown, ONE, TWO, TWO] if before == "*" else shown)
    joining.done(joining.connection.commit())
    assert not joining.one(SAID)
    assert joining.all(FORGETFUL) == []


def test_the_role_of_the_callers_transaction_counts(app: Role, colour: str) -> None:
    joining = Joining(colour, app.database.url, app.database.url)
    try:
        joining.done(joining.connection.execute(f"set local role {app.name}"))
        assert joining.all(FORGETFUL) == []
        assert joining.call("perform", joining.row, tenant=ONE, request_id="j-1").value == [[ONE]] * 3  # with its own
        assert joining.all(FORGETFUL) == []
        joining.done(joining.connection.rollback())
    finally:
        joining.close()
    assert len(app.database.execute(FORGETFUL)) == 4
