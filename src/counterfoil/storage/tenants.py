"""Whose rows a unit of work may touch: what its caller asked for, apart from what its statements say themselves.

On PostgreSQL row security holds them to it: a statement that forgot its tenant finds and writes nothing of others. It
goes by a setting that is made anew in each transaction: `=` and the tenant's id, so that no id reads like another word;
`*` for work that is everybody's; nothing for work that needs no tenant's rows, as a look at the schema.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, assert_never

SETTING: Final = "counterfoil.tenant"


class Everybody(Enum):
    """All tenants at once."""

    ALL_TENANTS = "*"


ALL_TENANTS = Everybody.ALL_TENANTS
"""What a worker does for whoever asked, and what an operator asks without naming a tenant."""
Whose: TypeAlias = str | Everybody | None
"""A tenant, of which the empty one is that of threads that nobody manages; all of them; or none."""


def whose(tenant: str | None) -> str | Everybody:
    """Return a tenant, or all of them for an operator who named none."""
    return ALL_TENANTS if tenant is None else tenant


def setting(tenant: Whose) -> str:
    """Return the value that the setting has for this work."""
    match tenant:
        case None:
            return ""
        case str():
            return f"={tenant}"
        case Everybody():
            return tenant.value
        case _:
            assert_never(tenant)
