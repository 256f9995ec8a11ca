"""Review for blocking callers: the cases that a person must look at, and the verdicts. `cf.review`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.arguments import CALLED
from counterfoil.core.states import CaseState, Verdict
from counterfoil.errors import CommitUnknown, InvalidArguments
from counterfoil.model import OperationKey
from counterfoil.operations import PAGE, check_limit, check_tenant
from counterfoil.reviewing import case_not_found, opened, resolved, ruling
from counterfoil.storage import rows
from counterfoil.storage.scripts import reads, reviews

if TYPE_CHECKING:
    from counterfoil.core.access import Principal
    from counterfoil.model import Page
    from counterfoil.shown import Case, OperationDetail
    from counterfoil.storage.store import Store


class Reviews:
    """The cases of one database, for blocking callers; every read and verdict is within one tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(
        self, *, tenant: str, state: str | None = "open", after: int | None = None, limit: int = PAGE
    ) -> Page[Case]:
        """Return one page of cases, the oldest first; `state=None` also shows those that are closed."""
        checked, wanted, page = check_tenant(tenant), case_state(state), check_limit(limit)
        start = 0 if after is None else CALLED.number("after", after)
        return self._store.read(
            lambda: reads.list_cases(checked, state=wanted, after=start, limit=page), tenant=checked
        )

    def show(self, case_id: str, *, tenant: str) -> tuple[Case, OperationDetail]:
        """Return a case with its operation, attempts and evidence.

        Raises:
            CaseNotFound: this tenant has no such case.
        """
        checked, wanted = check_tenant(tenant), CALLED.text("case_id", case_id)
        found = self._store.read(lambda: reads.get_case(checked, wanted), tenant=checked)
        if found is None:
            raise case_not_found(wanted, checked)
        return found

    def open(self, operation_id: str, *, tenant: str) -> Case:
        """Return the open case about an operation's outcome, opening it if its claim ran out unnoticed.

        Raises:
            OperationNotFound: this tenant has no such operation.
            OperationInProgress: an attempt is under way.
            VerdictConflict: its outcome is known.
        """
        refuse_nested("review.open")
        refuse_on_loop("review.open", "await cf.review.open(...) with an AsyncCounterfoil")
        key = OperationKey(tenant=check_tenant(tenant), operation_id=CALLED.text("operation_id", operation_id))
        try:
            found = self._store.write(lambda: reviews.open_for_review(key), tenant=key.tenant)
        except CommitUnknown as lost:
            with lost.outlasting():  # asked again, it finds the case that it opened
                found = self._store.write(lambda: reviews.open_for_review(key), tenant=key.tenant)
        return opened(key, found)

    def resolve(
        self,
        case_id: str,
        *,
        tenant: str,
        verdict: Verdict | str,
        by: str | Principal,
        expect_version: int,
        reason: str = "",
        evidence: str | None = None,
        value: object = ...,
    ) -> Case:
        """Record a person's verdict on a case; one verdict wins, and it moves the operation in the same transaction.

        Args:
            case_id: Such as `"case-12"`.
            tenant: Whose case.
            verdict: `"happened"`, `"did_not_happen_retry"` (the next perform sends it), `"did_not_happen_close"`
                (it is never sent), or `"noted"` for a case about an operation that is settled.
            by: Who gives the verdict: a name, or a principal whose role permits it.
            expect_version: The version of the case that this person saw.
            reason: How it is known; `did_not_happen` needs one.
            evidence: What shows it, in words or as JSON. A JSON object, array or quoted string is also the receipt's
                value, unless `value` gives another.
            value: What the effect would have returned; `receipt.value` from now on. If a verdict `happened` gave none,
                `receipt.value` raises ReceiptUnreadable until a second one on the same case gives it.

        Raises:
            CaseNotFound: this tenant has no such case.
            VerdictIncomplete: the evidence or the reason is missing, or is not the JSON that it looks like.
            VerdictConflict: another verdict was first, the case moved since it was seen, or takes other verdicts.
            OperationInProgress: an attempt is under way whose outcome nobody can know yet.
            NotAllowed: the principal's role does not permit verdicts.
        """
        refuse_nested("review.resolve")
        refuse_on_loop("review.resolve", "await cf.review.resolve(...) with an AsyncCounterfoil")
        given = ruling(
            case_id,
            tenant=check_tenant(tenant),
            verdict=verdict,
            by=by,
            reason=reason,
            evidence=evidence,
            value=value,
            expect_version=expect_version,
        )
        seq = number(case_id, tenant)
        try:
            done = self._store.write(lambda: reviews.resolve(tenant, seq, given), tenant=tenant)
        except CommitUnknown as lost:
            with lost.outlasting():
                stored = self._store.read(lambda: reviews.find_ruling(tenant, seq, given), tenant=tenant)
            if stored is None:
                raise
            done = stored
        return resolved(case_id, tenant, done, given)


def case_state(state: str | None) -> CaseState | None:
    """Return the state that a list of cases is narrowed to.

    Raises:
        InvalidArguments: there is no such state.
    """
    try:
        return None if state is None else CaseState(state)
    except ValueError:
        raise InvalidArguments(f"There is no case state {state!r}. Write one of: {', '.join(CaseState)}.") from None


def number(case_id: str, tenant: str) -> int:
    """Return the number behind a case's id.

    Raises:
        CaseNotFound: it is not the id of a case.
    """
    if (seq := rows.case_seq(case_id)) is None:
        raise case_not_found(case_id, tenant)
    return seq
