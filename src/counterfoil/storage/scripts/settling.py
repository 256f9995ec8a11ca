"""Scripts that record what became of an attempt, in time or late, and transactional effects in one go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.effects import (
    MayClaim,
    NothingToAdd,
    SameEffect,
    SettlesIt,
    Superseded,
    decide_late,
)
from counterfoil.core.machine import advance
from counterfoil.core.outbox import decide_unsent
from counterfoil.core.states import (
    OPERATION,
    TERMINAL,
    AttemptOutcome,
    CaseKind,
    EvidenceKind,
    OperationEvent,
    OperationState,
    Sender,
)
from counterfoil.core.unknown import all_under_key
from counterfoil.errors import NotOneRow
from counterfoil.storage import rows
from counterfoil.storage.script import (
    Row,
    Script,
    all_rows,
    lone_row,
    one_row,
    own_rows,
    recorded_row,
    settled_row,
    several_rows,
    user_code,
)
from counterfoil.storage.scripts import gates, grants
from counterfoil.storage.scripts.claims import (
    CLAIMED,
    Granted,
    LostRace,
    Request,
    Seen,
    begun,
    judge,
    take,
    unknown_case,
)
from counterfoil.storage.scripts.moves import (
    Outcome,
    archive_attempt,
    columns,
    end_attempt,
    existing,
    keep,
    key_params,
    open_case,
    proof_before,
    put_off,
    settle_unmoved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.model import OperationKey, Statement


_EVENT = {
    AttemptOutcome.SUCCEEDED: OperationEvent.RETURNED,
    AttemptOutcome.NOT_SENT: OperationEvent.NOT_SENT,
    AttemptOutcome.REFUSED: OperationEvent.REFUSED,
    AttemptOutcome.UNKNOWN: OperationEvent.OUTCOME_LOST,
}
_IN_FLIGHT = OperationState.IN_FLIGHT.value
_RETURNED = advance(OPERATION, OperationState.IN_FLIGHT, OperationEvent.RETURNED)
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


def settle(request: Request, granted: Granted, outcome: Outcome) -> Script[Settled | Late]:
    """Record an attempt's outcome if the claim still holds; otherwise keep it as evidence and say what it means."""
    if outcome.outcome is AttemptOutcome.SUCCEEDED:
        return (yield from _settle_success(request, granted, outcome, settled_row))
    return (yield from _settle_other(request, granted, outcome, wait=0))


def settle_among_others(request: Request, granted: Granted, outcome: Outcome, *, wait: int) -> Script[Settled | Late]:
    """Do the same as one of several steps of a transaction; `wait` is how long its provider asked to wait."""
    if outcome.outcome is AttemptOutcome.SUCCEEDED:
        return (yield from _settle_success(request, granted, outcome, one_row))
    return (yield from _settle_other(request, granted, outcome, wait=wait))


def _settle_other(request: Request, granted: Granted, outcome: Outcome, *, wait: int) -> Script[Settled | Late]:
    key = request.key
    row = yield from existing(key)
    proof = yield from proof_before(key, granted.attempt)
    event = (yield from _event(key, row, granted, outcome)) if proof is None else OperationEvent.EARLIER_PROVED
    state = advance(OPERATION, OperationState.IN_FLIGHT, event)
    stored, by = proof or (outcome, EvidenceKind.REPLY)
    yield from archive_attempt(key, granted.fence, outcome)
    told = yield from one_row("settle_if_fenced", **_fenced(key, granted), **columns(state, stored, by))
    if told is None:
        return (yield from _settled_elsewhere(key, granted, outcome, stored, event))
    moved = _row(request, granted.attempt, state, stored, told["now"])
    if state is OperationState.UNKNOWN:
        return Settled(moved, (yield from open_case(key, moved, CaseKind.UNKNOWN_OUTCOME, _lost_reason(outcome))))
    if outcome.outcome is AttemptOutcome.NOT_SENT and proof is None:
        yield from gates.unused(key, row)
    if row["sender"] == Sender.DISPATCHER:
        yield from put_off(key, moved, why=outcome.error_text or outcome.error_class, wait=wait)
    return Settled(moved)


def _settle_success(
    request: Request, granted: Granted, outcome: Outcome, run: Callable[..., Script[Row | None]]
) -> Script[Settled | Late]:
    """Record that the effect happened: one statement, unless the claim was lost meanwhile."""
    stored = columns(_RETURNED, outcome, EvidenceKind.REPLY)
    told = yield from run("settle_if_fenced", **_fenced(request.key, granted, keeps_attempt=True), **stored)
    if told is None:
        return (yield from _settled_elsewhere(request.key, granted, outcome, outcome, OperationEvent.RETURNED))
    return Settled(_row(request, granted.attempt, _RETURNED, outcome, told["now"]))


