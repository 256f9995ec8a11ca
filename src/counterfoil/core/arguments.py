"""Check what a caller passes, so that a wrong type or size is named where it is written and not where it breaks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from counterfoil.errors import ContradictoryDeclaration, InvalidArguments, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST: Final = 2**63 - 1
"""What a column of whole numbers holds."""
LONGEST: Final = 512
"""Characters of a name."""
_MOST: Final = 4_000
"""Characters of a reason: enough for a paragraph, and a bound for what lists show."""


@dataclass(frozen=True, slots=True)
class Checker:
    """Return what fits and refuse what does not with one class of error; `what` is named as the caller writes it."""

    error: type[UsageError]

    def words(self, what: str, value: object) -> str:
        """Return a text of any content."""
        if not isinstance(value, str):
            raise self._refusal(what, value, "a text")
        return value

    def text(self, what: str, value: object, *, longest: int | None = None) -> str:
        """Return a text that every database can hold and compare."""
        text = self.words(what, value)
        if flaw := text_flaw(text, longest):
            raise self.error(f"{what} {flaw}.")
        return text

    def optional_text(self, what: str, value: object) -> str | None:
        """Return such a text, or None."""
        return None if value is None else self.text(what, value)

    def texts(self, what: str, value: object) -> tuple[str, ...]:
        """Return one text or several as a tuple."""
        if isinstance(value, str):
            return (self.text(what, value),)
        if not isinstance(value, Collection) or isinstance(value, Mapping | bytes):
            raise self._refusal(what, value, "a text or a tuple of texts")
        return tuple(self.text(what, one) for one in value)

    def number(self, what: str, value: object, *, least: int = 0, most: int = LARGEST) -> int:
        """Return a whole number within its bounds."""
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._refusal(what, value, f"a whole number from {least} to {most}")
        return value

    def flag(self, what: str, value: object) -> bool:
        """Return True or False; a text such as "no" would count as true."""
        if not isinstance(value, bool):
            raise self._refusal(what, value, "True or False")
        return value

    def function(self, what: str, value: Any) -> Callable[..., Any]:
        """Return something that can be called."""
        if not callable(value):
            raise self._refusal(what, value, "a function, as this cannot be called")
        return value  # type: ignore[no-any-return]

    def exceptions(self, what: str, value: Any) -> tuple[type[BaseException], ...]:
        """Return one class of exceptions or several as a tuple."""
        classes = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in classes):
            raise self._refusal(what, value, "an exception class or a tuple of them")
        return classes

    def arguments(self, what: str, value: Any) -> Mapping[str, Any]:
        """Return a mapping whose keys are names, as keyword arguments have them; None is an empty one."""
        found: Mapping[Any, Any] = value if type(value) is dict else self.mapping(what, value)
        for name in found:
            if not isinstance(name, str):
                raise self._refusal(f"A name among {what}", name, "a text")
        return found

    def mapping(self, what: str, value: Any) -> Mapping[str, Any]:
        """Return a mapping; None is an empty one."""
        if value is not None and not isinstance(value, Mapping):
            raise self._refusal(what, value, "a mapping")
        return value or {}

    def _refusal(self, what: str, value: object, wanted: str) -> UsageError:
        is_short = value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST)
        shown = repr(value) if is_short else f"of type {type(value).__name__}"
        return self.error(f"{what} is {shown}; write {wanted}.")


def text_flaw(text: str, longest: int | None = None) -> str | None:
    """Say what keeps a text from being stored or compared by a database, or None."""
    if not text:
        return "is empty"
    if "\0" in text:
        return "holds a NUL character, which PostgreSQL cannot store; remove it"
    if longest is not None and len(text) > longest:
        return f"has {len(text)} characters, more than {longest}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which has no UTF-8 form; decode its source again"
    return None


def plain(text: str) -> str:
    """Return a text that every database stores: no NUL, no lone surrogate, bounded, no white space around it."""
    return text.strip()[:_MOST].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


CALLED: Final = Checker(InvalidArguments)
DECLARED: Final = Checker(ContradictoryDeclaration)
