"""Whose rows a transaction may touch is what its call said, whatever other SQL sets, resets or rolls back beside it."""

from typing import Any

import psycopg
import pytest

from counterfoil import AsyncCounterfoil, Provider, effect
from counterfoil.errors import FingerprintMismatch, ForeignTransaction, StoreUnavailable
from counterfoil.storage.tenants import SETTING
from tests.postgres.roles import Role
from tests.row_security.test_wall import FORGETFUL, ONE, SAID, TWO, Both, Joining, app, both, colour, joining, ticket

__all__ = ["app", "both", "colour", "joining"]

HOSTILE = (
    f"set {SETTING} = '*'",
    f"set session {SETTING} = '={TWO}'",
    f"select set_config('{SETTING}', '*', false)",
    f"set local {SETTING} = '*'",
    f"set local {SETTING} = ''",
    f"reset {SETTING}",
    "reset all",
    "discard plans",
)


@effect("sessions.hostile", key="{request_id}/hostile", provider=Provider.transactional())
def hostile(tx: Any, *, sql: str) -> str:
    tx.execute(sql)
    return sql


@effect("sessions.ahostile", key="{request_id}/hostile", provider=Provider.transactional())
async def ahostile(tx: Any, *, sql: str) -> str:
    await tx.execute(sql)
    return sql


# --- our own sessions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", HOSTILE)
def test_what_an_effect_sets_changes_neither_its_own_end_nor_what_follows(both: Both, sql: str) -> None:
    done = both.cf.perform(hostile, tenant=ONE, request_id="h-1", sql=sql)
    assert done.value == sql
    assert [said or "" for said in both.raw()] == ["", ""]
    assert both.ask(FORGETFUL, None) == [[]] * 9
    assert both.ask(FORGETFUL, TWO) == [[TWO, TWO]] * 9
    assert both.cf.operations.get("h-1/hostile", tenant=ONE).receipt is not None
    assert both.cf.perform(hostile, tenant=ONE, request_id="h-1", sql=sql).value == sql


@pytest.mark.parametrize("sql", HOSTILE)
async def test_neither_does_what_an_async_effect_sets(app: Role, sql: str) -> None:
    async with AsyncCounterfoil.open(app.url, connections=1) as cf:
        assert (await cf.perform(ahostile, tenant=ONE, request_id="h-1", sql=sql)).value == sql
        async with cf.desk.async_store.lender.connection() as connection:  # type: ignore[attr-defined]  # PostgreSQL's
            assert not (await (await connection.execute(SAID)).fetchone())[0]
        assert (await cf.operations.get("h-1/hostile", tenant=ONE)).receipt is not None


@pytest.mark.parametrize("left", [f"set {SETTING} = '*'", f"set {SETTING} = '={TWO}'"])
def test_what_is_left_behind_in_a_session_is_not_believed(both: Both, left: str) -> None:
    """As where a pooler hands on what another client has set."""
    with both.cf.desk.store.lender.connection() as connection:  # type: ignore[attr-defined]  # PostgreSQL's
        connection.execute(left)
    assert both.ask(FORGETFUL, ONE)[:5] == [[ONE, ONE]] * 5
    assert both.ask(FORGETFUL, None)[:5] == [[]] * 5


@pytest.mark.parametrize("between", ["reset all", "discard all"])
def test_what_is_reset_between_two_calls_is_said_anew(both: Both, between: str) -> None:
    for tenant in (ONE, TWO):
        with both.cf.desk.store.lender.connection() as connection:  # type: ignore[attr-defined]  # PostgreSQL's
            connection.prepare_threshold = None  # who discards all keeps no prepared statements
            connection.execute(between)
        assert both.ask(FORGETFUL, tenant) == [[tenant, tenant]] * 9


def test_a_client_library_that_sends_one_at_a_time_holds_as_well(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """As libpq 13 and older do, which have no pipelines."""
    for kind in (psycopg.Pipeline, psycopg.AsyncPipeline):
        monkeypatch.setattr(kind, "is_supported", classmethod(lambda _kind: False))
    for tenant in (ONE, TWO):
        assert both.ask(FORGETFUL, tenant) == [[tenant, tenant]] * 9
        with pytest.raises(StoreUnavailable, match="22012"):
            both.ask("select 1 / 0", tenant)
        assert [said or "" for said in both.raw()] == ["", ""]
    assert both.ask(FORGETFUL, None) == [[]] * 9
    for sql in HOSTILE:
        assert both.cf.perform(hostile, tenant=ONE, request_id=sql, sql=sql).value == sql


# --- the caller's transaction ----------------------------------------------------------------------------------------


def run(joining: Joining, sql: str) -> None:
    joining.done(joining.connection.execute(sql))


def made_for(joining: Joining) -> Any:
    return hostile if joining.row.is_async is False else ahostile


@pytest.mark.parametrize("sql", HOSTILE)
def test_in_the_callers_transaction_an_effect_may_set_it_as_well(joining: Joining, sql: str) -> None:
    assert joining.call("perform", made_for(joining), tenant=ONE, request_id="h-1", sql=sql).value == sql
    again = joining.call("perform", made_for(joining), tenant=ONE, request_id="h-1", sql=sql)
    assert again.value == sql
    assert joining.call("perform", joining.row, tenant=TWO, request_id="h-2").value == [[TWO]] * 3  # with its own
    joining.done(joining.connection.commit())
    found = joining.done(joining.cf.operations.get("h-1/hostile", tenant=ONE))
    assert found.receipt is not None


def test_a_savepoint_takes_back_what_was_said_and_what_was_written(joining: Joining) -> None:
    run(joining, f"set local {SETTING} = '={TWO}'")
    for way in ("rollback to", "release"):
        run(joining, "savepoint callers")
        joining.call("enqueue", ticket, tenant=ONE, request_id="s-1")
        assert joining.one(SAID) == f"={TWO}"
        run(joining, f"{way} callers")
        assert joining.one(SAID) == f"={TWO}"
    joining.done(joining.connection.commit())
    assert [each.operation_id for each in joining.done(joining.cf.outbox.list(tenant=ONE)).items] == ["s-1"]


def test_a_join_that_was_rolled_back_leaves_neither_rows_nor_a_word(joining: Joining) -> None:
    run(joining, f"set {SETTING} = '={TWO}'")  # for the session, which is its owner's
    joining.done(joining.connection.commit())
    joining.call("enqueue", ticket, tenant=ONE, request_id="s-1")
    with pytest.raises(FingerprintMismatch):
        joining.call("enqueue", ticket, tenant=ONE, request_id="s-1", title="another")
    assert joining.one(SAID) == f"={TWO}"
    joining.done(joining.connection.rollback())
    assert joining.one(SAID) == f"={TWO}"
    assert joining.all(FORGETFUL) == [TWO, TWO]
    joining.done(joining.connection.rollback())
    assert joining.done(joining.cf.outbox.list(tenant=ONE)).items == ()


def test_a_connection_in_autocommit_says_it_for_no_longer_than_its_transaction(joining: Joining) -> None:
    joining.done(joining.connection.set_autocommit(True))
    with pytest.raises(ForeignTransaction):
        joining.call("enqueue", ticket, tenant=ONE, request_id="s-1")
    run(joining, "begin")
    joining.call("enqueue", ticket, tenant=ONE, request_id="s-1")
    run(joining, "commit")
    assert not joining.one(SAID)
    assert joining.all(FORGETFUL) == []
    assert len(joining.done(joining.cf.operations.list(tenant=ONE)).items) == 3
