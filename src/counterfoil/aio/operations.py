"""Read operations for callers on an event loop: the same names as the blocking twin. `cf.operations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.core.arguments import CALLED
from counterfoil.operations import PAGE, check_limit, check_tenant, explained, only, wish
from counterfoil.storage.scripts import reads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.core.durations import Duration
    from counterfoil.core.explain import Explanation
    from counterfoil.model import Page
    from counterfoil.shown import Hit, Operation, OperationDetail
    from counterfoil.storage.store import AsyncStore


class AsyncOperations:
    """The operations of one database, for callers on an event loop; every read is within one tenant."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def get(self, operation_id: str, *, tenant: str) -> OperationDetail:
        """Return one operation with its attempts, evidence, cases and receipt.

        Raises:
            OperationNotFound: this tenant has no such operation.
        """
        checked, wanted = check_tenant(tenant), CALLED.text("operation_id", operation_id)
        return only(
            await self._store.read(lambda: reads.get_operation(checked, wanted), tenant=checked), wanted, checked
        )

    async def list(  # noqa: PLR0913 - one for each filter
        self,
        *,
        tenant: str,
        state: str | None = None,
        effect: str | None = None,
        request_id: str | None = None,
        thread_id: str | None = None,
        older_than: Duration | None = None,
        newer_than: Duration | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> Page[Operation]:
        """Return one page of operations, the newest first; see `Operations.list`."""
        checked = check_tenant(tenant)
        asked = wish(state, effect, request_id, thread_id, older_than, newer_than, before, limit)
        return await self._store.read(lambda: reads.list_operations(checked, asked), tenant=checked)

    async def counts(self, *, tenant: str) -> Mapping[str, int]:
        """Return how many operations are in each state; counting reads all of the tenant's rows."""
        checked = check_tenant(tenant)
        return await self._store.read(lambda: reads.count_operations(checked), tenant=checked)

    async def find(self, any_id: str, *, tenant: str, limit: int = PAGE) -> tuple[Hit, ...]:
        """Return the operations that an id of any kind leads to.

        Known kinds: operation (also the beginning of its id), case, request, workflow, thread, checkpoint, run, trace,
        and the key that a provider was given. A provider's own ids stand in receipts, which are not searched.
        """
        checked, page = check_tenant(tenant), check_limit(limit)
        wanted = CALLED.text("any_id", any_id) if any_id != "" else ""  # nothing leads nowhere
        return await self._store.read(lambda: reads.find(checked, wanted, limit=page), tenant=checked)

    async def explain(self, operation_id: str, *, tenant: str) -> Explanation:
        """Say in five lines why an operation ran, did not run, or waits.

        Raises:
            OperationNotFound: this tenant has no such operation.
        """
        return explained(await self.get(operation_id, tenant=tenant))
