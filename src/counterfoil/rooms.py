"""What a blocking Counterfoil holds, each under its own name: operations, outbox, workflows, decisions, and who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.operations import Operations
from counterfoil.outbox import Outbox
from counterfoil.reviews import Reviews

if TYPE_CHECKING:
    from counterfoil.approvals import Approvals
    from counterfoil.audit import Audit
    from counterfoil.desk import Desk
    from counterfoil.grants import Grants
    from counterfoil.tenants import Tenants
    from counterfoil.tokens import Tokens
    from counterfoil.workflows import Workflows


class Rooms:
    """The part of a Counterfoil that leads to its rooms, those that many programs have no need of loaded on use."""

    desk: Desk

    @property
    def operations(self) -> Operations:
        """Return the reads: one operation, pages of them, and what an id belongs to."""
        return Operations(self.desk.store)

    @property
    def outbox(self) -> Outbox:
        """Return what waits to be sent, and what people do about it: pauses, dead letters, cancelling."""
        return Outbox(self.desk.store)

    @property
    def workflows(self) -> Workflows:
        """Return the workflows: start them, tell them events, and see where they stand."""
        from counterfoil.workflows import Workflows  # noqa: PLC0415 - many programs have none

        return Workflows(self.desk)

    @property
    def approvals(self) -> Approvals:
        """Return what waits for a person's decision before it is sent, and the decisions."""
        from counterfoil.approvals import Approvals  # noqa: PLC0415 - many programs have none

        return Approvals(self.desk)

    @property
    def grants(self) -> Grants:
        """Return what was permitted beforehand, for a strict program: grant an operation, list grants, revoke one."""
        from counterfoil.grants import Grants  # noqa: PLC0415 - many programs have none

        return Grants(self.desk)

    @property
    def review(self) -> Reviews:
        """Return the cases that a person must look at, and the verdicts on them."""
        return Reviews(self.desk.store)

    @property
    def tokens(self) -> Tokens:
        """Return the tokens: issue, honour, rotate and revoke them."""
        from counterfoil.tokens import Tokens  # noqa: PLC0415 - many programs use none

        return Tokens(self.desk.store)

    @property
    def tenants(self) -> Tenants:
        """Return the tenants that were created: list, suspend and resume them."""
        from counterfoil.tenants import Tenants  # noqa: PLC0415 - many programs use none

        return Tenants(self.desk.store)

    @property
    def audit(self) -> Audit:
        """Return the audit trail: who did what to what, and why."""
        from counterfoil.audit import Audit  # noqa: PLC0415 - many programs use none

        return Audit(self.desk.store)
