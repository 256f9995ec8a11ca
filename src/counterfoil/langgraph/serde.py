"""Store state so that it comes back equal in type and value, or refuse it with the path of the field.

The bytes are msgpack. What msgpack holds exactly is packed by `ormsgpack` itself; every other type is one numbered
extension (see `parts`). There is no fallback and no pickle. Two passes: a fast one in which `ormsgpack` walks the
value, and, when that one meets anything it might change or refuse, a careful one in Python that knows every path.
Sharing is not kept: a list that appears in two places comes back as two equal lists.
"""

# state is whatever a graph holds

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
import ormsgpack

from counterfoil.credentials import redact_text
from counterfoil.errors import StateNotStorable
from counterfoil.langgraph.classes import Classes, Refused, Undeclared, Unreadable
from counterfoil.langgraph.parts import PAIRS, put_together, take_apart
from counterfoil.langgraph.trail import DEEPEST, Trail

if TYPE_CHECKING:
    from collections.abc import Iterable

TAG: Final = "counterfoil-1"
ERROR_CHANNEL: Final = "__error__"

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# ormsgpack writes bytearray and memoryview as if they were bytes. These three bytes begin every bytes value; where they
# occur, orjson, which has no such habit, looks for buffers: as fast as packing; the careful pass takes 30 times that.
_BYTES_MARKS: Final = (b"\xc4", b"\xc5", b"\xc6")
_JSON_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_PLAIN: Final = frozenset({type(None), bool, float, bytes})
_INT64: Final = range(-(2**63), 2**64)


class StateSerializer:
    """LangGraph's serializer protocol with the promise: equal, or refused."""

    def __init__(
        self, declared: Iterable[type | tuple[str, ...]] = (), *, undeclared: Undeclared | None = None
    ) -> None:
        """Make a serializer that may import the `declared` classes when it reads.

        Args:
            declared: classes, or (module, name) pairs, that stored values may name.
            undeclared: `loaded` also allows classes of modules that are already imported; `refused` does not, neither
                for writing nor for reading. By default LangGraph's LANGGRAPH_STRICT_MSGPACK decides.
        """
        self._classes = Classes(declared, undeclared=undeclared)

    def with_declared(self, more: Iterable[type | tuple[str, ...]]) -> StateSerializer:
        """Return a serializer that also knows `more`: what a saver's `with_allowlist` needs."""
        clone = StateSerializer()
        clone._classes = self._classes.with_declared(more)
        return clone

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return tag and bytes.

        Raises:
            StateNotStorable: something in it would not come back equal; `path` says where.
            SecretInState: something in it has a type that holds credentials.
        """
        return TAG, self._dump(obj)

    def dumps_write(self, channel: str, value: Any) -> tuple[str, bytes]:
        """Store one pending write; an error is stored as its text, without credentials, as LangGraph does.

        Raises:
            StateNotStorable: as for `dumps_typed`.
            SecretInState: as for `dumps_typed`.
        """
        if channel == ERROR_CHANNEL and isinstance(value, BaseException):
            value = redact_text(repr(value))
        return self.dumps_typed(value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the stored value.

        Raises:
            StateNotStorable: this process cannot rebuild it; never a raw dict in its place.
        """
        tag, packed = data
        if tag != TAG:
            raise StateNotStorable(f"a checkpoint value with the tag {tag!r} was not written by Counterfoil", path="$")
        return _Reader(self._classes).read(packed)

    def check(self, value: Any, path: str = "$") -> None:
        """Refuse what `dumps_typed` would refuse, without keeping the bytes.

        Raises:
            StateNotStorable: as for `dumps_typed`.
            SecretInState: as for `dumps_typed`.
        """
        self._dump(value, path)

    def _dump(self, obj: Any, path: str = "$") -> bytes:
        try:
            packed = ormsgpack.packb(obj, default=_Fast(self._classes), option=_OPTIONS)
        except ormsgpack.MsgpackEncodeError:
            return _Careful(self._classes, path).dump(obj)
        if any(mark in packed for mark in _BYTES_MARKS) and self._may_hold_buffer(obj):
            return _Careful(self._classes, path).dump(obj)
        return packed

    def _may_hold_buffer(self, obj: Any) -> bool:
        def sections(value: Any) -> Any:
            if isinstance(value, (bytearray, memoryview)):
                raise Refused(type(value), "written as bytes by the fast pass")
            return None if isinstance(value, bytes) else take_apart(value, self._classes)[2]

        try:
            orjson.dumps(obj, default=sections, option=_JSON_OPTIONS)
        except orjson.JSONEncodeError:
            return True
        return False


