"""Read operations for blocking callers: one, pages of them, and what an id belongs to. `cf.operations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.core.arguments import CALLED
from counterfoil.core.durations import milliseconds
from counterfoil.core.explain import Explanation, explain
from counterfoil.core.states import OperationState
from counterfoil.core.templates import validate_id
from counterfoil.errors import InvalidArguments, TenantMissing
from counterfoil.reviewing import operation_not_found
from counterfoil.storage.rows import NEWEST
from counterfoil.storage.scripts import reads
from counterfoil.storage.scripts.reads import Wish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.core.durations import Duration
    from counterfoil.model import Page
    from counterfoil.shown import Hit, Operation, OperationDetail
    from counterfoil.storage.store import Store

PAGE = 50
"""Rows of a page unless another number is asked for."""
LONGEST_PAGE = 1_000


class Operations:
    """The operations of one database, for blocking callers; every read is within one tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, operation_id: str, *, tenant: str) -> OperationDetail:
        """Return one operation with its attempts, evidence, cases and receipt.

        Raises:
            OperationNotFound: this tenant has no such operation.
        """
        checked, wanted = check_tenant(tenant), CALLED.text("operation_id", operation_id)
        return only(self._store.read(lambda: reads.get_operation(checked, wanted), tenant=checked), wanted, checked)

    def list(  # noqa: PLR0913 - one for each filter
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
        """Return one page of operations, the newest first.

        Args:
            tenant: Whose operations.
            state: Only those in this state, such as `"unknown"`.
            effect: Only those of this effect.
            request_id: Only those of this business request.
            thread_id: Only those of this LangGraph thread.
            older_than: Only those asked for at least this long ago.
            newer_than: Only those asked for less than this long ago.
            before: The `next` of the page before.
            limit: Rows of the page, at most 1,000.

        Raises:
            InvalidArguments: there is no such state, or the limit is out of range.
        """
        checked = check_tenant(tenant)
        asked = wish(state, effect, request_id, thread_id, older_than, newer_than, before, limit)
        return self._store.read(lambda: reads.list_operations(checked, asked), tenant=checked)

    def counts(self, *, tenant: str) -> Mapping[str, int]:
        """Return how many operations are in each state; counting reads all of the tenant's rows."""
        checked = check_tenant(tenant)
        return self._store.read(lambda: reads.count_operations(checked), tenant=checked)

    def find(self, any_id: str, *, tenant: str, limit: int = PAGE) -> tuple[Hit, ...]:
        """Return the operations that an id of any kind leads to.

        Known kinds: operation (also the beginning of its id), case, request, workflow, thread, checkpoint, run, trace,
        and the key that a provider was given. A provider's own ids stand in receipts, which are not searched.
        """
        checked, page = check_tenant(tenant), check_limit(limit)
        wanted = CALLED.text("any_id", any_id) if any_id != "" else ""  # nothing leads nowhere
        return self._store.read(lambda: reads.find(checked, wanted, limit=page), tenant=checked)

    def explain(self, operation_id: str, *, tenant: str) -> Explanation:
        """Say in five lines why an operation ran, did not run, or waits.

        Raises:
            OperationNotFound: this tenant has no such operation.
        """
        return explained(self.get(operation_id, tenant=tenant))


def explained(detail: OperationDetail) -> Explanation:
    """Explain an operation as of the time when it was read."""
    return explain(detail, detail.operation.now)


def check_tenant(tenant: str) -> str:
    """Return the tenant; what is read or done is always within one.

    Raises:
        TenantMissing: none was given.
    """
    if not tenant:
        raise TenantMissing("Whatever is read or done is one tenant's: pass tenant='...'. Nothing was read or done.")
    return validate_id("tenant", tenant)


def check_limit(limit: int) -> int:
    """Return the number of rows of a page.

    Raises:
        InvalidArguments: it is out of range.
    """
    return CALLED.number("limit", limit, least=1, most=LONGEST_PAGE)


def only(found: tuple[OperationDetail, ...], operation_id: str, tenant: str | None) -> OperationDetail:
    """Return the one that was found.

    Raises:
        OperationNotFound: none was.
    """
    if not found:
        raise operation_not_found(operation_id, tenant)
    return found[0]


def wish(
    state: str | None,
    effect: str | None,
    request_id: str | None,
    thread_id: str | None,
    older_than: Duration | None,
    newer_than: Duration | None,
    before: int | None,
    limit: int,
) -> Wish:
    """Check what a list is narrowed to."""
    return Wish(
        state=_state(state),
        effect=CALLED.optional_text("effect", effect),
        request_id=CALLED.optional_text("request_id", request_id),
        thread_id=CALLED.optional_text("thread_id", thread_id),
        older_than=None if older_than is None else milliseconds(older_than, "older_than"),
        newer_than=None if newer_than is None else milliseconds(newer_than, "newer_than"),
        before=NEWEST if before is None else CALLED.number("before", before),
        limit=check_limit(limit),
    )


def _state(state: str | None) -> OperationState | None:
    try:
        return None if state is None else OperationState(state)
    except ValueError:
        raise InvalidArguments(f"There is no state {state!r}. Write one of: {', '.join(OperationState)}.") from None
