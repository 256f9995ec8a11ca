"""What the current thread or task is in the middle of, so that a nested call is refused and not left to dead-lock."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from counterfoil.errors import NestedEffect, SyncOnEventLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSIDE: ContextVar[str | None] = ContextVar("counterfoil_inside", default=None)


@contextmanager
def inside(what: str) -> Iterator[None]:
    """Mark that user code of an effect, or a caller's joined transaction, is running here."""
    token = _INSIDE.set(what)
    try:
        yield
    finally:
        _INSIDE.reset(token)


def refuse_nested(wanted: str) -> None:
    """Refuse a Counterfoil call inside an effect.

    Raises:
        NestedEffect: this thread or task is inside one.
    """
    if what := _INSIDE.get():
        raise NestedEffect(
            f"{wanted} was called inside {what}. An effect is one call to one provider: its receipt could not tell"
            " what became of a second one, and a transaction could wait for itself. Perform them one after the other"
            " from the code that called this one."
        )


def refuse_on_loop(blocking: str, instead: str) -> None:
    """Refuse a blocking call on a running event loop.

    Raises:
        SyncOnEventLoop: a loop runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SyncOnEventLoop(f"{blocking} would block the running event loop. Write: {instead}")
