"""Scripts of review: open the case of a claim that ran out, and record a person's verdict together with its effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.leases import is_over
from counterfoil.core.machine import advance
from counterfoil.core.outbox import MAX_ATTEMPTS
from counterfoil.core.reconcile import (
    AlreadyClosed,
    GivesValue,
    Judged,
    Moves,
    NotPermitted,
    OnlyNoted,
    StillRunning,
    decide_verdict,
    lacks_value,
)
from counterfoil.core.states import (
    CASE,
    ApprovalEvent,
    AttemptOutcome,
    CaseEvent,
    CaseKind,
    CaseState,
    EvidenceKind,
    OperationState,
    Sender,
    Verdict,
)
from counterfoil.model import VALUE_NOT_GIVEN, OperationKey
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts import gates
from counterfoil.storage.scripts.audit import note
from counterfoil.storage.scripts.moves import Outcome, existing, keep, key_params, mark_lost, move, open_case

if TYPE_CHECKING:
    from counterfoil.core.access import Actor
    from counterfoil.core.states import OperationEvent

VALUE_GIVEN = "value given"
"""How the evidence of a value begins that came after its verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A person's verdict, ready to be stored; `receipt` and `evidence` are encoded, `marker` stands for no value.

    `more` is how many new tries a dispatcher has where the verdict lets it send again.
    """

    verdict: Verdict
    by: Actor
    reason: str
    expect_version: int
    receipt: bytes | None = None
    marker: str | None = None
    evidence: bytes | None = None
    more: int = MAX_ATTEMPTS

    @property
    def has_value(self) -> bool:
        """Say whether it gives the receipt a value."""
        return self.receipt is not None and self.marker is None

    def told(self, what: str) -> str:
        """Return what its evidence says in one line."""
        return f"{what}: {self.reason}" if self.reason else str(what)

    def outcome(self) -> Outcome:
        """Return what becomes of the operation's last attempt."""
        match self.verdict:
            case Verdict.HAPPENED:
                return Outcome(
                    outcome=AttemptOutcome.SUCCEEDED,
                    receipt=self.receipt,
                    marker=self.marker,
                    evidence=self.evidence,
                )
            case Verdict.DID_NOT_HAPPEN_CLOSE:
                return Outcome(outcome=AttemptOutcome.NOT_SENT, error_text=f"closed by {self.by.shown}: {self.reason}")
            case Verdict.DID_NOT_HAPPEN_RETRY | Verdict.NOTED:
                return Outcome(outcome=AttemptOutcome.NOT_SENT)
            case _:
                assert_never(self.verdict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The verdict is recorded; the case and its operation after it."""

    case: Row
    operation: Row


@dataclass(frozen=True, slots=True)
class NoCase:
    """There is no such case, or it is another tenant's."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The case is not as the person saw it: decided, answered by evidence, or altered since."""

    case: Row


@dataclass(frozen=True, slots=True)
class Refusal:
    """The verdict cannot be given now, or not on this kind of case."""

    why: StillRunning | NotPermitted
    case: Row
    operation: Row


Answer = Resolved | NoCase | Moved | Refusal


def resolve(tenant: str, seq: int, ruling: Ruling) -> Script[Answer]:
    """Record a verdict and what it does to the operation, unless the case moved since the person saw it."""
    found = yield from one_row("get_case", tenant=tenant, seq=seq)
    if found is None:
        return NoCase()
    key = OperationKey(tenant=tenant, operation_id=found["operation_id"])
    operation = yield from existing(key)
    # The operation's lock may have been waited for while another verdict closed the case.
    case = (yield from one_row("get_case", tenant=tenant, seq=seq)) or found
    if case["version"] != ruling.expect_version:
        return Moved(case)
    answer = yield from _decide(key, case, operation, ruling)
    if isinstance(answer, Resolved):
        yield from note(
            ruling.by,
            Deed.VERDICT,
            Subject(Kind.OPERATION, key.operation_id),
            tenant=tenant,
            reason=ruling.reason,
            before=operation["state"],
            after=f"{ruling.verdict}, {answer.operation['state']}",
            request_id=operation["request_id"],
        )
    return answer


def _decide(key: OperationKey, case: Row, operation: Row, ruling: Ruling) -> Script[Answer]:
    decision = decide_verdict(_judged(case, operation), ruling.verdict, has_value=ruling.has_value)
    match decision:
        case AlreadyClosed():
            return Moved(case)
        case StillRunning() | NotPermitted():
            return Refusal(decision, case, operation)
        case GivesValue():
            return (yield from _give_value(key, case, operation, ruling))
        case OnlyNoted():
            return (yield from _close(key, case, operation, ruling))
        case Moves(event, lost_first):
            return (yield from judge(key, case, operation, ruling, event, lost_first=lost_first))
        case _:
            assert_never(decision)


def _judged(case: Row, operation: Row) -> Judged:
    case_state = CaseState(case["state"])
    return Judged(
        kind=CaseKind(case["kind"]),
        case_state=case_state,
        state=OperationState(operation["state"]),
        lease_until=operation["lease_until"],
        now=operation["now"],
        lacks_value=lacks_value(operation["receipt_marker"], case_state, case["verdict"]),
    )


def judge(
    key: OperationKey, case: Row, operation: Row, ruling: Ruling, event: OperationEvent, *, lost_first: bool
) -> Script[Answer]:
    """Close the case before the operation moves: evidence would otherwise close it as answered by itself."""
    if lost_first:
        operation = yield from mark_lost(key, operation)
    answer = yield from _close(key, case, operation, ruling)
    if isinstance(answer, Resolved):
        moved = yield from move(key, operation, event, ruling.outcome(), EvidenceKind.VERDICT)
        yield from _withdrawn(key, operation, ruling)
        if ruling.verdict is Verdict.DID_NOT_HAPPEN_RETRY and moved["sender"] == Sender.DISPATCHER:
            moved = yield from renew_tries(key, moved, ruling.more)
        return Resolved(answer.case, moved)
    return answer


def _withdrawn(key: OperationKey, operation: Row, ruling: Ruling) -> Script[None]:
    """Leave the decision unused that permitted what did not happen; where it is closed, it is not wanted any more."""
    if ruling.verdict not in {Verdict.DID_NOT_HAPPEN_RETRY, Verdict.DID_NOT_HAPPEN_CLOSE}:
        return
    yield from gates.unused(key, operation)
    if ruling.verdict is Verdict.DID_NOT_HAPPEN_CLOSE:
        yield from gates.end_unused(key, ApprovalEvent.CANCELLED, by=ruling.by.shown, reason=ruling.reason)


def renew_tries(key: OperationKey, row: Row, more: int) -> Script[Row]:
    """Let an intent that a person sends back be tried at once, so many times more, however long it has waited."""
    pending = {"state": OperationState.PENDING, "expected_state": OperationState.PENDING}
    return (
        yield from held_row("renew_tries_if_unmoved", **key_params(key), version=row["version"], more=more, **pending)
    )


def _close(key: OperationKey, case: Row, operation: Row, ruling: Ruling) -> Script[Resolved | Moved]:
    state = advance(CASE, CaseState(case["state"]), CaseEvent.VERDICT)
    closed = yield from one_row(
        "resolve_case_if_unmoved",
        tenant=key.tenant,
        seq=case["seq"],
        version=ruling.expect_version,
        state=state,
        expected_state=CaseState.OPEN,
        verdict=ruling.verdict,
        verdict_by=ruling.by.shown,
        verdict_reason=ruling.reason,
    )
    if closed is None:
        return Moved(case)
    answer = ruling.told(ruling.verdict)
    yield from keep(key, operation["attempt"], EvidenceKind.VERDICT, answer, body=ruling.evidence, by=ruling.by.shown)
    return Resolved(closed, operation)


def _give_value(key: OperationKey, case: Row, operation: Row, ruling: Ruling) -> Script[Resolved | Moved]:
    """Give a receipt the value that its verdict did not; the verdict and whose it was stay as they are."""
    state = CaseState(case["state"])
    renewed = yield from one_row(
        "renew_case_if_unmoved",
        tenant=key.tenant,
        seq=case["seq"],
        version=ruling.expect_version,
        state=advance(CASE, state, CaseEvent.VALUE_GIVEN),
        expected_state=state,
    )
    if renewed is None:
        return Moved(case)
    given = yield from held_row(
        "give_value_if_missing",
        **key_params(key),
        version=operation["version"],
        expected_marker=VALUE_NOT_GIVEN,
        receipt=ruling.receipt,
    )
    answer = ruling.told(VALUE_GIVEN)
    yield from keep(key, operation["attempt"], EvidenceKind.VERDICT, answer, body=ruling.evidence, by=ruling.by.shown)
    return Resolved(renewed, given)


def _operation(key: OperationKey) -> Script[Row]:
    row = yield from one_row("get_operation", **key_params(key))
    if row is None:
        raise LookupError(f"the operation {key} of a case vanished")
    return row


# --- a case for a claim that ran out ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoOperation:
    """There is no such operation, or it is another tenant's."""


@dataclass(frozen=True, slots=True)
class NothingToJudge:
    """The operation is in a state that leaves no question open, or an attempt is under way."""

    row: Row
    until: int | None


def open_for_review(key: OperationKey) -> Script[Row | NoOperation | NothingToJudge]:
    """Return the open case about an operation's outcome; a claim that ran out becomes unknown here."""
    row = yield from one_row("lock_operation", **key_params(key))
    if row is None:
        return NoOperation()
    match OperationState(row["state"]):
        case OperationState.IN_FLIGHT if not is_over(row["lease_until"], row["now"]):
            return NothingToJudge(row, row["lease_until"])
        case OperationState.IN_FLIGHT:
            row = yield from mark_lost(key, row)
            return (yield from case_about(key, row, CaseKind.UNKNOWN_OUTCOME))
        case OperationState.UNKNOWN:
            return (yield from case_about(key, row, CaseKind.UNKNOWN_OUTCOME))
        case OperationState.PARKED:
            return (yield from case_about(key, row, CaseKind.DEAD_LETTER))
        case _:
            return NothingToJudge(row, None)


def case_about(key: OperationKey, row: Row, kind: CaseKind) -> Script[Row]:
    """Return the operation's open case of one kind; if it has none, open it."""
    found = yield from one_row("get_open_case", **key_params(key), kind=kind, expected_state=CaseState.OPEN)
    return found or (yield from open_case(key, row, kind, "a person asked to judge it"))


def find_ruling(tenant: str, seq: int, ruling: Ruling) -> Script[Resolved | None]:
    """Say whether this very ruling is stored: its COMMIT took effect although nobody heard of it."""
    case = yield from one_row("get_case", tenant=tenant, seq=seq)
    if case is None or case["version"] <= ruling.expect_version or case["verdict"] != ruling.verdict:
        return None
    key = OperationKey(tenant=tenant, operation_id=case["operation_id"])
    kept = yield from all_rows("list_evidence", **key_params(key))
    return Resolved(case, (yield from _operation(key))) if any(_is_of(row, ruling) for row in kept) else None


def _is_of(evidence: Row, ruling: Ruling) -> bool:
    """Say whether a piece of evidence is the one that a ruling keeps."""
    same = (evidence["kind"], evidence["given_by"]) == (EvidenceKind.VERDICT, ruling.by.shown)
    told = {ruling.told(ruling.verdict), ruling.told(VALUE_GIVEN)}
    return same and evidence["body"] == ruling.evidence and evidence["answer"] in told
