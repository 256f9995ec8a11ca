"""What people decide about approvals, made ready to be stored, and what they are told; the same for both colours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from counterfoil import answers, codec
from counterfoil.access import acting
from counterfoil.core.access import Act
from counterfoil.core.approvals import OwnRequest as Barred
from counterfoil.core.approvals import Ruling
from counterfoil.core.arguments import CALLED, plain
from counterfoil.core.durations import utc_text
from counterfoil.core.effects import Mismatch, OtherVersion, PastRetention, WrongEffect
from counterfoil.core.proposals import Asked, Proposal, Unanswerable, difference, read_answer
from counterfoil.core.states import ApprovalState, OperationState
from counterfoil.credentials import redact_text
from counterfoil.desk import NOWHERE, stored_trusted
from counterfoil.effects import REGISTRY
from counterfoil.errors import (
    ApprovalNotFound,
    DecisionConflict,
    EffectVersionMissing,
    InvalidArguments,
    OperationError,
    OwnRequest,
    VerdictIncomplete,
)
from counterfoil.model import OperationKey, Page, Trusted
from counterfoil.operations import check_tenant
from counterfoil.outboxing import scope
from counterfoil.performing import Read, Write, go_on_with
from counterfoil.policy import ASKED
from counterfoil.rewriting import rewritten
from counterfoil.storage import rows
from counterfoil.storage.scripts import approvals, grants
from counterfoil.storage.scripts.deciding import Answer, Decided, Decision, Follower, Hindered, NoApproval, Taken

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from counterfoil.core.access import Principal
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.model import Origin
    from counterfoil.performing import Job
    from counterfoil.shown import Approval
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.claims import Seen

_NEED_REASON = {Ruling.REJECT, Ruling.CANCEL}
"""Decisions after which somebody will ask why."""


# --- asking ----------------------------------------------------------------------------------------------------------


def asking(
    desk: Desk, effect: Effect[Any], arguments: Mapping[str, Any], trusted: Trusted, origin: Origin = NOWHERE
) -> Job:
    """Make the entry of a caller who asks whether an operation may be sent.

    Raises:
        UsageError: the caller's code is wrong; the class says how.
    """
    job = desk.job(effect, arguments, trusted, origin)
    job.request = approvals.default_gate(job.request, ASKED.terms)
    return job


def find_or_ask(job: Job) -> Generator[Read | Write, Any, Seen]:
    """Find what was asked about an operation, or ask; where it was edited, about the one that follows it."""
    while True:
        seen: Seen | None = yield Read(lambda: approvals.look(job.request))
        if seen is None:
            seen = yield Write(lambda: approvals.request(job.request))
        if job.request.strict and isinstance(seen.decision, Mismatch | WrongEffect):
            yield Write(partial(grants.invented, job.request, seen.row))
        if seen.follower is None:
            return seen
        yield from go_on_with(job, seen.follower)


# --- deciding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """A decision that is ready to be stored, and what it is about."""

    tenant: str
    approval_id: str
    seq: int
    made: Decision


def deciding(ruling: Ruling, approval_id: str, *, tenant: str, by: str | Principal, reason: object) -> Deciding:
    """Make a decision ready to be stored.

    Raises:
        NotAllowed: the principal's role does not permit it.
        ApprovalNotFound: it is not the id of an approval, or the principal is another tenant's.
        VerdictIncomplete: the reason is missing, where that will be asked.
        InvalidArguments: one is of another type.
    """
    checked = check_tenant(tenant)
    seq = number(approval_id, checked)
    actor = acting(by, act=Act.DECIDE, tenant=checked, unknown=lambda: not_found(approval_id, checked))
    why = redact_text(plain(CALLED.words("reason", reason)))
    if not why and ruling in _NEED_REASON:
        raise VerdictIncomplete(
            f"To {ruling} {approval_id} needs a reason: whoever asks later wants to know why. Nothing was changed.",
            tenant=checked,
            operation_id="",
        )
    made = Decision(ruling=ruling, actor=actor, reason=why)
    return Deciding(tenant=checked, approval_id=approval_id, seq=seq, made=made)


def number(approval_id: object, tenant: str) -> int:
    """Return the number behind an approval's id.

    Raises:
        ApprovalNotFound: it is not the id of an approval.
    """
    text = CALLED.text("approval_id", approval_id)
    if (seq := rows.approval_seq(text)) is None:
        raise not_found(text, tenant)
    return seq


def not_found(approval_id: str, tenant: str) -> ApprovalNotFound:
    """Say that a tenant has no such approval."""
    return ApprovalNotFound(
        f"There is no approval {approval_id} of tenant {tenant}. Nothing was changed. See what there is with:"
        f" counterfoil approvals list --tenant {tenant}",
        tenant=tenant,
        operation_id="",
        approval_id=approval_id,
    )


def edited(asked: Deciding, found: tuple[Row, Row] | None, changes: object) -> Deciding:
    """Return an edit with the content that is written in place of what is asked about, under the rules of its effect.

    Of what has ended, only who ended it is left to tell.

    Raises:
        ApprovalNotFound: there is no such approval.
        EffectVersionMissing: this process does not declare the effect.
        InvalidArguments: the changes do not fit it, or change nothing.
    """
    approval_id, tenant = asked.approval_id, asked.tenant
    if found is None:
        raise not_found(approval_id, tenant)
    _, row = found
    given = dict(CALLED.arguments("changes", changes))
    if row["payload"] is None:
        return asked
    effect = REGISTRY.find(row["effect"], row["effect_version"])
    if effect is None:
        raise EffectVersionMissing(
            f"To edit {approval_id}, this process must declare the effect {row['effect']} in version"
            f" {row['effect_version']}: its rules say which arguments there can be. Import the module that declares it"
            " (--app module:cf). Nothing was changed.",
            tenant=tenant,
            operation_id=row["operation_id"],
            stored=row["effect_version"],
        )
    stored = effect.rehydrate(row["payload"])
    bound = effect.bind(rewritten(effect, stored, given), _trusted_of(effect, stored, row))
    if bound.digests.content == row["content_digest"]:
        raise InvalidArguments(f"The changes to {approval_id} change nothing: approve it as it is, or reject it.")
    follower = Follower(digests=bound.digests, payload=bound.payload, own_id=bound.key.operation_id)
    return replace(asked, made=replace(asked.made, follower=follower))


def _trusted_of(effect: Effect[Any], stored: Mapping[str, Any], row: Row) -> Trusted:
    """Return what an operation was asked for in, its thread as its own arguments call it."""
    trusted = stored_trusted(row)
    if "thread_id" not in effect.filled_in:
        return trusted
    return replace(trusted, thread_id=stored.get("thread_id", trusted.thread_id))


def proposed(answer: object, to: object) -> list[Proposal]:
    """Return what an answer to questions proposes to decide.

    Raises:
        InvalidArguments: it does not fit what was asked.
    """
    try:
        return read_answer(answer, to)
    except Unanswerable as unfit:
        raise InvalidArguments(f"The answer cannot be taken: {unfit}. Nothing was decided.") from None


def as_shown(asked: Deciding, shown: Mapping[str, Any], found: tuple[Row, Row] | None) -> Deciding:
    """Return a decision about what this person was shown.

    Raises:
        ApprovalNotFound: there is no such approval.
        InvalidArguments: the question is another one than is asked.
    """
    if found is None:
        raise not_found(asked.approval_id, asked.tenant)
    try:
        unlike = difference(shown, _asked_about(*found))
    except Unanswerable as unfit:
        raise InvalidArguments(f"The answer cannot be taken: {unfit}. Nothing was decided.") from None
    if unlike is None:
        return asked
    raise InvalidArguments(
        f"The question that was answered is not what {asked.approval_id} asks: it differs from what is stored in its"
        f" {unlike}. Nobody approves what he did not see, so nothing was decided. See what is asked:"
        f" counterfoil approvals show {asked.approval_id} --tenant {asked.tenant}"
    )


def _asked_about(approval: Row, row: Row) -> Asked:
    effect = REGISTRY.find(approval["effect"], approval["effect_version"])
    name = None if effect is None else effect.__name__
    return Asked(
        operation_id=approval["operation_id"],
        effect=approval["effect"],
        fingerprint=codec.text_digest(approval["content_digest"]),
        actions=None if name is None else frozenset({name, approval["effect"]}),
        arguments=None if row["payload"] is None else codec.decode(row["payload"]),
    )


# --- what is told ----------------------------------------------------------------------------------------------------


def decided(answer: Answer, asked: Deciding) -> Approval:
    """Return the approval as it is decided.

    Raises:
        ApprovalNotFound: this tenant has no such approval.
        OwnRequest: whoever asked for it, or wrote it, cannot permit it.
        DecisionConflict: something else was decided first, or it is too late.
    """
    made = asked.made
    match answer:
        case Decided(approval):
            return rows.approval(approval)
        case NoApproval():
            raise not_found(asked.approval_id, asked.tenant)
        case Hindered(Barred(), approval):
            raise OwnRequest(
                f"{made.actor.shown} asked for operation {approval['operation_id']}, or wrote it, and so cannot"
                f" {made.ruling} {asked.approval_id}. Somebody else must decide. Nothing was changed.",
                **_facts(approval),
            )
        case Hindered(Taken(there), approval):
            raise DecisionConflict(
                f"What the edit of {asked.approval_id} asks for is there already, as operation {there['operation_id']}"
                f" ({there['state']}). Nothing was changed. Reject {asked.approval_id} if that is enough; see it with:"
                f" counterfoil ops show {there['operation_id']} --tenant {there['tenant']}",
                **_facts(approval),
                state=approval["state"],
                decided_by=None,
                decided_at=None,
            )
        case Hindered(_, approval):
            raise _conflict(made, answer, asked.approval_id)


def _conflict(made: Decision, found: Hindered, approval_id: str) -> OperationError:
    approval, again = found.approval, found.again
    state, at = approval["state"], utc_text(approval["decided_at"] or approval["now"])
    is_late = state == ApprovalState.EXPIRED  # that is nobody's decision
    told = f"is {state} since {at}" if is_late else f"is {state} since {at}, by {approval['decided_by']}"
    if approval["reason"]:
        told += f": {approval['reason']}"
    if approval["followed_by"]:
        told += f"; {approval['followed_by']} follows it"
    if again is not None:
        told += f". It is asked about again, as {rows.approval_id(again['seq'])}"
    elif state == ApprovalState.APPROVED:
        told += f". {_sent(approval, found.operation)}"
    return DecisionConflict(
        f"The approval {approval_id} cannot be decided {'any more' if is_late else 'again'} ({made.ruling}): it {told}."
        " Nothing was changed.",
        **_facts(approval),
        state=state,
        decided_by=approval["decided_by"],
        decided_at=approval["decided_at"],
    )


def _sent(approval: Row, operation: Row) -> str:
    """Say what was sent under a decision, as far as that is known."""
    state = OperationState(operation["state"])
    if approval["spent_at"] is None:
        if state is not OperationState.PARKED:
            return "Nothing was sent yet: to withdraw it, cancel it"
        key = OperationKey(tenant=operation["tenant"], operation_id=operation["operation_id"])
        return f"Nothing was sent, and its tries are used up: to close it, counterfoil outbox skip {scope(key)}"
    at = utc_text(approval["spent_at"])
    match state:
        case OperationState.SUCCEEDED:
            return f"It was sent under that decision at {at}"
        case OperationState.FAILED:
            return f"It was tried under that decision at {at}, and it failed for good"
        case OperationState.IN_FLIGHT:
            return f"An attempt under that decision is under way since {at}"
        case _:
            return f"An attempt under that decision began at {at}, and may have sent it"


def _facts(approval: Row) -> dict[str, Any]:
    return {"tenant": approval["tenant"], "operation_id": approval["operation_id"]}


def asked(job: Job, seen: Seen) -> Approval:
    """Return what was asked about an operation; where that was edited, about the one that follows it.

    Raises:
        OperationError: it is another operation, or was sent without that anybody was asked.
    """
    match seen.decision:
        case Mismatch() | WrongEffect() | OtherVersion() | PastRetention():
            answers.conclude(job.effect, job.bound, seen, None)
    if seen.approval is None:
        raise DecisionConflict(
            f"Operation {job.key} is {seen.row['state']}, and nobody was asked before. There is nothing to decide any"
            f" more: counterfoil explain {job.key.operation_id} --tenant {job.key.tenant}",
            tenant=job.key.tenant,
            operation_id=job.key.operation_id,
            state=seen.row["state"],
            decided_by=None,
            decided_at=None,
        )
    return rows.approval(seen.approval)


def paged(found: Sequence[Approval], limit: int) -> Page[Approval]:
    """Return a page of what was found, of which one more than the limit says that another page follows."""
    items = tuple(found[:limit])
    return Page(items=items, next=rows.approval_seq(items[-1].approval_id) if len(found) > limit else None)


def wanted_state(state: object) -> ApprovalState | None:
    """Return the state that a list is narrowed to.

    Raises:
        InvalidArguments: there is no such state.
    """
    try:
        return None if state is None else ApprovalState(state)  # type: ignore[arg-type]  # what is none is refused
    except ValueError:
        raise InvalidArguments(
            f"There is no approval state {state!r}. Write one of: {', '.join(ApprovalState)}."
        ) from None
