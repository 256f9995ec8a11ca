"""The root of all errors, and the registry of their codes."""

from __future__ import annotations

from typing import Any, ClassVar

from counterfoil.exits import Exit, Retry

REGISTRY: dict[str, type[CounterfoilError]] = {}


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
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def docs(self) -> str:
        """Path of this error's page in the documentation."""
        return f"errors/{self.code}.md"
