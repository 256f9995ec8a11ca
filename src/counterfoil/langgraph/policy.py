"""Refuse live objects and credentials before they reach a checkpoint, with the path of the field and never its value.

The same walk guards node output, input, interrupt payloads, resume values and metadata. A credential is recognised by
its type, by the name of its field and by its shape; see `counterfoil.credentials`. Error texts are redacted instead of
refused: a refused error record would hide the error.
"""

# state is whatever a graph holds

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from counterfoil.credentials import find_secret, is_secret_name, redact_text, require_detectors
from counterfoil.langgraph.classes import Classes, Refused
from counterfoil.langgraph.parts import take_apart
from counterfoil.langgraph.trail import Trail

__all__ = ["check_metadata", "check_state", "redact_text"]

_PLAIN: Final = frozenset({type(None), bool, int, float, complex})
_TEXT: Final = frozenset({str, bytes, bytearray})
_LISTS: Final = frozenset({list, tuple, set, frozenset})
# Under these names a mapping holds credentials; under others (the "authorization" of a payment) it has its own names.
_SECRET_MAPPINGS: Final = frozenset({"cookie", "cookies", "credentials", "secrets", "passwords", "apikeys"})
# Bytes are searched as text only up to here; longer ones are files.
_SEARCHED_BYTES: Final = 64 * 1024


def check_state(value: Any, path: str = "$") -> None:
    """Refuse what must not or cannot be stored: node output, input, interrupt payloads.

    Raises:
        StateNotStorable: a live object, a cycle, or a type that would not come back equal.
        SecretInState: a credential.
        MissingExtra: detect-secrets is not installed.
    """
    _Walk(path).visit(value)


def check_metadata(metadata: Mapping[str, Any], path: str = "$") -> None:
    """Refuse credentials in checkpoint metadata, and what JSON would change.

    Raises:
        StateNotStorable: something that is not plain JSON.
        SecretInState: a credential.
        MissingExtra: detect-secrets is not installed.
    """
    walk = _JsonWalk(path)
    walk.visit(dict(metadata))


class _Walk:
    """Visit every part of a value that would be stored."""

    def __init__(self, path: str) -> None:
        require_detectors()
        self._trail = Trail(path)
        self._classes = Classes(undeclared="loaded")  # which classes are declared is for the serializer to judge

    def visit(self, value: Any) -> None:
        cls = type(value)
        if cls in _PLAIN:
            return
        if cls in _TEXT:
            self._text(value)
            return
        self._trail.enter(value)
        for section in self._sections(value):
            self._section(section)
        self._trail.leave(value)

    def _sections(self, value: Any) -> list[Any]:
        if type(value) is dict or type(value) is list:
            return [value]
        try:
            return take_apart(value, self._classes)[2]
        except Refused as refused:
            raise self._trail.error(refused) from None

    def _section(self, section: Any) -> None:
        steps = self._trail.steps
        if type(section) is list:
            for index, value in enumerate(section):
                steps.append(index)
                self.visit(value)
                steps.pop()
        elif section is not None:
            for key, value in section.items():
                self._item(key, value)

    def _item(self, key: Any, value: Any) -> None:
        if type(key) is not str:
            self._trail.steps.append(None)
            self.visit(key)
            self._trail.steps.pop()
        elif rule := find_secret(key):
            raise self._trail.secret(f"a key: {rule}")
        self._trail.steps.append(key)
        if type(key) is str and is_secret_name(key) and _holds_secret(key, value):
            raise self._trail.secret("by the name of the field")
        self.visit(value)
        self._trail.steps.pop()

    def _text(self, value: str | bytes | bytearray) -> None:
        if not isinstance(value, str):
            value = value.decode("latin-1") if len(value) <= _SEARCHED_BYTES else ""
        if rule := find_secret(value):
            raise self._trail.secret(rule)


class _JsonWalk(_Walk):
    """Visit metadata, which holds what JSON can say; a tuple is a list there (the counters of delta channels are)."""

    def _sections(self, value: Any) -> list[Any]:
        if type(value) is tuple:
            return [list(value)]
        if type(value) is not dict and type(value) is not list:
            raise self._trail.not_storable(type(value).__name__, "metadata holds only plain JSON values")
        return [value]

    def visit(self, value: Any) -> None:
        if isinstance(value, (bytes, bytearray, complex)) or (isinstance(value, float) and not math.isfinite(value)):
            raise self._trail.not_storable(type(value).__name__, "JSON has no such value")
        super().visit(value)

    def _item(self, key: Any, value: Any) -> None:
        if type(key) is not str:
            raise self._trail.not_storable(type(key).__name__, "the keys of metadata are strings")
        super()._item(key, value)


def _holds_secret(name: str, value: Any) -> bool:
    """Tell whether a field with a secret name holds a text; a number is none but under a password's name."""
    if isinstance(value, (str, bytes, bytearray)):
        return bool(value)
    if type(value) in _LISTS:
        return any(_holds_secret(name, one) for one in value)
    if isinstance(value, Mapping):
        whole = "".join(filter(str.isalpha, name.lower()))
        return whole in _SECRET_MAPPINGS and any(_holds_secret(name, one) for one in value.values())
    return "pass" in name.lower() and type(value) in {int, float}