def settle_all(ended: Sequence[tuple[Request, Granted, Outcome]]) -> Script[dict[OperationKey, Settled]]:
    """Record that effects happened, all at once where the database can; whose claim was lost is left out."""
    told = yield from several_rows(
        "settle_all_if_fenced",
        state=_RETURNED,
        expected_state=OperationState.IN_FLIGHT,
        settled_by=EvidenceKind.REPLY,
        tenants=[request.key.tenant for request, _, _ in ended],
        operation_ids=[request.key.operation_id for request, _, _ in ended],
        fences=[granted.fence for _, granted, _ in ended],
        receipts=[outcome.receipt for _, _, outcome in ended],
        markers=[outcome.marker for _, _, outcome in ended],
        evidences=[outcome.evidence for _, _, outcome in ended],
    )
    times = {(row["tenant"], row["operation_id"]): row["now"] for row in told or ()}
    return {
        request.key: Settled(_row(request, granted.attempt, _RETURNED, outcome, now))
        for request, granted, outcome in ended
        if (now := times.get((request.key.tenant, request.key.operation_id))) is not None
    }


def _fenced(key: OperationKey, granted: Granted, *, keeps_attempt: bool = False) -> dict[str, Any]:
    """Return what guards a claim's own write; while its holder stays, the attempt's record is the operation's row."""
    return {
        "tenant": key.tenant,
        "operation_id": key.operation_id,
        "fence": granted.fence,
        "expected_state": _IN_FLIGHT,
        "keeps_attempt": keeps_attempt,
    }


def _row(request: Request, attempt: int, state: OperationState, outcome: Outcome, now: int) -> Row:
    """Return what a receipt is made of, as it was just written."""
    return {
        "tenant": request.key.tenant,
        "operation_id": request.key.operation_id,
        "effect": request.effect,
        "effect_version": request.effect_version,
        "identity_digest": request.digests.identity,
        "attempt": attempt,
        "state": state,
        "receipt": outcome.receipt,
        "receipt_marker": outcome.marker,
        "evidence": outcome.evidence,
        "settled_at": now if state in TERMINAL else None,
    }


def _settled_elsewhere(
    key: OperationKey, granted: Granted, outcome: Outcome, stored: Outcome, event: OperationEvent
) -> Script[Settled | Late]:
    recorded = yield from _recorded(key, granted, stored, event)
    return recorded or (yield from _settle_late(key, granted, outcome, event))


def _event(key: OperationKey, row: Row, granted: Granted, outcome: Outcome) -> Script[OperationEvent]:
    """Say what an attempt's end means for its operation: that it was not sent tells nothing of an earlier, lost one.

    Nor does a refusal that does not cover it, or that came after the provider's key was over: what is refused then may
    be another one.
    """
    if outcome.outcome is AttemptOutcome.NOT_SENT or (granted.attempt > 1 and not _covers(row, outcome)):
        lost = yield from one_row(
            "get_lost_attempt_before", **key_params(key), attempt=granted.attempt, outcome=AttemptOutcome.UNKNOWN
        )
        if lost is not None:
            return OperationEvent.OUTCOME_LOST
    return decide_unsent(rows.tries(row)) if outcome.outcome is AttemptOutcome.NOT_SENT else _EVENT[outcome.outcome]


def _covers(row: Row, outcome: Outcome) -> bool:
    """Say whether what came of the last attempt holds for all before it."""
    seen = rows.snapshot(row)
    return outcome.covers_earlier and all_under_key(seen.facts, first_attempt_at=seen.first_attempt_at, now=seen.now)


def _settle_late(
    key: OperationKey, granted: Granted, outcome: Outcome, event: OperationEvent
) -> Script[Settled | Late]:
    row = yield from existing(key)
    answer = f"attempt {granted.attempt}: {outcome.outcome}"
    yield from keep(key, granted.attempt, EvidenceKind.LATE_REPLY, answer, body=outcome.receipt)
    attempts = yield from all_rows("list_attempts", **key_params(key))
    counted = {each["attempt"]: AttemptOutcome(each["outcome"]) for each in attempts}.get(granted.attempt)
    yield from end_attempt(key, granted.attempt, outcome)
    means = AttemptOutcome.UNKNOWN if event is OperationEvent.OUTCOME_LOST else outcome.outcome
    decision = decide_late(rows.snapshot(row), attempt=granted.attempt, outcome=means, counted=counted)
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


def _recorded(key: OperationKey, granted: Granted, outcome: Outcome, event: OperationEvent) -> Script[Settled | None]:
    """Say whether this very outcome is stored already: its first COMMIT took effect although nobody heard of it."""
    row = yield from existing(key)
    state = advance(OPERATION, OperationState.IN_FLIGHT, event)
    stored = (row["attempt"], row["state"], row["receipt"], row["error_class"])
    by_itself = row["settled_by"] in {None, EvidenceKind.REPLY, EvidenceKind.LATE_REPLY}
    if not by_itself or stored != (granted.attempt, state, outcome.receipt, outcome.error_class):
        return None
    return Settled(row, (yield from unknown_case(key, row)))


