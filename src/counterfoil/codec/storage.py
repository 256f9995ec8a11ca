"""Faithful storage: what was encoded comes back equal and of the same type.

The bytes are one version byte and a JSON text in which the types that JSON lacks are tagged. Nothing is canonicalised:
key order, int or float, -0.0, a Decimal's trailing zeros and a datetime's ZoneInfo stay. A retry sends what was stored,
so this must be exact. The rules:

- Models (dataclass, pydantic) are stored as plain mappings and Enum members as their values, and come back as such.
  Subclasses of the types below come back as the plain type (a named tuple as a tuple).
- NaN, infinities, NUL and lone surrogates are kept; mappings whose keys are not plain strings become lists of pairs.
- Refused with the path: other types, more than `MAX_DEPTH` levels, set elements and keys that would not come back
  distinct and hashable (a frozen dataclass in a set).
- Whatever `encode` takes keeps its canonical form, if it has one: `canonical(decode(encode(x))) == canonical(x)`.

A row that the database itself put into a receipt has a version byte of its own and is plain JSON, as PostgreSQL's
`row_to_json` writes it: whole numbers are int, others Decimal, and what JSON lacks (times, UUIDs, bytes) is text.
"""

# Payloads are arbitrary until they are encoded, and the encoders are imported on first use:
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from counterfoil.codec.canonical import MAX_DEPTH, encoders_agree, escape_key, zone_key
from counterfoil.codec.contents import Path, by_kind, is_root_model, mapping_of, refusal, type_name
from counterfoil.errors import InvalidMappingKey, SchemaNewer, StoredValueDamaged, UnsupportedValue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_V1 = b"\x01"
_ROW = b"\x02"
_INT64 = 2**63
_MICROSECOND = timedelta(microseconds=1)


class Redacted:
    """Stands where a secret was taken out of a receipt before it was stored."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Redacted"


REDACTED: Final = Redacted()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedReceipt:
    """A receipt's value as stored; `marker` says which type could not be stored, and where, if it could not."""

    body: bytes
    marker: str | None


def encode(value: object, path: Path = "$") -> bytes:
    """Return the bytes to store for a value.

    Raises:
        UnsupportedValue: the value, or one inside it, cannot be stored.
    """
    return _V1 + _body(value, path, None)


def encode_receipt(value: object, *, redact: Collection[str] = ()) -> EncodedReceipt:
    """Return the bytes to store for what an effect returned; never raises, for the effect has happened.

    Args:
        value: What the effect returned.
        redact: Dotted paths of secrets (`card.number`); lists on the way are passed through. Secret-holding objects
            (`get_secret_value`) are always redacted.
    """
    hidden = frozenset([redact] if isinstance(redact, str) else redact)
    try:
        return EncodedReceipt(body=_V1 + _body(value, "$", hidden), marker=None)
    except UnsupportedValue as error:
        return EncodedReceipt(body=encode(None), marker=error.message)
    except Exception as error:  # noqa: BLE001 - the user's objects may fail in any way when they are looked into
        marker = f"a value of type {type_name(value)} at $ could not be read ({type_name(error)})"
        return EncodedReceipt(body=encode(None), marker=marker)


def encode_row(row: Mapping[str, Any] | str) -> bytes:
    """Return the bytes to store for a row, as a database that writes JSON itself would write them, or wrote them."""
    if isinstance(row, str):
        return _ROW + row.encode()
    return _ROW + json.dumps({name: _as_json(value) for name, value in row.items()}, ensure_ascii=False).encode()


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


def decode(data: bytes) -> Any:
    """Return the value that `encode`, `encode_receipt` or a database stored.

    Raises:
        SchemaNewer: the bytes were written by a newer version.
        StoredValueDamaged: the bytes are damaged.
    """
    if not data.startswith((_V1, _ROW)):
        raise SchemaNewer(
            f"a stored value has format {data[:1].hex() or 'none'}, this version reads 01 and 02; upgrade"
        )
    try:
        return _read(data) if data.startswith(_V1) else _read_row(data)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoredValueDamaged("a stored value is damaged and cannot be decoded; restore it from a backup") from error


def _read(data: bytes) -> Any:
    tree = _loads()(data[1:])
    return _untag(tree) if b'"$' in data else tree


def _read_row(data: bytes) -> Any:
    return json.loads(data[1:], parse_float=Decimal)


# --- writing ---------------------------------------------------------------------------------------------------------


