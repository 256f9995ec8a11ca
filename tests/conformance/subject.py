"""One Counterfoil under test, whatever its store and colour: a behaviour is written once and run on each."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import iscoroutinefunction
from itertools import count
from typing import Any, TypeVar

from counterfoil import AsyncCounterfoil, Counterfoil, Effect, Intent, Provider, Receipt, Verification, effect
from counterfoil.drivers.probes import Point
from counterfoil.storage.script import Ddl, Row, Script
from counterfoil.storage.scripts import inspection
from counterfoil.storage.tenants import ALL_TENANTS, Whose
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests import stores

T = TypeVar("T")

KEY = "ticket:{request_id}"
SYNC, ASYNC, THREADED = "sync", "async", "async-threaded"
"""The colours: a blocking caller; an awaiting one with async effects; an awaiting one with blocking effects."""
COLOURS = (SYNC, ASYNC, THREADED)

_names = (f"conformance.effect-{n}" for n in count(1))


class Loop:
    """An event loop in a thread of its own, so that blocking tests can drive async callers, several at once."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._executor = self._new_executor(16)
        self._thread = threading.Thread(target=self.loop.run_forever, name="conformance-loop")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def _new_executor(self, threads: int) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(threads, thread_name_prefix="conformance-effect")
        self.loop.set_default_executor(executor)
        return executor

    def drain(self, *, threads: int = 16) -> None:
        """Wait for every thread that an effect still runs in, then go on with fresh ones."""
        spent, self._executor = self._executor, self._new_executor(threads)
        spent.shutdown(wait=True)

    def close(self) -> None:
        self._executor.shutdown(wait=True)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Bridge:
    """The probe of a subject: a test replaces `act` to interfere, and puts it back."""

    def __init__(self) -> None:
        self.act: Callable[[Point, str], None] | None = None

    def __call__(self, point: Point, name: str) -> None:
        if self.act is not None:
            self.act(point, name)

    @contextmanager
    def during(self, act: Callable[[Point, str], None]) -> Iterator[None]:
        self.act = act
        try:
            yield
        finally:
            self.act = None


@dataclass(slots=True)
class Sent:
    """What an effect did at the provider, which counts in a file outside of the database."""

    tally: TallyFile

    def __len__(self) -> int:
        return self.tally.count()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [one.body for one in self.tally.accepted()]

    @property
    def keys(self) -> list[str | None]:
        return [one.key for one in self.tally.accepted()]


