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
    begun once goes on, and is answered from what is known of it. Another payload or effect under an id that is in use
    is neither.
    """
    if not request.strict:
        return None
    row = yield from one_row("look_at_operation", **request.id)
    if (row is None or _is_this(request, row)) and _goes_on(request, row):
        return None
    return Ungranted() if (yield from invented(request, row)) else None


def invented(request: Request, row: Row | None) -> Script[bool]:
    """Note that nobody permitted what is asked for, beside what stands there under its id; say whether that is so."""
    wanted = {"effect": request.effect, "identity_digest": request.digests.exact}
    if (yield from one_row("find_grant", **request.id, **wanted)) is not None:
        return False
    yield from audit.note(
        audit.asker(request.trusted),
        Deed.REFUSE,
        Subject(Kind.OPERATION, request.key.operation_id),
        tenant=request.key.tenant,
        reason=f"nobody granted {request.effect} with these arguments",
        before=None if row is None else codec.text_digest(row["identity_digest"]),
        after=codec.text_digest(request.digests.exact),
        request_id=request.trusted.request_id,
    )
    return True


def _is_this(request: Request, row: Row) -> bool:
    return bool(row["effect"] == request.effect and row["identity_digest"] == request.digests.identity)


def _goes_on(request: Request, row: Row | None) -> bool:
    """Say whether an operation waits for a decision, has one, or was begun before."""
    if request.gate is not None:
        return True
    return row is not None and (row["approved_until"] is not None or _was_begun(row))


def _was_begun(row: Row) -> bool:
    """Say whether an operation was begun or left to a dispatcher before, and does not wait to be begun again."""
    return not (row["state"] == OperationState.PENDING and row["sender"] == Sender.CALLER)


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
