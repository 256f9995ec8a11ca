"""What a database role needs to be allowed, read from the statements themselves, so that no list falls behind them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from counterfoil.errors import RightsMissing
from counterfoil.storage import catalog
from counterfoil.storage.tenants import SETTING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from counterfoil.storage.script import Row

    Use = tuple[str, str]

READ, WRITES = "select", ("insert", "update", "delete")
UNOWNED = "counterfoil_migration"
"""The table whose rows belong to no tenant."""
ONE_TENANT = f" using ((current_setting('{SETTING}'::text, true) <> '*'::text))"
"""What PostgreSQL makes of the condition that keeps a role from working for all tenants at once."""
_PURGING = ("drop_bodies_of_evidence", "forget_evidence", "forget_attempts", "forget_cases", "forget_operation")
OWNERS = frozenset({"insert_migration", *_PURGING})
"""Statements that only the owner of the tables runs, who may do everything with them: a role that performs effects may
not remove what is known of them."""
_TABLE = r"(counterfoil_\w+)"
_USES = {
    READ: re.compile(rf"\b(?:from|join|into|update) {_TABLE}"),
    "insert": re.compile(rf"\binsert into {_TABLE}"),
    "update": re.compile(
        rf"(?<!for )\bupdate {_TABLE}"
        rf"|\binsert into {_TABLE}(?:(?!\binsert into\b).)*?\bdo update\b"
        rf"|\bfrom {_TABLE}(?:(?!\bfrom\b).)*?\bfor (?:no key |key )?(?:update|share)\b",
        re.DOTALL,
    ),
    "delete": re.compile(rf"\bdelete from {_TABLE}"),
}
"""What a statement does with which table; to lock a row is a right of those who may update it."""


@cache
def needed(dialect: str) -> Mapping[str, tuple[str, ...]]:
    """Return, by table, the rights of a process that performs effects."""
    used = {use for name, one in catalog.load(dialect).items() if name not in OWNERS for use in _uses(one.sql)}
    tables = sorted({table for table, _ in used})
    return {table: tuple(right for right in (READ, *WRITES) if (table, right) in used) for table in tables}


def _uses(sql: str) -> Iterator[Use]:
    for right, pattern in _USES.items():
        for found in pattern.finditer(sql):
            yield next(filter(None, found.groups())), right


def lacking(dialect: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """Name the rights that a role lacks; one that may write nothing at all is a reader and needs to read only."""
    want, reads = _wanted(dialect)
    have = _had(rows)
    wanted = reads if have.isdisjoint(want - reads) else want
    return tuple(f"{right} on {table}" for table, right in sorted(wanted - have))


def summary(dialect: str, rows: Sequence[Row]) -> str:
    """Say in a word what a role may do."""
    want, reads = _wanted(dialect)
    if missing := lacking(dialect, rows):
        return f"too few: {', '.join(missing)}"
    return "read only" if _had(rows).isdisjoint(want - reads) else "all that is needed"


def _wanted(dialect: str) -> tuple[set[Use], set[Use]]:
    want = {(table, right) for table, rights in needed(dialect).items() for right in rights}
    return want, {use for use in want if use[1] == READ}


def _had(rows: Sequence[Row]) -> set[Use]:
    return {(row["name"], right) for row in rows for right in (READ, *WRITES) if row[f"may_{right}"]}


def grants(role: str, schema: str, *, read_only: bool, one_tenant: bool = False) -> str:
    """Return the statements by which the owner of the tables lets a role work with them, and do nothing else.

    Row security shows it the rows of the tenant that each transaction names, or of all; with `one_tenant`, not of all.
    """
    to = f"to {_quoted(role)};"
    lines = [f"grant usage on schema {_quoted(schema)} {to}"]
    for table, rights in needed("postgres").items():
        allowed = READ if read_only else ", ".join(rights)
        lines.append(f"grant {allowed} on {_quoted(schema)}.{table} {to}")
        if one_tenant and table != UNOWNED:
            lines += _narrowing(_quoted(role), f"{_quoted(schema)}.{table}")
    return "\n".join(lines) + "\n"


def _narrowing(role: str, table: str) -> tuple[str, str]:
    """Return the statements that keep a role from a table while no single tenant is named."""
    one_only = f"using (current_setting('{SETTING}', true) <> '*')"
    return (
        f"drop policy if exists {role} on {table};",
        f"create policy {role} on {table} as restrictive to {role} {one_only};",
    )


def for_one_tenant(rows: Sequence[Row]) -> bool:
    """Say whether a role may never work for all tenants at once."""
    return any(row["is_held"] and row["for_one_tenant"] for row in rows)


def row_security(rows: Sequence[Row]) -> str:
    """Say whether row security holds a role to the tenant that its transactions name."""
    role, held = rows[0]["role"], [row["is_held"] for row in rows if row["name"] != UNOWNED]
    if all(held):
        narrowed = ", and none where that is all of them at once" if for_one_tenant(rows) else ""
        return f"active: {role} sees the rows of the tenant that each transaction names{narrowed}"
    if any(held):
        return f"active for some tables only, since {role} owns the others"
    return f"not active: {role} owns the tables, is a superuser or bypasses it"


# --- what is said where one is missing --------------------------------------------------------------------------------


def out_of_reach(ours: Row, path: str) -> RightsMissing | None:
    """Tell tables that a role may not see from tables that are not there."""
    role, schema = ours["role"], ours["hidden_in"]
    if schema and not ours["n"]:
        return RightsMissing(
            f"The database {path} holds tables of Counterfoil in the schema {schema}, which the role {role} may not"
            f" use. Nothing was written. Let their owner run what this prints: counterfoil db grants {role} --schema"
            f" {schema}; or, to have tables apart from those, leave {schema} out of the role's search_path."
        )
    if ours["n"] and not ours["readable"]:
        return RightsMissing(
            f"The role {role} may not read the tables of Counterfoil in the database {path}, not even which migrations"
            " were applied. Nothing was written. Let their owner run what this prints: counterfoil db grants"
            f" {role}"
        )
    return None


def too_few(rows: Sequence[Row], path: str, lacking: Sequence[str]) -> RightsMissing:
    """Name what a role lacks."""
    role = rows[0]["role"]
    return RightsMissing(
        f"The role {role} lacks rights in the database {path}: {', '.join(lacking)}. Nothing was written. Let the owner"
        f" of the tables run what this prints: counterfoil db grants {role}"
    )


def unmakeable(ours: Row, path: str) -> RightsMissing | None:
    """Say why a role may not make tables in a database that has none of ours."""
    role, schema = ours["role"], ours["made_in"]
    if schema is None:
        return RightsMissing(
            f"The database {path} holds no tables of Counterfoil, and the search_path of the role {role} names no"
            " schema that is there and may be used. Nothing was written. Create that schema, or correct search_path."
        )
    if not ours["may_make"]:
        return RightsMissing(
            f"The database {path} holds no tables of Counterfoil, and the role {role} may not make them in the schema"
            f" {schema}. Nothing was written. Let a role that may run: counterfoil db upgrade --url <url>; and then"
            f" what this prints: counterfoil db grants {role} --schema {schema}"
        )
    return None


def unowned(rows: Sequence[Row], path: str) -> RightsMissing | None:
    """Say whose the tables are, where that keeps a role from changing them."""
    owners = sorted({row["owner"] for row in rows if not row["is_owner"]})
    if not owners:
        return None
    return RightsMissing(
        f"The tables of Counterfoil in the database {path} belong to {', '.join(owners)}, so the role"
        f" {rows[0]['role']} may not change them. Nothing was written. Run as {owners[0]}: counterfoil db upgrade --url"
        " <url>"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
