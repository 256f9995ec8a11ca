"""Grants for blocking callers: what trusted code permits beforehand, for a strict program. `cf.grants`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from counterfoil import granting
from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.trusting import trusted_context
from counterfoil.operations import PAGE, check_limit, check_tenant
from counterfoil.storage import rows
from counterfoil.storage.scripts import grants
from counterfoil.writing import write

if TYPE_CHECKING:
    from counterfoil.core.access import Principal
    from counterfoil.core.durations import Duration
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.model import Page
    from counterfoil.shown import Grant


class Grants:
    """What was permitted beforehand in one database, for blocking callers; each call is within one tenant."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def issue(
        self,
        effect: Effect[Any],
        /,
        *,
        tenant: str | None = None,
        by: str | Principal,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        thread_id: str | None = None,
        expires_in: Duration | None = None,
        **arguments: Any,
    ) -> Grant:
        """Permit an operation with exactly these arguments; the same again renews it.

        Call it from the trusted entry of a run, never from a tool: what the model writes decides nothing here.

        Args:
            effect: A declared effect.
            tenant: Whose operation it is.
            by: Who permits it, as authenticated: a name, or a principal whose role must permit it.
            request_id: The business request that asks for it; trusted.
            workflow_id: The workflow that it belongs to; trusted.
            principal: Who will ask for it; trusted.
            thread_id: The thread that will ask for it, where the operation's id is made of it.
            expires_in: How long it may be claimed, by the database's clock; without it, without end.
            **arguments: The effect's business arguments.

        Raises:
            NotAllowed: the principal's role does not permit it.
            UsageError: the caller's code is wrong.
        """
        refuse_nested("grants.issue")
        refuse_on_loop("grants.issue", "await cf.grants.issue(...) with an AsyncCounterfoil")
        trusted = trusted_context(
            tenant=tenant,
            request_id=request_id,
            workflow_id=workflow_id,
            principal=principal,
            thread_id=thread_id,
        )
        wish = granting.wish(self._desk, effect, arguments, trusted, by, expires_in)
        maker = partial(grants.issue, wish.request, wish.actor, valid_for=wish.valid_for)
        return rows.grant(write(self._desk, maker, tenant=trusted.tenant))

    def list(self, *, tenant: str, before: int | None = None, limit: int = PAGE) -> Page[Grant]:
        """Return one page of a tenant's grants, the newest first."""
        checked, start, page = check_tenant(tenant), granting.start(before), check_limit(limit)
        found = self._desk.store.read(lambda: grants.page(checked, before=start, limit=page + 1), tenant=checked)
        return granting.paged(found, page)

    def revoke(self, grant_id: str, *, tenant: str, by: str | Principal, reason: str) -> Grant:
        """Take a grant back; what was claimed under it by now goes on. Revoked again, it stays as it is.

        Args:
            grant_id: Such as `"grant-12"`.
            tenant: Whose grant.
            by: Who does it, as authenticated.
            reason: Why.

        Raises:
            GrantNotFound: this tenant has no such grant.
            NotAllowed: the principal's role does not permit it.
        """
        refuse_nested("grants.revoke")
        refuse_on_loop("grants.revoke", "await cf.grants.revoke(...) with an AsyncCounterfoil")
        checked = check_tenant(tenant)
        seq = granting.number(grant_id, checked)
        actor, why = granting.revoker(by, reason, checked, grant_id)
        answer = write(self._desk, lambda: grants.revoke(checked, seq, actor, reason=why), tenant=checked)
        return granting.revoked(answer, grant_id, checked)
