"""Scripts by which operations are asked about, and what was asked is read."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.effects import AwaitsApproval, Closed, MayClaim, NeedsApproval
from counterfoil.core.states import ApprovalState
from counterfoil.shown import ApprovalDetail
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts import audit, claims, gates, reads
from counterfoil.storage.scripts.claims import Request, Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.approvals import Gate
    from counterfoil.shown import Approval

# --- asking ----------------------------------------------------------------------------------------------------------


def request(wish: Request) -> Script[Seen]:
    """Ask whether an operation may be sent, or find what was asked; nothing is claimed."""
    new = yield from claims.ask(wish)
    if new is not None:
        return new
    row = yield from held_row("lock_operation", **wish.id)
    seen = yield from claims.judge(wish, row)
    if isinstance(seen.decision, MayClaim) and row["approved_until"] is None:
        seen = Seen(NeedsApproval(), row)
    seen = yield from claims.hold(wish, seen)
    if isinstance(seen.decision, Closed) and seen.was_edited and seen.follower is None:
        seen = yield from claims.ask_anew(wish)
    return (yield from _newest(wish, seen))


def look(wish: Request) -> Script[Seen | None]:
    """Read what was asked about an operation, changing nothing; None if something has to be written."""
    row = yield from one_row("look_at_operation", **wish.id)
    if row is None:
        return None
    seen = yield from claims.judge(wish, row)
    match seen:
        case Seen(NeedsApproval() | AwaitsApproval(is_over=True)):
            return None
        case Seen(MayClaim()) if row["approved_until"] is None:
            return None
        case Seen(Closed(), follower=None) if seen.was_edited:
            return None
        case _:
            return (yield from _newest(wish, seen))


def _newest(wish: Request, seen: Seen) -> Script[Seen]:
    """Add what was asked last, whatever became of the operation since."""
    if seen.approval is not None or seen.row["approved_until"] is None:
        return seen
    return replace(seen, approval=(yield from gates.newest(wish.key)))


def note_try(wish: Request, approval: Row) -> Script[None]:
    """Note that some other step asked for what a person rejected: whichever way led there, nothing is sent."""
    yield from audit.note(
        audit.asker(wish.trusted),
        Deed.TRY_REJECTED,
        Subject(Kind.APPROVAL, rows.approval_id(approval["seq"]), wish.key.operation_id),
        tenant=wish.key.tenant,
        reason=f"{wish.key.operation_id} was asked for again",
        before=ApprovalState.REJECTED,
        after=ApprovalState.REJECTED,
        request_id=wish.trusted.request_id,
    )


# --- reads -----------------------------------------------------------------------------------------------------------


def get(tenant: str | None, seq: int) -> Script[ApprovalDetail | None]:
    """Read an approval with what it permits, and what goes with it; of a tenant, or of whichever has it."""
    for each in (yield from reads.tenants(tenant)):
        row = yield from one_row("get_approval", tenant=each, seq=seq)
        if row is not None:
            return (yield from _detail(each, row))
    return None


def _detail(tenant: str, row: Row) -> Script[ApprovalDetail | None]:
    asked = yield from all_rows("list_approvals_of_root", tenant=tenant, root_id=row["root_id"])
    ids = list(dict.fromkeys(one["operation_id"] for one in asked))
    found: dict[str, Row] = {}
    for operation_id in ids:
        if (there := (yield from one_row("get_operation", tenant=tenant, operation_id=operation_id))) is not None:
            found[operation_id] = there
    own = found.pop(row["operation_id"], None)
    if own is None:
        return None  # it is kept no longer
    return ApprovalDetail(
        approval=rows.approval(row),
        operation=rows.operation(own),
        arguments=None if own["payload"] is None else codec.decode(own["payload"]),
        others=tuple(rows.operation(other) for other in found.values()),
    )


def page(tenant: str | None, *, state: ApprovalState | None, after: int, limit: int) -> Script[Sequence[Approval]]:
    """Read a page of approvals of a tenant, or of all, the oldest first."""
    found: list[Row] = []
    for each in (yield from reads.tenants(tenant)):
        asked: dict[str, Any] = {"tenant": each, "after": after, "limit": limit}
        if state is None:
            found += yield from all_rows("list_approvals", **asked)
        else:
            found += yield from all_rows("list_approvals_in_state", **asked, state=state)
    return [rows.approval(row) for row in sorted(found, key=itemgetter("seq"))[:limit]]


def stored(tenant: str, seq: int) -> Script[tuple[Row, Row] | None]:
    """Read an approval and its operation, as they are stored."""
    row = yield from one_row("get_approval", tenant=tenant, seq=seq)
    if row is None:
        return None
    return row, (yield from held_row("get_operation", tenant=tenant, operation_id=row["operation_id"]))


def follower_of(approval: Approval) -> Script[Approval]:
    """Read what is asked about the operation that follows an edited one."""
    asked = {"tenant": approval.tenant, "operation_id": approval.followed_by}
    return rows.approval((yield from held_row("get_newest_approval", **asked)))


def default_gate(wish: Request, gate: Gate) -> Request:
    """Return a request that asks on these terms where its effect declares none."""
    return wish if wish.gate is not None else replace(wish, gate=gate)
