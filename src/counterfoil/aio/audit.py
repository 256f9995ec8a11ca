"""The audit trail for callers on an event loop: the same names as the blocking twin. `cf.audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.issuing import EXPORT_PAGE, entries_of, following, line
from counterfoil.operations import PAGE, check_tenant
from counterfoil.storage.scripts import audit
from counterfoil.storage.tenants import whose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from counterfoil.model import Page
    from counterfoil.records import AuditEntry
    from counterfoil.storage.store import AsyncStore


class AsyncAudit:
    """The audit trail of one database, for callers on an event loop; entries are added by what they tell of."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def list(
        self,
        *,
        tenant: str | None,
        subject: str | None = None,
        who: str | None = None,
        after: int | None = None,
        limit: int = PAGE,
    ) -> Page[AuditEntry]:
        """Return one page of entries, the oldest first: of a tenant, or with None of all and about all of them.

        Args:
            tenant: Whose entries.
            subject: Only those about the thing with this id: an operation, a workflow, a token, a tenant.
            who: Only those of this principal; names are compared in their one form.
            after: The `next` of the page before.
            limit: Rows of the page, at most 1,000.

        Raises:
            InvalidArguments: the limit is out of range.
        """
        checked, wish = None if tenant is None else check_tenant(tenant), entries_of(subject, who, after, limit)
        return await self._store.read(lambda: audit.page(checked, wish), tenant=whose(checked))

    async def export(self, tenant: str | None) -> AsyncIterator[str]:
        """Iterate over all entries as lines of JSON, the oldest first; no transaction is open between two pages."""
        checked, wish = None if tenant is None else check_tenant(tenant), entries_of(None, None, None, EXPORT_PAGE)
        while True:
            page = await self._read(checked, wish)
            for entry in page.items:
                yield line(entry)
            if page.next is None:
                return
            wish = following(wish, page.next)

    async def _read(self, tenant: str | None, wish: audit.Wish) -> Page[AuditEntry]:
        return await self._store.read(lambda: audit.page(tenant, wish), tenant=whose(tenant))
