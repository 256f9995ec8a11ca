"""Whose rows a transaction may touch is what its call said, whatever other SQL sets, resets or rolls back beside it."""

from typing import Any

import pytest

from counterfoil import Provider, effect
from counterfoil.storage.tenants import SETTING
from tests.row_security.test_wall import (
    FORGETFUL,
    ONE,
    TWO,
    Both,
    app,
    both,
    colour,
    joining,
)

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


@pytest.mark.parametrize("sql", HOSTILE)
def test_what_an_effect_sets_changes_neither_its_own_end_nor_what_follows(both: Both, sql: str) -> None:
    for made, cf in ((hostile, both.cf),):
        done = cf.perform(made, tenant=ONE, request_id="h-1", sql=sql)
        assert done.value == sql
        assert [said or "" for said in both.raw()] == ["", ""]
        assert both.ask(FORGETFUL, None) == [[]] * 9
        assert both.ask(FORGETFUL, TWO) == [[TWO, TWO]] * 9
        assert both.cf.operations.get("h-1/hostile", tenant=ONE).receipt is not None
        assert cf.perform(made, tenant=ONE, request_id="h-1", sql=sql).operation_id == done.operation_id