class _Spot(NamedTuple):
    """Where the writer is: the path, the levels left, and the paths below to redact (`None`: not a receipt)."""

    path: Path
    depth: int
    hidden: frozenset[str] | None

    def item(self, index: int | None) -> _Spot:
        return _Spot((self.path, index), self.depth - 1, self.hidden)

    def field(self, key: object) -> _Spot:
        return _Spot((self.path, key), self.depth - 1, self.hidden and _below(self.hidden, key))


def _below(hidden: frozenset[str], key: object) -> frozenset[str]:
    """Return what is left of the paths that go through `key` (a key may itself hold a dot)."""
    start = f"{key}."
    return frozenset(path.removeprefix(start) for path in hidden if path.startswith(start))


def _body(value: object, path: Path, hidden: frozenset[str] | None) -> bytes:
    if not hidden and encoders_agree(value, MAX_DEPTH) and (body := _plain_body(value)) is not None:
        return body
    return _dumps()(_store(value, _Spot(path, MAX_DEPTH, hidden)))


def _plain_body(value: object) -> bytes | None:
    try:
        body = _dumps()(value)
    except TypeError:
        return None
    return None if b"\\u0000" in body or b'"$' in body else body


@cache
def _dumps() -> Callable[[object], bytes]:
    import orjson

    return orjson.dumps


@cache
def _loads() -> Callable[[bytes], Any]:
    import orjson

    return orjson.loads


def _store(value: object, spot: _Spot) -> object:
    """Return the tree of plain JSON data that decodes to a value."""
    if spot.depth < 0:
        raise refusal(UnsupportedValue, spot.path, "nesting", f"no more than {MAX_DEPTH} levels, and no cycles")
    if (writer := by_kind(_WRITERS, value)) is not None:
        return writer(value, spot)
    if spot.hidden is not None and hasattr(type(value), "get_secret_value"):
        return _redacted(value, spot)
    if is_root_model(value):
        return _store(value.root, spot)  # type: ignore[attr-defined]
    if (mapping := mapping_of(value)) is not None:
        return _mapping(mapping, spot)
    name = type_name(value)
    raise refusal(UnsupportedValue, spot.path, f"a value of type {name}", "return plain data", type_name=name)


def _mapping(value: Mapping[Any, Any], spot: _Spot) -> object:
    stored = [(key, _entry(key, item, spot)) for key, item in value.items()]
    if all(isinstance(key, str) and _is_plain(key) for key, _ in stored):
        return {escape_key(str.__str__(key)): item for key, item in stored}
    keys = [_store(key, spot.item(None)) for key, _ in stored]
    if not _come_back_distinct(keys):
        raise refusal(InvalidMappingKey, spot.path, "a mapping key", "use strings as keys, or a list of pairs")
    return {"$map": [[key, item] for key, (_, item) in zip(keys, stored, strict=True)]}


def _entry(key: object, item: object, spot: _Spot) -> object:
    return _redacted(item, spot) if spot.hidden and key in spot.hidden else _store(item, spot.field(key))


def _come_back_distinct(trees: list[object]) -> bool:
    try:
        return len({_untag(tree) for tree in trees}) == len(trees)
    except TypeError:  # unhashable
        return False


def _array(value: list[Any], spot: _Spot) -> object:
    return [_store(item, spot.item(index)) for index, item in enumerate(value)]


def _tuple(value: tuple[Any, ...], spot: _Spot) -> object:
    return {"$tuple": [_store(item, spot.item(index)) for index, item in enumerate(value)]}


def _set_as(tag: str) -> Callable[[Any, _Spot], object]:
    def write(value: frozenset[Any], spot: _Spot) -> object:
        trees = [_store(item, spot.item(None)) for item in value]
        if not _come_back_distinct(trees):
            raise refusal(UnsupportedValue, spot.path, "a set of models", "use a list", type_name=type_name(value))
        return {tag: sorted(trees, key=_dumps())}

    return write


def _text(value: str, _spot: _Spot) -> object:
    text = str.__str__(value)
    return text if _is_plain(text) else {"$text": _base64(text.encode("utf-8", "surrogatepass"))}


def _is_plain(text: str) -> bool:
    """Tell whether a text can stand in JSON and in PostgreSQL as it is."""
    if "\x00" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _int(value: int, _spot: _Spot) -> object:
    number = int.__int__(value)
    return number if -_INT64 <= number < _INT64 else {"$int": hex(number)}  # decimal text has a length limit in Python


