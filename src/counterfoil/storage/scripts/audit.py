"""Scripts of the audit trail: note a deed in the transaction that does it, and read what was noted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from counterfoil.core.access import Actor, compared
from counterfoil.credentials import redact_text
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, all_rows, one_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.audit import Deed, Subject
    from counterfoil.model import Page, Trusted
    from counterfoil.records import AuditEntry

NOBODY = "unknown"
"""Who asked, where a run has no principal."""
EVERYONE = ""
"""Stands in the place of a tenant for what is about all of them."""
_WIDEST: Final = 1024
"""Bytes of an id; a pause's name may be longer, and must fit into an index beside the tenant."""


def asker(trusted: Trusted) -> Actor:
    """Return who asks for an operation: the run's principal, where it has one."""
    name = trusted.principal or NOBODY
    return Actor(who=compared(name), shown=name)


def note(
    actor: Actor,
    deed: Deed,
    subject: Subject,
    *,
    tenant: str,
    reason: str = "",
    before: str | None = None,
    after: str | None = None,
    request_id: str | None = None,
) -> Script[None]:
    """Note who did what to what, and why; it commits with the deed or not at all. `tenant=""` is about all of them.

    `before` and `after` are states or fingerprints, never content; a credential in the reason is made unreadable.
    """
    yield from one_row(
        "insert_audit_entry",
        tenant=tenant,
        who=actor.who,
        shown=actor.shown,
        role=actor.role,
        token_id=actor.token_id,
        act=deed,
        kind=subject.kind,
        subject=_fitting(subject.id),
        state_before=before,
        state_after=after,
        reason=redact_text(reason),
        request_id=request_id,
        operation_id=None if subject.operation_id is None else _fitting(subject.operation_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a list of entries is narrowed to; `after` is where the page before ended."""

    subject: str | None = None
    who: str | None = None
    after: int = 0
    limit: int = 50


def page(tenant: str | None, wish: Wish) -> Script[Page[AuditEntry]]:
    """Return one page of entries, the oldest first: of a tenant, or for the operator of the database all of them."""
    tenants = (
        [tenant]
        if tenant is not None
        else [row["tenant"] for row in (yield from all_rows("list_audit_tenants_any_tenant"))]
    )
    found: list[Row] = []
    for each in tenants:
        found += yield from _of_tenant(each, wish)
    found.sort(key=lambda row: int(row["seq"]))
    return rows.paged(found, wish.limit, rows.audit_entry)


def _of_tenant(tenant: str, wish: Wish) -> Script[Sequence[Row]]:
    asked = {"tenant": tenant, "after": wish.after, "limit": wish.limit + 1}  # one more tells whether it is the last
    if wish.subject is not None:
        return (yield from all_rows("list_audit_about", **asked, subject=_fitting(wish.subject), by_whom=wish.who))
    if wish.who is not None:
        return (yield from all_rows("list_audit_by", **asked, who=wish.who))
    return (yield from all_rows("list_audit", **asked))


def _fitting(subject: str) -> str:
    return subject.encode()[:_WIDEST].decode(errors="ignore")