LATE_REPLY = "a late reply"
"""Who ended an approval that was asked for while the operation had happened."""


def _late_proof(key: OperationKey, row: Row, outcome: Outcome, kind: CaseKind | None) -> Script[Settled]:
    state = advance(OPERATION, OperationState(row["state"]), _LATE_EVENT[outcome.outcome])
    if outcome.outcome is AttemptOutcome.NOT_SENT:
        yield from gates.unused(key, row)
    else:
        yield from gates.end_overtaken(key, by=LATE_REPLY)
    moved = yield from settle_unmoved(key, row, state, outcome, EvidenceKind.LATE_REPLY)
    if kind is not None:
        yield from open_case(key, moved, kind, f"late proof that it happened, while it counted as {row['state']}")
    return Settled(moved)


def transactional(request: Request, work: Callable[[], Script[Outcome]]) -> Script[Settled | Seen]:
    """Do a transactional effect's work and record it, in the one transaction that holds its business rows.

    The operation's row comes first: whoever wants the same operation waits there, before its work has done anything.
    Where a decision is needed, it is there since somebody was asked.
    """
    if (refused := (yield from grants.refusal(request))) is not None:
        return Seen(refused, {})
    new = None if request.gate is not None else (yield from _begin(request))
    if new is not None:
        granted = begun(request, new["now"])
    else:
        seen = yield from judge(request, (yield from existing(request.key)))
        if not isinstance(seen.decision, MayClaim) or seen.row["content_digest"] != request.digests.content:
            return seen
        taken = yield from take(request, seen.row, OperationEvent.CLAIMED)
        if isinstance(taken, LostRace):
            return (yield from judge(request, (yield from existing(request.key))))
        granted = taken
    outcome = yield from work()
    stored = columns(_RETURNED, outcome, EvidenceKind.REPLY)
    told = yield from lone_row("settle_if_fenced", **_fenced(request.key, granted), **stored)
    if told is None:
        raise LookupError(f"operation {request.key} moved inside one transaction")
    return Settled(_row(request, granted.attempt, _RETURNED, outcome, told["now"]))


def _begin(request: Request) -> Script[Row | None]:
    return (
        yield from one_row(
            "insert_claimed_operation",
            **request.columns(),
            state=CLAIMED.value,
            payload=None,
            holder=request.holder,
            lease=0,
            time_limit=0,
        )
    )


def by_body(body: Callable[[Any], Any], encode: Callable[[Any], Outcome]) -> Callable[[], Script[Outcome]]:
    """Return the work of an effect that is a function of the open transaction."""

    def work() -> Script[Outcome]:
        return encode((yield from user_code(body)))

    return work


def by_statement(request: Request, own: Statement[Any], *, at_once: bool = True) -> Script[Settled | Seen]:
    """Run the statement that an effect is and record its row: in one statement where the database has such.

    There, an operation that exists breaks the whole, with nothing kept of it: it must be looked at then.
    """
    if at_once and (row := (yield from _recorded_at_once(request, own))) is not None:
        return Settled(row)
    return (yield from transactional(request, lambda: _own_row(request.key, own)))


def _recorded_at_once(request: Request, own: Statement[Any]) -> Script[Row | None]:
    return (
        yield from recorded_row(
            "record_own_statement",
            own,
            **request.columns(),
            state=_RETURNED.value,
            settled_by=EvidenceKind.REPLY.value,
        )
    )


def _own_row(key: OperationKey, own: Statement[Any]) -> Script[Outcome]:
    found = yield from own_rows(own)
    if len(found) != 1:
        raise not_one_row(key, several=bool(found))
    return Outcome(outcome=AttemptOutcome.SUCCEEDED, receipt=codec.encode_row(found[0]))


def not_one_row(key: OperationKey, *, several: bool) -> NotOneRow:
    """Say that a statement returned no row, or several, and what that means."""
    how = "several rows" if several else "no row"
    return NotOneRow(
        f"The statement of operation {key} returned {how}; the one row that it returns is its receipt, so nothing was"
        " written and the operation was not begun. Let the statement meet exactly one row, or declare the effect with"
        " Provider.transactional() and look at the rows in its body.",
        tenant=key.tenant,
        operation_id=key.operation_id,
    )


def _lost_reason(outcome: Outcome) -> str:
    if outcome.outcome in {AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED}:
        how = "not sent" if outcome.outcome is AttemptOutcome.NOT_SENT else "refused without a word about that"
        return f"the outcome of an earlier attempt was lost, and the last one was {how}"
    return f"the outcome was lost: {outcome.error_class or 'no answer'}"
