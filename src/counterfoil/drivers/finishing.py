"""Await what must not be left in the middle: a transaction is done whole or not at all, whatever cancels its caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


async def finished(work: Coroutine[Any, Any, T]) -> tuple[asyncio.Task[T], asyncio.CancelledError | None]:
    """Await work to its end; return its task, which is done, and the last cancellation that came meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001 - the task keeps it
            break
    return task, cancelled


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end, and let a cancellation take effect after it."""
    task, cancelled = await finished(work)
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen
        raise cancelled
    return task.result()
