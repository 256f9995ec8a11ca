"""Take a value apart into what msgpack holds exactly, and rebuild it, type by type.

msgpack itself brings back None, bool, 64-bit int, float, str, bytes, list and str-keyed dict. Every other supported
type has a number here, a function that takes it apart and one that rebuilds it. A type without a number is refused.
The numbers are stored: never renumber, only add.
"""

# state is whatever a graph holds

from __future__ import annotations

import collections
import datetime as dt
import importlib
import ipaddress
import pathlib
import re
import sys
import uuid
import zoneinfo
from dataclasses import MISSING
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from counterfoil import codec
from counterfoil.langgraph.classes import Classes, Kind, Refused, Shape, Unreadable, attributes, set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

# number, a head of plain values the user never sees, and sections whose children appear in paths
Parts = tuple[int, Any, list[Any]]

# fmt: off
(TUPLE, SET, FROZENSET, BYTEARRAY, BIG_INT, COMPLEX, RANGE, DECIMAL, FRACTION, DATETIME, DATE, TIME, TIMEDELTA,
 TIMEZONE, ZONE, UUID_, PATH, IP, PATTERN, DEQUE, ORDERED, DEFAULT, ENUM, RECORD, MODEL, BUILTIN, PAIRS, SURROGATES,
 NDARRAY, NUMPY_SCALAR, REDACTION) = range(1, 32)
# fmt: on

_FACTORIES: Final[dict[str, Any]] = {
    "None": None,
    "Counter": collections.Counter,
    "Decimal": Decimal,
    "OrderedDict": collections.OrderedDict,
    "deque": collections.deque,
    **{one.__name__: one for one in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)},
}
_FACTORY_NAMES: Final = {id(factory): name for name, factory in _FACTORIES.items()}
_PATHS: Final = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
_IPS: Final = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)
_EXACT_ZONES: Final = (type(None), dt.timezone, zoneinfo.ZoneInfo)


def take_apart(value: Any, classes: Classes) -> Parts:
    """Take one value apart; its children may again be anything.

    Raises:
        Refused: its type would not come back equal.
    """
    cls = type(value)
    if (taker := _TAKERS.get(cls)) is not None:
        return taker(value)
    if (numpy := sys.modules.get("numpy")) is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _take_numpy(value, numpy)
    shape = classes.shape(cls)
    return _SHAPE_TAKERS[shape.kind](value, shape)


def put_together(code: int, head: Any, sections: list[Any], classes: Classes) -> Any:
    """Rebuild a value from its parts.

    Raises:
        Unreadable: this process cannot rebuild it.
    """
    if (builder := _CLASS_BUILDERS.get(code)) is not None:
        return builder(head, sections, classes)
    if (plain := _BUILDERS.get(code)) is None:
        raise Unreadable(f"a newer version of this package wrote it (type number {code})")
    return plain(head, sections)


# --- the standard library --------------------------------------------------------------------------------------------


def _take_zone(value: dt.timezone) -> Parts:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]  # what pickle asks for; typeshed lacks it
    return TIMEZONE, None, [[offset, *name]]


def _take_named_zone(value: zoneinfo.ZoneInfo) -> Parts:
    if value.key is None:
        raise Refused(type(value), "a time zone made from a file has no name to find it by")
    return ZONE, value.key, []


def _take_moment(value: dt.datetime | dt.time) -> Parts:
    if type(value.tzinfo) not in _EXACT_ZONES:
        raise Refused(type(value.tzinfo), "use datetime.timezone or zoneinfo.ZoneInfo for time zones")
    code = DATETIME if type(value) is dt.datetime else TIME
    return code, [value.replace(tzinfo=None).isoformat(), value.fold], [[value.tzinfo]]


def _take_default_dict(value: collections.defaultdict[Any, Any]) -> Parts:
    if (name := _FACTORY_NAMES.get(id(value.default_factory))) is None:
        raise Refused(type(value), "its default_factory is not a built-in type; store dict(value)")
    return DEFAULT, name, [dict(value)]