def check_storable(value: Any, path: str = "$") -> None:
    """Refuse a value that would not come back equal from a checkpoint.

    Raises:
        StateNotStorable: `path` says where.
        SecretInState: a type that holds credentials.
    """
    StateSerializer(undeclared="loaded").check(value, path)


class _Fast:
    """Called by ormsgpack for what it does not hold exactly; any refusal just ends the fast pass."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._depth = 0

    def __call__(self, value: Any) -> ormsgpack.Ext:
        if self._depth >= DEEPEST:
            raise Refused(type(value), "nested too deeply")
        self._depth += 1
        code, head, sections = take_apart(value, self._classes)
        packed = ormsgpack.packb([head, *sections], default=self, option=_OPTIONS)
        self._depth -= 1
        return ormsgpack.Ext(code, packed)


class _Reader:
    """Rebuild a value; ormsgpack hides what an extension raised, so the first failure is kept here."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._failure: Exception | None = None

    def read(self, packed: bytes) -> Any:
        try:
            return ormsgpack.unpackb(packed, ext_hook=self._extension)
        except ValueError as error:
            cause = self._failure or error
            raise StateNotStorable(f"a checkpoint value cannot be rebuilt: {_told(cause)}", path="$") from cause

    def _extension(self, code: int, data: bytes) -> Any:
        try:
            head, *sections = ormsgpack.unpackb(data, ext_hook=self._extension)
            return put_together(code, head, sections, self._classes)
        except Exception as error:
            self._failure = self._failure or error
            raise


class _Careful:
    """Turn any value into what msgpack holds exactly, knowing where it is."""

    def __init__(self, classes: Classes, root: str) -> None:
        self._classes = classes
        self._trail = Trail(root)

    def dump(self, value: Any) -> bytes:
        return ormsgpack.packb(self._lower(value))

    def _lower(self, value: Any) -> Any:
        cls = type(value)
        if cls in _PLAIN or (cls is int and value in _INT64) or (cls is str and _is_text(value)):
            return value
        self._trail.enter(value)
        lowered = self._section(value) if cls is list or cls is dict else self._apart(value)
        self._trail.leave(value)
        return lowered

    def _apart(self, value: Any) -> ormsgpack.Ext:
        try:
            code, head, sections = take_apart(value, self._classes)
        except Refused as refused:
            raise self._trail.error(refused) from None
        return ormsgpack.Ext(code, ormsgpack.packb([head, *map(self._section, sections)]))

    def _section(self, section: Any) -> Any:
        if type(section) is list:
            return [self._child(index, value) for index, value in enumerate(section)]
        if section is None:
            return None
        if all(type(key) is str and _is_text(key) for key in section):
            return {key: self._child(key, value) for key, value in section.items()}
        pairs = [one for key, value in section.items() for one in (self._child(key, key), self._child(key, value))]
        return ormsgpack.Ext(PAIRS, ormsgpack.packb([None, pairs]))

    def _child(self, key: Any, value: Any) -> Any:
        self._trail.steps.append(key)
        lowered = self._lower(value)
        self._trail.steps.pop()
        return lowered


def _told(error: Exception) -> str:
    """Say why reading failed; only our own words are known to carry no payload."""
    return str(error) if isinstance(error, Unreadable) else f"the stored bytes are damaged ({type(error).__name__})"


def _is_text(value: str) -> bool:
    """Tell whether a string has a UTF-8 form; ASCII, the common case, is known without encoding."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
