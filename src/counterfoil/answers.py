"""What a caller of `perform` is told: the receipt, or the error that says what happened, why, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.durations import utc_text
from counterfoil.core.effects import (
    AlreadySettled,
    AwaitsApproval,
    Closed,
    Held,
    MayClaim,
    Mismatch,
    NeedsApproval,
    NotCallers,
    OtherVersion,
    PastRetention,
    Ungranted,
    Unsettled,
    WrongEffect,
)
from counterfoil.core.explain import named
from counterfoil.core.states import PERMITTING, OperationState, Sender
from counterfoil.core.unknown import AskAgainAt, AskProvider, PersonDecides, Resend
from counterfoil.errors import (
    ApprovalExpired,
    ApprovalRejected,
    ApprovalRequired,
    CommitUnknown,
    DifferentEffect,
    EffectNotSent,
    EffectRefused,
    EffectVersionMissing,
    FenceLost,
    FingerprintMismatch,
    NotGranted,
    OperationClosed,
    OperationError,
    OperationExpired,
    OperationInProgress,
    OperationParked,
    OperationQueued,
    OutcomeNotStored,
    OutcomeUnknown,
    Retry,
    StoreError,
    UsageError,
)
from counterfoil.storage import rows
from counterfoil.storage.scripts.claims import Seen
from counterfoil.storage.scripts.lookups import MayRetry, StillUnknown
from counterfoil.storage.scripts.settling import Settled

if TYPE_CHECKING:
    from counterfoil.effects import Bound, Effect
    from counterfoil.model import OperationKey, Receipt
    from counterfoil.storage.script import Row


def conclude(effect: Effect[Any], bound: Bound, seen: object, cause: BaseException | None) -> Receipt[Any]:
    """Return the receipt of a settled operation, or raise what stands in the way.

    Raises:
        OperationError: the operation cannot go on now; the class says why.
    """
    key = bound.key
    match seen:
        case Settled(row):
            return rows.receipt(row, "lookup")
        case Seen(AlreadySettled(), row) if row["state"] == OperationState.SUCCEEDED:
            return rows.receipt(row, "receipt")
        case Seen(AlreadySettled(), row):
            raise refused(key, row) from cause
        case Seen(PastRetention(), row):
            raise expired(key, row)
        case MayRetry() | Seen(MayClaim()):
            raise _mistake(cause, not_sent(key, cause))
        case Seen(Unsettled(plan), row, case) | StillUnknown(plan, row, case):
            raise _own(cause, unknown(key, plan, row, case))
        case Seen(Mismatch(), row):
            raise mismatch(effect, bound, row)
        case Seen(decision):
            raise unpermitted(key, seen) or standing_in_the_way(key, effect, decision)
        case _:
            raise TypeError(f"no answer for {seen!r}")


def _facts(key: OperationKey) -> dict[str, Any]:
    return {"tenant": key.tenant, "operation_id": key.operation_id}


def in_progress(key: OperationKey, held: Held, row: Row) -> OperationInProgress:
    """Tell a loser who holds the operation, since when, and what comes next."""
    return OperationInProgress(
        f"Operation {key} is being performed by {held.holder} since {held.age / 1000:.1f} s (attempt {row['attempt']})."
        f" Nothing was sent. Ask again: it is settled by then, or from {utc_text(held.until)} on it counts as unknown.",
        **_facts(key),
        age_ms=held.age,
        holder=held.holder,
        until=held.until,
    )


def refused(key: OperationKey, row: Row) -> EffectRefused:
    """Repeat a stored refusal."""
    why = row["error_text"] or row["error_class"] or "closed by a verdict"
    return EffectRefused(
        f"Operation {key} was refused for good at {utc_text(row['settled_at'])}: {why}. Nothing happened and nothing is"
        " sent again; a new try is a new operation with its own id.",
        **_facts(key),
        reason=why,
        error_class=row["error_class"],
    )


def expired(key: OperationKey, row: Row) -> OperationExpired:
    """Tell when and how an operation ended whose receipt is kept no longer."""
    return OperationExpired(
        f"Operation {key} {row['state']} at {utc_text(row['settled_at'])}; its receipt was purged since, as its"
        " retention is over. Nothing was sent, and nothing will be under this id. Give another business action another"
        " id.",
        **_facts(key),
        settled_at=row["settled_at"],
        outcome=row["state"],
    )


def not_sent(key: OperationKey, cause: BaseException | None) -> EffectNotSent:
    """Tell a caller that nothing happened and that it may call again."""
    why = f" ({type(cause).__module__}.{type(cause).__qualname__})" if cause is not None else ""
    return EffectNotSent(
        f"Operation {key} provably did not happen in this try{why}. Calling perform again is safe.",
        **_facts(key),
        retry_after=getattr(cause, "retry_after", None),
    )


def not_stored(key: OperationKey, result: object, error: StoreError) -> OutcomeNotStored:
    """Tell a caller that its effect ended, but that the database did not take the outcome, as far as is known."""
    told, then = ("its outcome could not be stored", "When")
    if isinstance(error, CommitUnknown):
        told, then = ("nobody knows whether its outcome is stored", "Calling perform again tells. If it is not, when")
    return OutcomeNotStored(
        f"The effect of operation {key} ended ({type(result).__name__.lower()}), but {told} ({error.code}: the error"
        f" that this one was raised from says why). {then} the claim's lease is over, the operation counts as unknown"
        " and is looked up or decided by a person; it is not sent again on a guess. What the effect returned is in this"
        " error's `result`: keep it.",
        **_facts(key),
        result=getattr(result, "value", None),
    )


def _mistake(cause: BaseException | None, answer: EffectNotSent) -> UsageError | EffectNotSent:
    """Return the caller's own mistake first, where that kept the effect from being sent."""
    for mistake in (cause, cause.__cause__ if cause is not None else None):
        if isinstance(mistake, UsageError):
            return mistake
    answer.__cause__ = cause
    return answer


