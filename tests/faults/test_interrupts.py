"""Interrupts and cancellations at any moment: no connection is lost, no transaction left open, nothing sent twice."""

import asyncio
import gc
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from counterfoil.drivers.probes import Point
from counterfoil.errors import CounterfoilError
from tests.conformance.subject import ASYNC
from tests.faults.subject import Wired
from tests.postgres.databases import Database

OPEN = """select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'
  and backend_type = 'client backend'"""


class SoftLimit(BaseException):
    """What a task queue raises from a signal handler."""


def nothing_is_left(subject: Wired, database: Database) -> None:
    """All connections are back, none is in a transaction, and no operation was sent twice."""
    gc.collect()  # what a traceback held on to
    assert (subject.lent(), subject.cf.desk.store.lender.shelf.lent) == (0, 0)
    until = time.monotonic() + 10
    while database.execute(OPEN) != [(0,)]:  # a session ends a moment after its connection
        assert time.monotonic() < until, "a transaction was left open"
    sent = Counter(body["title"] for body in subject.sent.bodies)
    assert max(sent.values()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftLimit])
def test_an_interrupt_at_each_point(blocking: Wired, postgres_database: Database, error: type[BaseException]) -> None:
    create, points = blocking.ticket(), list[Any]()
    with blocking.probe.during(lambda point, name: points.append(point)):
        blocking.perform(create, request_id="whole", title="whole")
    for target in range(len(points)):
        left = iter(range(target, -1, -1))

        def interrupt(point: Point, name: str, left: Iterator[int] = left) -> None:
            if next(left, None) == 0:
                raise error

        with blocking.probe.during(interrupt), pytest.raises(error):
            blocking.perform(create, request_id=f"r-{target}", title=f"r-{target}")
        nothing_is_left(blocking, postgres_database)
    assert blocking.perform(create, request_id="after", title="after").value["title"] == "after"


@contextmanager
def interrupting(error: type[BaseException]) -> Iterator[None]:
    """Let SIGALRM raise in the main thread, wherever it is."""

    def strike(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, strike)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(chance: random.Random, longest: float, work: Any) -> None:
    """Work until it is done or the signal comes; it may come while the clock is stopped, too."""
    with suppress(SoftLimit, KeyboardInterrupt):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.random() * longest + 1e-5)
            with suppress(CounterfoilError):
                work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def duration(work: Callable[[], object]) -> float:
    """Say how long it takes now: signals later than that would meet nothing."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a signal may come inside a clean-up
@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftLimit])
@pytest.mark.parametrize(
    ("seed", "times"),
    [(1, 150), *(pytest.param(seed, 2000, marks=pytest.mark.soak) for seed in range(2, 6))],
)
def test_signals_at_random_moments(
    blocking: Wired, postgres_database: Database, error: type[BaseException], seed: int, times: int
) -> None:
    chance, create = random.Random(seed), blocking.ticket()
    with interrupting(error):
        for start in range(0, times, 10):
            longest = 2 * duration(lambda: blocking.perform(create, request_id=f"whole-{start}", title=f"w-{start}"))  # noqa: B023 - called at once
            blocking.forget_connections()  # so that opening one is met, too
            for number in range(start, start + 10):
                work = partial(blocking.perform, create, request_id=f"r-{number}", title=f"r-{number}")
                interrupted(chance, longest, work)
    nothing_is_left(blocking, postgres_database)
    assert blocking.perform(create, request_id="after", title="after").value["title"] == "after"


@pytest.mark.parametrize(
    ("seed", "times"),
    [(1, 150), *(pytest.param(seed, 2000, marks=pytest.mark.soak) for seed in range(2, 6))],
)
@pytest.mark.parametrize("colour", [ASYNC])
def test_cancellations_at_random_moments(subject: Wired, postgres_database: Database, seed: int, times: int) -> None:
    """Several callers at once, so that some wait in line for a connection."""
    chance, create = random.Random(seed), subject.ticket()
    narrow = subject.open(connections=2)

    async def one(title: str) -> None:
        task = asyncio.ensure_future(narrow.perform(create, tenant="team-a", request_id=title, title=title))
        asyncio.get_running_loop().call_later(chance.random() * 0.03, task.cancel)
        with suppress(asyncio.CancelledError, CounterfoilError):
            await task

    async def all_of_them() -> None:
        for start in range(0, times, 5):
            if start % 50 == 0:
                narrow.store.lender.shelf().drop_idle()
            await asyncio.gather(*(one(f"r-{start + number}") for number in range(5)))

    subject.settle(all_of_them())
    assert subject.lent(narrow) == 0
    nothing_is_left(subject, postgres_database)
    assert subject.perform(create, cf=narrow, request_id="after", title="after").value["title"] == "after"
