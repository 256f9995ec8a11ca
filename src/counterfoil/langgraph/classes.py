"""Which user classes may be stored in a checkpoint, and how a stored name becomes the class again.

An instance is stored as its attributes and rebuilt by setting them, without running its constructor, validators or
`__post_init__`: what comes back is what was there, and loading runs no code of the class. A stored name is followed
only to a class that this process declared, that LangGraph itself calls safe, or whose module is already imported: a
checkpoint can never cause an import of its own choice (CVE-2025-64439 is what happens otherwise).
"""

# state is whatever a graph holds

from __future__ import annotations

import dataclasses
import importlib
import sys
from enum import Enum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES, STRICT_MSGPACK_ENABLED

if TYPE_CHECKING:
    from collections.abc import Iterable

Undeclared = Literal["loaded", "refused"]

_SAFE: Final = SAFE_MSGPACK_TYPES | {
    ("collections", "Counter"),
    ("langchain_core.messages.base", "TextAccessor"),
    ("langgraph.checkpoint.serde.types", "_DeltaSnapshot"),
}
_SLOT_CLASSES: Final = {("langgraph.types", "Send"), ("langgraph.store.base", "Item")}
_BUILTINS: Final = (dict, list, tuple, set, frozenset, str, bytes, int, float)
_HEAP_TYPE: Final = 1 << 9  # CPython's Py_TPFLAGS_HEAPTYPE: a class made by a class statement, without state in C
_NOT_STATE: Final = {"__dict__", "__weakref__", "__orig_class__"}
_SECRET_NAMES: Final = {"SecretStr", "SecretBytes", "Secret"}
# fmt: off
_LIVE_MODULES: Final = frozenset({
    "_asyncio", "_io", "_socket", "_thread", "aiohttp", "anthropic", "asyncio", "boto3", "botocore", "concurrent",
    "httpcore", "httpx", "io", "multiprocessing", "openai", "psycopg", "psycopg_pool", "pymongo", "queue", "redis",
    "requests", "selectors", "smtplib", "socket", "sqlalchemy", "sqlite3", "ssl", "subprocess", "threading", "urllib3",
})
_LIVE_TYPES: Final = frozenset({
    "async_generator", "builtin_function_or_method", "coroutine", "frame", "function", "generator", "memoryview",
    "method", "module", "type",
})
# fmt: on
KEEP_OUT: Final = "keep it in cf.resources and fetch it with call.resource(...)"


class Refused(Exception):
    """A value cannot be stored; the walker that knows the path turns this into our public error."""

    def __init__(self, cls: type, reason: str) -> None:
        super().__init__(reason)
        self.type_name = type_name(cls)
        self.reason = reason


class RefusedSecret(Refused):
    """The value's type exists to hold a credential."""


class Unreadable(Exception):
    """A stored value cannot be rebuilt by this process."""


