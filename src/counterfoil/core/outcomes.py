"""What an effect's exception says about the world: nothing happened, refused for good, or nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.model import NotSent, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOST: Final = frozenset({
    ("asyncio", "CancelledError"),
    ("asyncio", "IncompleteReadError"),
    ("http", "IncompleteRead"),
})  # fmt: skip
"""Python's own exceptions that a lost reply raises although nothing in their names or bases says so."""

TIMEOUTS: Final[tuple[type[BaseException], ...]] = (TimeoutError, ConnectionResetError, BrokenPipeError)
"""Errors that leave the outcome unknown; no declaration of "nothing happened" may catch them."""

_HARMLESS_TIMEOUTS: Final = frozenset(
    {"ConnectTimeout", "ConnectTimeoutError", "PoolTimeout", "ConnectionTimeoutError"}
)


def classify(
    error: BaseException, *, not_sent: tuple[type[BaseException], ...], refused: tuple[type[BaseException], ...]
) -> AttemptOutcome:
    """Return what an attempt's exception was raised or declared to say; anything else means `unknown`."""
    if isinstance(error, (NotSent, *not_sent)):
        return AttemptOutcome.NOT_SENT
    if isinstance(error, (Refused, *refused)):
        return AttemptOutcome.REFUSED
    return AttemptOutcome.UNKNOWN


def root(cls: type) -> str:
    """Return the top-level package that a class comes from."""
    return cls.__module__.partition(".")[0]


def ambiguous(
    declared: Iterable[type[BaseException]], is_known: Callable[[type[BaseException]], bool]
) -> tuple[str, ...]:
    """Name the declared "nothing happened" or "refused" classes that would also catch a lost reply.

    A class does if it is a base of a time-out or a broken connection, or if it or a loaded subclass of it is known to
    be one (`is_known` knows those of client libraries) or is a time-out by name, other than of connecting:
    `httpx.HTTPError` would catch `httpx.ReadTimeout`.
    """
    return tuple(cls.__name__ for cls in declared if _catches_lost_reply(cls, is_known))


def _catches_lost_reply(cls: type[BaseException], is_known: Callable[[type[BaseException]], bool]) -> bool:
    if any(issubclass(lost, cls) for lost in TIMEOUTS) or issubclass(cls, TIMEOUTS):
        return True
    return any(_is_lost(sub) or is_known(sub) for sub in _family(cls))


def _is_lost(cls: type[BaseException]) -> bool:
    named_so = "Timeout" in cls.__name__ and cls.__name__ not in _HARMLESS_TIMEOUTS
    return named_so or (root(cls), cls.__name__) in LOST


def _family(cls: type[BaseException]) -> set[type[BaseException]]:
    found = {cls}
    for sub in cls.__subclasses__():
        found |= _family(sub)
    return found
