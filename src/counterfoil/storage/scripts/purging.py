"""Scripts of retention: what is kept no longer goes, and nothing that is unsettled, judged or waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.core.retention import Drop
from counterfoil.model import PURGED, OperationKey
from counterfoil.shown import Purged
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts.moves import key_params

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Due:
    """An operation as it was read, and what of it goes."""

    row: Row
    drop: Drop

    @property
    def key(self) -> OperationKey:
        """Return the operation's key."""
        return OperationKey(tenant=self.row["tenant"], operation_id=self.row["operation_id"])


def tenants(tenant: str | None) -> Script[Sequence[str]]:
    """Name one tenant, or all that have operations."""
    if tenant is not None:
        return [tenant]
    return [row["tenant"] for row in (yield from all_rows("list_tenants_any_tenant"))]


def page(tenant: str, after: int, limit: int) -> Script[Sequence[Row]]:
    """Read a page of a tenant's operations, the oldest first, as far as retention needs them."""
    return (yield from all_rows("list_operations_to_purge", tenant=tenant, after=after, limit=limit))


def tenants_with_workflows(tenant: str | None) -> Script[Sequence[str]]:
    """Name one tenant, or all that have workflows."""
    if tenant is not None:
        return [tenant]
    return [row["tenant"] for row in (yield from all_rows("list_tenants_with_workflows_any_tenant"))]


def workflow_page(tenant: str, after: int, limit: int) -> Script[Sequence[Row]]:
    """Read a page of a tenant's workflows, the oldest first, as far as retention needs them."""
    return (yield from all_rows("list_workflows_to_purge", tenant=tenant, after=after, limit=limit))


def purge_workflows(ended: Sequence[Row], *, period: int, limit: int) -> Script[Purged]:
    """Remove waits and events of workflows that ended long ago, no more than so many in one transaction."""
    total = Purged()
    for row in sorted(ended, key=lambda row: row["workflow_id"]):
        key = {"tenant": row["tenant"], "thread_id": row["workflow_id"], "version": row["version"]}
        for statement, more in (
            ("forget_waits_if_unmoved", {}),
            ("forget_events_if_unmoved", {"until": row["now"] - period}),
        ):
            if (room := limit - total.events - total.waits) > 0:
                gone = yield from all_rows(statement, **key, **more, limit=room)
                total += Purged(events=len(gone)) if more else Purged(waits=len(gone))
    return total


def purge(due: Sequence[Due]) -> Script[Purged]:
    """Remove what is due in one transaction, in the order of the ids: no two who write wait for each other."""
    total = Purged()
    for one in sorted(due, key=lambda one: one.row["operation_id"]):
        total += yield from _purge(one)
    return total


def _purge(one: Due) -> Script[Purged]:
    key = one.key
    found = yield from one_row("lock_operation_if_unneeded", **key_params(key), version=one.row["version"])
    if found is None:
        return Purged(held=1)
    match one.drop:
        case Drop.TOMBSTONE:
            yield from _forget(key)
            return Purged(tombstones=1)
        case Drop.RECEIPT:
            yield from _drop_receipt(key, one.row["version"])
            yield from _drop_payload(key)
            return Purged(receipts=1)
        case _:
            yield from _drop_payload(key)
            return Purged(payloads=1)


def _drop_payload(key: OperationKey) -> Script[None]:
    yield from all_rows("drop_bodies_of_evidence", **key_params(key))
    yield from all_rows("drop_words_of_attempts", **key_params(key))


def _drop_receipt(key: OperationKey, version: int) -> Script[None]:
    yield from held_row(
        "drop_receipt_if_unmoved",
        **key_params(key),
        version=version,
        receipt_marker=PURGED,
    )


def _forget(key: OperationKey) -> Script[None]:
    for statement in ("forget_evidence", "forget_attempts", "forget_cases", "forget_approvals", "forget_operation"):
        yield from all_rows(statement, **key_params(key))
