"""The two runners of the perform protocol: one blocks, one awaits.

Effects and look-ups are called here alone, but for transactional effects, which run inside their transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
import time
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from counterfoil.active import inside
from counterfoil.drivers.finishing import finished
from counterfoil.errors import AsyncEffectInSync, CommitUnknown, StoreError, UsageError
from counterfoil.model import CannotTell, NotSent
from counterfoil.performing import (
    SETTLE_TRIES,
    AskLiveness,
    Look,
    Pause,
    Protocol,
    Read,
    RunEffect,
    RunLookup,
    Step,
    Write,
)
from counterfoil.results import NeverStarted, Raised, Result, Returned
from counterfoil.storage.scripts import leases

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from counterfoil.activity import Activity
    from counterfoil.heartbeats import Heartbeats
    from counterfoil.storage.script import Maker
    from counterfoil.storage.store import AsyncStore, Store

T = TypeVar("T")
LOG = logging.getLogger("counterfoil")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.05
_NO_BEAT = nullcontext()


class Waiting:
    """A loser's bounded wait: pauses that double up to 50 ms, with jitter so that losers do not read in step."""

    def __init__(self, limit_ms: int) -> None:
        self._until: float | None = None
        self._limit = limit_ms / 1000
        self._pause = FIRST_PAUSE_S

    def next(self) -> float | None:
        """Return how long to pause now, or None if the bound is reached."""
        now = time.monotonic()
        self._until = self._until or now + self._limit
        if now >= self._until:
            return None
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE_S)
        return min(pause * random.uniform(0.5, 1.0), self._until - now)  # noqa: S311 - jitter, no secret


@dataclass(slots=True)
class Entry:
    """One caller under way: how long it waits, for whom, since when it can hold a claim, and if it was cancelled."""

    wait_ms: int
    tenant: str
    wrote_at: float = 0.0
    cancelled: asyncio.CancelledError | None = None
    waiting: Waiting | None = None
    in_doubt: bool = False

    def pause(self) -> float | None:
        """Return how long to wait now for another caller, or None if the bound is reached."""
        self.waiting = self.waiting or Waiting(self.wait_ms)
        return self.waiting.next()

    def writes(self) -> None:
        """Note that a transaction begins now: a claim that it takes is no older, unless one before it is in doubt."""
        if not self.in_doubt:
            self.wrote_at = uptime()

    def hears(self, error: Exception) -> None:
        """Note a COMMIT that nobody heard of: the claim that is found later may be as old as that."""
        self.in_doubt = self.in_doubt or isinstance(error, CommitUnknown)

    def is_late(self, step: RunEffect) -> bool:
        """Say whether the claim's lease ran out before its effect began, as after a stop or sleep of the machine."""
        return uptime() - self.wrote_at >= step.effect.facts.lease / 1000

    def raise_if_cancelled(self) -> None:
        """Let a cancellation take effect that came at a time when it could not."""
        if self.cancelled is not None:
            raise self.cancelled

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a transaction to its end, keeping a cancellation that comes meanwhile for later."""
        task, cancelled = await finished(work)
        self.cancelled = cancelled or self.cancelled
        return task.result()


def _seconds_since_boot() -> Callable[[], float]:
    """Return the clock that counts also while the machine sleeps or this process is stopped."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


uptime = _seconds_since_boot()
"""The clock of leases: seconds since boot, those included in which the machine slept or this process was stopped."""


def too_late() -> NeverStarted:
    """Return the result of an effect that must not begin, since another worker may have taken over."""
    return NeverStarted(NotSent("the claim's lease ran out before the effect began"))


class Runner:
    """Runs the protocol for a blocking caller."""

    def __init__(self, store: Store, heartbeats: Heartbeats, activity: Activity) -> None:
        self._store = store
        self._heartbeats = heartbeats
        self._activity = activity

    def run(self, protocol: Protocol[T], *, wait_ms: int, tenant: str) -> T:
        """Consume the steps to the end; what a step raised is thrown into the protocol, which knows what that means."""
        entry = Entry(wait_ms, tenant)
        try:
            step = next(protocol)
            while True:
                try:
                    answer = self._do(step, entry)
                except Exception as raised:  # noqa: BLE001 - thrown into the protocol
                    entry.hears(raised)
                    step = protocol.throw(raised)
                else:
                    step = protocol.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _do(self, step: Step, entry: Entry) -> Any:
        match step:
            case Write(maker):
                entry.writes()
                return self._store.write(maker, tenant=entry.tenant)
            case RunEffect():
                return too_late() if entry.is_late(step) else self._begin(step)
            case Look(at_once=maker) if self._store.claims_at_once:
                entry.writes()
                return self._store.write(maker, tenant=entry.tenant)
            case Look(maker=maker, in_turn=claiming):
                entry.writes()
                return self._store.look(maker, claiming, tenant=entry.tenant)
            case Read(maker):
                return self._store.read(maker, tenant=entry.tenant)
            case RunLookup():
                return self._lookup(step)
            case AskLiveness(holder):
                return self._activity.is_gone(holder)
            case Pause():
                return self._pause(entry)
            case _:
                assert_never(step)

    def _begin(self, step: RunEffect) -> Result:
        if isinstance(beat := beating(self._heartbeats, self._store, step), NeverStarted):
            return beat
        with beat:
            return call_effect(step)

    @staticmethod
    def _lookup(step: RunLookup) -> Any:
        with inside("a look-up"):
            return answered(lambda: step.function(step.call, **step.arguments))

    @staticmethod
    def _pause(entry: Entry) -> bool:
        pause = entry.pause()
        if pause is not None:
            time.sleep(pause)
        return pause is None


