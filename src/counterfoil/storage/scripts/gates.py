"""The moves by which an operation, whose row is locked, waits for a decision, and by which time ends the waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.approvals import Gate, root_of, successor_of
from counterfoil.core.machine import advance, legal
from counterfoil.core.states import APPROVAL, OPERATION, ApprovalEvent, ApprovalState, OperationEvent, OperationState
from counterfoil.credentials import redact_text
from counterfoil.storage.script import Row, Script, held_row, one_row
from counterfoil.storage.scripts.moves import key_params

if TYPE_CHECKING:
    from counterfoil.model import OperationKey

AWAITING = OperationState.AWAITING_APPROVAL
NOBODY = "nobody decided in time"
RAN_OUT = "it was not sent before the decision ran out"
BY_TIME = "time"
"""Who ended an approval that nobody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """For whom a decision is asked: which step, which principal; who edited it, and which operation it follows."""

    asker: str
    requested_by: str | None
    edited_by: str | None = None
    follows: str | None = None


def ask(key: OperationKey, row: Row, gate: Gate, asking: Asking) -> Script[Row]:
    """Ask whether an operation may be sent, whose row waits for that already; what is asked is bound to its content."""
    return (
        yield from held_row(
            "insert_approval",
            **key_params(key),
            root_id=root_of(key.operation_id),
            state=ApprovalState.PENDING,
            effect=row["effect"],
            effect_version=row["effect_version"],
            content_digest=row["content_digest"],
            asker=asking.asker,
            requested_by=asking.requested_by,
            decide_by=row["decide_by"],
            valid_for=gate.valid_for,
            needs_another=int(gate.needs_another),
            edited_by=asking.edited_by,
            follows=asking.follows,
        )
    )


def ask_again(key: OperationKey, row: Row, gate: Gate, asking: Asking) -> Script[Row]:
    """Keep an operation from being sent whose decision ran out, or that was never asked about, and ask."""
    last = yield from newest(key)
    if last is not None and last["state"] == ApprovalState.APPROVED:
        yield from end(key, last, ApprovalEvent.EXPIRED, reason=RAN_OUT)
    left = gate.decide_within if row["expires_at"] is None else row["expires_at"] - row["now"]
    held = yield from held_row(
        "hold_operation_if_unmoved",
        **key_params(key),
        version=row["version"],
        decide_within=max(0, min(gate.decide_within, left)),
        state=advance(OPERATION, OperationState(row["state"]), OperationEvent.DECISION_EXPIRED),
        expected_state=row["state"],
    )
    yield from ask(key, held, gate, asking if last is None else asking_of(last))
    return held


def expire(key: OperationKey, row: Row) -> Script[Row]:
    """End an operation about which nobody decided in time: nothing was sent of it and nothing will be."""
    last = yield from newest(key)
    if last is not None and last["state"] == ApprovalState.PENDING:
        yield from end(key, last, ApprovalEvent.EXPIRED, reason=NOBODY)
    return (yield from close(key, row, OperationEvent.DECISION_EXPIRED, why=NOBODY))


def close(key: OperationKey, row: Row, event: OperationEvent, *, why: str) -> Script[Row]:
    """End an operation of which nothing was sent."""
    return (
        yield from held_row(
            "close_intent_if_unmoved",
            **key_params(key),
            version=row["version"],
            state=advance(OPERATION, OperationState(row["state"]), event),
            expected_state=row["state"],
            error_text=why,
        )
    )


def end(
    key: OperationKey,
    approval: Row,
    event: ApprovalEvent,
    *,
    by: str = BY_TIME,
    reason: str = "",
    followed_by: str | None = None,
) -> Script[Row]:
    """Record what became of an approval."""
    state = ApprovalState(approval["state"])
    return (
        yield from held_row(
            "decide_approval_if_unmoved",
            tenant=key.tenant,
            seq=approval["seq"],
            state=advance(APPROVAL, state, event),
            expected_state=state,
            decided_by=by,
            reason=redact_text(reason),
            permits=event is ApprovalEvent.APPROVED,
            followed_by=followed_by,
        )
    )


def end_unused(key: OperationKey, event: ApprovalEvent, *, by: str = BY_TIME, reason: str) -> Script[None]:
    """End what is asked about an operation, or permitted and not used, since it came to its end by other means."""
    last = yield from newest(key)
    if last is not None and last["spent_at"] is None and event in legal(APPROVAL, ApprovalState(last["state"])):
        yield from end(key, last, event, by=by, reason=reason)


def end_overtaken(key: OperationKey, *, by: str) -> Script[None]:
    """End what is asked about an operation that turned out to have happened; `by` says what told so."""
    yield from end_unused(key, ApprovalEvent.CANCELLED, by=by, reason="it had happened by then")


def spend(key: OperationKey, row: Row) -> Script[None]:
    """Note that an operation is sent under the decision that holds, if it took one."""
    if row["approved_until"] is not None:
        yield from one_row("spend_approval", **key_params(key), state=ApprovalState.APPROVED)


def give_back(key: OperationKey, released: Row) -> Script[None]:
    """Take back that an operation is sent under a decision, as its claim was given back before the effect began."""
    if released["approved_until"] is not None:
        since = {"claimed_at": released["claimed_at"], "state": ApprovalState.APPROVED}
        yield from one_row("give_decision_back", **key_params(key), **since)


def unused(key: OperationKey, row: Row) -> Script[None]:
    """Take back that an operation is sent under a decision, as each attempt until now provably sent nothing."""
    if row["approved_until"] is not None:
        yield from one_row("leave_decision_unused", **key_params(key), state=ApprovalState.APPROVED)


def newest(key: OperationKey) -> Script[Row | None]:
    """Read what was asked last about an operation."""
    return (yield from one_row("get_newest_approval", **key_params(key)))


def lock_intent(key: OperationKey) -> Script[Row | None]:
    """Lock the operation that was asked for first, before anybody edited it: it comes before all that follow it.

    Whoever numbers another one that follows holds it, so that no two get one number.
    """
    return (yield from one_row("lock_operation", tenant=key.tenant, operation_id=root_of(key.operation_id)))


def next_number(key: OperationKey) -> Script[int]:
    """Return the number of the next operation that follows an edited one; see `lock_intent`."""
    root = root_of(key.operation_id)
    asked = {"tenant": key.tenant, "root_id": root, "digits_from": len(successor_of(root, 0))}
    newest_number: int | None = (yield from held_row("get_newest_follower", **asked))["number"]
    return (newest_number or 0) + 1


def asking_of(approval: Row) -> Asking:
    """Return for whom a decision was asked, to ask for it again."""
    return Asking(**{name: approval[name] for name in ("asker", "requested_by", "edited_by", "follows")})


def stored_gate(approval: Row) -> Gate:
    """Return the terms on which a decision was asked for, to ask for it again on the same ones."""
    return Gate(
        decide_within=approval["decide_by"] - approval["requested_at"],
        valid_for=approval["valid_for"],
        needs_another=bool(approval["needs_another"]),
    )


def held_columns(gate: Gate | None, *, time_to_live: int | None = None) -> dict[str, Any]:
    """Return what a new operation that waits for a decision has in its columns; None where it waits for none.

    What would not be sent any more is not asked about any longer.
    """
    return {
        "decide_within": None if gate is None else min(gate.decide_within, time_to_live or gate.decide_within),
        "approved_until": None if gate is None else 0,
    }
