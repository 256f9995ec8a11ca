"""Scripts that record what a provider answered when it was asked, and what that allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.core.machine import sources
from counterfoil.core.states import (
    OPERATION,
    CaseKind,
    EvidenceKind,
    OperationEvent,
    OperationState,
)
from counterfoil.core.unknown import (
    AnswerPlan,
    AskAgainAt,
    Happened,
    PersonDecides,
    ProvedAbsent,
    Resend,
    decide_answer,
)
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, one_row
from counterfoil.storage.scripts import gates
from counterfoil.storage.scripts.claims import LostRace, Request
from counterfoil.storage.scripts.moves import (
    Outcome,
    existing,
    keep,
    open_case,
    prove_absent,
    prove_happened,
)
from counterfoil.storage.scripts.settling import Settled

if TYPE_CHECKING:
    from counterfoil.model import LookupAnswer, OperationKey


LOOKUP = "a look-up"
"""Who ended an approval that was asked for while the provider shows the effect."""


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
    row = yield from one_row("lock_operation", **request.id)
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
            yield from gates.unused(key, row)
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
    row = yield from existing(request.key)
    if row["state"] == OperationState.UNKNOWN:
        yield from record_lookup(request, answer, asked_at=asked_at, version=version, found=found)
        return (yield from existing(request.key))
    body = found.evidence if found else None
    yield from keep(request.key, row["attempt"], EvidenceKind.LOOKUP, type(answer).__name__, body=body)
    if contradiction is not None:
        yield from open_case(request.key, row, CaseKind.CONTRADICTING_RECEIPTS, contradiction)
    if found is not None and OperationState(row["state"]) in sources(OPERATION, OperationEvent.PROVED_HAPPENED):
        why = f"the provider shows the effect, while it counted as {row['state']}"
        yield from gates.end_overtaken(request.key, by=LOOKUP)
        row = yield from prove_happened(request.key, row, found, EvidenceKind.LOOKUP)
        yield from open_case(request.key, row, CaseKind.POSSIBLE_DOUBLE_EFFECT, why)
    return row


def _stored(found: Outcome | None) -> Outcome:
    if found is None:
        raise LookupError("a look-up that found the effect carries its receipt")
    return found


def _plan_reason(plan: Resend | AskAgainAt | PersonDecides) -> str:
    match plan:
        case Resend(until):
            return f"the look-up settles nothing; sending again under the provider's key is safe until {until}"
        case AskAgainAt(at):
            return f"the provider does not show it yet; a no counts from {at} on"
        case PersonDecides(why):
            return why
