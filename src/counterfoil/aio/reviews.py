"""Review for callers on an event loop: the same names as the blocking twin. `cf.review`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.active import refuse_nested
from counterfoil.core.arguments import CALLED
from counterfoil.errors import CommitUnknown
from counterfoil.model import OperationKey
from counterfoil.operations import PAGE, check_limit, check_tenant
from counterfoil.reviewing import case_not_found, opened, resolved, ruling
from counterfoil.reviews import case_state, number
from counterfoil.storage.scripts import reads, reviews

if TYPE_CHECKING:
    from counterfoil.core.access import Principal
    from counterfoil.core.states import Verdict
    from counterfoil.model import Page
    from counterfoil.shown import Case, OperationDetail
    from counterfoil.storage.store import AsyncStore


class AsyncReviews:
    """The cases of one database, for callers on an event loop; every read and verdict is within one tenant."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def list(
        self, *, tenant: str, state: str | None = "open", after: int | None = None, limit: int = PAGE
    ) -> Page[Case]:
        """Return one page of cases, the oldest first; `state=None` also shows those that are closed."""
        checked, wanted, page = check_tenant(tenant), case_state(state), check_limit(limit)
        start = 0 if after is None else CALLED.number("after", after)
        return await self._store.read(
            lambda: reads.list_cases(checked, state=wanted, after=start, limit=page), tenant=checked
        )

    async def show(self, case_id: str, *, tenant: str) -> tuple[Case, OperationDetail]:
        """Return a case with its operation, attempts and evidence.

        Raises:
            CaseNotFound: this tenant has no such case.
        """
        checked, wanted = check_tenant(tenant), CALLED.text("case_id", case_id)
        found = await self._store.read(lambda: reads.get_case(checked, wanted), tenant=checked)
        if found is None:
            raise case_not_found(wanted, checked)
        return found

    async def open(self, operation_id: str, *, tenant: str) -> Case:
        """Return the open case about an operation's outcome, opening it if its claim ran out unnoticed.

        Raises:
            OperationNotFound: this tenant has no such operation.
            OperationInProgress: an attempt is under way.
            VerdictConflict: its outcome is known.
        """
        refuse_nested("review.open")
        key = OperationKey(tenant=check_tenant(tenant), operation_id=CALLED.text("operation_id", operation_id))
        try:
            found = await self._store.write(lambda: reviews.open_for_review(key), tenant=key.tenant)
        except CommitUnknown as lost:
            with lost.outlasting():  # asked again, it finds the case that it opened
                found = await self._store.write(lambda: reviews.open_for_review(key), tenant=key.tenant)
        return opened(key, found)

    async def resolve(
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
        """Record a person's verdict on a case; see `Reviews.resolve`."""
        refuse_nested("review.resolve")
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
            done = await self._store.write(lambda: reviews.resolve(tenant, seq, given), tenant=tenant)
        except CommitUnknown as lost:
            with lost.outlasting():
                stored = await self._store.read(lambda: reviews.find_ruling(tenant, seq, given), tenant=tenant)
            if stored is None:
                raise
            done = stored
        return resolved(case_id, tenant, done, given)