@dataclass(kw_only=True)
class Subject:
    """A Counterfoil of one store and colour, with a clock that stands still and a provider that counts."""

    colour: str
    url: str
    clock: FakeClock
    sent: Sent
    wait: str = "0s"
    probe: Bridge = field(default_factory=Bridge)
    loop: Loop = field(default_factory=Loop)
    opened: list[Counterfoil | AsyncCounterfoil] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cf = self.open()

    # --- what both colours can do ------------------------------------------------------------------------------------

    def open(self, **options: Any) -> Any:
        given = {"wait": self.wait, "clock": self.clock, "probe": self.probe, **options}
        opened: Counterfoil | AsyncCounterfoil
        if self.colour == SYNC:
            opened = Counterfoil.open(self.url, **given)
        else:
            opened = AsyncCounterfoil.open(self.url, **given)
        self.opened.append(opened)
        return opened

    def perform(self, made: Effect[Any], /, *, cf: Any = None, **given: Any) -> Receipt[Any]:
        whole = {"tenant": "team-a", "request_id": "r-1", **given}
        done: Receipt[Any] = self.settle((cf or self.cf).perform(made, **whole))
        return done

    def enqueue(self, made: Effect[Any], /, **given: Any) -> Intent:
        whole = {"tenant": "team-a", "request_id": "r-1", **given}
        done: Intent = self.settle(self.cf.enqueue(made, **whole))
        return done

    def drain(self, *effects: Effect[Any], **options: Any) -> None:
        self.settle(self.cf.drain(*effects, **options))

    def verify(self, made: Effect[Any], /, **given: Any) -> Verification:
        whole = {"tenant": "team-a", "request_id": "r-1", **given}
        done: Verification = self.settle(self.cf.verify(made, **whole))
        return done

    def settle(self, answer: Any) -> Any:
        return self.loop.run(answer) if asyncio.iscoroutine(answer) else answer

    def close(self) -> None:
        for each in self.opened:
            self.settle(each.close())
        self.loop.close()

    # --- effects and look-ups in this colour -------------------------------------------------------------------------

    def effect(self, function: Callable[..., Any], **contract: Any) -> Effect[Any]:
        """Declare a blocking function as an effect of this colour."""
        whole = {"name": next(_names), "key": KEY, "time_limit": "30s", **contract}
        return effect(**whole)(self.colouring(function))

    def provider(self, **facts: Any) -> Provider:
        lookup = facts.pop("lookup", None)
        return Provider(**facts, lookup=None if lookup is None else self.colouring(lookup))

    def colouring(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.colour != ASYNC or iscoroutinefunction(function):
            return function

        @wraps(function)
        async def coloured(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(function, *args, **kwargs)

        return coloured

    def ticket(self, do: Callable[[], Any] = lambda: None, **contract: Any) -> Effect[Any]:
        """Declare the ordinary effect: it is counted, then `do` decides how it ends."""

        def create_ticket(call: Any, *, title: str) -> Any:
            number = self.sent.tally.accept("ticket", call.provider_key, {"title": title})
            return do() or {"id": number, "title": title}

        return self.effect(create_ticket, **contract)

    # --- rows --------------------------------------------------------------------------------------------------------

    def rows(self, table: str) -> list[Row]:
        def script() -> Script[Any]:
            return (yield Ddl(f"select * from counterfoil_{table}"))  # noqa: S608 - a test's own table name

        found: list[Row] = self.look(script)
        return found

    @property
    def operation(self) -> Row:
        (row,) = self.rows("operation")
        return row

    @property
    def state(self) -> str:
        return str(self.operation["state"])

    def cases(self, state: str = "open") -> list[str]:
        return [row["kind"] for row in self.rows("case") if row["state"] == state]

    def look(self, maker: Any) -> Any:
        """Read rows whosever they are, if need be as somebody who may see all of them."""
        if (seer := stores.seer(self.url)) is not None:
            return seer.desk.store.read(maker, tenant=ALL_TENANTS)
        store = self.cf.desk.store if self.colour == SYNC else self.cf.store
        return self.settle(store.read(maker, tenant=ALL_TENANTS))

    def write(self, maker: Any, *, tenant: Whose = "team-a") -> Any:
        return (self.cf.desk.store if self.colour == SYNC else self.cf.store).write(maker, tenant=tenant)

    def attempts(self) -> list[str]:
        return [row["outcome"] for row in self.look(inspection.everything).attempts]

    def evidence(self) -> list[str]:
        return [row["kind"] for row in sorted(self.rows("evidence"), key=lambda row: row["seq"])]

    # --- threads -----------------------------------------------------------------------------------------------------

    @staticmethod
    def at_once(work: Callable[[], T], times: int) -> list[T | BaseException]:
        """Run the same work in threads that start together; a raised error is a result."""
        start, results = threading.Barrier(times), list[T | BaseException]()

        def one() -> None:
            start.wait()
            try:
                results.append(work())
            except Exception as error:  # noqa: BLE001 - the test looks at it
                results.append(error)

        threads = [threading.Thread(target=one) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class Background:
    """A call in a thread of its own; `result` joins it and returns or raises what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._outcome: tuple[bool, Any] = (False, None)
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = (True, self._work())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self._outcome = (False, error)

    def is_under_way(self, within: float = 0.0) -> bool:
        """Say whether it has not ended yet, also when it was given some seconds."""
        self._thread.join(within)
        return self._thread.is_alive()

    def result(self, timeout: float = 30.0) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the call still runs"
        good, value = self._outcome
        if not good:
            raise value
        return value


@dataclass(slots=True)
class Gate:
    """Where an effect stops until the test lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(30), "nobody opened the gate"

    def wait(self) -> None:
        assert self.reached.wait(30), "nobody came to the gate"

    def open(self) -> None:
        self.opened.set()
