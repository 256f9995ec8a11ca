"""A worker beside the caller's own code: in a thread of its own, or as a task of the caller's event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from counterfoil.runtime.worker import Worker


class WorkerThread:
    """Lets a worker work while the block runs; at its end it finishes what is under way."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="counterfoil-worker", daemon=True)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._worker.desk.at_work.add(self)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _frames: TracebackType | None
    ) -> None:
        """End the worker.

        Raises:
            Exception: what ended it before, unless the block raised something itself.
        """
        self.stop()
        self.wait(None)
        self._worker.desk.at_work.discard(self)
        self._loop.close()
        if self._failure is not None and kind is None:
            raise self._failure

    def stop(self) -> None:
        """Tell it to claim nothing more."""
        self._loop.call_soon_threadsafe(self._worker.stop)

    def wait(self, seconds: float | None) -> None:
        """Wait until it has finished what is under way, no longer than this."""
        self._thread.join(seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._worker.run())
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._failure = error


class WorkerTask:
    """The same on the caller's event loop."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._task: asyncio.Task[None] | None = None
        self._ended = threading.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._worker.run())
        self._task.add_done_callback(lambda _task: self._ended.set())
        self._worker.desk.at_work.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _frames: TracebackType | None
    ) -> None:
        """End the worker; raises what ended it before, unless the block raised something itself."""
        self._worker.stop()
        if self._task is None:
            return
        self._worker.desk.at_work.discard(self)
        (result,) = await asyncio.gather(self._task, return_exceptions=True)
        if isinstance(result, BaseException) and kind is None:
            raise result

    def stop(self) -> None:
        """Tell it to claim nothing more."""
        try:
            self._loop.call_soon_threadsafe(self._worker.stop)
        except RuntimeError:  # the loop is over, and the task with it
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until it has finished what is under way, no longer than this; not on its own loop."""
        self._ended.wait(seconds)
