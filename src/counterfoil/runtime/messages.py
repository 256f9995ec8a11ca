"""One claimed intent: its effect is run once, and what became of it is made ready to be recorded."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil import performing
from counterfoil.core.outbox import LONGEST_WAIT_MS, PATIENCE_MS
from counterfoil.model import NotSent
from counterfoil.results import NeverStarted, Raised, Returned, outcome_of
from counterfoil.runners import uptime
from counterfoil.storage.scripts.claims import granted_by
from counterfoil.storage.scripts.outbox import Finished, Unapproved, Unbegun

if TYPE_CHECKING:
    from counterfoil.core.approvals import Gate
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.performing import Job
    from counterfoil.results import Result
    from counterfoil.runners import AsyncRunner
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.claims import Granted
    from counterfoil.storage.scripts.outbox import Ended


@dataclass(frozen=True, slots=True)
class Message:
    """An intent that this process has claimed; `claimed_at` is the uptime before it did."""

    effect: Effect[Any]
    job: Job
    granted: Granted
    claimed_at: float
    stream: str | None

    @classmethod
    def of(cls, desk: Desk, effect: Effect[Any], row: Row, claimed_at: float) -> Message:
        """Return the message that a claimed row stands for."""
        return cls(effect, desk.stored_job(effect, row), granted_by(row), claimed_at, row["stream"])

    @property
    def order(self) -> tuple[str, str]:
        """Return where its row stands among others: the order in which rows are locked."""
        return (self.job.key.tenant, self.job.key.operation_id)

    async def send(self, runner: AsyncRunner) -> Ended:
        """Run the effect, unless the claim may be another worker's by now, and return what is to be recorded."""
        if (uptime() - self.claimed_at) * 1000 >= PATIENCE_MS:
            return self.unbegun()
        try:
            gate = None if self.granted.was_asked else self.effect.stored_gate(self.granted.payload)
        except BaseException as error:  # noqa: BLE001 - the claim is taken: that nothing was sent must be recorded
            return self._finished(NeverStarted(error))
        if gate is not None:
            return self._unapproved(gate)
        steps, tenant = performing.run(self.job, self.granted), self.job.key.tenant
        return self._ended(await runner.send(steps, tenant=tenant, claimed_at=self.claimed_at))

    def unbegun(self, delay: int = 0) -> Unbegun:
        """Return the claim, to be given back."""
        return Unbegun(key=self.job.key, fence=self.granted.fence, delay=delay)

    def _unapproved(self, gate: Gate) -> Unapproved:
        """Return the claim of an intent that was recorded when its effect needed no decision."""
        asked_by = self.job.request.trusted.principal
        return Unapproved(key=self.job.key, fence=self.granted.fence, gate=gate, requested_by=asked_by)

    def lost(self, error: BaseException) -> Finished:
        """Return what is recorded of an effect whose sending was cut short: nobody knows."""
        return self._finished(Raised(error))

    @property
    def is_in_stream(self) -> bool:
        """Say whether others wait for it."""
        return self.stream is not None

    def _ended(self, result: Result) -> Ended:
        if isinstance(result, NeverStarted) and isinstance(result.error, NotSent | asyncio.CancelledError):
            return self.unbegun()
        return self._finished(result)

    def _finished(self, result: Result) -> Finished:
        return Finished(
            request=self.job.request,
            granted=self.granted,
            outcome=outcome_of(self.effect, result),
            wait=0 if isinstance(result, Returned) else _wait_of(result.error),
        )


def _wait_of(error: BaseException) -> int:
    """Return how long a provider asked to be left alone, in milliseconds, as its adapter noted on the exception."""
    seconds = getattr(error, "retry_after", None)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds):
        return 0
    return min(max(0, round(seconds * 1000)), LONGEST_WAIT_MS)
