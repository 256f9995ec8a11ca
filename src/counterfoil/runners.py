"""The two runners of the perform protocol: one blocks, one awaits. Only here is a user's callable called."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, assert_never

from counterfoil.active import inside
from counterfoil.errors import AsyncEffectInSync
from counterfoil.liveness import is_dead
from counterfoil.model import CannotTell
from counterfoil.performing import (
    AskLiveness,
    NeverStarted,
    Pause,
    Protocol,
    Raised,
    Read,
    Result,
    Returned,
    RunEffect,
    RunLookup,
    Step,
    Write,
)
from counterfoil.storage.scripts import leases

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from counterfoil.heartbeats import Heartbeats
    from counterfoil.storage.store import AsyncStore, Store

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.05


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


class Feed(Generic[T]):
    """A protocol under way: what the last step answered or raised goes in, the next step comes out."""

    result: T

    def __init__(self, protocol: Protocol[T]) -> None:
        self._protocol = protocol
        self._answer: Any = None
        self._error: Exception | None = None

    def next(self) -> Step | None:
        """Return the next step, or None at the end, when `result` is set."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        try:
            return self._protocol.send(answer) if error is None else self._protocol.throw(error)
        except StopIteration as stop:
            self.result = stop.value
            return None

    @contextmanager
    def step(self) -> Iterator[Callable[[Any], None]]:
        """Keep what a step answers, and what it raises: the protocol knows what that means."""
        try:
            yield self._keep
        except Exception as raised:  # noqa: BLE001 - thrown into the protocol
            self._error = raised

    def _keep(self, answer: Any) -> None:
        self._answer = answer


class Runner:
    """Runs the protocol for a blocking caller."""

    def __init__(self, store: Store, heartbeats: Heartbeats) -> None:
        self._store = store
        self._heartbeats = heartbeats

    def run(self, protocol: Protocol[T], *, wait_ms: int) -> T:
        """Consume the steps to the end."""
        waiting, feed = Waiting(wait_ms), Feed(protocol)
        while (step := feed.next()) is not None:
            with feed.step() as answer:
                answer(self._do(step, waiting))
        return feed.result

    def _do(self, step: Step, waiting: Waiting) -> Any:
        match step:
            case Read(maker):
                return self._store.read(maker)
            case Write(maker):
                return self._store.write(maker)
            case RunEffect():
                with beating(self._heartbeats, self._store, step):
                    return call_effect(step)
            case RunLookup():
                return self._lookup(step)
            case AskLiveness(holder):
                return is_dead(holder)
            case Pause():
                return self._pause(waiting)
            case _:
                assert_never(step)

    @staticmethod
    def _lookup(step: RunLookup) -> Any:
        if asyncio.iscoroutinefunction(step.function):
            raise AsyncEffectInSync(
                "An async look-up cannot be asked through the blocking form. Write: await cf.perform(...) with an"
                " AsyncCounterfoil, or a blocking look-up."
            )
        with inside("a look-up"):
            return answered(lambda: step.function(step.call, **step.arguments))

    @staticmethod
    def _pause(waiting: Waiting) -> bool:
        pause = waiting.next()
        if pause is not None:
            time.sleep(pause)
        return pause is None


def call_effect(step: RunEffect) -> Result:
    """Call a blocking effect; whatever it raises is its result."""
    with inside(f"effect {step.effect.name}"):
        try:
            return Returned(step.effect.function(step.call, **step.arguments))
        except BaseException as error:  # noqa: BLE001 - the outcome must be recorded before anything else
            return Raised(error)


