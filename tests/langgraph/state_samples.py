"""Classes and values that graphs put into their state; importable by the processes that the tests start."""

import collections
import datetime as dt
import enum
import ipaddress
import math
import pathlib
import re
import struct
import uuid
import zoneinfo
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

T = TypeVar("T")


@dataclass
class Order:
    order_id: str
    total: Decimal
    lines: tuple[str, ...] = ()
    checked: bool = field(init=False, default=False)
    number: int = field(init=False)

    class Status(enum.Enum):
        OPEN = "open"
        PAID = "paid"

    def __post_init__(self) -> None:
        self.number = len(self.order_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Normalising:
    text: str

    def __post_init__(self) -> None:
        self.text = self.text.strip() + "!"


@dataclass
class Node:
    name: str
    next: "Node | None" = None


class Point(NamedTuple):
    x: int
    y: float


class Level(enum.IntEnum):
    LOW = 1


class Colour(enum.StrEnum):
    RED = "red"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Pair(enum.Enum):
    FIRST = (1, 2)


class Limit(enum.Enum):
    NONE = math.nan
    OPEN = object()


class Name(str):
    __slots__ = ()


class Tagged(str):  # noqa: SLOT000  # with a __dict__ on purpose
    tag: str


class Cents(int):
    pass


class Rows(list[int]):
    pass


class Config(dict[str, Any]):
    pass


class Customer(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    since: dt.date
    tags: set[str] = Field(default_factory=set)
    hidden: str = Field(default="x", exclude=True)
    renamed: int = Field(default=1, alias="otherName")
    _seen: int = PrivateAttr(default=0)

    @cached_property
    def initials(self) -> str:
        return self.name[:1]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    money: Money


def _order() -> Order:
    order = Order("ord-1", Decimal("10.10"), ("a", "b"))
    order.checked = True
    return order


def _customer() -> Customer:
    customer = Customer(name="Ada", since=dt.date(2020, 1, 2), tags={"a"}, more=[1, (2,)])  # type: ignore[call-arg]
    customer._seen = 7  # private attributes are stored too
    assert customer.initials == "A"
    return customer


def _tagged() -> Tagged:
    tagged = Tagged("text")
    tagged.tag = "t"
    return tagged


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")

SAMPLES: dict[str, Any] = {
    "none": None,
    "dataclass with a field outside its constructor": _order(),
    "frozen slotted dataclass": Money(amount=Decimal("1.00")),
    "generic dataclass": Box[int](1),
    "dataclass whose __post_init__ would change it again": Normalising(" a "),
    "nested enum": Order.Status.PAID,
    "int enum": Level.LOW,
    "str enum": Colour.RED,
    "flags": Right.READ | Right.WRITE,
    "enum of tuples": Pair.FIRST,
    "enum of odd values": [Limit.NONE, Limit.OPEN],
    "defaultdict": collections.defaultdict(list, a=[1]),
    "tuple": (1, ("a", [2.5]), ()),
    "decimal": [Decimal("1.10"), Decimal("-0"), Decimal("1E+5"), Decimal("Infinity")],
    "bounded deque": collections.deque([1, 2], maxlen=3),
    "integer keys": {1: "a", 2: {3: "b"}},
    "mixed keys": {True: 1, None: 2, 1.5: 3, (1, "a"): 4, b"x": 5, Colour.RED: 6, "s": 7, frozenset({1}): 8},
    "big integers": [2**70, -(2**70), 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1],
    "namedtuple": Point(1, 2.0),
    "sets": [{1, "a"}, frozenset({(1, 2)})],
    "ordered dict": collections.OrderedDict(b=1, a=2),
    "counter": collections.Counter("hello"),
    "bytes": [b"\x00\xff", bytearray(b"\x01"), {"a": (bytearray(b"2"),)}],
    "zoned datetime": dt.datetime(2026, 10, 25, 2, 30, 1, 5, tzinfo=BERLIN, fold=1),
    "datetimes": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)],  # noqa: DTZ001  # naive on purpose
    "offset with a name": dt.timezone(dt.timedelta(hours=-3, minutes=-30), "NST"),
    "time": dt.time(1, 2, 3, 4, tzinfo=dt.UTC, fold=1),
    "date and timedelta": [dt.date(2026, 2, 28), dt.timedelta(days=-1, microseconds=1)],
    "uuid": uuid.UUID(int=5),
    "paths": [pathlib.Path("/a/ü"), pathlib.PurePosixPath("b"), pathlib.PureWindowsPath("c:/x")],
    "addresses": [ipaddress.ip_address("::1"), ipaddress.ip_interface("10.0.0.1/8")],
    "pattern": re.compile(r"a+", re.IGNORECASE),
    "numbers": [1 + 2j, complex(-0.0, 0.0), range(1, 9, 2), Fraction(1, 3), -0.0, True, 1, 1.0],
    "not a number": [math.nan, math.inf, -math.inf],
    "str subclass": Name("n"),
    "str subclass with an attribute": _tagged(),
    "int subclass": Cents(5),
    "list subclass": Rows([1]),
    "dict subclass": Config(a=(1,)),
    "pydantic model": _customer(),
    "frozen pydantic model": Strict(money=Money(amount=Decimal(1))),
    "strings": ["nul \x00", "lone \ud800", "\udcff", {"key \udfff": 1}, "emoji 😀", ""],
    "messages": [
        HumanMessage("hi", id="1", additional_kwargs={"shape": (1, 2)}),
        AIMessage(
            [{"type": "text", "text": "ok"}],
            tool_calls=[{"name": "pay", "args": {"cents": 5}, "id": "c1", "type": "tool_call"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            response_metadata={"model": "m"},
        ),
        ToolMessage("done", tool_call_id="c1", artifact={"raw": b"1"}),
        SystemMessage("s"),
        RemoveMessage(id="1"),
        AIMessage("text").text,
        Document("page", metadata={"n": 1}),
    ],
    "langgraph values": [
        Send("node", {"x": (1,)}),
        Send("node", None, timeout=5.0),
        Interrupt({"ask": "ok?"}, id="i1"),
        Command(update={"a": 1}, goto=[Send("b", 1)], graph=Command.PARENT),
        Overwrite([1]),
        TimeoutPolicy(run_timeout=1.0),
        _DeltaSnapshot([1]),
    ],
}


def same(left: Any, right: Any) -> bool:
    """Compare type and value all the way down, without trusting any __eq__ of a container."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same([left.real, left.imag], [right.real, right.imag])
    if isinstance(left, dict):
        factories = [getattr(one, "default_factory", None) for one in (left, right)]
        return factories[0] is factories[1] and _all_same([*left.items()], [*right.items()])
    if isinstance(left, collections.deque) and left.maxlen != right.maxlen:
        return False
    if isinstance(left, (list, tuple, collections.deque)):
        return _all_same([*left], [*right])
    if isinstance(left, (set, frozenset)):
        return _all_same(sorted(left, key=_order_of), sorted(right, key=_order_of))
    return _same_object(left, right)


def _same_object(left: Any, right: Any) -> bool:
    if isinstance(left, BaseModel):
        names = type(left).model_fields
        parts = [
            ([getattr(one, n) for n in names], one.model_extra, one.__pydantic_private__, one.model_fields_set)
            for one in (left, right)
        ]
        return same(parts[0], parts[1])
    if is_dataclass(left):
        return all(same(getattr(left, one.name), getattr(right, one.name)) for one in fields(left))
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, dt.datetime | dt.time):
        return bool(left.fold == right.fold) and repr(left) == repr(right)
    return bool(left == right) and vars_of(left) == vars_of(right)


def vars_of(value: Any) -> dict[str, Any]:
    return {} if isinstance(value, enum.Enum) else getattr(value, "__dict__", {})


def _all_same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))


def _order_of(value: Any) -> tuple[str, str]:
    return type(value).__name__, repr(value)
