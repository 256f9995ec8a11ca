"""Scripts of what time does to operations: claims that ran out, intents that expired, outcomes that nobody knows."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from counterfoil.core.machine import advance
from counterfoil.core.states import (
    OPERATION,
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
from counterfoil.storage.scripts.claims import LostRace
from counterfoil.storage.scripts.moves import (
    Outcome,
    columns,
    key_params,
    mark_lost,
    open_case,
    put_off,
    settle_case,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPIRED = advance(OPERATION, OperationState.PENDING, OperationEvent.INTENT_EXPIRED)


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


def _expire_one(key: OperationKey, row: Row) -> Script[Row]:
    lost = yield from one_row(
        "get_lost_attempt_before", **key_params(key), attempt=row["attempt"] + 1, outcome=AttemptOutcome.UNKNOWN
    )
    if lost is not None:
        return (yield from _unknown_again(key, row))
    return (
        yield from held_row(
            "close_intent_if_unmoved",
            **key_params(key),
            version=row["version"],
            state=EXPIRED,
            expected_state=OperationState.PENDING,
            error_text="it was not sent in the time it had",
        )
    )


def _unknown_again(key: OperationKey, row: Row) -> Script[Row]:
    state = advance(OPERATION, OperationState.PENDING, OperationEvent.RESEND_OVER)
    kept = Outcome(outcome=AttemptOutcome.UNKNOWN, error_class=row["error_class"], error_text=row["error_text"])
    moved = yield from held_row(
        "settle_if_unmoved", **key_params(key), version=row["version"], **columns(state, kept, EvidenceKind.REPLY)
    )
    reason = "an attempt's outcome was lost, and the lifetime of its key ended before it was sent again"
    yield from open_case(key, moved, CaseKind.UNKNOWN_OUTCOME, reason)
    return moved


def unknown_due(limit: int) -> Script[Sequence[Row]]:
    """Read the operations whose outcome is unknown and whose next look-up is due."""
    return (yield from all_rows("list_unknown_due", limit=limit))


def look_later(key: OperationKey, version: int, *, due_at: int = 0, delay: int = 0) -> Script[None]:
    """Say when an unknown outcome is looked up next: at a time, or after so many milliseconds."""
    yield from one_row("postpone_look_up", **key_params(key), version=version, due_at=due_at, delay=delay)


def resend_if_unmoved(key: OperationKey, version: int) -> Script[Row | LostRace]:
    """Let an intent be sent again under its provider's key, if that is harmless still and a try is left.

    A caller's operation is sent again by its caller alone.
    """
    row = yield from one_row("lock_operation_if_free", **key_params(key))
    if row is None or row["version"] != version or row["state"] != OperationState.UNKNOWN:
        return LostRace()
    seen, tries = rows.snapshot(row), rows.tries(row)
    plan = resend_plan(seen.facts, seen.times)
    if tries.sender is not Sender.DISPATCHER or tries.used_up or plan is None:
        return LostRace()
    state = advance(OPERATION, OperationState.UNKNOWN, OperationEvent.RESEND_ALLOWED)
    kept = Outcome(outcome=AttemptOutcome.UNKNOWN, error_class=row["error_class"], error_text=row["error_text"])
    moved = yield from held_row(
        "settle_if_unmoved", **key_params(key), version=version, **columns(state, kept, EvidenceKind.REPLY)
    )
    yield from settle_case(key, CaseKind.UNKNOWN_OUTCOME)
    yield from put_off(key, moved, why=None, until=plan.until)
    return moved
