"""What a reviewer is told, and how a verdict is made ready to be stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.access import acting, name_of
from counterfoil.core.access import Act
from counterfoil.core.arguments import CALLED, plain
from counterfoil.core.durations import utc_text
from counterfoil.core.json_text import InvalidJson, read_json
from counterfoil.core.reconcile import NotPermitted, StillRunning
from counterfoil.core.states import Verdict
from counterfoil.errors import (
    CaseNotFound,
    OperationError,
    OperationInProgress,
    OperationNotFound,
    VerdictConflict,
    VerdictIncomplete,
)
from counterfoil.model import VALUE_NOT_GIVEN
from counterfoil.storage import rows
from counterfoil.storage.scripts.reviews import (
    Answer,
    Moved,
    NoCase,
    NoOperation,
    NothingToJudge,
    Refusal,
    Resolved,
    Ruling,
)

if TYPE_CHECKING:
    from counterfoil.core.access import Principal
    from counterfoil.model import OperationKey
    from counterfoil.shown import Case
    from counterfoil.storage.script import Row


def ruling(
    case_id: str,
    *,
    tenant: str,
    verdict: Verdict | str,
    by: str | Principal,
    reason: str,
    evidence: str | None,
    value: object,
    expect_version: int,
) -> Ruling:
    """Make a verdict ready to be stored; without `value`, evidence that is a JSON object, array or string is it.

    Raises:
        VerdictIncomplete: the evidence, the reason or the name that it needs is missing, there is no such verdict, or
            the evidence or the value cannot be stored as what it looks like.
        InvalidArguments: one is of another type.
        CaseNotFound: the principal is another tenant's.
        NotAllowed: its role does not permit verdicts.
    """
    CALLED.text("case_id", case_id)
    CALLED.number("expect_version", expect_version)
    if evidence is not None:
        CALLED.words("evidence", evidence)
    facts = {"tenant": tenant, "operation_id": "", "case_id": case_id}
    chosen = _verdict(verdict, facts)
    reason = plain(CALLED.words("reason", reason))
    text = evidence if evidence and evidence.strip() else None
    if missing := _missing(chosen, name_of(by), reason, has_proof=text is not None or value is not ...):
        raise _incomplete(f"The verdict {chosen} on {case_id} needs {missing}.", facts)
    if value is not ... and chosen is not Verdict.HAPPENED:
        raise _incomplete(f"The verdict {chosen} on {case_id} takes no value: only what happened has one.", facts)
    actor = acting(by, act=Act.VERDICT, tenant=tenant, unknown=lambda: case_not_found(case_id, tenant))
    shown = _shown(text, facts)
    result = shown if value is ... and shown is not text else value
    receipt, marker = _receipt(result, facts) if chosen is Verdict.HAPPENED else (None, None)
    return Ruling(
        verdict=chosen,
        by=actor,
        reason=reason,
        expect_version=expect_version,
        receipt=receipt,
        marker=marker,
        evidence=_proof(actor.shown, reason, shown, value),
    )


def json_value(text: str, *, case_id: str, tenant: str) -> Any:
    """Read the value that a verdict gives the receipt.

    Raises:
        VerdictIncomplete: it is no JSON, or holds NaN or an infinity.
    """
    try:
        return read_json(text)
    except InvalidJson as wrong:
        raise _incomplete(
            f"The value for {case_id} is not JSON: {wrong}. Write what the effect would have returned, such as"
            " '{\"id\": 981}', '\"TICKET-981\"' (a text keeps its quotes), 17 or null.",
            {"tenant": tenant, "operation_id": "", "case_id": case_id},
        ) from None


def _shown(text: str | None, facts: dict[str, Any]) -> Any:
    """Return the evidence: read if it begins like a JSON object, array or string, otherwise the text itself."""
    if text is None or not text.lstrip().startswith(("{", "[", '"')):
        return text
    try:
        return read_json(text)
    except InvalidJson as wrong:
        raise _incomplete(
            f"The evidence for {facts['case_id']} begins like JSON and is not: {wrong}. Mend it, or begin it with a"
            " word if it is meant as text.",
            facts,
        ) from None


def _receipt(value: object, facts: dict[str, Any]) -> tuple[bytes, str | None]:
    """Return a receipt's value as stored, and the marker that stands for none."""
    if value is ...:
        return codec.encode(None), VALUE_NOT_GIVEN
    encoded = codec.encode_receipt(value)
    if encoded.marker is not None:
        raise _incomplete(f"The value for {facts['case_id']} cannot be stored: {encoded.marker}.", facts)
    return encoded.body, None


def _proof(by: str, reason: str, shown: Any, value: object) -> bytes | None:
    """Return what is kept of a verdict beside its words."""
    if shown is None and value is ...:
        return None
    given = {} if value is ... else {"value": value}
    return codec.encode_receipt({"by": by, "reason": reason, "evidence": shown, **given}).body


def _incomplete(why: str, facts: dict[str, Any]) -> VerdictIncomplete:
    advice = "Nothing was recorded; give what is missing, so that whoever asks later knows what the verdict rests on."
    return VerdictIncomplete(f"{why} {advice}", **facts)


