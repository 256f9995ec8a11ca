"""Limits that a test waits for are short: on a slow machine one may be over before its effect begins.

That nothing was sent then is told, and performing again is safe.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from counterfoil.errors import EffectNotSent

T = TypeVar("T")

TRIES = 100


def until_sent(perform: Callable[[], T]) -> T:
    """Perform until something was sent, and return or raise what came of that."""
    for _ in range(TRIES):
        with suppress(EffectNotSent):
            return perform()
    return perform()


async def until_sent_async(perform: Callable[[], Awaitable[T]]) -> T:
    """Perform as `until_sent` does, for a caller that awaits."""
    for _ in range(TRIES):
        with suppress(EffectNotSent):
            return await perform()
    return await perform()
