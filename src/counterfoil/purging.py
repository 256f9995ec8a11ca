"""What `purge` does, once for both colours: page by page, each in a transaction of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from counterfoil.core.retention import Drop, Kept, Periods, decide_purge, is_long_ended
from counterfoil.core.states import OperationState, WorkflowStatus
from counterfoil.effects import REGISTRY
from counterfoil.enqueuing import recorded
from counterfoil.keeping import FOREVER, Retention, refuse_too_short
from counterfoil.model import PURGED
from counterfoil.performing import Read
from counterfoil.shown import Purged
from counterfoil.storage import rows
from counterfoil.storage.scripts import purging as scripts
from counterfoil.storage.scripts.purging import Due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.storage.script import Row
    from counterfoil.transacting import Protocol as Steps

PAGE = 200
"""Operations that are looked at, and purged at the most, in one transaction: others wait for no longer than that."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long the operations of each effect are kept: as the effect declares, else as is said for all."""

    usual: Retention

    def periods(self, effect: str, version: int) -> Periods:
        """Return the periods of an effect's operations; those of a version that is gone go by the newest one."""
        of_version = REGISTRY.find(effect, version)
        newest = max((v for name, v in REGISTRY.effects if name == effect), default=version)
        declared = of_version or REGISTRY.find(effect, newest)
        own = (declared.retention if declared else FOREVER).periods
        return own.over(self.usual.periods)

    @property
    def shortest(self) -> int | None:
        """Return the shortest of all periods, or None if everything is kept for ever."""
        own = (one.retention.periods.over(self.usual.periods) for one in REGISTRY.effects.values())
        each = (one.shortest for one in (self.usual.periods, *own))
        return min((short for short in each if short is not None), default=None)


def check_declared(retention: Retention) -> None:
    """Refuse a retention that an effect of this process could outlast.

    Raises:
        ContradictoryDeclaration: one could.
    """
    for one in REGISTRY.effects.values() if retention is not FOREVER else ():
        refuse_too_short(one.name, one.retention.periods.over(retention.periods), one.facts, one.delivery.usual)


def purge(retention: Retention, tenant: str | None = None) -> Steps[Purged]:
    """Remove what is kept no longer, of one tenant or of all."""
    policy, total = Policy(retention), Purged()
    if (shortest := policy.shortest) is not None:
        for each in (yield Read(lambda: scripts.tenants(tenant))):
            total += yield from _purge_tenant(each, policy, shortest)
    if (usual := retention.periods.shortest) is not None:  # effects say nothing about workflows
        for each in (yield Read(lambda: scripts.tenants_with_workflows(tenant))):
            total += yield from _purge_workflows(each, usual)
    return total


def _purge_tenant(tenant: str, policy: Policy, shortest: int) -> Steps[Purged]:
    after, total = 0, Purged()
    while True:
        page = yield Read(partial(scripts.page, tenant, after, PAGE))
        if due := _due(page, policy):
            total += yield from recorded(partial(scripts.purge, due))
        if len(page) < PAGE or page[-1]["created_at"] + shortest > page[-1]["now"]:
            return total  # what comes behind was asked for later still
        after = page[-1]["seq"]


def _purge_workflows(tenant: str, period: int) -> Steps[Purged]:
    """Remove what workflows waited for and were told that ended longer ago than this."""
    after, total = 0, Purged()
    while True:
        page = yield Read(partial(scripts.workflow_page, tenant, after, PAGE))
        if ended := [row for row in page if _is_left_over(row, period)]:
            total += yield from _purge_ended(ended, period)
        if len(page) < PAGE or page[-1]["created_at"] + period > page[-1]["now"]:
            return total
        after = page[-1]["seq"]


def _purge_ended(ended: Sequence[Row], period: int) -> Steps[Purged]:
    total = Purged()
    while True:
        gone: Purged = yield from recorded(partial(scripts.purge_workflows, ended, period=period, limit=PAGE))
        total += gone
        if gone.events + gone.waits < PAGE:
            return total


def _is_left_over(row: Row, period: int) -> bool:
    return bool(row["has_any"]) and is_long_ended(WorkflowStatus(row["status"]), row["updated_at"], period, row["now"])


def _due(page: Sequence[Row], policy: Policy) -> list[Due]:
    effects = {(row["effect"], row["effect_version"]) for row in page}
    periods = {each: policy.periods(*each) for each in effects}
    found = ((row, _drop(row, periods[row["effect"], row["effect_version"]])) for row in page)
    return [Due(row, drop) for row, drop in found if drop is not Drop.NOTHING]


def _drop(row: Row, periods: Periods) -> Drop:
    if row["settled_at"] is None:
        return Drop.NOTHING
    kept = Kept(
        state=OperationState(row["state"]),
        settled_at=row["settled_at"],
        first_attempt_at=row["first_attempt_at"],
        key_lifetime=rows.facts_from(row["provider"]).key_lifetime,
        has_payload=bool(row["has_payload"]),
        is_purged=row["receipt_marker"] == PURGED,
    )
    return decide_purge(kept, periods, row["now"])
