"""The moves that several scripts share: an operation to its next state, its attempt, its evidence, its case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.machine import advance, sources
from counterfoil.core.outbox import LONGEST_WAIT_MS, Standing, decide_absent, pause
from counterfoil.core.states import (
    ATTEMPT,
    OPERATION,
    TERMINAL,
    AttemptEvent,
    AttemptOutcome,
    CaseEvent,
    CaseKind,
    CaseState,
    EvidenceKind,
    OperationEvent,
    OperationState,
    Sender,
    WorkflowStatus,
)
from counterfoil.core.states import CASE as CASE_TABLE
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, Wake, all_rows, held_row, one_row

if TYPE_CHECKING:
    from counterfoil.model import OperationKey


RAN_OUT = "the lease ran out"
DIED = "the process that performed it died"
"""Why a claim ended without an outcome."""
_NOBODY_KNOWS = {OperationState.UNKNOWN, OperationState.IN_FLIGHT}
"""What a workflow that is parked on an operation waits for the end of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an attempt, as it is to be stored."""

    outcome: AttemptOutcome
    receipt: bytes | None = None
    marker: str | None = None
    evidence: bytes | None = None
    error_class: str | None = None
    error_text: str | None = None
    covers_earlier: bool = True


_ATTEMPT_EVENT = {
    AttemptOutcome.SUCCEEDED: AttemptEvent.RETURNED,
    AttemptOutcome.NOT_SENT: AttemptEvent.NOT_SENT,
    AttemptOutcome.REFUSED: AttemptEvent.REFUSED,
    AttemptOutcome.UNKNOWN: AttemptEvent.LOST,
}


def mark_lost(key: OperationKey, row: Row, *, why: str = RAN_OUT) -> Script[Row]:
    """Move an operation in flight, whose row is locked, to `unknown` and open its case.

    Where an earlier attempt has replied late, the operation has happened, whatever became of this one.
    """
    reason = f"{why} before an outcome was recorded"
    outcome = Outcome(outcome=AttemptOutcome.UNKNOWN, error_text=reason)
    proof = yield from proof_before(key, row["attempt"])
    event = OperationEvent.OUTCOME_LOST if proof is None else OperationEvent.EARLIER_PROVED
    stored = columns(advance(OPERATION, OperationState(row["state"]), event), *(proof or (outcome, EvidenceKind.REPLY)))
    yield from archive_attempt(key, row["fence"], outcome)
    moved = yield from held_row("settle_if_unmoved", **key_params(key), version=row["version"], **stored)
    if proof is None:
        yield from open_case(key, moved, CaseKind.UNKNOWN_OUTCOME, reason)
    return moved


def proof_before(key: OperationKey, attempt: int) -> Script[tuple[Outcome, EvidenceKind] | None]:
    """Read what an earlier attempt returned after its claim was lost, as the outcome that it proves."""
    kind, succeeded = EvidenceKind.LATE_REPLY, AttemptOutcome.SUCCEEDED
    row = yield from one_row("get_proof_before", **key_params(key), attempt=attempt, kind=kind, outcome=succeeded)
    return None if row is None else (Outcome(outcome=succeeded, receipt=row["body"]), kind)


def has_lost_attempt(key: OperationKey, row: Row) -> Script[bool]:
    """Say whether nobody knows what became of one of an operation's attempts."""
    lost = yield from one_row(
        "get_lost_attempt_before", **key_params(key), attempt=row["attempt"] + 1, outcome=AttemptOutcome.UNKNOWN
    )
    return lost is not None


def standing(key: OperationKey, row: Row) -> Script[Standing]:
    """Read how an operation stands, for whoever wants to end it or to try it again."""
    attempts = yield from all_rows("list_attempts", **key_params(key))
    return Standing(
        sender=Sender(row["sender"]),
        state=OperationState(row["state"]),
        attempt=row["attempt"],
        outcomes=tuple(AttemptOutcome(one["outcome"]) for one in attempts),
    )


def unknown_again(key: OperationKey, row: Row, why: str) -> Script[Row]:
    """Move an operation that was to be sent again after a lost reply, and may not be any more, to `unknown`."""
    state = advance(OPERATION, OperationState(row["state"]), OperationEvent.RESEND_OVER)
    kept = Outcome(outcome=AttemptOutcome.UNKNOWN, error_class=row["error_class"], error_text=row["error_text"])
    moved = yield from held_row(
        "settle_if_unmoved", **key_params(key), version=row["version"], **columns(state, kept, EvidenceKind.REPLY)
    )
    yield from open_case(key, moved, CaseKind.UNKNOWN_OUTCOME, f"an attempt's outcome was lost, and {why}")
    return moved


def prove_absent(key: OperationKey, row: Row, by: EvidenceKind) -> Script[Row]:
    """Free an operation for another attempt: the one whose outcome was unknown provably did not happen."""
    absent = Outcome(outcome=AttemptOutcome.NOT_SENT)
    return (yield from move(key, row, decide_absent(rows.tries(row)), absent, by))


def prove_happened(key: OperationKey, row: Row, outcome: Outcome, by: EvidenceKind) -> Script[Row]:
    """Settle an operation that turned out to have happened."""
    return (yield from move(key, row, OperationEvent.PROVED_HAPPENED, outcome, by))


def move(key: OperationKey, row: Row, event: OperationEvent, outcome: Outcome, by: EvidenceKind) -> Script[Row]:
    """Take an operation and its last attempt where an event leads that another source than its claim reported."""
    state = advance(OPERATION, OperationState(row["state"]), event)
    yield from end_attempt(key, row["attempt"], outcome)
    if outcome.outcome is AttemptOutcome.NOT_SENT:  # proof that it did not happen holds for every attempt until now
        yield from all_rows(
            "end_lost_attempts", **key_params(key), lost=AttemptOutcome.UNKNOWN, outcome=outcome.outcome
        )
    moved = yield from settle_unmoved(key, row, state, outcome, by)
    if moved["sender"] == Sender.DISPATCHER:
        yield from put_off(key, moved, why="it provably did not happen, and no try is left")
    return moved


