"""Scripts of grants: what is permitted beforehand, and whether an operation that is asked for is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil import codec
from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.effects import Ungranted
from counterfoil.core.states import OperationState, Sender
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts import audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.access import Actor
    from counterfoil.storage.scripts.claims import Request


@dataclass(frozen=True, slots=True)
class NoGrant:
    """No grant with this id exists for this tenant."""


def issue(request: Request, actor: Actor, *, valid_for: int | None) -> Script[Row]:
    """Permit an operation with exactly these arguments; the same again renews it."""
    row = yield from held_row(
        "put_grant",
        **request.id,
        effect=request.effect,
        identity_digest=request.digests.exact,
        granted_by=actor.shown,
        valid_for=valid_for,
    )
    yield from _noted(actor, Deed.GRANT, row, request_id=request.trusted.request_id)
    return row


def revoke(tenant: str, seq: int, actor: Actor, *, reason: str) -> Script[Row | NoGrant]:
    """Take a grant back: what was not claimed under it by now is not any more."""
    there = yield from one_row("lock_grant", tenant=tenant, seq=seq)
    if there is None:
        return NoGrant()
    row = yield from one_row("revoke_grant_if_live", tenant=tenant, seq=seq, revoked_by=actor.shown)
    if row is None:
        return there
    yield from _noted(actor, Deed.REVOKE_GRANT, row, reason=reason)
    return row


def page(tenant: str, *, before: int, limit: int) -> Script[Sequence[Row]]:
    """Read a page of a tenant's grants, the newest first."""
    return (yield from all_rows("list_grants", tenant=tenant, before=before, limit=limit))


def refusal(request: Request) -> Script[Ungranted | None]:
    """Say whether a strict program must refuse an operation, and note it: nobody permitted exactly this one.

    A person's approval permits it, and so does the wait for one: the gate lets nothing through without. What was
    begun once goes on, and is answered from what is known of it.
    """
    if not request.strict or request.gate is not None:
        return None
    row = yield from one_row("look_at_operation", **request.id)
    if row is not None and (row["approved_until"] is not None or _was_begun(request, row)):
        return None
    wanted = {"effect": request.effect, "identity_digest": request.digests.exact}
    if (yield from one_row("find_grant", **request.id, **wanted)) is not None:
        return None
    yield from audit.note(
        audit.asker(request.trusted),
        Deed.REFUSE,
        Subject(Kind.OPERATION, request.key.operation_id),
        tenant=request.key.tenant,
        reason=f"nobody granted {request.effect} with these arguments",
        after=codec.text_digest(request.digests.exact),
        request_id=request.trusted.request_id,
    )
    return Ungranted()


def _was_begun(request: Request, row: Row) -> bool:
    """Say whether this very operation was begun or left to a dispatcher before, and does not wait to be begun again."""
    is_this = row["effect"] == request.effect and row["identity_digest"] == request.digests.identity
    waits_for_its_caller = row["state"] == OperationState.PENDING and row["sender"] == Sender.CALLER
    return is_this and not waits_for_its_caller


def _noted(actor: Actor, deed: Deed, row: Row, *, reason: str = "", request_id: str | None = None) -> Script[None]:
    yield from audit.note(
        actor,
        deed,
        Subject(Kind.GRANT, rows.grant_id(row["seq"]), row["operation_id"]),
        tenant=row["tenant"],
        reason=reason,
        after=codec.text_digest(row["identity_digest"]),
        request_id=request_id,
    )
