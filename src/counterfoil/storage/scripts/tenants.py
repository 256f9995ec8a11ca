"""Scripts of tenants: record one, suspend it, let it go on, and list those that there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.machine import advance, legal
from counterfoil.core.states import TENANT, TenantEvent, TenantStatus
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts.audit import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.access import Actor

_ALL = {"effect": "", "stream": ""}
"""The name of the pause that holds whatever a tenant sends."""
_DEEDS = {TenantEvent.SUSPENDED: Deed.SUSPEND_TENANT, TenantEvent.RESUMED: Deed.RESUME_TENANT}


@dataclass(frozen=True, slots=True)
class NoTenant:
    """No tenant of this name was created."""


@dataclass(frozen=True, slots=True)
class OtherName:
    """The tenant is there, under another name."""

    row: Row


@dataclass(frozen=True, slots=True)
class Done:
    """It is so; the tenant after it."""

    row: Row


def create(tenant: str, name: str, *, by: Actor, reason: str) -> Script[Done | OtherName]:
    """Record a tenant; the same one again is found."""
    status = TenantStatus.ACTIVE
    new = yield from one_row(
        "insert_tenant", tenant=tenant, name=name, status=status, changed_by=by.shown, reason=reason
    )
    if new is None:
        there = yield from held_row("get_tenant", tenant=tenant)
        return Done(there) if there["name"] == name else OtherName(there)
    yield from note(by, Deed.CREATE_TENANT, Subject(Kind.TENANT, tenant), tenant=tenant, reason=reason, after=status)
    return Done(new)


def move(tenant: str, event: TenantEvent, *, by: Actor, reason: str) -> Script[Done | NoTenant]:
    """Suspend a tenant, or let it go on, and what it enqueued with it; one that is so already stays as it is."""
    row = yield from one_row("lock_tenant", tenant=tenant)
    if row is None:
        return NoTenant()
    status = TenantStatus(row["status"])
    if event not in legal(TENANT, status):
        return Done(row)
    to = advance(TENANT, status, event)
    moved = yield from held_row(
        "move_tenant", tenant=tenant, expected_status=status, status=to, changed_by=by.shown, reason=reason
    )
    if to is TenantStatus.SUSPENDED:
        yield from one_row("insert_pause", tenant=tenant, **_ALL, **_pause(moved))
    else:
        yield from one_row("delete_pause_if_so", tenant=tenant, **_ALL, **_pause(row))
    subject = Subject(Kind.TENANT, tenant)
    yield from note(by, _DEEDS[event], subject, tenant=tenant, reason=reason, before=status, after=to)
    return Done(moved)


def _pause(suspended: Row) -> dict[str, str]:
    """Return who pauses a suspended tenant's intents and why, by which its pause is known again."""
    return {"paused_by": suspended["changed_by"], "reason": f"the tenant is suspended: {suspended['reason']}"}


def page(tenant: str | None, *, after: str, limit: int) -> Script[Sequence[Row]]:
    """Read a page of the tenants that were created, by name; or the one."""
    if tenant is not None:
        return (yield from all_rows("get_tenant", tenant=tenant))
    return (yield from all_rows("list_tenants", after_tenant=after, limit=limit))