def _float(value: float, _spot: _Spot) -> object:
    number = float.__float__(value)
    return number if math.isfinite(number) else {"$float": repr(number)}


def _datetime(value: datetime, _spot: _Spot) -> object:
    return {"$datetime": _with_zone(datetime.isoformat(value), value)}


def _time(value: time, spot: _Spot) -> object:
    if value.tzinfo is not None and value.utcoffset() is None and not zone_key(value):
        raise refusal(UnsupportedValue, spot.path, "a time in a zone without a name", "use a ZoneInfo")
    return {"$time": _with_zone(time.isoformat(value), value)}


def _with_zone(text: str, value: datetime | time) -> object:
    zone = zone_key(value)
    return [text, zone, value.fold] if zone or value.fold else text


def _tagged(tag: str, text: Callable[[Any], str]) -> Callable[[Any, _Spot], object]:
    return lambda value, _spot: {tag: text(value)}


def _base64(value: bytes | bytearray) -> str:
    return b64encode(value).decode()


def _enum(value: Enum, spot: _Spot) -> object:
    return _store(value.value, spot._replace(depth=spot.depth - 1))


def _redacted(_value: object, _spot: _Spot) -> object:
    return {"$redacted": True}


def _same(value: object, _spot: _Spot) -> object:
    return value


_WRITERS: dict[type, Callable[[Any, _Spot], object]] = {
    str: _text,
    bool: _same,
    NoneType: _same,
    int: _int,
    float: _float,
    Decimal: _tagged("$decimal", Decimal.__str__),
    dict: _mapping,
    list: _array,
    tuple: _tuple,
    set: _set_as("$set"),
    frozenset: _set_as("$frozenset"),
    datetime: _datetime,
    date: _tagged("$date", date.isoformat),
    time: _time,
    timedelta: _tagged("$timedelta", lambda value: str(value // _MICROSECOND)),
    UUID: _tagged("$uuid", str),
    bytes: _tagged("$bytes", _base64),
    bytearray: _tagged("$bytearray", _base64),
    Enum: _enum,
    Redacted: _redacted,
}


# --- reading ---------------------------------------------------------------------------------------------------------


def _untag(tree: object) -> Any:
    if type(tree) is list:
        return [_untag(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if len(tree) == 1:
        (key,) = tree
        if key[:1] == "$" != key[1:2]:
            return _read_tag(key, tree[key])
    return {key.removeprefix("$"): _untag(item) for key, item in tree.items()}


def _read_tag(tag: str, content: Any) -> object:
    if (reader := _READERS.get(tag)) is None:
        raise SchemaNewer(f"a stored value has a part of kind {tag}, which this version does not know; upgrade")
    return reader(content)


def _read_datetime(content: Any) -> datetime:
    """Read a datetime, in its named zone if that still gives the stored offset; otherwise with the offset alone."""
    if isinstance(content, str):
        return datetime.fromisoformat(content)
    text, key, fold = content
    fixed = datetime.fromisoformat(text).replace(fold=fold)
    named = fixed.replace(tzinfo=_zone(key)) if key else fixed
    return named if named.utcoffset() == fixed.utcoffset() else fixed


def _read_time(content: Any) -> time:
    if isinstance(content, str):
        return time.fromisoformat(content)
    text, key, fold = content
    value = time.fromisoformat(text).replace(fold=fold)
    if key and (zone := _zone(key)) is None:
        raise StoredValueDamaged(f"a stored time needs time zone {key!r}; install tzdata")
    return value.replace(tzinfo=zone) if key else value


def _zone(key: str) -> Any:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):  # this machine has no such zone
        return None


_READERS: dict[str, Callable[[Any], object]] = {
    "$text": lambda text: b64decode(text).decode("utf-8", "surrogatepass"),
    "$int": lambda text: int(text, 16),
    "$float": float,
    "$decimal": Decimal,
    "$map": lambda pairs: {_untag(key): _untag(item) for key, item in pairs},
    "$tuple": lambda items: tuple(map(_untag, items)),
    "$set": lambda items: set(map(_untag, items)),
    "$frozenset": lambda items: frozenset(map(_untag, items)),
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda text: int(text) * _MICROSECOND,
    "$uuid": UUID,
    "$bytes": b64decode,
    "$bytearray": lambda text: bytearray(b64decode(text)),
    "$redacted": lambda _: REDACTED,
}