def call_effect(step: RunEffect) -> Result:
    """Call a blocking effect; whatever it raises is its result."""
    return copy_context().run(_call_marked, step)  # so that no interrupt can leave the mark in the caller's context


def _call_marked(step: RunEffect) -> Result:
    with inside(f"effect {step.effect.name}"):
        try:
            return Returned(_plain(step, step.effect.function(step.call, **step.arguments)))
        except BaseException as error:  # noqa: BLE001 - the outcome must be recorded before anything else
            return Raised(error)


def _plain(step: RunEffect, value: Any) -> Any:
    """Refuse a coroutine in place of a result: a function that hides one is not known to be async."""
    if not inspect.iscoroutine(value) and not inspect.isgenerator(value):
        return value
    value.close()
    raise AsyncEffectInSync(
        f"The effect {step.effect.name} returned a {type(value).__name__} that nobody runs. Declare it with async"
        " def, also where a decorator wraps it, and return the result instead of yielding it."
    )


def answered(ask: Callable[[], Any]) -> Any:
    """Ask the provider; one that cannot be reached cannot tell."""
    try:
        return ask()
    except UsageError:
        raise  # the look-up's own code is wrong, which is no answer of the provider
    except Exception as error:  # noqa: BLE001 - whatever went wrong, it answered nothing
        return CannotTell(type(error).__qualname__)


def beating(heartbeats: Heartbeats, store: Store, step: RunEffect) -> AbstractContextManager[object] | NeverStarted:
    """Renew the claim while an effect runs whose time limit is longer than its lease; else it must not begin."""
    facts = step.effect.facts
    if facts.lease >= facts.time_limit:
        return _NO_BEAT
    try:
        return heartbeats.start(
            lambda within: store.renew(
                lambda: leases.renew(step.key, fence=step.granted.fence, lease=facts.lease),
                within=within,
                tenant=step.key.tenant,
            ),
            lease_ms=facts.lease,
        )
    except RuntimeError as error:  # no thread can be started
        return NeverStarted(error)


def settle_now(store: Store, maker: Maker[Any], *, tenant: str) -> None:
    """Settle, trying again where the database is busy or away, as often as the protocol does."""
    for left in reversed(range(SETTLE_TRIES)):
        try:
            store.write(maker, tenant=tenant)
        except StoreError:
            if not left:
                raise
        else:
            return