def answered(ask: Callable[[], Any]) -> Any:
    """Ask the provider; one that cannot be reached cannot tell."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - whatever went wrong, it answered nothing
        return CannotTell(type(error).__qualname__)


@contextmanager
def beating(heartbeats: Heartbeats, store: Store, step: RunEffect) -> Iterator[None]:
    """Renew the claim while an effect runs whose time limit is longer than its lease."""
    facts = step.effect.facts
    if facts.lease >= facts.time_limit:
        yield
        return
    beat = heartbeats.start(
        lambda: store.write(lambda: leases.renew(step.key, fence=step.granted.fence, lease=facts.lease)),
        lease_ms=facts.lease,
    )
    try:
        yield
    finally:
        beat.stop()


class AsyncRunner:
    """Runs the protocol for a caller on an event loop; a cancelled caller's outcome is recorded all the same."""

    def __init__(self, store: AsyncStore, blocking: Store, heartbeats: Heartbeats) -> None:
        self._store = store
        self._blocking = blocking
        self._heartbeats = heartbeats

    async def run(self, protocol: Protocol[T], *, wait_ms: int) -> T:
        """Consume the steps to the end; transactions are finished even when the caller is cancelled meanwhile."""
        entry, feed = Entry(Waiting(wait_ms)), Feed(protocol)
        while (step := feed.next()) is not None:
            with feed.step() as answer:
                answer(await self._do(step, entry))
        entry.raise_if_cancelled()
        return feed.result

    async def _do(self, step: Step, entry: Entry) -> Any:
        match step:
            case Write(maker):
                return await entry.to_the_end(self._store.write(maker))
            case RunEffect() if entry.cancelled is not None:
                return NeverStarted(entry.cancelled)
            case RunEffect():
                with beating(self._heartbeats, self._blocking, step):
                    return await self._effect(step)
            case _:
                entry.raise_if_cancelled()
                return await self._ask(step, entry.waiting)

    async def _ask(self, step: Read | RunLookup | AskLiveness | Pause, waiting: Waiting) -> Any:
        match step:
            case Read(maker):
                return await self._store.read(maker)
            case RunLookup():
                return await self._lookup(step)
            case AskLiveness(holder):
                return is_dead(holder)
            case Pause():
                if (pause := waiting.next()) is not None:
                    await asyncio.sleep(pause)
                return pause is None
            case _:
                assert_never(step)

    async def _effect(self, step: RunEffect) -> Result:
        try:
            async with asyncio.timeout(step.call.time_limit):
                if step.effect.is_async:
                    with inside(f"effect {step.effect.name}"):
                        return Returned(await step.effect.function(step.call, **step.arguments))
                return await Thread(step, self._blocking).result()
        except BaseException as error:  # noqa: BLE001 - the outcome must be recorded before anything else
            return Raised(error)

    @staticmethod
    async def _lookup(step: RunLookup) -> Any:
        with inside("a look-up"):
            try:
                if asyncio.iscoroutinefunction(step.function):
                    return await step.function(step.call, **step.arguments)
                return await asyncio.to_thread(step.function, step.call, **step.arguments)
            except Exception as error:  # noqa: BLE001 - whatever went wrong, it answered nothing
                return CannotTell(type(error).__qualname__)


@dataclass(slots=True)
class Entry:
    """One awaiting caller: how long it waits, and whether it was cancelled while a transaction had to be finished."""

    waiting: Waiting
    cancelled: asyncio.CancelledError | None = None

    def raise_if_cancelled(self) -> None:
        """Let a cancellation take effect that came at a time when it could not."""
        if self.cancelled is not None:
            raise self.cancelled

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a transaction to its end, keeping a cancellation that comes meanwhile for later."""
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                self.cancelled = error
            except Exception:  # noqa: BLE001 - `result` below raises it
                break
        return task.result()


class Thread:
    """A blocking effect of an async caller; if the caller goes away, its late result is recorded as evidence."""

    def __init__(self, step: RunEffect, store: Store) -> None:
        self._step = step
        self._store = store
        self._mutex = threading.Lock()
        self._left = False
        self._over = False

    async def result(self) -> Result:
        """Run it in a thread and wait; when that is cut short, leave the rest to the thread."""
        try:
            return await asyncio.to_thread(self._call)
        except asyncio.CancelledError:
            with self._mutex:
                self._left = not self._over
            raise

    def _call(self) -> Result:
        result = call_effect(self._step)
        with self._mutex:
            self._over = True
            late = self._left
        if late:
            self._store.write(lambda: self._step.late(result))
        return result
