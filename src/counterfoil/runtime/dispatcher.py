"""Send what is due: claim intents in batches, run their effects, and record a batch together with the next claim.

It finds rows by claiming them, never by remembering the highest number; to be woken only saves it the wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.bell import on_this_loop
from counterfoil.core.arguments import CALLED
from counterfoil.drivers.finishing import finished
from counterfoil.effects import REGISTRY
from counterfoil.errors import CommitUnknown, StoreClosed, StoreError, StoreUnavailable
from counterfoil.ledger import DEFAULT_BATCH
from counterfoil.runners import AsyncRunner, uptime
from counterfoil.runtime.lanes import FOREVER, LONGEST_POLL_S, Lanes
from counterfoil.runtime.messages import Message
from counterfoil.storage.scripts import outbox
from counterfoil.storage.scripts.outbox import Finished
from counterfoil.storage.scripts.settling import Late
from counterfoil.storage.tenants import ALL_TENANTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.runtime.lanes import EffectLane
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.outbox import Ended, Lane, Turn

LARGEST_BATCH = 1_000
MANY_LANES = 8
"""From so many effects on it pays to ask first of which something is due."""
FLUSH_S = 0.02
"""How long an outcome may wait for others to be recorded with: a crash in this time leaves it unknown."""
PAUSE_S = 0.5
"""How long after a failure of the database the next turn follows."""

LOG = logging.getLogger("counterfoil.dispatcher")


@dataclass(slots=True)
class Counts:
    """What a dispatcher did."""

    claimed: int = 0
    settled: int = 0
    given_back: int = 0
    late: int = 0
    turns: int = 0


@dataclass(slots=True)
class Claim:
    """The intents of one turn, which one holder has; it counts as at work until all of them are recorded."""

    holder: str
    left: int


@dataclass(slots=True)
class Sending:
    """One message under way, and the claim that it belongs to."""

    message: Message
    lane: EffectLane
    claim: Claim
    began: bool = False
    ended: Ended | None = None
    ended_at: float = 0.0


@dataclass(slots=True, eq=False)
class Dispatcher:
    """Sends the intents of a database whose effects this process declares."""

    desk: Desk
    effects: Collection[Effect[Any]] = ()
    batch: int = DEFAULT_BATCH
    concurrency: int | None = None
    counts: Counts = field(default_factory=Counts)
    _stopping: bool = False
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _under_way: dict[asyncio.Task[None], Sending] = field(default_factory=dict)
    _done: list[Sending] = field(default_factory=list)
    _change: asyncio.Event = field(default_factory=asyncio.Event)
    _lanes: Lanes = field(init=False)
    _places: int = field(init=False)

    def __post_init__(self) -> None:
        """Check the numbers and choose the effects.

        Raises:
            InvalidArguments: a number makes no sense.
        """
        CALLED.number("batch", self.batch, least=1, most=LARGEST_BATCH)
        if self.concurrency is not None:
            CALLED.number("concurrency", self.concurrency, least=1)
        self._places = self.concurrency or 2 * self.batch  # one batch is sent while the other one is recorded
        self._lanes = Lanes(sendable(self.effects))

    async def run(self) -> None:
        """Send until `stop` is called; then finish what is under way and claim nothing more."""
        await self._run(until_empty=False)

    async def drain(self) -> None:
        """Send what is due now, and what becomes due meanwhile, until nothing is."""
        await self._run(until_empty=True)

    def stop(self) -> None:
        """Claim nothing more; safe to call from a signal handler of the loop."""
        self._stopping = True
        self._change.set()

    def wake(self) -> None:
        """Search at once: something was enqueued."""
        self._lanes.wake()
        self._change.set()

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def _run(self, *, until_empty: bool) -> None:
        store, blocking = self.desk.async_store, self.desk.store
        threads = ThreadPoolExecutor(self._places, thread_name_prefix="counterfoil-effect")
        runner = AsyncRunner(store, blocking, self.desk.heartbeats, self.desk.activity, threads)
        self.desk.bell.listen(self, on_this_loop(self.wake))
        try:
            while not self._is_over(until_empty=until_empty):
                self._change.clear()
                if not await self._turn_if_due(runner):
                    await self._wait()
        finally:
            self.desk.bell.leave(self)
            await self._settle_rest()
            threads.shutdown(wait=False)  # an effect that hangs must not keep the loop

    def _is_over(self, *, until_empty: bool) -> bool:
        if self._under_way or self._done:
            return False
        return self._stopping or (until_empty and self._lanes.all_idle(time.monotonic()))

    async def _turn_if_due(self, runner: AsyncRunner) -> bool:
        """Record what has to be and claim what may be; say whether anything happened."""
        now = time.monotonic()
        flush = self._must_flush(now)
        if flush and any(each.message.is_in_stream for each in self._done):
            self._lanes.wake()  # the next one of a stream may be any effect's
        places = self._free + len(self._done) if flush else self._free
        await self._leave_out_idle(places, now)
        searches = self._searches(places, now)
        if not flush and not searches:
            return False
        done = sorted(self._done, key=lambda each: each.message.order) if flush else []
        self._done = [] if flush else self._done
        await self._turn(runner, done, searches)
        return True

    def _must_flush(self, now: float) -> bool:
        if not self._done:
            return False
        is_full = len(self._done) >= self.batch or not self._under_way
        return is_full or now - self._done[0].ended_at >= FLUSH_S

    async def _leave_out_idle(self, places: int, now: float) -> None:
        """Ask once of which of many effects something is due, where each would be a claim of its own."""
        lanes = [] if self._stopping or places < self._whole else self._lanes.due(now)
        if len(lanes) < MANY_LANES:
            return
        names = [lane.name for lane in lanes]
        with suppress(StoreUnavailable):  # the turn that follows meets it, too
            due = await self.desk.async_store.read(lambda: outbox.due_effects(names), tenant=ALL_TENANTS)
            for lane in lanes:
                if lane.name not in due:
                    lane.found((), now)

    def _searches(self, places: int, now: float) -> list[tuple[EffectLane, Lane]]:
        """Return what to claim: a whole batch or nothing, but where too few places are for that."""
        if self._stopping or places < self._whole:
            return []
        return self._lanes.searches(min(places, self.batch), now)

    @property
    def _free(self) -> int:
        return self._places - len(self._under_way) - len(self._done)

    @property
    def _has_places(self) -> bool:
        return self._free >= self._whole

    @property
    def _whole(self) -> int:
        """Return how many places a claim waits for."""
        return min(self.batch, self._places)

    async def _wait(self) -> None:
        """Wait until an effect ends, the oldest outcome must be recorded, or the next search is due."""
        now = time.monotonic()
        flush_at = self._done[0].ended_at + FLUSH_S if self._done else FOREVER
        poll_at = FOREVER if self._stopping or not self._has_places else self._lanes.next_poll(now)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(flush_at, poll_at, now + LONGEST_POLL_S) - now)):
                await self._change.wait()

    # --- a turn ------------------------------------------------------------------------------------------------------

    async def _turn(
        self, runner: AsyncRunner, done: Sequence[Sending], searches: Sequence[tuple[EffectLane, Lane]]
    ) -> None:
        holder, claimed_at = f"{self.desk.holder}/d{next(self._numbers)}", uptime()
        self.desk.activity.begin_run(holder)
        ended, lanes = [each.ended for each in done if each.ended is not None], [lane for _, lane in searches]
        task, cancelled = await finished(self._write(ended, lanes, holder))
        try:
            turn = task.result()
        except StoreClosed:
            raise
        except StoreError as error:
            LOG.warning("the database did not take a turn, which is done again: %s", error)
            self.desk.activity.end_run(holder)
            self._done = [*done, *self._done]
            if cancelled is not None:
                raise cancelled from error
            await asyncio.sleep(PAUSE_S)
            return
        self._settled(done, turn)
        self._start(runner, searches, turn.claimed, Claim(holder, len(turn.claimed)), claimed_at)
        if cancelled is not None:  # what was claimed goes back: none of it has begun
            raise cancelled

    async def _write(self, ended: Sequence[Ended], lanes: Sequence[Lane], holder: str) -> Turn:
        """Write a turn; where nobody heard of its COMMIT, do the first half again and look up the second."""
        store = self.desk.async_store
        try:
            return await store.write(lambda: outbox.turn(ended, lanes, holder), tenant=ALL_TENANTS)
        except CommitUnknown:
            turn = await store.write(lambda: outbox.turn(ended, (), holder), tenant=ALL_TENANTS)
            return outbox.Turn(
                turn.settled, tuple(await store.read(lambda: outbox.find_held(holder), tenant=ALL_TENANTS))
            )

    def _settled(self, done: Sequence[Sending], turn: Turn) -> None:
        self.counts.turns += 1
        for each, result in zip(done, turn.settled, strict=True):
            self._leave(each.claim)
            self.counts.settled += isinstance(each.ended, Finished)
            self.counts.given_back += not isinstance(each.ended, Finished)
            if isinstance(result, Late):
                self.counts.late += 1
                LOG.warning("operation %s was taken over before its outcome was recorded", each.message.job.key)

    def _leave(self, claim: Claim) -> None:
        claim.left -= 1
        if claim.left == 0:
            self.desk.activity.end_run(claim.holder)

    def _start(
        self,
        runner: AsyncRunner,
        searches: Sequence[tuple[EffectLane, Lane]],
        claimed: Sequence[Row],
        claim: Claim,
        claimed_at: float,
    ) -> None:
        now = time.monotonic()
        for lane, _ in searches:
            mine = [row for row in claimed if (row["effect"], row["effect_version"]) == lane.name]
            lane.found(mine, now)
            for row in mine:
                self._begin(runner, Sending(Message.of(self.desk, lane.effect, row, claimed_at), lane, claim))
        self.counts.claimed += len(claimed)
        if not claimed:
            self.desk.activity.end_run(claim.holder)

    def _begin(self, runner: AsyncRunner, sending: Sending) -> None:
        sending.lane.enter()
        task = asyncio.get_running_loop().create_task(self._send(runner, sending))
        self._under_way[task] = sending
        task.add_done_callback(self._end)

    async def _send(self, runner: AsyncRunner, sending: Sending) -> None:
        sending.began = True
        sending.ended = await sending.message.send(runner)

    def _end(self, task: asyncio.Task[None]) -> None:
        sending = self._under_way.pop(task)
        if sending.ended is None:
            message = sending.message
            sending.ended = message.lost(_error_of(task)) if sending.began else message.unbegun()
        sending.ended_at = time.monotonic()
        outcome = sending.ended.outcome.outcome if isinstance(sending.ended, Finished) else None
        sending.lane.leave(outcome, sending.ended_at)
        self._done.append(sending)
        self._change.set()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _settle_rest(self) -> None:
        """Record what is known where the loop was left by an error or a cancellation."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
            await asyncio.sleep(0)  # for the callbacks
        if self._done:
            done, self._done = sorted(self._done, key=lambda each: each.message.order), []
            self._settled(done, await self._write([each.ended for each in done if each.ended], (), ""))


def _error_of(task: asyncio.Task[None]) -> BaseException:
    return asyncio.CancelledError() if task.cancelled() else task.exception() or RuntimeError("it ended without a word")


def sendable(effects: Collection[Effect[Any]]) -> list[Effect[Any]]:
    """Return the effects that a dispatcher can send: those that are named, or all that this process declares."""
    chosen = effects or REGISTRY.effects.values()
    return [effect for effect in chosen if not effect.facts.transactional]
