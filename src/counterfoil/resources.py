"""Live resources (clients, connections) by type and name: made anew in every process, never stored."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.core.arguments import CALLED
from counterfoil.errors import InvalidArguments, ResourceMissing

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Resources:
    """The registry of one Counterfoil; made on first use, closed with it."""

    def __init__(self) -> None:
        self._factories: dict[tuple[type, str], Callable[[], Any]] = {}
        self._made: dict[tuple[type, str], Any] = {}
        self._mutex = threading.RLock()

    def provide(self, kind: type[T], factory: Callable[[], T], *, name: str = "") -> None:
        """Say how to make the resource of this type (and name); it is made on first use in each process.

        Args:
            kind: The type by which effects ask for it.
            factory: Makes it; called once.
            name: Tells two resources of one type apart.

        Raises:
            InvalidArguments: the factory cannot be called, the kind is no type or the name no text.
        """
        _check(kind, name)
        if not callable(factory):
            raise InvalidArguments(
                f"resources.provide takes a factory, not a {kind.__qualname__} that is made already: one process's"
                f" resource is of no use to another. Write: provide({kind.__qualname__}, lambda: ...)."
            )
        with self._mutex:
            self._factories[kind, name] = factory
            self._made.pop((kind, name), None)

    def get(self, kind: type[T], name: str = "") -> T:
        """Return the resource, making it if this is its first use.

        Raises:
            ResourceMissing: nobody provided it in this process.
        """
        _check(kind, name)
        with self._mutex:
            if (kind, name) not in self._made:
                self._made[kind, name] = self._factory(kind, name)()
            made: T = self._made[kind, name]
            return made

    def _factory(self, kind: type, name: str) -> Callable[[], Any]:
        try:
            return self._factories[kind, name]
        except KeyError:
            named = f" named {name!r}" if name else ""
            raise ResourceMissing(
                f"No {kind.__module__}.{kind.__qualname__}{named} is provided in this process. Resources are never"
                f" taken from a checkpoint: call cf.resources.provide({kind.__qualname__}, factory) at start-up."
            ) from None

    def drain(self) -> list[Any]:
        """Forget what was made and return it, the newest first, for its owner to close."""
        with self._mutex:
            made = list(reversed(self._made.values()))
            self._made.clear()
            return made


def _check(kind: object, name: object) -> None:
    if not isinstance(kind, type):
        raise InvalidArguments(
            f"Resources are provided and asked for by their type, such as httpx.Client, not by a {type(kind).__name__}."
        )
    CALLED.words("name", name)


def close_all(made: list[Any]) -> list[Any]:
    """Close what has a blocking `close`; return the calls that close what must be awaited."""
    later = []
    for resource in made:
        close = getattr(resource, "aclose", getattr(resource, "close", None))
        if hasattr(resource, "aclose") or inspect.iscoroutinefunction(close):
            later.append(close)
        elif callable(close):
            close()
    return later
