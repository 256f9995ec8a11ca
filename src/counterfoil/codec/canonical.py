"""The canonical form: equal content gives equal bytes, in every process.

The bytes are RFC 8785 canonical JSON of a tagged tree. The rules:

- Key order never matters, list order does. Tuples and named tuples count as lists.
- Numbers count by value, whatever their type: 10, 10.0 and Decimal("10.00") are one number, 0.1 and Decimal("0.1") are
  two (as in Python), `True` is not 1. A number that a double holds exactly is a JSON number; any other (2**53 + 1,
  Decimal("0.1")) is tagged with its exact digits.
- A datetime counts as wall clock plus UTC offset; naive differs from aware. The name of a zone does not count:
  serializers (LangGraph's among them) keep the offset alone, so a resumed run would not recognise its own operation.
- An Enum member counts as its value, a dataclass or pydantic model as the mapping of its fields, a set or frozenset as
  its sorted distinct elements, a bytearray as bytes.
- Strings compare code point by code point: no Unicode normalisation.
- Keys that begin with `$` are escaped by one more `$`: plain data never collides with a tagged value.
- Refused with the path: non-string keys, NaN, infinities, NUL, lone surrogates, other types, too many levels.
"""

# Payloads are arbitrary until they are encoded, and the encoders are imported on first use:
# ruff: noqa: PLC0415

from __future__ import annotations

from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from counterfoil.codec.contents import Path, by_kind, is_root_model, mapping_of, refusal, type_name
from counterfoil.errors import InvalidMappingKey, LoneSurrogate, NonFiniteNumber, NulCharacter, UnsupportedValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DEPTH = 64
"""Deepest nesting taken. A tag adds up to three levels, and orjson stops at 254; no real payload comes near."""

_TREE_DEPTH = 3 * MAX_DEPTH + 4
_EXACT = 2**53 - 1  # RFC 8785 takes integers up to here; beyond it, two integers share one double
_SMALL, _LARGE = 1e-4, 1e15  # between these, every JSON encoder writes a fraction without an exponent
_ATOMS = frozenset((str, bool, NoneType))
_MICROSECOND = timedelta(microseconds=1)


def canonical(value: object, path: Path = "$") -> bytes:
    """Return the canonical bytes of a value.

    Args:
        value: What to encode.
        path: Where the value stands, for the error.

    Raises:
        UnsupportedValue: the value, or one inside it, has no canonical form (subclasses say why).
    """
    if encoders_agree(value, MAX_DEPTH) and (body := _plain_bytes(value)) is not None:
        return body
    return _dump(_tag(value, path, MAX_DEPTH))


def canonical_key(name: object, path: Path) -> tuple[bytes, bytes]:
    """Return the sort key (UTF-16 code units, as RFC 8785 says) and the canonical bytes of a mapping key."""
    key = _key(name, path)
    return key.encode("utf-16-be"), sorted_dumps()(key)


# --- the fast path: values on which orjson and RFC 8785 agree --------------------------------------------------------


def encoders_agree(value: object, depth: int) -> bool:
    """Tell whether orjson's sorted output is RFC 8785, and what was walked is plain JSON data of exact types.

    They differ on whole and very small or large floats, integers from 2**53 on, NaN, and on keys beyond U+D7FF, which
    orjson sorts by code point and RFC 8785 by UTF-16 unit. NUL, surrogates and `$` keys are looked for in the output.
    """
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        return depth > 0 and _keys_agree(value) and _all_agree(value.values(), depth - 1)  # type: ignore[attr-defined]
    if kind is list:
        return depth > 0 and _all_agree(value, depth - 1)
    return _number_agrees(value)


def _all_agree(values: Any, depth: int) -> bool:
    for value in values:  # a loop, with the commonest types first: this is most of the time of a small payload
        kind = type(value)
        if kind in _ATOMS:
            continue
        if kind is int:
            if not -_EXACT <= value <= _EXACT:
                return False
        elif not encoders_agree(value, depth):
            return False
    return True


def _keys_agree(mapping: Any) -> bool:
    try:
        keys = "".join(mapping)
    except TypeError:
        return False
    return keys.isascii() or max(keys) < "\ud800"


def _number_agrees(value: Any) -> bool:
    if type(value) is int:
        return -_EXACT <= value <= _EXACT
    return type(value) is float and _SMALL <= abs(value) < _LARGE and not value.is_integer()


def _plain_bytes(value: object) -> bytes | None:
    try:
        body = sorted_dumps()(value)
    except TypeError:  # a surrogate, or a subclass of str as a key: the slow path knows what to say
        return None
    return None if b"\\u0000" in body or b'"$' in body else body


@cache
def sorted_dumps() -> Callable[[object], bytes]:
    """Return orjson's encoder with sorted keys, imported on first use."""
    import orjson

    return partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)


@cache
def _reference_dumps() -> Callable[[Any], bytes]:
    import rfc8785

    return rfc8785.dumps


def _dump(tree: object) -> bytes:
    return sorted_dumps()(tree) if encoders_agree(tree, _TREE_DEPTH) else _reference_dumps()(tree)


# --- the tagged tree -------------------------------------------------------------------------------------------------