def _own(cause: BaseException | None, answer: OutcomeUnknown) -> UsageError | OutcomeUnknown:
    """Return what a caller is told of an attempt that was lost: its own mistake first, where it was one.

    An effect that ends in a misuse of this package may have sent something before, so its outcome is unknown all the
    same; but the mistake must be seen to be mended.
    """
    if isinstance(cause, UsageError):
        cause.add_note(answer.message)
        return cause
    answer.__cause__ = cause
    return answer


def unknown(key: OperationKey, plan: object, row: Row, case: Row | None) -> OutcomeUnknown:
    """Tell a caller that nobody knows, and how that is settled."""
    case_id = rows.case_id(case["seq"]) if case is not None else None
    error = OutcomeUnknown(
        f"The outcome of operation {key} is unknown (attempt {row['attempt']}:"
        f" {row['error_text'] or row['error_class'] or 'no answer'}). It may or may not have happened; nothing is"
        f" sent on a guess. {_next(plan, case_id)}",
        **_facts(key),
        case_id=case_id,
        ask_again_at=plan.at if isinstance(plan, AskAgainAt) else None,
    )
    if isinstance(plan, Resend):
        error.retry = Retry.SAFE  # the provider's key makes a repeat harmless
    return error


def _next(plan: object, case_id: str | None) -> str:
    resolve = f"A person settles it: counterfoil review {'show ' + case_id if case_id else 'list'}"
    match plan:
        case Resend(until):
            return f"Calling perform again before {utc_text(until)} is safe: the provider honours the operation's key."
        case AskAgainAt(at):
            again = f"from {utc_text(at)} on that proves absence, so call again then."
            return f"The provider does not show it; {again} {resolve}"
        case AskProvider():
            return f"Calling perform again asks the provider. {resolve}"
        case PersonDecides(why):
            return f"{resolve} ({why})."
        case _:
            return resolve


def unpermitted(key: OperationKey, seen: Seen) -> OperationError | None:
    """Say that an operation is not permitted, or not any more, if that is what keeps a caller from it."""
    match seen:
        case Seen(Ungranted()):
            return ungranted(key)
        case Seen(AwaitsApproval() | NeedsApproval(), row, approval=approval):
            return approval_required(key, row, approval)
        case Seen(Closed(state), row, approval=approval) if approval is not None:
            return undecided(key, state, row, approval)
        case _:
            return None


def ungranted(key: OperationKey) -> NotGranted:
    """Say that nobody permitted an operation beforehand, in a program where that is needed."""
    return NotGranted(
        f"Operation {key} was not granted with these arguments, and this program is strict. Nothing was sent, and the"
        " attempt is in the audit trail. Trusted code grants it before the run: cf.grants.issue(effect, tenant=...,"
        " ...). A person may permit it, too: cf.approvals.request(effect, ...).",
        **_facts(key),
    )


def approval_required(key: OperationKey, row: Row | None, approval: Row | None) -> ApprovalRequired:
    """Tell a caller that a person must decide first, and where."""
    approval_id = None if approval is None else rows.approval_id(approval["seq"])
    decide_by = None if row is None else row["decide_by"]
    if approval_id is None:
        how = "Nobody was asked: ask with cf.approvals.request(effect, ...) before."
    else:
        until = "" if decide_by is None else f", until {utc_text(decide_by)}"
        how = f"A person decides{until}: counterfoil approvals show {approval_id} --tenant {key.tenant}"
    return ApprovalRequired(
        f"Operation {key} may not be sent without an approval. Nothing was sent. {how}",
        **_facts(key),
        approval_id=approval_id,
        decide_by=decide_by,
        effect=None if approval is None else approval["effect"],
        fingerprint=None if approval is None else codec.text_digest(approval["content_digest"]),
    )


