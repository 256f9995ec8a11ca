"""The root of all errors, and the registry of their codes."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from counterfoil.exits import Exit, Retry

REGISTRY: dict[str, type[CounterfoilError]] = {}


_WIDEST: Final = 1_100
"""Longer than any id that can be stored with what stands around it, so that one is never cut."""
_LONG_WORD: Final = re.compile(rf"\S{{{_WIDEST},}}")
_SHOWN: Final = 60
_LONGEST: Final = 12_000
"""Characters of a message; the longest reason fits in twice."""


def _readable(message: str) -> str:
    """Return a message without the bulk of what a caller passed in the place of an id; its end says what to do next."""
    if len(message) <= _WIDEST:
        return message
    short = _LONG_WORD.sub(lambda word: f"{word[0][:_SHOWN]}... ({len(word[0])} characters)", message)
    if len(short) <= _LONGEST:
        return short
    left_out = len(short) - _LONGEST
    return f"{short[: _LONGEST // 2]} ... ({left_out} characters left out) ... {short[-_LONGEST // 2 :]}"


class CounterfoilError(RuntimeError):
    """Root of all errors of this package.

    It derives from `RuntimeError` because LangGraph's default retry policy repeats unknown exception classes but
    leaves `RuntimeError` alone: an unknown outcome must never be repeated by a generic retry.
    """

    code: ClassVar[str] = ""
    retry: Retry = Retry.NEVER
    exit: ClassVar[Exit] = Exit.FAILED

    def __init_subclass__(cls) -> None:
        """Enter the class into the registry; a code belongs to one class only."""
        if code := cls.__dict__.get("code"):
            if code in REGISTRY and REGISTRY[code].__qualname__ != cls.__qualname__:
                raise TypeError(f"error code {code!r} is used by two classes")
            REGISTRY[code] = cls

    def __init__(self, message: str, **facts: Any) -> None:
        self.message = _readable(message)
        super().__init__(self.message)
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def docs(self) -> str:
        """Path of this error's page in the documentation."""
        return f"errors/{self.code}.md"
