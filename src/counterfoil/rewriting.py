"""Take what a person wrote in place of an argument for the type that the effect declares, or refuse it.

An annotation binds nobody in Python: it is asked only where what is replaced fits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, Union, get_args, get_origin
from uuid import UUID

from counterfoil.errors import InvalidArguments
from counterfoil.rebuilding import hints

if TYPE_CHECKING:
    from counterfoil.effects import Effect

_FROM_TEXT: Final[Mapping[type, Callable[[str], Any]]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}
"""Types that JSON has no form for, as people write them."""
_PLAIN: Final[Mapping[type, tuple[type, ...]]] = {
    int: (int,),
    float: (float, int, Decimal),
    str: (str,),
    bytes: (bytes,),
    bool: (bool,),
    list: (list, tuple),
    tuple: (tuple, list),
    set: (AbstractSet, list),
    frozenset: (AbstractSet, list),
    dict: (Mapping,),
}
"""What may stand where each of these is declared."""


class Misfit(ValueError):
    """A value is not of the type that is declared."""


def rewritten(effect: Effect[Any], stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored arguments with what a person wrote in place of some, each as the type that the effect declares.

    Raises:
        InvalidArguments: one does not fit; which, is said, and nothing of it.
    """
    judged = {} if effect.schema is None else effect.schema(stored, changes)
    declared = hints(effect.function)
    made = {**stored, **judged}
    for name, value in changes.items():
        if name not in judged:
            made[name] = _judged(declared.get(name), name, stored, value)
    return made


def _judged(hint: Any, name: str, stored: Mapping[str, Any], value: Any) -> Any:
    try:
        return written(hint, value)
    except (TypeError, ValueError):
        if name not in stored or _fits(hint, stored[name]):
            misfit([name])
        return value


def misfit(names: list[str]) -> NoReturn:
    """Refuse what somebody wrote.

    Raises:
        InvalidArguments: always.
    """
    raise InvalidArguments(
        f"What was written for {', '.join(names)} does not fit what the effect declares. Nothing was decided: write"
        " another value, or reject it."
    )


def _fits(hint: Any, value: Any) -> bool:
    try:
        written(hint, value)
    except (TypeError, ValueError):
        return False
    return True


def written(hint: Any, value: Any) -> Any:
    """Return a value, as JSON has it or as Python does, as the type that `hint` names; or as it is.

    Raises:
        Misfit: it is none; or another ValueError or TypeError of the type itself.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        return written(get_args(hint)[0], value)
    if origin in {Union, UnionType}:
        return _first(get_args(hint), value)
    if origin is Literal:
        return _one_of(get_args(hint), value)
    if hint is None or hint is NoneType:
        return _one_of((None,), value) if hint is NoneType else value
    if origin in _PLAIN:
        return _container(origin, get_args(hint), value)
    return _single(hint, value) if origin is None and isinstance(hint, type) else value


def _first(options: tuple[Any, ...], value: Any) -> Any:
    for option in options:
        try:
            return written(option, value)
        except (TypeError, ValueError):
            continue
    raise Misfit


def _one_of(options: tuple[Any, ...], value: Any) -> Any:
    if not any(type(option) is type(value) and option == value for option in options):
        raise Misfit
    return value


def _container(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    kinds: Any = _PLAIN[origin]
    if not isinstance(value, kinds):
        raise Misfit
    if isinstance(value, Mapping):
        return {written(inner[0], key): written(inner[1], item) for key, item in value.items()}
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(inner) != len(value):
            raise Misfit
        return tuple(written(one, item) for one, item in zip(inner, value, strict=True))
    return origin(written(inner[0] if inner else None, item) for item in value)


def _single(hint: type, value: Any) -> Any:
    if issubclass(hint, Enum):
        return hint(value)
    if hint is Decimal:
        return _decimal(value)
    if hint in _FROM_TEXT:
        return _from_text(hint, value)
    if hint in _PLAIN:
        if not isinstance(value, _PLAIN[hint]) or (isinstance(value, bool) and hint is not bool):
            raise Misfit
        made: Any = hint
        return made(value) if hint in {tuple, set, frozenset} else value
    if isinstance(value, hint):
        return value
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    return _dataclass(hint, value) if is_dataclass(hint) else value


def _from_text(hint: type, value: Any) -> Any:
    if isinstance(value, str):
        return _FROM_TEXT[hint](value)
    if not isinstance(value, hint):
        raise Misfit
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise Misfit
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise Misfit from None


def _dataclass(hint: type, value: Any) -> Any:
    made: Any = hint
    known = {each.name: each for each in fields(made) if each.init}
    needed = {n for n, each in known.items() if each.default is MISSING and each.default_factory is MISSING}
    if not isinstance(value, Mapping) or not needed <= value.keys() <= known.keys():
        raise Misfit
    declared = hints(hint)
    return made(**{name: written(declared.get(name), item) for name, item in value.items()})
