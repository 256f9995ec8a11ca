"""Scripts of the ledger: look, claim, settle, and what a look-up or a late reply changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.effects import (
    AlreadySettled,
    ClaimDecision,
    MayClaim,
    NothingToAdd,
    SameEffect,
    SettlesIt,
    Superseded,
    Unsettled,
    Wanted,
    decide_claim,
    decide_late,
)
from counterfoil.core.machine import advance, sources
from counterfoil.core.states import (
    OPERATION,
    AttemptOutcome,
    CaseKind,
    CaseState,
    EvidenceKind,
    OperationEvent,
    OperationState,
    Sender,
)
from counterfoil.core.unknown import (
    AnswerPlan,
    AskAgainAt,
    Happened,
    PersonDecides,
    ProvedAbsent,
    Resend,
    decide_answer,
    resend_plan,
)
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, one_row, user_code
from counterfoil.storage.scripts.moves import (
    Outcome,
    archive_attempt,
    columns,
    end_attempt,
    keep,
    key_params,
    mark_lost,
    open_case,
    prove_absent,
    prove_happened,
    settle_case,
    settle_unmoved,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.model import LookupAnswer, OperationKey, Origin, ProviderFacts, Trusted

_CLAIMED = advance(OPERATION, OperationState.PENDING, OperationEvent.CLAIMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything a claim needs to know of the operation that is asked for."""

    key: OperationKey
    effect: str
    effect_version: int
    facts: ProviderFacts
    digests: codec.Digests
    payload: bytes
    holder: str
    trusted: Trusted
    origin: Origin
    known_dead: str | None = None

    @property
    def id(self) -> dict[str, Any]:
        """Return the key as parameters."""
        return {"tenant": self.key.tenant, "operation_id": self.key.operation_id}

    @property
    def wanted(self) -> Wanted:
        """Return what decisions compare the row with."""
        return Wanted(
            effect=self.effect,
            effect_version=self.effect_version,
            identity=self.digests.identity,
            known_dead=self.known_dead,
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns that every new operation starts with."""
        return {
            **self.id,
            "effect": self.effect,
            "effect_version": self.effect_version,
            "sender": Sender.CALLER.value,
            "identity_digest": self.digests.identity,
            "content_digest": self.digests.content,
            "field_digests": codec.pack_fields(self.digests),
            "provider": rows.facts_text(self.facts),
            **rows.trusted_columns(self.trusted),
            **rows.origin_columns(self.origin),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The caller holds the claim and may run the effect once, with the stored payload."""

    attempt: int
    fence: int
    claimed_at: int
    deadline: int
    payload: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another caller moved the row first; read again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The claim was not granted: why, the row it was judged by, and its open case if the outcome is unknown."""

    decision: ClaimDecision
    row: Row
    case: Row | None = None


@dataclass(frozen=True, slots=True)
class NoRow:
    """Nobody has asked for this operation yet."""


ClaimResult = Granted | LostRace | Seen


def look(request: Request) -> Script[Seen | NoRow]:
    """Read what is known, changing nothing."""
    row = yield from one_row("look_at_operation", **request.id)
    if row is None:
        return NoRow()
    return (yield from _judge(request, row))


def _judge(request: Request, row: Row) -> Script[Seen]:
    decision = decide_claim(rows.snapshot(row, request.facts), request.wanted)
    if isinstance(decision, AlreadySettled):
        return Seen(decision, row)
    return Seen(decision, row, (yield from _unknown_case(request.key, row)))


def _unknown_case(key: OperationKey, row: Row) -> Script[Row | None]:
    if row["state"] != OperationState.UNKNOWN:
        return None
    kind = CaseKind.UNKNOWN_OUTCOME
    return (yield from one_row("get_open_case", **key_params(key), kind=kind, expected_state=CaseState.OPEN))


def claim(request: Request) -> Script[ClaimResult]:
    """Take the claim, or say what stands in the way; a lease that ran out turns into an unknown outcome here."""
    new = yield from one_row(
        "insert_claimed_operation",
        **request.columns(),
        state=_CLAIMED.value,
        payload=request.payload,
        holder=request.holder,
        lease=request.facts.lease,
        time_limit=request.facts.time_limit,
    )
    if new is not None:
        return _granted({**new, "content_digest": request.digests.content})
    seen = yield from look(request)
    match seen:
        case NoRow():
            return LostRace()
        case Seen(MayClaim(), row):
            return (yield from _take(request, row, OperationEvent.CLAIMED))
        case Seen(Unsettled(expired=True), row):
            return (yield from _expire(request, row))
        case Seen(Unsettled(plan=Resend()), row):
            return (yield from _resend(request, row))
        case _:
            return seen


def find_claim(request: Request) -> Script[Granted | Seen | NoRow]:
    """Look up whether a claim whose COMMIT nobody heard of took effect: then its holder is in the row."""
    row = yield from one_row("get_operation", **request.id)
    if row is None:
        return NoRow()
    if row["holder"] == request.holder:
        return _granted(row)
    return (yield from _judge(request, row))


def _granted(row: Row) -> Granted:
    return Granted(
        attempt=row["attempt"],
        fence=row["fence"],
        claimed_at=row["claimed_at"],
        deadline=row["attempt_deadline"],
        payload=row["payload"],
        content=row["content_digest"],
    )


def _take(request: Request, row: Row, *events: OperationEvent) -> Script[Granted | LostRace]:
    state = OperationState(row["state"])
    for event in events:
        state = advance(OPERATION, state, event)
    taken = yield from one_row(
        "take_operation_if_unmoved",
        **request.id,
        state=state,
        version=row["version"],
        holder=request.holder,
        lease=request.facts.lease,
        time_limit=request.facts.time_limit,
    )
    if taken is None:
        return LostRace()
    return _granted({**taken, "content_digest": row["content_digest"]})


def _expire(request: Request, row: Row) -> Script[ClaimResult]:
    """Move a claim whose lease ran out to `unknown`, then go on by what may be done with it."""
    died = row["holder"] == request.known_dead
    what = "the process that performed it died" if died else "the lease ran out"
    moved = yield from mark_lost(request.key, row, reason=f"{what} before an outcome was recorded")
    if moved is None:
        return LostRace()
    seen = yield from _judge(request, moved)
    match seen:
        case Seen(Unsettled(plan=Resend()), _):
            return (yield from _resend(request, moved))
        case _:
            return seen


def claim_resend(request: Request, version: int) -> Script[Granted | LostRace]:
    """Claim another attempt under the provider's key, after a look-up that settled nothing."""
    row = yield from one_row("get_operation", **request.id)
    if row is None or row["version"] != version:
        return LostRace()
    seen = rows.snapshot(row, request.facts)
    if resend_plan(seen.facts, seen.times) is None:
        return LostRace()
    return (yield from _resend(request, row))


def _resend(request: Request, row: Row) -> Script[Granted | LostRace]:
    taken = yield from _take(request, row, OperationEvent.RESEND_ALLOWED, OperationEvent.CLAIMED)
    if isinstance(taken, Granted):
        yield from settle_case(request.key, CaseKind.UNKNOWN_OUTCOME)
    return taken


# --- settling --------------------------------------------------------------------------------------------------------


_EVENT = {
    AttemptOutcome.SUCCEEDED: OperationEvent.RETURNED,
    AttemptOutcome.NOT_SENT: OperationEvent.NOT_SENT,
    AttemptOutcome.REFUSED: OperationEvent.REFUSED,
    AttemptOutcome.UNKNOWN: OperationEvent.OUTCOME_LOST,
}
_LATE_EVENT = _EVENT | {
    AttemptOutcome.SUCCEEDED: OperationEvent.PROVED_HAPPENED,
    AttemptOutcome.NOT_SENT: OperationEvent.PROVED_ABSENT,
}


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome is recorded; `row` is the operation after it, `case` the one that it opened."""

    row: Row
    case: Row | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """The claim was lost before the outcome came; what that means, and the row as it is now."""

    decision: SameEffect | Superseded | NothingToAdd
    row: Row


def settle(key: OperationKey, granted: Granted, outcome: Outcome) -> Script[Settled | Late]:
    """Record an attempt's outcome if the claim still holds; otherwise keep it as evidence and say what it means."""
    event = yield from _event(key, granted, outcome)
    state = advance(OPERATION, OperationState.IN_FLIGHT, event)
    succeeded = outcome.outcome is AttemptOutcome.SUCCEEDED
    if not succeeded:
        yield from archive_attempt(key, granted.fence, outcome)
    row = yield from one_row(
        "settle_if_fenced",
        **key_params(key),
        keeps_attempt=succeeded,
        fence=granted.fence,
        expected_state=OperationState.IN_FLIGHT.value,
        **columns(state, outcome, EvidenceKind.REPLY),
    )
    if row is None:
        return (yield from _settle_late(key, granted, outcome, event))
    if state is OperationState.UNKNOWN:
        return Settled(row, (yield from open_case(key, row, CaseKind.UNKNOWN_OUTCOME, _lost_reason(outcome))))
    return Settled(row)


def _event(key: OperationKey, granted: Granted, outcome: Outcome) -> Script[OperationEvent]:
    """Say what an attempt's end means for its operation: that it was not sent tells nothing of an earlier, lost one."""
    if outcome.outcome is AttemptOutcome.NOT_SENT:
        lost = yield from one_row(
            "get_lost_attempt_before", **key_params(key), attempt=granted.attempt, outcome=AttemptOutcome.UNKNOWN
        )
        if lost is not None:
            return OperationEvent.OUTCOME_LOST
    return _EVENT[outcome.outcome]


def _settle_late(
    key: OperationKey, granted: Granted, outcome: Outcome, event: OperationEvent
) -> Script[Settled | Late]:
    row = yield from _existing(key)
    if row["attempt"] == granted.attempt and _is_recorded(row, outcome, event):
        return Settled(row, (yield from _unknown_case(key, row)))
    answer = f"attempt {granted.attempt}: {outcome.outcome}"
    yield from keep(key, granted.attempt, EvidenceKind.LATE_REPLY, answer, body=outcome.receipt)
    yield from end_attempt(key, granted.attempt, outcome)
    means = AttemptOutcome.UNKNOWN if event is OperationEvent.OUTCOME_LOST else outcome.outcome
    decision = decide_late(rows.snapshot(row), attempt=granted.attempt, outcome=means)
    match decision:
        case SettlesIt(kind):
            return (yield from _late_proof(key, row, outcome, kind))
        case SameEffect():
            if rows.contradicts(row, outcome.receipt, outcome.marker):
                why = "a late reply differs from the receipt that was stored meanwhile"
                yield from open_case(key, row, CaseKind.CONTRADICTING_RECEIPTS, why)
            return Late(decision, row)
        case Superseded(kind):
            if kind is not None:
                yield from open_case(key, row, kind, f"{answer}, after attempt {row['attempt']} had begun")
            return Late(decision, row)
        case NothingToAdd():
            return Late(decision, row)


def _is_recorded(row: Row, outcome: Outcome, event: OperationEvent) -> bool:
    """Say whether this very outcome is stored already: its first COMMIT took effect although nobody heard of it."""
    state = advance(OPERATION, OperationState.IN_FLIGHT, event)
    stored = (row["state"], row["receipt"], row["error_class"])
    by_itself = row["settled_by"] in {None, EvidenceKind.REPLY, EvidenceKind.LATE_REPLY}
    return by_itself and stored == (state, outcome.receipt, outcome.error_class)


def _late_proof(key: OperationKey, row: Row, outcome: Outcome, kind: CaseKind | None) -> Script[Settled]:
    state = advance(OPERATION, OperationState(row["state"]), _LATE_EVENT[outcome.outcome])
    moved = yield from settle_unmoved(key, row, state, outcome, EvidenceKind.LATE_REPLY)
    if kind is not None:
        yield from open_case(key, moved, kind, f"late proof that it happened, while it counted as {row['state']}")
    return Settled(moved)


# --- look-ups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """The look-up did not settle it; what comes next, the row, and its case."""

    plan: Resend | AskAgainAt | PersonDecides
    row: Row
    case: Row


@dataclass(frozen=True, slots=True)
class MayRetry:
    """The look-up proved that it did not happen; the operation is free for another attempt."""

    row: Row


LookupResult = Settled | MayRetry | LostRace | StillUnknown


def record_lookup(
    request: Request, answer: LookupAnswer, *, asked_at: int, version: int, found: Outcome | None
) -> Script[LookupResult]:
    """Record what the provider answered about an unknown outcome, and what that allows.

    Args:
        request: The operation.
        answer: The provider's answer.
        asked_at: The database's time *before* the question was put.
        version: The operation's version then; if it moved since, nothing is recorded.
        found: What to store if the answer is `Found`.
    """
    row = yield from one_row("get_operation", **request.id)
    if row is None or row["version"] != version:
        return LostRace()
    body = found.evidence if found else None
    yield from keep(request.key, row["attempt"], EvidenceKind.LOOKUP, type(answer).__name__, body=body)
    seen = rows.snapshot(row, request.facts)
    plan = decide_answer(answer, asked_at=asked_at, facts=seen.facts, times=seen.times)
    return (yield from _follow(request.key, row, plan, found))


def _follow(key: OperationKey, row: Row, plan: AnswerPlan, found: Outcome | None) -> Script[LookupResult]:
    match plan:
        case Happened():
            return Settled((yield from prove_happened(key, row, _stored(found), EvidenceKind.LOOKUP)))
        case ProvedAbsent():
            return MayRetry((yield from prove_absent(key, row, EvidenceKind.LOOKUP)))
        case Resend() | AskAgainAt() | PersonDecides():
            case_row = yield from open_case(key, row, CaseKind.UNKNOWN_OUTCOME, _plan_reason(plan))
            return StillUnknown(plan, row, case_row)


def record_verification(
    request: Request,
    answer: LookupAnswer,
    *,
    asked_at: int,
    version: int,
    found: Outcome | None,
    contradiction: str | None,
) -> Script[Row]:
    """Record what a provider answered when it was asked again.

    An unknown outcome is settled by it as by any look-up; a found effect that counts as not happened is late proof; a
    contradiction of a receipt opens a case and changes nothing else.
    """
    row = yield from _existing(request.key)
    if row["state"] == OperationState.UNKNOWN:
        yield from record_lookup(request, answer, asked_at=asked_at, version=version, found=found)
        return (yield from _existing(request.key))
    body = found.evidence if found else None
    yield from keep(request.key, row["attempt"], EvidenceKind.LOOKUP, type(answer).__name__, body=body)
    if contradiction is not None:
        yield from open_case(request.key, row, CaseKind.CONTRADICTING_RECEIPTS, contradiction)
    if found is not None and OperationState(row["state"]) in sources(OPERATION, OperationEvent.PROVED_HAPPENED):
        why = f"the provider shows the effect, while it counted as {row['state']}"
        row = yield from prove_happened(request.key, row, found, EvidenceKind.LOOKUP)
        yield from open_case(request.key, row, CaseKind.POSSIBLE_DOUBLE_EFFECT, why)
    return row


def _existing(key: OperationKey) -> Script[Row]:
    row = yield from one_row("get_operation", **key_params(key))
    if row is None:
        raise LookupError(f"operation {key} vanished")
    return row


# --- transactional effects -------------------------------------------------------------------------------------------


def transactional(
    request: Request, body: Callable[[Any], Any], encode: Callable[[Any], Outcome]
) -> Script[Settled | Seen]:
    """Run a transactional effect's body and record it, in the one transaction that holds its business rows."""
    seen = yield from look(request)
    if isinstance(seen, Seen):
        return seen
    value = yield from user_code(body)
    outcome = encode(value)
    row = yield from one_row(
        "insert_settled_operation",
        **request.columns(),
        state=advance(OPERATION, _CLAIMED, OperationEvent.RETURNED),
        receipt=outcome.receipt,
        receipt_marker=outcome.marker,
        settled_by=EvidenceKind.REPLY,
    )
    if row is None:
        raise LookupError(f"operation {request.key} appeared inside one transaction")
    return Settled(row)


# --- parts -----------------------------------------------------------------------------------------------------------


def _stored(found: Outcome | None) -> Outcome:
    if found is None:
        raise LookupError("a look-up that found the effect carries its receipt")
    return found


def _lost_reason(outcome: Outcome) -> str:
    if outcome.outcome is AttemptOutcome.NOT_SENT:
        return "the outcome of an earlier attempt was lost, and the last one was not sent"
    return f"the outcome was lost: {outcome.error_class or 'no answer'}"


def _plan_reason(plan: Resend | AskAgainAt | PersonDecides) -> str:
    match plan:
        case Resend(until):
            return f"the look-up settles nothing; sending again under the provider's key is safe until {until}"
        case AskAgainAt(at):
            return f"the provider does not show it yet; a no counts from {at} on"
        case PersonDecides(why):
            return why
