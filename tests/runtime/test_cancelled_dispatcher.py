"""A dispatcher that is cancelled, as a server does when it shuts down, leaves nothing unknown that it could know.

It is struck at each point of its transactions in turn. What it has claimed and not begun goes back, with no attempt
counted for it; what has returned is recorded.
"""

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from counterfoil import Counterfoil, Effect, Provider, effect, runners
from counterfoil.runtime.dispatcher import Dispatcher

ROWS = 5
BATCH = 2
SECONDS = 30.0
sent: Counter[str] = Counter()


@effect("runtime.cancelled-async", key="{request_id}/a/{number}", provider=Provider())
async def awaited(call: Any, *, number: int) -> int:
    sent[call.operation_id] += 1
    return number


@effect("runtime.cancelled-blocking", key="{request_id}/b/{number}", provider=Provider())
def blocking(call: Any, *, number: int) -> int:
    sent[call.operation_id] += 1
    return number


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that says that a blocking effect has returned in its thread, although the loop does not know yet."""
    returned = threading.Event()
    end = runners.Thread._end

    def noticed(thread: runners.Thread, result: Any) -> bool:
        late = end(thread, result)
        returned.set()
        return late

    monkeypatch.setattr(runners.Thread, "_end", noticed)
    return returned


def test_what_returned_in_the_moment_of_the_cancellation_is_recorded(url: str, returns: threading.Event) -> None:
    with Counterfoil.open(url) as cf:
        running: list[asyncio.Task[Any]] = []

        def cancel() -> None:
            """Cancel all tasks, as a loop that is closed does, before it can hear of the thread."""
            assert returns.wait(SECONDS)
            for task in asyncio.all_tasks(running[0].get_loop()) - {running[1]}:
                task.cancel()

        @effect("runtime.cancelled-returning", key="{request_id}/c", provider=Provider())
        def returning(call: Any) -> str:
            running[0].get_loop().call_soon_threadsafe(cancel)
            return "done"

        async def run() -> None:
            drain = asyncio.ensure_future(Dispatcher(cf.desk, [returning]).drain())
            running.extend((drain, asyncio.current_task() or drain))
            await asyncio.wait([drain])
            assert drain.cancelled()

        cf.enqueue(returning, tenant="t", request_id="r")
        asyncio.run(run())
        (found,) = cf.operations.list(tenant="t").items
        assert (found.state, found.attempt) == ("succeeded", 1)
        assert cf.perform(returning, tenant="t", request_id="r").value == "done"


class Strike:
    """A probe that cancels a task at its n-th point, and goes on once the task knows."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.left = 0

    def __call__(self, _point: str, _name: str) -> None:
        """Count down, and strike."""
        if self.task is None:
            return
        self.left -= 1
        if self.left == 0:
            self._cancel(self.task)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        if asyncio._get_running_loop() is not None:
            task.cancel()
            return
        done = threading.Event()

        def cancel() -> None:
            task.cancel()
            done.set()

        task.get_loop().call_soon_threadsafe(cancel)
        assert done.wait(SECONDS)

    async def drain(self, cf: Counterfoil, made: Effect[Any], at: int) -> bool:
        """Send what is due; say whether it was cancelled."""
        self.left = at
        self.task = asyncio.ensure_future(Dispatcher(cf.desk, [made], batch=BATCH).drain())
        with suppress(asyncio.CancelledError):
            await self.task
        task, self.task = self.task, None
        return task.cancelled()


@pytest.mark.parametrize("made", [awaited, blocking], ids=["async", "blocking"])
def test_what_it_had_not_begun_goes_back_and_what_has_returned_is_recorded(url: str, made: Effect[Any]) -> None:
    strike = Strike()
    sent.clear()
    with Counterfoil.open(url, probe=strike) as cf:
        for at in count(1):
            request = f"r-{at}"
            cf.enqueue_all(made, [{"number": n} for n in range(ROWS)], tenant="t", request_id=request)
            is_cancelled = asyncio.run(strike.drain(cf, made, at))
            mine = [
                each for each in cf.operations.list(tenant="t", limit=ROWS).items if request == each.trusted.request_id
            ]
            found = [(each.state, each.attempt, sent[each.operation_id]) for each in mine]
            assert set(found) <= {("pending", 0, 0), ("succeeded", 1, 1)}, (at, found)
            asyncio.run(Dispatcher(cf.desk, [made]).drain())
            if not is_cancelled:
                break
        assert at > ROWS
        assert not cf.operations.list(tenant="t", state="unknown").items
    assert set(sent.values()) == {1}
