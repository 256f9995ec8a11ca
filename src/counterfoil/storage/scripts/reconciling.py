"""Scripts of what time does to operations: claims that ran out, intents that expired, outcomes that nobody knows."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from counterfoil.core.approvals import is_open
from counterfoil.core.machine import advance
from counterfoil.core.states import (
    OPERATION,
    ApprovalEvent,
    AttemptOutcome,
    CaseKind,
    EvidenceKind,
    OperationEvent,
    OperationState,
    Sender,
)
from counterfoil.core.unknown import resend_plan
from counterfoil.model import OperationKey
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts import gates
from counterfoil.storage.scripts.claims import LostRace
from counterfoil.storage.scripts.moves import (
    Outcome,
    columns,
    has_lost_attempt,
    key_params,
    mark_lost,
    put_off,
    settle_case,
    unknown_again,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def lapsed(limit: int) -> Script[Sequence[Row]]:
    """Read intents whose claim is over."""
    return (yield from all_rows("list_lapsed_intents", limit=limit))


def lose_if_unmoved(key: OperationKey, version: int, why: str) -> Script[Row | LostRace]:
    """Move an operation whose claim is over to `unknown`, unless it moved since it was read."""
    row = yield from one_row("lock_operation_if_free", **key_params(key))
    if row is None or row["version"] != version or row["state"] != OperationState.IN_FLIGHT:
        return LostRace()
    return (yield from mark_lost(key, row, why=why))


def expire(limit: int) -> Script[tuple[Row, ...]]:
    """End intents that were not sent in the time they had: nothing was sent of them and nothing will be.

    One that was to be sent again under its provider's key is unknown again: the key covers it no more. Rows are
    taken in the order of their ids, as in a dispatcher's turn.
    """
    ended: list[Row] = []
    listed = yield from all_rows("list_expired_intents", limit=limit)
    for found in sorted(listed, key=itemgetter("tenant", "operation_id")):
        key = OperationKey(tenant=found["tenant"], operation_id=found["operation_id"])
        row = yield from one_row("lock_operation_if_free", **key_params(key))
        if row is not None and (row["version"], row["state"]) == (found["version"], OperationState.PENDING):
            ended.append((yield from _expire_one(key, row)))
    return tuple(ended)


def expire_decisions(limit: int) -> Script[tuple[Row, ...]]:
    """End the waiting for decisions that nobody made in time, and ask again for those that ran out before the send.

    An operation that was to be sent again after a lost reply is unknown again; rows are taken in the order of their
    ids.
    """
    moved: list[Row] = []
    undecided = yield from all_rows("list_undecided", limit=limit)
    unpermitted = yield from all_rows("list_unpermitted", limit=limit)
    for found in sorted([*undecided, *unpermitted], key=itemgetter("tenant", "operation_id")):
        key = OperationKey(tenant=found["tenant"], operation_id=found["operation_id"])
        row = yield from one_row("lock_operation_if_free", **key_params(key))
        if row is not None and row["version"] == found["version"]:
            moved.append((yield from _end_decision(key, row)))
    return tuple(moved)


def _end_decision(key: OperationKey, row: Row) -> Script[Row]:
    if row["state"] == OperationState.AWAITING_APPROVAL:
        return (yield from gates.expire(key, row))
    if (yield from has_lost_attempt(key, row)):
        return (yield from unknown_again(key, row, "its approval ran out before it was sent again"))
    last = yield from held_row("get_newest_approval", **key_params(key))
    return (yield from gates.ask_again(key, row, gates.stored_gate(last), gates.asking_of(last)))


def _expire_one(key: OperationKey, row: Row) -> Script[Row]:
    if (yield from has_lost_attempt(key, row)):
        return (yield from unknown_again(key, row, "the lifetime of its key ended before it was sent again"))
    why = "it was not sent in the time it had"
    yield from gates.end_unused(key, ApprovalEvent.EXPIRED, reason=why)
    return (yield from gates.close(key, row, OperationEvent.INTENT_EXPIRED, why=why))


def unknown_due(limit: int) -> Script[Sequence[Row]]:
    """Read the operations whose outcome is unknown and whose next look-up is due."""
    return (yield from all_rows("list_unknown_due", limit=limit))


def look_later(key: OperationKey, version: int, *, due_at: int = 0, delay: int = 0) -> Script[None]:
    """Say when an unknown outcome is looked up next: at a time, or after so many milliseconds."""
    yield from one_row("postpone_look_up", **key_params(key), version=version, due_at=due_at, delay=delay)


def resend_if_unmoved(key: OperationKey, version: int, *, gated: bool) -> Script[Row | LostRace]:
    """Let an intent be sent again under its provider's key, if that is harmless still and a try is left.

    A caller's operation is sent again by its caller alone; one that is `gated` under a decision that holds.
    """
    row = yield from one_row("lock_operation_if_free", **key_params(key))
    if row is None or row["version"] != version or row["state"] != OperationState.UNKNOWN:
        return LostRace()
    seen, tries = rows.snapshot(row), rows.tries(row)
    plan = resend_plan(seen.facts, seen.times)
    permitted = is_open(seen.approved_until, now=seen.now, gated=gated)
    if tries.sender is not Sender.DISPATCHER or tries.used_up or plan is None or not permitted:
        return LostRace()
    state = advance(OPERATION, OperationState.UNKNOWN, OperationEvent.RESEND_ALLOWED)
    kept = Outcome(outcome=AttemptOutcome.UNKNOWN, error_class=row["error_class"], error_text=row["error_text"])
    moved = yield from held_row(
        "settle_if_unmoved", **key_params(key), version=version, **columns(state, kept, EvidenceKind.REPLY)
    )
    yield from settle_case(key, CaseKind.UNKNOWN_OUTCOME)
    yield from put_off(key, moved, why=None, until=plan.until)
    return moved
