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
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _frames: TracebackType | None
    ) -> None:
        """End the worker.

        Raises:
            Exception: what ended it before, unless the block raised something itself.
        """
        self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join()
        self._loop.close()
        if self._failure is not None and kind is None:
            raise self._failure

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

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._worker.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _frames: TracebackType | None
    ) -> None:
        """End the worker; raises what ended it before, unless the block raised something itself."""
        self._worker.stop()
        if self._task is None:
            return
        (result,) = await asyncio.gather(self._task, return_exceptions=True)
        if isinstance(result, BaseException) and kind is None:
            raise result
