"""What the current thread or task is in the middle of, so that a nested call is refused and not left to dead-lock."""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from counterfoil.errors import NestedEffect, SyncOnEventLoop

if TYPE_CHECKING:
    from counterfoil.storage.store import Store

_INSIDE: ContextVar[str | None] = ContextVar("counterfoil_inside", default=None)


class inside:  # noqa: N801 - reads as a word where it is used
    """Mark that user code of an effect, or a caller's joined transaction, is running here."""

    __slots__ = ("_token", "_what")

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._token = _INSIDE.set(self._what)

    def __exit__(self, *_exc: object) -> None:
        _INSIDE.reset(self._token)


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
    if is_on_loop():
        raise on_loop(blocking, instead)


def is_on_loop() -> bool:
    """Say whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001 - the one for loops, which says so without raising


def on_loop(blocking: str, instead: str) -> SyncOnEventLoop:
    """Return the refusal of a blocking call on a running event loop."""
    return SyncOnEventLoop(f"{blocking} would block the running event loop. Write: {instead}")


def refuse_unjoined(wanted: str, store: Store) -> None:
    """Refuse a call from a thread that has a transaction open on the same database, where that can be seen.

    Django keeps a list of its connections; other libraries do not tell.

    Raises:
        NestedEffect: it has one.
    """
    if "django.db" in sys.modules:
        from counterfoil.integrations.django import refuse_inside_atomic  # noqa: PLC0415 - needs Django

        refuse_inside_atomic(wanted, store)