def undecided(key: OperationKey, state: OperationState, row: Row, approval: Row) -> OperationClosed:
    """Tell a caller that a person, or time, kept the operation from being sent, for good."""
    never = "Nothing was sent and nothing will be; another business action takes another id."
    if approval["state"] in PERMITTING:  # it is not what ended the operation
        why, since = row["error_text"] or "nobody said why", utc_text(row["settled_at"])
        return OperationClosed(f"Operation {key} is {state} since {since}: {why}. {never}", **_facts(key))
    at, by = utc_text(approval["decided_at"]), approval["decided_by"]
    if state is OperationState.REJECTED:
        return ApprovalRejected(
            f"Operation {key} was rejected by {by} at {at}: {approval['reason']}. {never}",
            **_facts(key),
            decided_by=by,
            decided_at=approval["decided_at"],
            reason=approval["reason"],
        )
    if state is OperationState.EXPIRED:
        return ApprovalExpired(f"Operation {key} expired at {at}: {approval['reason']}. {never}", **_facts(key))
    why = f"edited by {by}; {approval['followed_by']} follows it" if approval["followed_by"] else approval["reason"]
    return OperationClosed(f"Operation {key} was cancelled by {by} at {at}: {why}. {never}", **_facts(key))


def mismatch(effect: Effect[Any], bound: Bound, row: Row) -> FingerprintMismatch:
    """Name the arguments that differ; their values are never shown."""
    fields = codec.differing_fields(row["field_digests"], bound.distinct, ignore=effect.not_identity)
    differ = "differs" if len(fields) == 1 else "differ"
    stored, given = codec.text_digest(row["identity_digest"]), codec.text_digest(bound.digests.identity)
    return FingerprintMismatch(
        f"Operation {bound.key} exists with other arguments: {', '.join(fields)} {differ}"
        f" (stored {stored[:17]}, given {given[:17]}). Nothing was sent. Use the first arguments, or another id if"
        " this is another business action.",
        **_facts(bound.key),
        fields=fields,
        stored=stored,
        given=given,
    )


def superseded(key: OperationKey, row: Row) -> FenceLost:
    """Tell a late worker the truth, with the winner's receipt if there is one."""
    won = row["state"] == OperationState.SUCCEEDED
    state = "another attempt settled it" if won else f"it is now {row['state']} (attempt {row['attempt']})"
    return FenceLost(
        f"This worker lost its claim on operation {key} while the effect ran; {state}. What it learnt is kept as"
        " evidence, and a case is open if two effects may exist: counterfoil review list.",
        **_facts(key),
        receipt=rows.receipt(row, "receipt") if won else None,
    )


def standing_in_the_way(key: OperationKey, effect: Effect[Any], decision: object) -> OperationError:
    """Say what keeps a caller from an operation that is not its to send."""
    match decision:
        case WrongEffect(stored):
            return DifferentEffect(
                f"Operation {key} belongs to effect {stored}, not to {effect.name}. Nothing was sent. Put the effect's"
                " name into its key template, or use another id.",
                **_facts(key),
                stored=stored,
            )
        case OtherVersion(stored):
            return EffectVersionMissing(
                f"Operation {key} was begun under version {stored} of {effect.name} and is not settled; version"
                f" {effect.version} may not go on with it. Nothing was sent. Keep version {stored} declared until such"
                " operations are settled.",
                **_facts(key),
                stored=stored,
            )
        case Closed(state):
            return OperationClosed(
                f"Operation {key} is {state}: nothing was sent and nothing will be. Why: counterfoil explain"
                f" {_named(key)}. If it is wanted after all, give it another id.",
                **_facts(key),
            )
        case NotCallers(OperationState.PARKED):
            return OperationParked(
                f"Operation {key} used up its tries and waits for a person. Nothing was sent now. To try it again or to"
                f" give it up: counterfoil outbox show {_named(key)}",
                **_facts(key),
            )
        case NotCallers(state, sender):
            who = "the dispatcher" if sender is Sender.DISPATCHER else "an approval"
            return OperationQueued(
                f"Operation {key} is {state} and is left to {who}. Nothing was sent now. When it is:"
                f" counterfoil explain {_named(key)}",
                **_facts(key),
            )
        case _:
            raise TypeError(f"no answer for {decision!r}")


def _named(key: OperationKey) -> str:
    return named(key.operation_id, key.tenant)
