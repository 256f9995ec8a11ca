"""Scripts of the audit trail: note a deed in the transaction that does it, and read what was noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.credentials import redact_text
from counterfoil.storage.script import Script, one_row

if TYPE_CHECKING:
    from counterfoil.core.access import Actor
    from counterfoil.core.audit import Deed, Subject

EVERYONE = ""
"""Stands in the place of a tenant for what is about all of them."""


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
        subject=subject.id,
        state_before=before,
        state_after=after,
        reason=redact_text(reason),
        request_id=request_id,
    )