def _tag(value: object, path: Path, depth: int) -> object:
    """Return the tree of plain JSON data that stands for a value."""
    if depth < 0:
        raise refusal(UnsupportedValue, path, "nesting", f"no more than {MAX_DEPTH} levels, and no cycles")
    if (tagger := _TAGGERS.get(type(value)) or by_kind(_TAGGERS, value)) is not None:
        return tagger(value, path, depth)
    if is_root_model(value):
        return _tag(value.root, path, depth)  # type: ignore[attr-defined]
    if (mapping := mapping_of(value)) is not None:
        return _mapping(mapping, path, depth)
    name = type_name(value)
    advice = "pass plain data, or an id and fetch the rest"
    raise refusal(UnsupportedValue, path, f"a value of type {name}", advice, type_name=name)


def _text(value: str, path: Path, _depth: int) -> str:
    if "\x00" in value:
        raise refusal(NulCharacter, path, "a NUL character", "PostgreSQL text cannot hold it: remove it first")
    if not value.isascii():
        _refuse_surrogates(value, path)
    return str.__str__(value)


def _refuse_surrogates(value: str, path: Path) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        advice = "it has no UTF-8 form: decode the source with errors='replace'"
        raise refusal(LoneSurrogate, path, "a lone surrogate", advice) from None


def _key(key: object, path: Path) -> str:
    if not isinstance(key, str):
        what = f"a mapping key of type {type_name(key)}"
        raise refusal(InvalidMappingKey, path, what, "use strings as keys, or a list of pairs")
    return escape_key(_text(key, (path, key), 0))


def escape_key(key: str) -> str:
    """Set a data key apart from tags, which begin with a single `$`."""
    return f"${key}" if key.startswith("$") else key


def _mapping(value: Mapping[Any, Any], path: Path, depth: int) -> object:
    return {_key(key, path): _tag(item, (path, key), depth - 1) for key, item in value.items()}


def _array(value: list[Any] | tuple[Any, ...], path: Path, depth: int) -> object:
    return [_tag(item, (path, index), depth - 1) for index, item in enumerate(value)]


def _set(value: frozenset[Any], path: Path, depth: int) -> object:
    trees = [_tag(item, (path, None), depth - 1) for item in value]
    distinct = {_dump(tree): tree for tree in trees}
    return {"$set": [distinct[body] for body in sorted(distinct)]}


def _whole(value: int, _path: Path, _depth: int) -> object:
    number = int.__int__(value)
    if -_EXACT <= number <= _EXACT:
        return number
    try:
        nearest = float(number)
    except OverflowError:
        return _digits(Decimal(number))
    return nearest if nearest == number else _digits(Decimal(number))


def _real(value: float, path: Path, _depth: int) -> object:
    number = float.__float__(value)
    if number - number != 0.0:
        raise refusal(NonFiniteNumber, path, "a number that is not finite", "pass None or leave it out")
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number


def _decimal(value: Decimal, path: Path, depth: int) -> object:
    if not value.is_finite():
        raise refusal(NonFiniteNumber, path, "a Decimal that is not finite", "pass None or leave it out")
    nearest = float(value)
    return _real(nearest, path, depth) if nearest == value else _digits(value)


def _digits(value: Decimal) -> object:
    """Tag a number by its exact digits and exponent (`normalize` would round to the context's precision)."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    return {"$number": f"{'-' * sign}{short}e{int(exponent) + len(text) - len(short)}"}


def _datetime(value: datetime, _path: Path, _depth: int) -> object:
    return {"$datetime": datetime.isoformat(value)}


def _date(value: date, _path: Path, _depth: int) -> object:
    return {"$date": date.isoformat(value)}


def _time(value: time, path: Path, _depth: int) -> object:
    text = time.isoformat(value)
    if value.tzinfo is None or value.utcoffset() is not None:
        return {"$time": text}
    if zone := zone_key(value):  # a zone without a date has no offset: only its name tells two such times apart
        return {"$time": f"{text}[{zone}]"}
    raise refusal(UnsupportedValue, path, "a time in a zone without a name", "use a ZoneInfo or a fixed offset")


def zone_key(value: datetime | time) -> str | None:
    """Return the name of a value's time zone if that is a `ZoneInfo` with a name."""
    key = getattr(value.tzinfo, "key", None)
    return key if isinstance(key, str) else None


def _timedelta(value: timedelta, _path: Path, _depth: int) -> object:
    return {"$timedelta": str(value // _MICROSECOND)}


def _uuid(value: UUID, _path: Path, _depth: int) -> object:
    return {"$uuid": str(value)}


def _bytes(value: bytes | bytearray, _path: Path, _depth: int) -> object:
    return {"$bytes": b64encode(value).decode()}


def _enum(value: Enum, path: Path, depth: int) -> object:
    return _tag(value.value, path, depth - 1)


def _same(value: object, _path: Path, _depth: int) -> object:
    return value


_TAGGERS: dict[type, Callable[[Any, Path, int], object]] = {
    str: _text,
    bool: _same,
    NoneType: _same,
    int: _whole,
    float: _real,
    Decimal: _decimal,
    dict: _mapping,
    list: _array,
    tuple: _array,
    set: _set,
    frozenset: _set,
    datetime: _datetime,
    date: _date,
    time: _time,
    timedelta: _timedelta,
    UUID: _uuid,
    bytes: _bytes,
    bytearray: _bytes,
    Enum: _enum,
}
