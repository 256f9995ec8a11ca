"""A state full of types that used to come back as something else; imported by two processes."""

import collections
import dataclasses
import enum
import sys
from decimal import Decimal
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil import Counterfoil


class Outer:
    class Colour(enum.Enum):
        RED = "red"


class Flag(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Order:
    number: int
    derived: str = dataclasses.field(init=False, default="none")


def values() -> dict[str, Any]:
    order = Order(7)
    order.derived = "set later"
    return {
        "dataclass": order,
        "nested_enum": Outer.Colour.RED,
        "flag": Flag.A | Flag.B,
        "defaultdict": collections.defaultdict(list, {"a": [1]}),
        "tuple": (1, ("two", 3.0)),
        "decimal": Decimal("10.00"),
        "deque": collections.deque([1, 2, 3], maxlen=3),
        "integer_keys": {1: "one", 2: {3: "three"}},
        "large": 2**70,
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "frozen": frozenset({1, 2}),
        "mixed": [{"deep": (Order(1), {"x": {1, 2}})}],
    }


def latest(_old: Any, new: Any) -> Any:
    return new


class State(TypedDict, total=False):
    kept: Annotated[Any, latest]
    other: int


def builder() -> Any:
    made: Any = StateGraph(State)
    made.add_node("fill", lambda state: {"kept": values()})
    made.add_node("later", lambda state: {"other": 1})
    made.add_edge(START, "fill")
    made.add_edge("fill", "later")
    made.add_edge("later", END)
    return made


def shape(value: Any) -> Any:
    """Return a value's types and contents as text, for comparing what two processes hold."""
    if isinstance(value, dict):
        return [type(value).__qualname__, [[shape(key), shape(one)] for key, one in value.items()]]
    if isinstance(value, list | tuple | collections.deque):
        return [type(value).__qualname__, getattr(value, "maxlen", None), [shape(one) for one in value]]
    if isinstance(value, set | frozenset):
        return [type(value).__qualname__, sorted(repr(one) for one in value)]
    return [type(value).__qualname__, repr(value)]


def main(url: str) -> None:
    """Load the state in this process and compare it with one made here."""
    with Counterfoil.open(url) as cf:
        graph = cf.compile(builder())
        found = graph.get_state(cf.config(thread_id="t", tenant="team-A")).values["kept"]
    for name, want in values().items():
        sys.stdout.write(f"{name} {found[name] == want and shape(found[name]) == shape(want)}\n")
