"""Settle what nobody knows: record claims that ran out, ask providers, send again where that is harmless.

It does on a schedule what a caller does on re-entry. What it cannot settle stays a case for a person.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from counterfoil import performing
from counterfoil.core.arguments import LARGEST
from counterfoil.core.states import Sender
from counterfoil.core.unknown import AskAgainAt, AskProvider, PersonDecides, Resend, UnknownPlan, decide_unknown
from counterfoil.effects import REGISTRY
from counterfoil.errors import Busy, CounterfoilError, StoreClosed, StoreError
from counterfoil.model import OperationKey
from counterfoil.runners import AsyncRunner
from counterfoil.storage import rows
from counterfoil.storage.scripts import reconciling
from counterfoil.storage.scripts.claims import LostRace
from counterfoil.storage.scripts.lookups import StillUnknown
from counterfoil.storage.scripts.moves import RAN_OUT
from counterfoil.storage.tenants import ALL_TENANTS
from counterfoil.writing import awrite

if TYPE_CHECKING:
    from collections.abc import Collection

    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.storage.script import Maker, Row

EVERY_S = 1.0
PAGE = 100
"""Operations looked at in one pass; what is left is due in the next one still."""
FIRST_DELAY_MS, LONGEST_DELAY_MS = 5_000, 3_600_000
"""How long after a look-up that settled nothing the next one follows: as long as it has been unknown by then."""

LOG = logging.getLogger("counterfoil.reconciler")


@dataclass(slots=True)
class Counts:
    """What a reconciler did."""

    lost: int = 0
    expired: int = 0
    decisions: int = 0
    asked: int = 0
    resent: int = 0
    settled: int = 0


@dataclass(slots=True)
class Reconciler:
    """Settles the unknown outcomes of a database, as far as this process declares their effects."""

    desk: Desk
    effects: Collection[Effect[Any]] = ()
    every: float = EVERY_S
    counts: Counts = field(default_factory=Counts)
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Pass again and again until `stop` is called."""
        while not self._stopped.is_set():
            try:
                await self.settle()
            except StoreClosed:
                raise
            except StoreError as error:
                LOG.warning("the database did not answer; this pass is done again: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.every):
                    await self._stopped.wait()

    def stop(self) -> None:
        """End after the pass that is under way."""
        self._stopped.set()

    async def settle(self) -> None:
        """Pass once: record what ran out or expired, and look up what is due."""
        for row in await self.desk.async_store.read(lambda: reconciling.lapsed(PAGE), tenant=ALL_TENANTS):
            self.counts.lost += await self._moved(row, partial(reconciling.lose_if_unmoved, *_seen(row), RAN_OUT))
        self.counts.expired += len(await awrite(self.desk, lambda: reconciling.expire(PAGE), tenant=ALL_TENANTS))
        self.counts.decisions += len(
            await awrite(self.desk, lambda: reconciling.expire_decisions(PAGE), tenant=ALL_TENANTS)
        )
        for row in await self.desk.async_store.read(lambda: reconciling.unknown_due(PAGE), tenant=ALL_TENANTS):
            try:
                await self._look_up(row)
            except Busy as error:  # one that somebody else holds must not keep the others waiting
                LOG.warning(
                    "operation %s is held by another transaction, and is left for later: %s", _seen(row)[0], error
                )

    # --- one unknown outcome -----------------------------------------------------------------------------------------

    async def _look_up(self, row: Row) -> None:
        effect = self._effect_of(row)
        if effect is None:  # another process may declare it
            return await self._later(row, delay=_delay(row))
        seen = rows.snapshot(row, effect.facts)
        plan: UnknownPlan = decide_unknown(seen.facts, seen.times)
        if isinstance(plan, AskProvider):
            found = await self._ask(effect, row, plan.asked_at)
            if not isinstance(found, StillUnknown):
                self.counts.settled += not isinstance(found, LostRace)
                return None
            plan = found.plan
        return await self._follow(effect, row, plan)

    async def _follow(self, effect: Effect[Any], row: Row, plan: UnknownPlan) -> None:
        match plan:
            case Resend() if row["sender"] == Sender.DISPATCHER:
                gated = _is_gated(effect, row)
                sent = partial(reconciling.resend_if_unmoved, *_seen(row), gated=gated is not False)
                if gated is not None and await self._moved(row, sent):
                    self.counts.resent += 1
                else:
                    await self._later(row, delay=_delay(row))
            case AskAgainAt(at):
                await self._later(row, due_at=at)
            case PersonDecides() if not rows.facts_from(row["provider"]).queryable:
                await self._later(row, due_at=LARGEST)
            case _:
                await self._later(row, delay=_delay(row))

    async def _ask(self, effect: Effect[Any], row: Row, asked_at: int) -> object:
        self.counts.asked += 1
        job = self.desk.stored_job(effect, row)
        runner = AsyncRunner(self.desk.async_store, self.desk.store, self.desk.heartbeats, self.desk.activity)
        try:
            return await runner.run(performing.ask_and_record(job, row, asked_at), wait_ms=0, tenant=job.key.tenant)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the program's own code is wrong, which keeps no other from being asked
            LOG.warning("the look-up of operation %s failed: %s", job.key, _told(error))
            await self._later(row, delay=_delay(row))
            return LostRace()

    async def _later(self, row: Row, *, due_at: int = 0, delay: int = 0) -> None:
        await awrite(
            self.desk, lambda: reconciling.look_later(*_seen(row), due_at=due_at, delay=delay), tenant=row["tenant"]
        )

    # --- helps -------------------------------------------------------------------------------------------------------

    def _effect_of(self, row: Row) -> Effect[Any] | None:
        effect = REGISTRY.find(row["effect"], row["effect_version"])
        return effect if effect is not None and (not self.effects or effect in self.effects) else None

    async def _moved(self, row: Row, maker: Maker[Any]) -> bool:
        return not isinstance(await awrite(self.desk, maker, tenant=row["tenant"]), LostRace)


def _is_gated(effect: Effect[Any], row: Row) -> bool | None:
    """Say whether an operation may be sent only with a decision; None if its policy, or its arguments, break."""
    try:
        return effect.stored_gate(row["payload"]) is not None
    except Exception as error:  # noqa: BLE001 - the program's own code is wrong, which keeps no other from being sent
        LOG.warning("operation %s is not sent again: its policy failed: %s", _seen(row)[0], _told(error))
        return None


def _told(error: Exception) -> str:
    """Return what a log may say of an error: another's own words may quote the payload."""
    return str(error) if isinstance(error, CounterfoilError) else type(error).__qualname__


def _seen(row: Row) -> tuple[OperationKey, int]:
    return OperationKey(tenant=row["tenant"], operation_id=row["operation_id"]), row["version"]


def _delay(row: Row) -> int:
    """Return how long to wait before the next look-up: as long as the outcome has been unknown, within bounds."""
    unknown_for: int = row["now"] - row["updated_at"]
    return min(max(unknown_for, FIRST_DELAY_MS), LONGEST_DELAY_MS)
