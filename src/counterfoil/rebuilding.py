"""Make stored arguments anew as the types that an effect declares: a retry gets what the first attempt got."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def rebuild_arguments(function: Callable[..., Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored arguments with dataclasses, models and enums made anew, as the function's annotations say."""
    declared = hints(function)
    return {name: rebuild(declared.get(name), value) for name, value in stored.items()}


def hints(function: Any) -> dict[str, Any]:
    """Return the resolved annotations; those that exist for the type checker only stay text."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        known = sys.modules[function.__module__].__dict__
        return {name: known.get(hint, hint) for name, hint in function.__annotations__.items()}


def rebuild(hint: Any, value: Any) -> Any:
    """Return a stored value as the type that `hint` names, or as it is where the hint does not help."""
    if get_origin(hint) is Annotated:
        return rebuild(get_args(hint)[0], value)
    if get_origin(hint) in {Union, UnionType}:
        return _one_of(get_args(hint), value)
    if get_origin(hint) is not None:
        return _container(hint, value)
    return _single(hint, value) if isinstance(hint, type) else value


def _one_of(options: tuple[Any, ...], value: Any) -> Any:
    """Return the value as the first of several types that takes it."""
    if value is None:
        return None
    for option in options:
        if option is NoneType:
            continue
        try:
            made = rebuild(option, value)
        except (TypeError, ValueError):
            continue
        if not isinstance(option, type) or isinstance(made, option):
            return made
    return value


def _container(hint: Any, value: Any) -> Any:
    inner = get_args(hint)
    match value:
        case dict() if len(inner) == 2:  # noqa: PLR2004 - key and value
            return {rebuild(inner[0], key): rebuild(inner[1], item) for key, item in value.items()}
        case tuple() if inner and inner[-1] is not Ellipsis and len(inner) == len(value):
            return tuple(rebuild(one, item) for one, item in zip(inner, value, strict=True))
        case list() | tuple() | set() | frozenset() if inner:
            return type(value)(rebuild(inner[0], item) for item in value)
        case _:
            return value


def _single(hint: type, value: Any) -> Any:
    if issubclass(hint, Enum):
        return hint(value)
    if not isinstance(value, dict):
        return value
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if is_dataclass(hint):
        declared = hints(hint)
        given = {f.name for f in fields(hint) if f.init} & value.keys()
        return hint(**{name: rebuild(declared.get(name), value[name]) for name in given})
    return value