def put_off(key: OperationKey, row: Row, *, why: str | None, wait: int = 0, until: int | None = None) -> Script[None]:
    """Let an intent that was not sent wait before its next attempt, or open a dead letter's case.

    Args:
        key: The operation.
        row: It as it is now; where it is neither pending nor parked, nothing is done.
        why: What the case says.
        wait: How long its provider asked to wait, in milliseconds.
        until: When it may not be sent any more: its outcome is unknown then.
    """
    match OperationState(row["state"]):
        case OperationState.PENDING:
            delay, state = min(wait, LONGEST_WAIT_MS), OperationState.PENDING
            params = {"pause": pause(row["attempt"]), "delay": delay, "expires_at": until, "expected_state": state}
            yield from one_row("postpone_intent", **key_params(key), **params)
        case OperationState.PARKED:
            yield from open_case(key, row, CaseKind.DEAD_LETTER, f"its tries are used up; the last one: {why}")
        case _:
            pass


def key_params(key: OperationKey) -> dict[str, Any]:
    """Return a key as parameters."""
    return {"tenant": key.tenant, "operation_id": key.operation_id}


def columns(state: OperationState, outcome: Outcome, by: EvidenceKind) -> dict[str, Any]:
    """Return the columns that an outcome sets."""
    terminal = state in TERMINAL
    return {
        "state": state.value,
        "terminal": terminal,
        "receipt": outcome.receipt,
        "receipt_marker": outcome.marker,
        "settled_by": by.value if terminal else None,
        "evidence": outcome.evidence,
        "error_class": outcome.error_class,
        "error_text": outcome.error_text,
    }


def settle_unmoved(
    key: OperationKey, row: Row, state: OperationState, outcome: Outcome, by: EvidenceKind
) -> Script[Row]:
    """Move an operation by other means than its claim; evidence answers its case, and a workflow waits no longer."""
    moved = yield from held_row(
        "settle_if_unmoved", **key_params(key), version=row["version"], **columns(state, outcome, by)
    )
    yield from settle_case(key, CaseKind.UNKNOWN_OUTCOME)
    if row["state"] == OperationState.PARKED:
        yield from settle_case(key, CaseKind.DEAD_LETTER)
    if moved["thread_id"] is not None and state not in _NOBODY_KNOWS:
        yield from _wake_parked(key, moved["thread_id"])
    return moved


def _wake_parked(key: OperationKey, thread_id: str) -> Script[None]:
    """Let the workflow go on that is parked on an operation; its row is not waited for, and a sweeper finds it, too."""
    parked = {"thread_id": thread_id, "expected_status": WorkflowStatus.WAITING}
    row = yield from one_row("wake_parked_workflow", **key_params(key), **parked)
    if row is not None:
        yield Wake(key.tenant, thread_id, row["graph"], row["graph_version"])


def archive_attempt(key: OperationKey, fence: int, outcome: Outcome) -> Script[None]:
    """Record how the attempt under way ends, if this is still its claim; a success stays in the operation's row.

    That saves the two statements that its own record would take where all goes well.
    """
    yield from one_row(
        "archive_attempt",
        **key_params(key),
        fence=fence,
        expected_state=OperationState.IN_FLIGHT,
        outcome=outcome.outcome,
        error_class=outcome.error_class,
        error_text=outcome.error_text,
    )


def end_attempt(key: OperationKey, attempt: int, outcome: Outcome) -> Script[None]:
    """Record what became of an earlier attempt unless better is known: a time-out does not undo a look-up's proof."""
    replaces = sources(ATTEMPT, _ATTEMPT_EVENT[outcome.outcome])
    yield from one_row(
        "end_attempt_if_weaker",
        **key_params(key),
        attempt=attempt,
        replaces=" ".join(f'"{each}"' for each in sorted(replaces)),
        outcome=outcome.outcome,
        error_class=outcome.error_class,
        error_text=outcome.error_text,
    )


def keep(
    key: OperationKey, attempt: int, kind: EvidenceKind, answer: str, *, body: bytes | None = None, by: str = ""
) -> Script[None]:
    """Keep a piece of evidence."""
    yield from one_row(
        "insert_evidence", **key_params(key), attempt=attempt, kind=kind, answer=answer, body=body, given_by=by
    )


def open_case(key: OperationKey, row: Row, kind: CaseKind, reason: str) -> Script[Row]:
    """Open a case of one kind, or renew the reason of the one that is open."""
    opened = yield from one_row(
        "open_case", **key_params(key), kind=kind, state=CaseState.OPEN, attempt=row["attempt"], reason=reason
    )
    if opened is None:
        raise LookupError(f"the case of operation {key} vanished")
    return opened


def settle_case(key: OperationKey, kind: CaseKind) -> Script[None]:
    """Close the open case of one kind, because evidence answered it."""
    state = advance(CASE_TABLE, CaseState.OPEN, CaseEvent.EVIDENCE)
    yield from one_row("settle_open_case", **key_params(key), kind=kind, state=state, expected_state=CaseState.OPEN)


def existing(key: OperationKey) -> Script[Row]:
    """Read an operation that is known to be there, to be moved in this transaction."""
    row = yield from one_row("lock_operation", **key_params(key))
    if row is None:
        raise LookupError(f"operation {key} vanished")
    return row
