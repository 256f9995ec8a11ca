"""Ask the provider again about an operation, also after success: the ledger's word against the world's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil import answers
from counterfoil.core.effects import Mismatch, WrongEffect
from counterfoil.core.states import OperationState
from counterfoil.core.unknown import absence_counts_from
from counterfoil.errors import CommitUnknown, ContradictoryDeclaration, OperationNotFound
from counterfoil.model import Absent, CannotTell, Found, LookupAnswer
from counterfoil.performing import Job, Protocol, Read, Write, ask
from counterfoil.results import found_outcome
from counterfoil.storage import rows
from counterfoil.storage.scripts import claims, lookups
from counterfoil.storage.scripts.claims import NoRow, Seen

if TYPE_CHECKING:
    from counterfoil.storage.script import Row, Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the provider says beside what the ledger says.

    `agrees` is None where the provider could not tell, or was asked too early for a no to count, and where the ledger
    itself did not know and does not know now.
    """

    tenant: str
    operation_id: str
    state: str
    answer: LookupAnswer
    agrees: bool | None


def verify(job: Job) -> Protocol[Verification]:
    """Ask the provider about an operation and record the answer; a contradiction opens a case."""
    if job.effect.provider.lookup is None:
        raise ContradictoryDeclaration(
            f"The provider of effect {job.effect.name} cannot be asked: it declares no look-up. Add"
            " Provider(lookup=...) to be able to verify."
        )
    seen = yield Read(lambda: claims.look(job.request))
    if isinstance(seen, NoRow):
        raise OperationNotFound(
            f"No operation {job.key} exists. Check the tenant, the id's fields and the database.",
            tenant=job.key.tenant,
            operation_id=job.key.operation_id,
        )
    if isinstance(seen.decision, Mismatch | WrongEffect):
        answers.conclude(job.effect, job.bound, seen, None)
    answer = yield from ask(job, seen.row)
    row = yield from _record(job, seen, answer)
    return Verification(
        tenant=job.key.tenant,
        operation_id=job.key.operation_id,
        state=row["state"],
        answer=answer,
        agrees=_agrees(job, seen.row, row, answer),
    )


def _record(job: Job, seen: Seen, answer: LookupAnswer) -> Protocol[Row]:
    """Record the answer; after a COMMIT nobody heard of, once more: the same evidence twice says nothing else."""
    found = found_outcome(job.effect, answer) if isinstance(answer, Found) else None
    contradiction = _contradiction(job, seen.row, answer)
    asked_at, version = seen.row["now"], seen.row["version"]

    def maker() -> Script[Row]:
        return lookups.record_verification(
            job.request, answer, asked_at=asked_at, version=version, found=found, contradiction=contradiction
        )

    row: Row
    try:
        row = yield Write(maker)
    except CommitUnknown as lost:
        with lost.outlasting():
            row = yield Write(maker)
    return row


def _agrees(job: Job, row: Row, after: Row, answer: LookupAnswer) -> bool | None:
    if row["state"] in {OperationState.IN_FLIGHT, OperationState.UNKNOWN}:
        return None if after["state"] == row["state"] else True
    happened = row["state"] == OperationState.SUCCEEDED
    match answer:
        case Found():
            return happened and _contradiction(job, row, answer) is None
        case Absent():
            return not happened if _counts(job, row) else None
        case CannotTell():
            return None


def _contradiction(job: Job, row: Row, answer: LookupAnswer) -> str | None:
    """Say how the provider's answer contradicts a receipt, if it does."""
    if row["state"] != OperationState.SUCCEEDED:
        return None
    match answer:
        case Found() if _differs(job, row, answer):
            return "the provider shows another result than the receipt"
        case Absent() if _counts(job, row):
            return "the provider does not show the effect of a receipt"
        case _:
            return None


def _differs(job: Job, row: Row, found: Found) -> bool:
    told = found_outcome(job.effect, found)
    return rows.contradicts(row, told.receipt, told.marker)


def _counts(job: Job, row: Row) -> bool:
    seen = rows.snapshot(row, job.request.facts)
    counts_from = absence_counts_from(job.request.facts, seen.times)
    return counts_from is not None and seen.now > counts_from