class AsyncRunner:
    """Runs the protocol for a caller on an event loop; a cancelled caller's outcome is recorded all the same."""

    def __init__(
        self,
        store: AsyncStore,
        blocking: Store,
        heartbeats: Heartbeats,
        activity: Activity,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._blocking = blocking
        self._heartbeats = heartbeats
        self._activity = activity
        self._executor = executor

    async def run(self, protocol: Protocol[T], *, wait_ms: int, tenant: str) -> T:
        """Consume the steps to the end; transactions are finished even when the caller is cancelled meanwhile."""
        entry = Entry(wait_ms, tenant)
        try:
            return await self._steps(protocol, entry)
        finally:
            entry.raise_if_cancelled()

    async def send(self, protocol: Protocol[Result], *, tenant: str, claimed_at: float) -> Result:
        """Run an effect whose claim was taken at this `uptime`; who is cancelled hears what came of it."""
        return await self._steps(protocol, Entry(0, tenant, claimed_at))

    async def _steps(self, protocol: Protocol[T], entry: Entry) -> T:
        try:
            step = next(protocol)
            while True:
                try:
                    answer = await self._do(step, entry)
                except Exception as raised:  # noqa: BLE001 - thrown into the protocol
                    entry.hears(raised)
                    step = protocol.throw(raised)
                else:
                    step = protocol.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _do(self, step: Step, entry: Entry) -> Any:
        match step:
            case Look(maker=maker) if not self._store.claims_at_once:
                entry.raise_if_cancelled()
                return await self._store.read(maker, tenant=entry.tenant)
            case Look(at_once=maker) | Write(maker):
                entry.writes()
                return await entry.to_the_end(self._store.write(maker, tenant=entry.tenant))
            case RunEffect() if entry.cancelled is not None:
                return NeverStarted(entry.cancelled)
            case RunEffect() if entry.is_late(step):
                return too_late()
            case RunEffect():
                return await self._begin(step, entry)
            case _:
                entry.raise_if_cancelled()
                return await self._ask(step, entry)

    async def _ask(self, step: Read | RunLookup | AskLiveness | Pause, entry: Entry) -> Any:
        match step:
            case Read(maker):
                return await self._store.read(maker, tenant=entry.tenant)
            case RunLookup():
                return await self._lookup(step)
            case AskLiveness(holder):
                return self._activity.is_gone(holder)
            case Pause():
                if (pause := entry.pause()) is not None:
                    await asyncio.sleep(pause)
                return pause is None
            case _:
                assert_never(step)

    async def _begin(self, step: RunEffect, entry: Entry) -> Result:
        if isinstance(beat := beating(self._heartbeats, self._blocking, step), NeverStarted):
            return beat
        with beat:
            return await self._effect(step, entry)

    async def _effect(self, step: RunEffect, entry: Entry) -> Result:
        if not step.effect.is_async:
            return await Thread(step, self._blocking, self._activity, self._executor).result(entry)
        try:
            async with asyncio.timeout(step.call.time_limit):
                with inside(f"effect {step.effect.name}"):
                    return Returned(await step.effect.function(step.call, **step.arguments))
        except BaseException as error:  # noqa: BLE001 - the outcome must be recorded before anything else
            return Raised(error)

    @staticmethod
    async def _lookup(step: RunLookup) -> Any:
        with inside("a look-up"):
            try:
                async with asyncio.timeout(step.call.time_limit):
                    if inspect.iscoroutinefunction(step.function):
                        return await step.function(step.call, **step.arguments)
                    return await asyncio.to_thread(step.function, step.call, **step.arguments)
            except UsageError:
                raise  # the look-up's own code is wrong, which is no answer of the provider
            except Exception as error:  # noqa: BLE001 - whatever went wrong, it answered nothing
                return CannotTell(type(error).__qualname__)


class Thread:
    """A blocking effect of an async caller; if the caller goes away, its late result is recorded as evidence."""

    def __init__(self, step: RunEffect, store: Store, activity: Activity, executor: Executor | None) -> None:
        self._step = step
        self._store = store
        self._activity = activity
        self._executor = executor
        self._late = f"late {step.key} {step.granted.attempt} {step.granted.fence}"
        self._mutex = threading.Lock()
        self._began = False
        self._left = False
        self._over: Result | None = None

    async def result(self, entry: Entry) -> Result:
        """Run it in a thread and wait, no longer than its time limit or until the caller is cancelled."""
        try:
            async with asyncio.timeout(self._step.call.time_limit):
                work = partial(copy_context().run, self._call)
                return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except BaseException as error:  # noqa: BLE001 - the outcome must be recorded before anything else
            if isinstance(error, asyncio.CancelledError):
                entry.cancelled = error
            return self._leave(error)

    def _leave(self, error: BaseException) -> Result:
        """Stop waiting: keep what is known by now, and leave the rest to the thread."""
        with self._mutex:
            self._left = True
            if self._over is not None:
                return self._over
            if self._began:
                self._activity.begin_entry(self._late)  # close waits for it as for others
                return Raised(error)
        late = isinstance(error, TimeoutError)
        return NeverStarted(NotSent("no thread was free within the time limit") if late else error)

    def _call(self) -> Result:
        if not self._begin():
            return NeverStarted(NotSent("nobody waits for it any more"))
        result = call_effect(self._step)
        if self._end(result):
            try:
                self._keep(result)
            finally:
                self._activity.end_entry(self._late)
        return result

    def _keep(self, result: Result) -> None:
        """Record a result that nobody waits for any more; if that cannot be, the log is all that tells of it."""
        step = self._step
        try:
            settle_now(self._store, step.late(result), tenant=step.key.tenant)
        except Exception as error:
            LOG.error(  # noqa: TRY400 - a driver's own words may quote the payload
                "The late result (%s) of effect %s, operation %s, attempt %d, is not known to be stored (%s). If it is"
                " not, the operation counts as unknown: counterfoil review list",
                type(result).__name__.lower(),
                step.effect.name,
                step.key,
                step.granted.attempt,
                type(error).__name__,
            )
            raise

    def _begin(self) -> bool:
        with self._mutex:
            self._began = not self._left
            return self._began

    def _end(self, result: Result) -> bool:
        """Publish the result; True if it is too late for that and must be recorded here."""
        with self._mutex:
            self._over = result
            return self._left
