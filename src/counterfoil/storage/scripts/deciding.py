"""Scripts by which people decide about operations; each locks the operation's row before all others of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from counterfoil import codec
from counterfoil.core.access import Actor, compared
from counterfoil.core.approvals import (
    ENDS,
    EVENTS,
    MOVES,
    AlreadyApplied,
    DecidedOtherwise,
    MayDecide,
    OwnRequest,
    Question,
    Ruling,
    TimeOver,
    Written,
    decide_ruling,
    editors_of,
    root_of,
    successor_of,
)
from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.entries import is_waiting
from counterfoil.core.machine import advance
from counterfoil.core.outbox import Act, Permitted, decide_act
from counterfoil.core.states import (
    OPERATION,
    ApprovalEvent,
    ApprovalState,
    OperationEvent,
    OperationState,
    Sender,
    WorkflowStatus,
)
from counterfoil.model import OperationKey
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, Wake, all_rows, held_row, one_row
from counterfoil.storage.scripts import audit, gates
from counterfoil.storage.scripts.moves import has_lost_attempt, key_params, standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """The content that a person wrote in place of what was asked about; `own_id` is the id that its arguments give."""

    digests: codec.Digests
    payload: bytes
    own_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decides."""

    ruling: Ruling
    actor: Actor
    reason: str
    follower: Follower | None = None


@dataclass(frozen=True, slots=True)
class NoApproval:
    """No approval with this id exists for this tenant."""


