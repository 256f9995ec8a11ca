"""Where a value is, what it is called, and what a model object contains."""

# Payloads are arbitrary until they are encoded:

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from counterfoil.errors import UnsupportedValue

Path: TypeAlias = "str | tuple[Path, object]"
"""A place in a value: text such as `$.items`, or a parent with a key or index, written out only when needed."""

T = TypeVar("T")


def at(path: Path) -> str:
    """Write out a path, as in `$.items[3].price`; odd keys are quoted in ASCII so that any log can hold them."""
    steps: list[str] = []
    while isinstance(path, tuple):
        path, key = path
        steps.append(_step(key))
    return path + "".join(reversed(steps))


def _step(key: object) -> str:
    if not isinstance(key, str):
        return f"[{key}]" if type(key) is int else "[*]"  # other keys may hold content: not shown
    return f".{key}" if key.isidentifier() and key.isascii() else f"[{json.dumps(key)}]"


def type_name(value: object) -> str:
    """Return the importable name of a value's type, in ASCII, builtins without their module."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name.encode("ascii", "backslashreplace").decode()


def refusal(error: type[UnsupportedValue], path: Path, what: str, advice: str, **facts: Any) -> UnsupportedValue:
    """Make the error for a value that is refused: what stands where, and what to do."""
    place = at(path)
    return error(f"{what} at {place} is refused; {advice}", path=place, **facts)


def mapping_of(value: object) -> Mapping[Any, Any] | None:
    """Return what a mapping, a dataclass or a pydantic model contains, one level deep; `None` for anything else.

    A model counts as the mapping of its fields, so that a dict and a model object with one content are the same.
    Fields that pydantic is told to exclude are left out; aliases, computed fields and custom serializers are not used:
    none of the user's code runs. Pydantic is recognised by its attributes and never imported.
    """
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if is_model(value):
        return _model_fields(value)
    return None


def is_model(value: object) -> bool:
    """Tell whether a value is an instance of a pydantic model."""
    kind = type(value)
    return hasattr(kind, "model_dump") and hasattr(kind, "__pydantic_validator__")


def is_root_model(value: object) -> bool:
    """Tell whether a value is a pydantic root model, which counts as the one value that it wraps."""
    return is_model(value) and bool(getattr(type(value), "__pydantic_root_model__", False))


def _model_fields(value: Any) -> dict[str, Any]:
    declared = type(value).model_fields
    own = {name: getattr(value, name) for name, field in declared.items() if field.exclude is not True}
    return own | (getattr(value, "__pydantic_extra__", None) or {})


def by_kind(table: Mapping[type, T], value: object) -> T | None:
    """Find the entry for a value's type or its nearest base class (a `bool` before an `int`)."""
    for kind in type(value).__mro__:
        if (found := table.get(kind)) is not None:
            return found
    return None