class Kind(StrEnum):
    """How instances of a class are taken apart."""

    ENUM = "enum"
    RECORD = "record"
    MODEL = "model"
    BUILTIN = "builtin"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is known about one storable class."""

    cls: type
    ref: str
    kind: Kind
    base: type = object
    fields: frozenset[str] = frozenset()
    slots: tuple[str, ...] = ()


class Classes:
    """The classes one serializer may write and read."""

    def __init__(
        self, declared: Iterable[type | tuple[str, ...]] = (), *, undeclared: Undeclared | None = None
    ) -> None:
        """Declare classes; `undeclared` says what of the others: those already imported, or none.

        Without `undeclared`, LangGraph's own `LANGGRAPH_STRICT_MSGPACK` decides.
        """
        self.declared = frozenset(_name_pair(one) for one in declared)
        self.undeclared: Undeclared = undeclared or ("refused" if STRICT_MSGPACK_ENABLED else "loaded")
        self._shapes: dict[type, Shape] = {}
        self._found: dict[str, Shape] = {}

    def with_declared(self, more: Iterable[type | tuple[str, ...]]) -> Classes:
        """Return a copy that also knows `more`."""
        return Classes((*self.declared, *more), undeclared=self.undeclared)

    def shape(self, cls: type) -> Shape:
        """Return how instances of `cls` are stored.

        Raises:
            Refused: they cannot be.
        """
        if (known := self._shapes.get(cls)) is not None:
            return known
        shape = describe(cls)
        if not self._named(*shape.ref.split(":")) and self.undeclared == "refused":
            raise Refused(cls, "only declared classes are stored here: declare it to the serializer")
        return self._shapes.setdefault(cls, shape)

    def find(self, ref: str) -> Shape:
        """Return the class stored under `ref`.

        Raises:
            Unreadable: it is gone, not allowed, or no longer a kind of class that is stored.
        """
        if (known := self._found.get(ref)) is not None:
            return known
        module, _, qualname = ref.partition(":")
        if self._named(module, qualname):
            _import(module, ref)
        elif self.undeclared == "refused" or module not in sys.modules:
            raise Unreadable(f"{ref} is not declared and its module is not imported: import or declare it first")
        return self._found.setdefault(ref, _shape_of(_walk(module, qualname), ref))

    def _named(self, module: str, qualname: str) -> bool:
        names = {(module, qualname), (module, qualname.rpartition(".")[2])}
        return not names.isdisjoint(self.declared) or (module, qualname) in _SAFE


@lru_cache(maxsize=1024)
def describe(cls: type) -> Shape:
    """Return how instances of `cls` are stored, from the class alone.

    Raises:
        Refused: they cannot be.
    """
    _refuse_secret_type(cls)
    kind, base = _kind(cls)
    if hasattr(cls, "__del__"):
        raise Refused(cls, f"it has a destructor, so it is a live object: {KEEP_OUT}")
    if _walk(cls.__module__, cls.__qualname__) is not cls:
        raise Refused(cls, "its class cannot be found by name; define it at the top level of an importable module")
    ref = f"{cls.__module__}:{cls.__qualname__}"
    return Shape(cls=cls, ref=ref, kind=kind, base=base, fields=_field_names(cls), slots=_slot_names(cls))


def type_name(cls: type) -> str:
    """Return the name of a type as it is shown in messages."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def attributes(value: object, shape: Shape) -> dict[str, Any]:
    """Return everything an instance carries: its `__dict__` and its filled slots."""
    found = {k: v for k, v in getattr(value, "__dict__", {}).items() if k not in _NOT_STATE}
    for name in shape.slots:
        try:
            found[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return found


def set_attributes(target: object, shape: Shape, values: dict[str, Any]) -> None:
    """Put stored attributes into a bare instance, past `__setattr__` and properties.

    Raises:
        Unreadable: the class has no place for one of them.
    """
    for name, value in values.items():
        if name in shape.slots:
            object.__setattr__(target, name, value)
        elif hasattr(target, "__dict__"):
            target.__dict__[name] = value
        else:
            raise Unreadable(f"{shape.ref} no longer has the attribute {name!r}")


def _kind(cls: type) -> tuple[Kind, type]:
    if issubclass(cls, Enum):
        return Kind.ENUM, object
    base = next((one for one in cls.__mro__ if one in _BUILTINS), object)
    above = cls.__mro__[: cls.__mro__.index(base)]
    if issubclass(cls, BaseException):
        raise Refused(cls, "an exception does not come back as itself; store what you need of it as text")
    if not all(one.__flags__ & _HEAP_TYPE for one in above) or not above:
        raise Refused(cls, _unknown(cls))
    if base is not object:
        return Kind.BUILTIN, base
    if _is_model(cls):
        return Kind.MODEL, object
    if _field_names(cls):
        return Kind.RECORD, object
    if dataclasses.is_dataclass(cls):
        return Kind.RECORD, object
    raise Refused(cls, _unknown(cls))


def _is_model(cls: type) -> bool:
    return hasattr(cls, "__pydantic_private__") and hasattr(cls, "__pydantic_fields__")


def _field_names(cls: Any) -> frozenset[str]:
    if _is_model(cls):
        return frozenset(cls.__pydantic_fields__)
    if dataclasses.is_dataclass(cls):
        return frozenset(field.name for field in dataclasses.fields(cls))
    if attrs_fields := getattr(cls, "__attrs_attrs__", None):
        return frozenset(field.name for field in attrs_fields)
    if (cls.__module__, cls.__qualname__) in _SLOT_CLASSES:
        return frozenset(cls.__slots__)
    return frozenset()


def _slot_names(cls: type) -> tuple[str, ...]:
    names: list[str] = []
    for one in cls.__mro__:
        slots = one.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            hidden = name.startswith("__") and not name.endswith("__")
            names.append(f"_{one.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(name for name in names if name not in _NOT_STATE)


def _refuse_secret_type(cls: type) -> None:
    for one in cls.__mro__:
        if one.__name__.partition("[")[0] in _SECRET_NAMES and one.__module__.startswith("pydantic"):
            raise RefusedSecret(cls, "its type holds a credential")


def _unknown(cls: type) -> str:
    if cls.__module__.partition(".")[0] in _LIVE_MODULES or cls.__name__ in _LIVE_TYPES:
        return f"it is a live object: {KEEP_OUT}"
    return (
        "this kind of class does not come back equal; if it is data, use plain values, a dataclass or a pydantic model;"
        f" if it is a client, connection or lock, {KEEP_OUT}"
    )


def _name_pair(one: type | tuple[str, ...]) -> tuple[str, ...]:
    return (one.__module__, one.__qualname__) if isinstance(one, type) else tuple(one)


def _import(module: str, ref: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise Unreadable(f"{ref} cannot be imported: {error}") from error


def _walk(module: str, qualname: str) -> object:
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _shape_of(found: object, ref: str) -> Shape:
    if not isinstance(found, type) or f"{found.__module__}:{found.__qualname__}" != ref:
        raise Unreadable(f"the class {ref} is gone or was renamed")
    try:
        return describe(found)
    except Refused as refused:
        raise Unreadable(f"{ref}: {refused.reason}") from refused