_TAKERS: Final[dict[type, Callable[[Any], Parts]]] = {
    tuple: lambda v: (TUPLE, None, [list(v)]),
    set: lambda v: (SET, None, [list(v)]),
    frozenset: lambda v: (FROZENSET, None, [list(v)]),
    bytearray: lambda v: (BYTEARRAY, bytes(v), []),
    int: lambda v: (BIG_INT, hex(v), []),
    str: lambda v: (SURROGATES, v.encode("utf-8", "surrogatepass"), []),
    complex: lambda v: (COMPLEX, [v.real, v.imag], []),
    range: lambda v: (RANGE, None, [[v.start, v.stop, v.step]]),
    Decimal: lambda v: (DECIMAL, str(v), []),
    Fraction: lambda v: (FRACTION, None, [[v.numerator, v.denominator]]),
    dt.datetime: _take_moment,
    dt.time: _take_moment,
    dt.date: lambda v: (DATE, v.isoformat(), []),
    dt.timedelta: lambda v: (TIMEDELTA, [v.days, v.seconds, v.microseconds], []),
    dt.timezone: _take_zone,
    zoneinfo.ZoneInfo: _take_named_zone,
    uuid.UUID: lambda v: (UUID_, v.hex, []),
    re.Pattern: lambda v: (PATTERN, v.flags, [[v.pattern]]),
    collections.deque: lambda v: (DEQUE, v.maxlen, [list(v)]),
    collections.OrderedDict: lambda v: (ORDERED, None, [dict(v)]),
    collections.defaultdict: _take_default_dict,
    codec.Redacted: lambda _: (REDACTION, None, []),  # receipts are put into the state as they are
    **{cls: lambda v: (PATH, type(v).__name__, [[str(v)]]) for cls in _PATHS},
    **{cls: lambda v: (IP, type(v).__name__, [[str(v)]]) for cls in _IPS},
}


