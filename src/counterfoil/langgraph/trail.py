"""Remember where in a value a walk is, for messages and against cycles."""

from __future__ import annotations

import re
from typing import Any, Final

from counterfoil.errors import CounterfoilError, SecretInState, StateNotStorable
from counterfoil.langgraph.classes import Refused, RefusedSecret

# Every level costs three frames when it is read back, and a graph's own stack comes on top; Python allows 1000.
DEEPEST: Final = 100
# Longer keys may be payload or a credential: a message shows only that a key was there.
_SHOWN: Final = re.compile(r"[\w .:/-]{1,30}")


class Trail:
    """The way from the root of a value to the part that is looked at."""

    def __init__(self, root: str = "$") -> None:
        self.steps: list[Any] = []
        self._root = root
        self._open: set[int] = set()

    def enter(self, value: object) -> None:
        """Go into a container.

        Raises:
            StateNotStorable: it contains itself, or is nested too deeply.
        """
        if id(value) in self._open:
            raise self.not_storable(type(value).__name__, "it contains itself; store ids instead of the object")
        if len(self._open) >= DEEPEST:
            raise self.not_storable(type(value).__name__, f"it is nested deeper than {DEEPEST} levels; flatten it")
        self._open.add(id(value))

    def leave(self, value: object) -> None:
        """Come back out of a container."""
        self._open.discard(id(value))

    def path(self) -> str:
        """Return the way as text, without any payload."""
        return self._root + "".join(map(_step, self.steps))

    def error(self, refused: Refused) -> CounterfoilError:
        """Return the public error for a value refused here."""
        if isinstance(refused, RefusedSecret):
            return self.secret(f"{refused.type_name}: {refused.reason}")
        return self.not_storable(refused.type_name, refused.reason)

    def not_storable(self, type_name: str, reason: str) -> StateNotStorable:
        """Return the error for a value that would not come back equal."""
        path = self.path()
        return StateNotStorable(f"{path} ({type_name}) cannot be stored in a checkpoint: {reason}", path=path)

    def secret(self, rule: str) -> SecretInState:
        """Return the error for a credential."""
        path = self.path()
        text = (
            f"{path} looks like a credential ({rule}) and would be stored in a checkpoint: keep it in cf.resources,"
            " fetch it with call.resource(...), or rename the field if it is none"
        )
        return SecretInState(text, path=path)


def _step(key: object) -> str:
    if type(key) is int or type(key) is bool or key is None:
        return f"[{key}]"
    if type(key) is str and _SHOWN.fullmatch(key):
        return f".{key}" if key.isidentifier() else f'["{key}"]'
    return f"[<{type(key).__name__}>]"