def _verdict(verdict: Verdict | str, facts: dict[str, Any]) -> Verdict:
    try:
        return Verdict(verdict)
    except ValueError:
        raise VerdictIncomplete(
            f"There is no verdict {verdict!r}. Write one of: {', '.join(Verdict)}.", **facts
        ) from None


def _missing(verdict: Verdict, by: str, reason: str, *, has_proof: bool) -> str | None:
    if not by:
        return "by: who gives it"
    match verdict:
        case Verdict.HAPPENED if not has_proof:
            return "evidence: the provider's id of what happened, or what shows it; or the value itself"
        case Verdict.DID_NOT_HAPPEN_RETRY | Verdict.DID_NOT_HAPPEN_CLOSE if not reason:
            return "a reason: how it is known that it did not happen"
        case _:
            return None


# --- answers ---------------------------------------------------------------------------------------------------------


def resolved(case_id: str, tenant: str, answer: Answer, given: Ruling) -> Case:
    """Return the case as the verdict left it, or raise what stands in the way.

    Raises:
        CaseNotFound: there is no such case.
        VerdictConflict: another verdict was first, or the case or its operation moved.
        OperationInProgress: an attempt is under way.
    """
    match answer:
        case Resolved(case, _):
            return rows.case(case)
        case NoCase():
            raise case_not_found(case_id, tenant)
        case Moved(case):
            raise conflict(rows.case(case), given)
        case Refusal(why, case, operation):
            raise refusal(why, rows.case(case), operation, given)


def case_not_found(case_id: str, tenant: str | None) -> CaseNotFound:
    """Say that there is no such case."""
    where = f" of tenant {tenant}" if tenant else ""
    return CaseNotFound(
        f"No case {case_id}{where} exists. See the ones that wait with: counterfoil review list.",
        tenant=tenant or "",
        operation_id="",
        case_id=case_id,
    )


def operation_not_found(operation_id: str, tenant: str | None) -> OperationNotFound:
    """Say that there is no such operation."""
    where = f" of tenant {tenant}" if tenant else ""
    return OperationNotFound(
        f"No operation {operation_id}{where} exists. Check the id, the tenant and the database, or look for any other"
        f" id with: counterfoil find {operation_id}",
        tenant=tenant or "",
        operation_id=operation_id,
    )


def conflict(case: Case, given: Ruling) -> VerdictConflict:
    """Name who was first, when and with what."""
    facts = {"tenant": case.tenant, "operation_id": case.operation_id, "case_id": case.case_id}
    show = f"See it as it is now with: counterfoil review show {case.case_id}"
    if case.verdict is not None and case.verdict_at is not None:
        told = f"was already resolved by {case.verdict_by} at {utc_text(case.verdict_at)} as {case.verdict}"
    elif case.version != given.expect_version:
        told = f"is at version {case.version}, and was judged as it stood at version {given.expect_version}"
    else:
        told = f"is {case.state}: evidence answered it"
    return VerdictConflict(
        f"Case {case.case_id} of operation {case.operation_id} {told}. The verdict {given.verdict} was not recorded."
        f" {show}",
        **facts,
        verdict=case.verdict,
        verdict_by=case.verdict_by,
        verdict_at=case.verdict_at,
        version=case.version,
    )


def refusal(why: StillRunning | NotPermitted, case: Case, operation: Row, given: Ruling) -> OperationError:
    """Say why a verdict cannot be given."""
    match why:
        case StillRunning():
            return running(operation)
        case NotPermitted(permitted):
            return VerdictConflict(
                f"Case {case.case_id} ({case.kind}) of operation {case.operation_id}, which is {operation['state']},"
                f" takes {', '.join(permitted)}, not {given.verdict}. Nothing was recorded.",
                tenant=case.tenant,
                operation_id=case.operation_id,
                case_id=case.case_id,
                permitted=permitted,
            )


def running(operation: Row) -> OperationInProgress:
    """Say that an attempt is under way, so that its outcome cannot be known yet."""
    until, now = operation["lease_until"], operation["now"]
    return OperationInProgress(
        f"Operation {operation['operation_id']} (tenant {operation['tenant']}) is being performed by"
        f" {operation['holder']} (attempt {operation['attempt']}); nobody can judge its outcome before that ends, at"
        f" {utc_text(until)} at the latest. Nothing was recorded.",
        tenant=operation["tenant"],
        operation_id=operation["operation_id"],
        age_ms=now - operation["claimed_at"],
        holder=operation["holder"],
        until=until,
    )


def opened(key: OperationKey, answer: Row | NoOperation | NothingToJudge) -> Case:
    """Return the case that was opened, or raise why there is none.

    Raises:
        OperationNotFound: there is no such operation.
        OperationInProgress: an attempt is under way.
        VerdictConflict: its outcome is known.
    """
    match answer:
        case NoOperation():
            raise operation_not_found(key.operation_id, key.tenant)
        case NothingToJudge(row, None):
            raise VerdictConflict(
                f"Operation {key} is {row['state']}: there is no outcome to judge. See why with: counterfoil explain"
                f" {key.operation_id}",
                tenant=key.tenant,
                operation_id=key.operation_id,
            )
        case NothingToJudge(row, _):
            raise running(row)
        case _:
            return rows.case(answer)