@dataclass(frozen=True, slots=True)
class Decided:
    """It is decided, by this or, where it is not new, by an earlier decision that says the same."""

    approval: Row
    operation: Row
    is_new: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What is written is there already, as an operation under an id of its own."""

    operation: Row


@dataclass(frozen=True, slots=True)
class Hindered:
    """It cannot be decided like this any more, or not by this person; the approval as it is."""

    why: DecidedOtherwise | TimeOver | OwnRequest | Taken
    approval: Row
    operation: Row
    again: Row | None = None
    """What is asked now, where a decision ran out."""


Answer = Decided | NoApproval | Hindered


def decide(tenant: str, seq: int, decision: Decision) -> Script[Answer]:
    """Decide about an approval, once and for all, and let its operation go, or end it."""
    found = yield from one_row("get_approval", tenant=tenant, seq=seq)
    if found is None:
        return NoApproval()
    key = OperationKey(tenant=tenant, operation_id=found["operation_id"])
    row = yield from _locked(key, numbers=decision.ruling is Ruling.EDIT)
    approval = yield from one_row("get_approval", tenant=tenant, seq=seq)
    if row is None or approval is None:
        return NoApproval()  # it is kept no longer
    match decide_ruling((yield from _question(approval, row, decision.ruling)), decision.ruling, by=decision.actor.who):
        case MayDecide():
            there = yield from _there_already(key, decision.follower)
            if there is not None:
                return Hindered(Taken(there), approval, row)
            return (yield from _decided(key, row, approval, decision))
        case AlreadyApplied() if (yield from _has_run_out(key, row, approval)):
            again = yield from _asked_again(key, row, approval)
            ended = yield from held_row("get_approval", tenant=tenant, seq=seq)
            return Hindered(DecidedOtherwise(), ended, row, again)
        case AlreadyApplied():
            return Decided(approval, row, is_new=False)
        case TimeOver() as why:
            yield from gates.expire(key, row)
            yield from _wake(row)
            return Hindered(why, (yield from held_row("get_approval", tenant=tenant, seq=seq)), row)
        case why:
            return Hindered(why, approval, row)


def _there_already(key: OperationKey, follower: Follower | None) -> Script[Row | None]:
    """Return the operation that was asked for with what is written now, under the id that its own arguments give."""
    if follower is None or follower.own_id == root_of(key.operation_id):
        return None
    return (yield from one_row("get_operation", tenant=key.tenant, operation_id=follower.own_id))


def _locked(key: OperationKey, *, numbers: bool) -> Script[Row | None]:
    """Lock an operation, and before it the thread that it may wake, as everybody does who locks both.

    Whoever `numbers` one that follows it locks the one that was asked for first, too.
    """
    there = yield from one_row("get_operation", **key_params(key))
    if there is not None and there["thread_id"] is not None:
        yield from one_row("lock_thread", tenant=key.tenant, thread_id=there["thread_id"])
    if numbers:
        yield from gates.lock_intent(key)
    return (yield from one_row("lock_operation", **key_params(key)))


def _has_run_out(key: OperationKey, row: Row, approval: Row) -> Script[bool]:
    """Say whether an operation is to be asked about again that was approved: its decision ran out before the send."""
    is_over = row["approved_until"] is not None and row["approved_until"] <= approval["now"]
    if approval["state"] != ApprovalState.APPROVED or row["state"] != OperationState.PENDING or not is_over:
        return False
    return not (yield from has_lost_attempt(key, row))


def _asked_again(key: OperationKey, row: Row, approval: Row) -> Script[Row]:
    yield from gates.ask_again(key, row, gates.stored_gate(approval), gates.asking_of(approval))
    return (yield from held_row("get_newest_approval", **key_params(key)))


def find_decision(tenant: str, seq: int, decision: Decision) -> Script[Answer | None]:
    """Look up whether this very decision is recorded, whose COMMIT nobody heard of."""
    approval = yield from one_row("get_approval", tenant=tenant, seq=seq)
    if approval is None or approval["decided_by"] != decision.actor.shown or approval["reason"] != decision.reason:
        return None
    if ApprovalState(approval["state"]) is not ENDS[decision.ruling]:
        return None
    key = OperationKey(tenant=tenant, operation_id=approval["operation_id"])
    if decision.follower is not None:
        written = yield from one_row("get_operation", tenant=tenant, operation_id=approval["followed_by"])
        if written is None or written["content_digest"] != decision.follower.digests.content:
            return None
    return Decided(approval, (yield from held_row("get_operation", **key_params(key))), is_new=True)


def _question(approval: Row, row: Row, ruling: Ruling) -> Script[Question]:
    barred = {approval["requested_by"]}
    if approval["needs_another"] and ruling is Ruling.APPROVE:
        barred |= yield from _editors(approval)
    return Question(
        state=ApprovalState(approval["state"]),
        operation=OperationState(row["state"]),
        decide_by=approval["decide_by"] if row["decide_by"] is None else row["decide_by"],
        is_spent=approval["spent_at"] is not None,
        barred=frozenset(compared(name) for name in barred if name is not None),
        now=approval["now"],  # it was read after the lock, for which this may have waited
    )


def _editors(approval: Row) -> Script[frozenset[str]]:
    """Read who wrote the operation that is asked about, or one of those that lead to it: some of it may be theirs."""
    if approval["edited_by"] is None and approval["follows"] is None:
        return frozenset()
    asked = yield from all_rows("list_approvals_of_root", tenant=approval["tenant"], root_id=approval["root_id"])
    written = {one["operation_id"]: Written(by=one["edited_by"], follows=one["follows"]) for one in asked}
    return editors_of(approval["operation_id"], written)


def _decided(key: OperationKey, row: Row, approval: Row, decision: Decision) -> Script[Decided]:
    follower_id = None
    if decision.follower is not None:
        follower_id = successor_of(root_of(key.operation_id), (yield from gates.next_number(key)))
    ended = yield from gates.end(
        key,
        approval,
        EVENTS[decision.ruling],
        by=decision.actor.shown,
        reason=decision.reason,
        followed_by=follower_id,
    )
    moved = yield from _moved(key, row, ended, decision)
    if decision.follower is not None and follower_id is not None:
        yield from _follow(key, approval, follower_id, decision.follower, edited_by=decision.actor.shown)
    yield from _noted(key, approval, ended, decision, request_id=row["request_id"])
    yield from _wake(row)
    return Decided(ended, moved, is_new=True)


_DEED = {Ruling.APPROVE: Deed.APPROVE, Ruling.REJECT: Deed.REJECT, Ruling.EDIT: Deed.EDIT, Ruling.CANCEL: Deed.WITHDRAW}


def _noted(key: OperationKey, approval: Row, ended: Row, decision: Decision, *, request_id: str | None) -> Script[None]:
    """Note who decided what about which content; where it was edited, what is asked about instead."""
    content = codec.text_digest(approval["content_digest"])
    written = "" if decision.follower is None else f" {codec.text_digest(decision.follower.digests.content)}"
    yield from audit.note(
        decision.actor,
        _DEED[decision.ruling],
        Subject(Kind.APPROVAL, rows.approval_id(approval["seq"]), key.operation_id),
        tenant=key.tenant,
        reason=decision.reason,
        before=f"{approval['state']} {content}",
        after=f"{ended['state']}{written}",
        request_id=request_id,
    )


def _moved(key: OperationKey, row: Row, ended: Row, decision: Decision) -> Script[Row]:
    if decision.ruling is not Ruling.APPROVE:
        why = f"{ENDS[decision.ruling]} by {decision.actor.shown}"
        why += f": {decision.reason}" if decision.reason else ""
        return (yield from gates.close(key, row, MOVES[decision.ruling], why=why))
    return (
        yield from held_row(
            "permit_operation_if_unmoved",
            **key_params(key),
            version=row["version"],
            approved_until=ended["valid_until"],
            state=advance(OPERATION, OperationState(row["state"]), OperationEvent.APPROVED),
            expected_state=row["state"],
        )
    )


def _follow(key: OperationKey, approval: Row, follower_id: str, content: Follower, *, edited_by: str) -> Script[None]:
    gate = gates.stored_gate(approval)
    row = yield from held_row(
        "insert_follower",
        **key_params(key),
        follower_id=follower_id,
        state=gates.AWAITING,
        identity_digest=content.digests.identity,
        content_digest=content.digests.content,
        field_digests=codec.pack_fields(content.digests),
        payload=content.payload,
        decide_within=gate.decide_within,
    )
    asking = replace(gates.asking_of(approval), edited_by=edited_by, follows=key.operation_id)
    yield from gates.ask(replace(key, operation_id=follower_id), row, gate, asking)


def _wake(row: Row) -> Script[None]:
    """Let the workflow go on that waits for the decision."""
    if row["thread_id"] is None:
        return
    thread = {"tenant": row["tenant"], "thread_id": row["thread_id"]}
    woken = yield from one_row("wake_decided_thread", **thread)
    if woken is not None and is_waiting(WorkflowStatus(woken["status"])):
        yield Wake(thread["tenant"], thread["thread_id"], woken["graph"], woken["graph_version"])


def cancel_all(tenant: str, thread_id: str, *, by: Actor, reason: str, enqueued: bool) -> Script[None]:
    """End all that a thread has asked for and not sent yet, as it goes on no more; each is noted.

    What it `enqueued` is left to a worker, and may outlive it.
    """
    found = yield from all_rows("list_undone_of_thread", tenant=tenant, thread_id=thread_id)
    for one in found:
        key = OperationKey(tenant=tenant, operation_id=one["operation_id"])
        row = yield from one_row("lock_operation", **key_params(key))
        if row is None or not (enqueued or row["sender"] == Sender.CALLER):
            continue
        # it may have been sent while its lock was waited for
        if isinstance(decide_act(Act.CANCEL, (yield from standing(key, row))), Permitted):
            yield from gates.end_unused(key, ApprovalEvent.CANCELLED, by=by.shown, reason=reason)
            why = f"cancelled by {by.shown}: {reason}"
            closed = yield from gates.close(key, row, OperationEvent.CANCELLED, why=why)
            yield from audit.note(
                by,
                Deed.CANCEL,
                Subject(Kind.OPERATION, key.operation_id),
                tenant=tenant,
                reason=reason,
                before=row["state"],
                after=closed["state"],
                request_id=row["request_id"],
            )