def _build_zone(key: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(key)
    except zoneinfo.ZoneInfoNotFoundError as error:
        raise Unreadable(f"the time zone {key} is not installed here") from error


def _build_path(name: str, text: str) -> pathlib.PurePath:
    try:
        path: pathlib.PurePath = getattr(pathlib, name)(text)
    except NotImplementedError as error:  # a PosixPath on Windows or the reverse
        raise Unreadable(f"a {name} cannot exist on this system; store a PurePath") from error
    return path


_BUILDERS: Final[dict[int, Callable[[Any, list[Any]], Any]]] = {
    TUPLE: lambda _, s: tuple(s[0]),
    SET: lambda _, s: set(s[0]),
    FROZENSET: lambda _, s: frozenset(s[0]),
    BYTEARRAY: lambda h, _: bytearray(h),
    BIG_INT: lambda h, _: int(h, 16),
    SURROGATES: lambda h, _: h.decode("utf-8", "surrogatepass"),
    COMPLEX: lambda h, _: complex(*h),
    RANGE: lambda _, s: range(*s[0]),
    DECIMAL: lambda h, _: Decimal(h),
    FRACTION: lambda _, s: Fraction(*s[0]),
    DATETIME: lambda h, s: dt.datetime.fromisoformat(h[0]).replace(tzinfo=s[0][0], fold=h[1]),
    TIME: lambda h, s: dt.time.fromisoformat(h[0]).replace(tzinfo=s[0][0], fold=h[1]),
    DATE: lambda h, _: dt.date.fromisoformat(h),
    TIMEDELTA: lambda h, _: dt.timedelta(*h),
    TIMEZONE: lambda _, s: dt.timezone(*s[0]),
    ZONE: lambda h, _: _build_zone(h),
    UUID_: lambda h, _: uuid.UUID(h),
    PATH: lambda h, s: _build_path(h, s[0][0]),
    IP: lambda h, s: getattr(ipaddress, h)(s[0][0]),
    PATTERN: lambda h, s: re.compile(s[0][0], h),
    DEQUE: lambda h, s: collections.deque(s[0], h),
    ORDERED: lambda _, s: collections.OrderedDict(s[0]),
    DEFAULT: lambda h, s: collections.defaultdict(_FACTORIES[h], s[0]),
    PAIRS: lambda _, s: dict(zip(s[0][::2], s[0][1::2], strict=True)),
    REDACTION: lambda _, __: codec.REDACTED,
    NDARRAY: lambda h, _: _build_array(h),
    NUMPY_SCALAR: lambda h, _: _build_array([h[0], [], "C", h[1]])[()],
}


# --- numpy, if the process already uses it ---------------------------------------------------------------------------


def _take_numpy(value: Any, numpy: Any) -> Parts:
    dtype = value.dtype
    if dtype.hasobject or numpy.dtype(dtype.str) != dtype:
        raise Refused(type(value), "only arrays of numbers, text, bytes and times come back equal")
    if isinstance(value, numpy.generic):
        return NUMPY_SCALAR, [dtype.str, value.tobytes()], []
    if type(value) is not numpy.ndarray:
        raise Refused(type(value), "store it as a plain numpy.ndarray")
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    return NDARRAY, [dtype.str, list(value.shape), order, value.tobytes(order=order)], []


def _build_array(head: list[Any]) -> Any:
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError as error:
        raise Unreadable("it is a numpy array and numpy is not installed here") from error
    dtype, shape, order, data = head
    return numpy.frombuffer(data, dtype=numpy.dtype(dtype)).reshape(shape, order=order).copy(order=order)


# --- user classes ----------------------------------------------------------------------------------------------------


def _take_enum(value: Any, shape: Shape) -> Parts:
    cls: Any = shape.cls
    plain = type(value._value_) in {str, int, float, bytes, bool, type(None)}
    if plain and _same_member(cls, value):
        return ENUM, [shape.ref, None], [[value._value_]]
    if cls.__members__.get(value._name_) is not value:
        raise Refused(shape.cls, "this member can be found neither by its value nor by its name")
    return ENUM, [shape.ref, value._name_], []


def _same_member(cls: Any, member: Any) -> bool:
    try:
        return cls(member._value_) is member and member._value_ == member._value_  # NaN is found only by identity
    except ValueError:  # a value that the member's __new__ changed
        return False


def _take_record(value: Any, shape: Shape) -> Parts:
    found = attributes(value, shape)
    if found.keys() <= shape.fields:
        return RECORD, shape.ref, [found]
    fields = {name: found.pop(name) for name in shape.fields & found.keys()}
    return RECORD, shape.ref, [fields, found]


def _take_model(value: Any, shape: Shape) -> Parts:
    fields = value.__dict__
    if not fields.keys() <= shape.fields:  # cached properties live there too and can be computed again
        fields = {name: one for name, one in fields.items() if name in shape.fields}
    chosen = value.__pydantic_fields_set__
    head = [shape.ref, None if chosen == fields.keys() else sorted(chosen)]
    return MODEL, head, [fields, value.__pydantic_extra__, value.__pydantic_private__]


def _take_builtin(value: Any, shape: Shape) -> Parts:
    content = _CONTENT[shape.base](value)
    return BUILTIN, shape.ref, [content, attributes(value, shape)]


# each asks the built-in type itself, past whatever the subclass overrides
_CONTENT: Final[dict[type, Callable[[Any], Any]]] = {
    dict: dict.copy,
    list: lambda v: list.__getitem__(v, slice(None)),
    tuple: lambda v: [*tuple.__iter__(v)],
    set: lambda v: [*set.__iter__(v)],
    frozenset: lambda v: [*frozenset.__iter__(v)],
    str: lambda v: [str.__str__(v)],
    bytes: lambda v: [bytes(memoryview(v))],
    int: lambda v: [int.__int__(v)],
    float: lambda v: [float.__float__(v)],
}
_SHAPE_TAKERS: Final[dict[Kind, Callable[[Any, Shape], Parts]]] = {
    Kind.ENUM: _take_enum,
    Kind.RECORD: _take_record,
    Kind.MODEL: _take_model,
    Kind.BUILTIN: _take_builtin,
}


def _find(ref: str, classes: Classes, kind: Kind) -> Shape:
    if (shape := classes.find(ref)).kind is not kind:
        raise Unreadable(f"{ref} was stored as {kind} and is now {shape.kind}")
    return shape


def _build_enum(head: list[Any], sections: list[Any], classes: Classes) -> Any:
    cls: Any = _find(head[0], classes, Kind.ENUM).cls
    try:
        return cls(sections[0][0]) if sections else cls[head[1]]
    except (KeyError, ValueError) as error:
        raise Unreadable(f"{head[0]} no longer has a stored member") from error


def _build_record(ref: str, sections: list[Any], classes: Classes) -> Any:
    shape = _find(ref, classes, Kind.RECORD)
    fields, *others = sections
    _refuse_gone(ref, fields, shape)
    target: Any = object.__new__(shape.cls)
    set_attributes(target, shape, {**_new_fields(shape, fields), **fields})
    for other in others:
        set_attributes(target, shape, other)
    return target


def _new_fields(shape: Shape, stored: dict[str, Any]) -> dict[str, Any]:
    """Give fields that the class got after the value was stored their defaults."""
    known = getattr(shape.cls, "__dataclass_fields__", {})
    made: dict[str, Any] = {}
    for name in shape.fields - stored.keys():
        field = known.get(name)
        if field is not None and field.default is not MISSING:
            made[name] = field.default
        elif field is not None and field.default_factory is not MISSING:
            made[name] = field.default_factory()
        elif field is None or field.init:  # one outside the constructor may well have been unset when it was stored
            raise Unreadable(f"{shape.ref} has the new field {name!r}, which has no default")
    return made


def _build_model(head: list[Any], sections: list[Any], classes: Classes) -> Any:
    shape = _find(head[0], classes, Kind.MODEL)
    fields, extra, private = sections
    _refuse_gone(head[0], fields, shape)
    target: Any = object.__new__(shape.cls)
    chosen = set(fields if head[1] is None else head[1])
    object.__setattr__(target, "__dict__", {**_new_model_fields(shape, fields), **fields})
    object.__setattr__(target, "__pydantic_fields_set__", chosen)
    object.__setattr__(target, "__pydantic_extra__", extra)
    object.__setattr__(target, "__pydantic_private__", private)
    return target


def _new_model_fields(shape: Shape, stored: dict[str, Any]) -> dict[str, Any]:
    declared: Any = shape.cls.__pydantic_fields__  # type: ignore[attr-defined]  # a pydantic class, by its kind
    missing = shape.fields - stored.keys()
    if required := sorted(name for name in missing if declared[name].is_required()):
        raise Unreadable(f"{shape.ref} has new fields without a default: {', '.join(required)}")
    return {name: declared[name].get_default(call_default_factory=True, validated_data=stored) for name in missing}


def _refuse_gone(ref: str, stored: dict[str, Any], shape: Shape) -> None:
    if gone := sorted(stored.keys() - shape.fields):
        raise Unreadable(f"{ref} no longer has the stored fields {', '.join(gone)}")


def _build_builtin(ref: str, sections: list[Any], classes: Classes) -> Any:
    shape = _find(ref, classes, Kind.BUILTIN)
    content, extra = sections
    target = _FILL[shape.base](shape.cls, content)
    set_attributes(target, shape, extra)
    return target


def _fill_later(base: Any, fill: Any) -> Callable[[type, Any], Any]:
    def build(cls: type, content: Any) -> Any:
        target = base.__new__(cls)
        fill(target, content)
        return target

    return build


_FILL: Final[dict[type, Callable[[type, Any], Any]]] = {
    dict: _fill_later(dict, dict.update),
    list: _fill_later(list, list.extend),
    set: _fill_later(set, set.update),
    tuple: tuple.__new__,
    frozenset: frozenset.__new__,
    str: lambda cls, c: str.__new__(cls, c[0]),
    bytes: lambda cls, c: bytes.__new__(cls, c[0]),
    int: lambda cls, c: int.__new__(cls, c[0]),
    float: lambda cls, c: float.__new__(cls, c[0]),
}
_CLASS_BUILDERS: Final[dict[int, Callable[[Any, list[Any], Classes], Any]]] = {
    ENUM: _build_enum,
    RECORD: _build_record,
    MODEL: _build_model,
    BUILTIN: _build_builtin,
}
