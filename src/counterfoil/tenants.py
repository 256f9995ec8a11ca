"""Tenants for blocking callers: create, list, suspend them and let them go on. `cf.tenants`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.arguments import CALLED
from counterfoil.errors import CommitUnknown
from counterfoil.issuing import RESUMED, SUSPENDED, created, creator, moved, mover
from counterfoil.operations import PAGE, check_limit
from counterfoil.storage import rows
from counterfoil.storage.scripts import tenants
from counterfoil.storage.tenants import ALL_TENANTS

if TYPE_CHECKING:
    from counterfoil.core.access import Principal
    from counterfoil.core.states import TenantEvent
    from counterfoil.records import Tenant
    from counterfoil.storage.store import Store


class Tenants:
    """The tenants of one database, for blocking callers; they need not be created to be used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(
        self, tenant: str, name: str | None = None, *, by: str | Principal | None = None, reason: str = ""
    ) -> Tenant:
        """Record a tenant, so that it can be suspended; the same one again is returned.

        Args:
            tenant: Its id, as calls are given it.
            name: Its name for people.
            by: Who does it; the operating-system user unless it is said.
            reason: Why.

        Raises:
            TenantExists: it is there under another name.
            NotAllowed: who does it may not.
        """
        refuse_nested("tenants.create")
        refuse_on_loop("tenants.create", "await cf.tenants.create(...) with an AsyncCounterfoil")
        checked, shown, who, why = creator(tenant, name, by, reason)
        try:
            answer = self._store.write(lambda: tenants.create(checked, shown, by=who, reason=why), tenant=ALL_TENANTS)
        except CommitUnknown as lost:
            with lost.outlasting():  # done again, it is found
                answer = self._store.write(
                    lambda: tenants.create(checked, shown, by=who, reason=why), tenant=ALL_TENANTS
                )
        return created(answer)

    def list(self, *, after: str | None = None, limit: int = PAGE) -> tuple[Tenant, ...]:
        """Return the tenants that were created, by their id: those that follow `after`, at most 1,000."""
        start, most = CALLED.optional_text("after", after) or "", check_limit(limit)
        found = self._store.read(lambda: tenants.page(None, after=start, limit=most), tenant=ALL_TENANTS)
        return tuple(rows.tenant(row) for row in found)

    def suspend(self, tenant: str, *, by: str | Principal, reason: str) -> Tenant:
        """Refuse a tenant's tokens and keep back what it enqueued, until it is resumed; what is under way goes on.

        Code that calls perform, enqueue or start with this tenant is not refused: it is whoever holds the database.

        Raises:
            TenantNotFound: no tenant of this name was created.
            VerdictIncomplete: it does not say who, or why.
            NotAllowed: who does it may not.
        """
        refuse_nested("tenants.suspend")
        refuse_on_loop("tenants.suspend", "await cf.tenants.suspend(...) with an AsyncCounterfoil")
        return self._move(tenant, SUSPENDED, by, reason)

    def resume(self, tenant: str, *, by: str | Principal, reason: str) -> Tenant:
        """Honour a suspended tenant's tokens again, and send what it enqueued, unless somebody else paused that.

        Raises:
            TenantNotFound: no tenant of this name was created.
            VerdictIncomplete: it does not say who, or why.
            NotAllowed: who does it may not.
        """
        refuse_nested("tenants.resume")
        refuse_on_loop("tenants.resume", "await cf.tenants.resume(...) with an AsyncCounterfoil")
        return self._move(tenant, RESUMED, by, reason)

    def _move(self, tenant: str, event: TenantEvent, by: str | Principal, reason: str) -> Tenant:
        checked, who, why = mover(tenant, by, reason)
        try:
            answer = self._store.write(lambda: tenants.move(checked, event, by=who, reason=why), tenant=ALL_TENANTS)
        except CommitUnknown as lost:
            with lost.outlasting():  # done again, it is so already
                answer = self._store.write(lambda: tenants.move(checked, event, by=who, reason=why), tenant=ALL_TENANTS)
        return moved(checked, answer)
