"""What a Counterfoil for an event loop holds, each under its own name, as its blocking twin does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.aio.operations import AsyncOperations
from counterfoil.aio.outbox import AsyncOutbox
from counterfoil.aio.reviews import AsyncReviews

if TYPE_CHECKING:
    from counterfoil.aio.approvals import AsyncApprovals
    from counterfoil.aio.audit import AsyncAudit
    from counterfoil.aio.grants import AsyncGrants
    from counterfoil.aio.tenants import AsyncTenants
    from counterfoil.aio.tokens import AsyncTokens
    from counterfoil.aio.workflows import AsyncWorkflows
    from counterfoil.desk import Desk
    from counterfoil.storage.store import AsyncStore


class AsyncRooms:
    """The part of a Counterfoil that leads to its rooms, those that many programs have no need of loaded on use."""

    desk: Desk
    store: AsyncStore

    @property
    def operations(self) -> AsyncOperations:
        """Return the reads: one operation, pages of them, and what an id belongs to."""
        return AsyncOperations(self.store)

    @property
    def outbox(self) -> AsyncOutbox:
        """Return what waits to be sent, and what people do about it: pauses, dead letters, cancelling."""
        return AsyncOutbox(self.store)

    @property
    def workflows(self) -> AsyncWorkflows:
        """Return the workflows: start them, tell them events, and see where they stand."""
        from counterfoil.aio.workflows import AsyncWorkflows  # noqa: PLC0415 - many programs have none

        return AsyncWorkflows(self.desk)

    @property
    def approvals(self) -> AsyncApprovals:
        """Return what waits for a person's decision before it is sent, and the decisions."""
        from counterfoil.aio.approvals import AsyncApprovals  # noqa: PLC0415 - many programs have none

        return AsyncApprovals(self.desk)

    @property
    def grants(self) -> AsyncGrants:
        """Return what was permitted beforehand, for a strict program: grant an operation, list grants, revoke one."""
        from counterfoil.aio.grants import AsyncGrants  # noqa: PLC0415 - many programs have none

        return AsyncGrants(self.desk)

    @property
    def review(self) -> AsyncReviews:
        """Return the cases that a person must look at, and the verdicts on them."""
        return AsyncReviews(self.store)

    @property
    def tokens(self) -> AsyncTokens:
        """Return the tokens: issue, honour, rotate and revoke them."""
        from counterfoil.aio.tokens import AsyncTokens  # noqa: PLC0415 - many programs use none

        return AsyncTokens(self.store)

    @property
    def tenants(self) -> AsyncTenants:
        """Return the tenants that were created: list, suspend and resume them."""
        from counterfoil.aio.tenants import AsyncTenants  # noqa: PLC0415 - many programs use none

        return AsyncTenants(self.store)

    @property
    def audit(self) -> AsyncAudit:
        """Return the audit trail: who did what to what, and why."""
        from counterfoil.aio.audit import AsyncAudit  # noqa: PLC0415 - many programs use none

        return AsyncAudit(self.store)
