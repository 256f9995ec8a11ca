# the two passes are compared with each other
import collections
import datetime as dt
import io
import operator
import os
import subprocess
import sys
import threading
import timeit
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, SecretStr, create_model

from counterfoil.errors import SecretInState, StateNotStorable
from counterfoil.langgraph import parts
from counterfoil.langgraph.serde import TAG, StateSerializer, _Careful, check_storable
from tests.langgraph import state_samples
from tests.langgraph.state_samples import SAMPLES, Box, Colour, Money, Node, Order, Point, same

ROOT = Path(__file__).parents[2]
SERIALIZER = StateSerializer()

READ = """
import sys
from pathlib import Path
from counterfoil.langgraph.serde import StateSerializer, TAG
from tests.langgraph.state_samples import SAMPLES, same
folder = Path(sys.argv[1])
for index, (name, value) in enumerate(SAMPLES.items()):
    back = StateSerializer().loads_typed((TAG, (folder / str(index)).read_bytes()))
    print(f"{same(value, back)} {name}")
"""
READ_UNPREPARED = """
import sys
from pathlib import Path
from counterfoil.errors import StateNotStorable
from counterfoil.langgraph.serde import StateSerializer, TAG
packed = (TAG, Path(sys.argv[1]).read_bytes())
try:
    StateSerializer().loads_typed(packed)
except StateNotStorable as error:
    print(error)
print("tests.langgraph.state_samples" in sys.modules)
print(StateSerializer([("tests.langgraph.state_samples", "Order")]).loads_typed(packed).total)
"""


def round_trip(value: Any) -> Any:
    return SERIALIZER.loads_typed(SERIALIZER.dumps_typed(value))


def run(script: str, argument: Path) -> list[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", script, str(argument)], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


# --- equal ----


@pytest.mark.parametrize("name", SAMPLES)
def test_types_come_back_equal(name: str) -> None:
    assert same(round_trip(SAMPLES[name]), SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_careful_pass_stores_the_same_value(name: str) -> None:
    packed = _Careful(SERIALIZER._classes, "$").dump(SAMPLES[name])
    assert same(SERIALIZER.loads_typed((TAG, packed)), SAMPLES[name])


def test_types_come_back_equal_in_a_new_process(tmp_path: Path) -> None:
    for index, value in enumerate(SAMPLES.values()):
        (tmp_path / str(index)).write_bytes(SERIALIZER.dumps_typed(value)[1])
    assert run(READ, tmp_path) == [f"True {name}" for name in SAMPLES]


def test_a_process_that_does_not_know_a_class_says_so_and_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "order").write_bytes(SERIALIZER.dumps_typed(Order("o", Decimal("1.50")))[1])
    said, imported, total = run(READ_UNPREPARED, tmp_path / "order")
    assert "tests.langgraph.state_samples:Order is not declared and its module is not imported" in said
    assert imported == "False"
    assert total == "1.50"


def test_it_has_langgraphs_protocol() -> None:
    assert isinstance(SERIALIZER, SerializerProtocol)
    assert SERIALIZER.dumps_typed(1)[0] == TAG


def test_what_comes_back_does_not_share_with_what_was_stored() -> None:
    lines = [1]
    back = round_trip({"a": lines, "b": lines})
    assert back["a"] is not back["b"]


def test_numpy_arrays_come_back_equal() -> None:
    np = pytest.importorskip("numpy")
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), np.array(1.5), np.array(["a", "ü"])):
        back = round_trip({"a": array})["a"]
        assert back.dtype == array.dtype
        assert back.flags.writeable
        assert (back == array).all()
    assert type(round_trip(np.float64(1.5))) is np.float64
    with pytest.raises(StateNotStorable, match=r"\$\.a"):
        SERIALIZER.dumps_typed({"a": np.array([object()])})


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.binary().map(bytearray)
    | st.decimals()
    | st.fractions()
    | st.datetimes(timezones=st.none() | st.timezones(), allow_imaginary=True)
    | st.times()
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.ip_addresses()
    | st.sampled_from(Colour)
    | st.sampled_from([threading.Lock(), len, io.StringIO(), ValueError("x"), memoryview(b"x"), object()])
)
KEYS = st.text(max_size=5) | st.integers() | st.booleans() | st.tuples(st.text(max_size=3), st.integers())


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(children, max_size=4)
        | st.lists(children, max_size=4).map(tuple)
        | st.dictionaries(KEYS, children, max_size=4)
        | st.dictionaries(st.text(max_size=5), children, max_size=4)
        | st.dictionaries(KEYS, children, max_size=3).map(collections.OrderedDict)
        | st.lists(children, max_size=4).map(lambda items: collections.deque(items, maxlen=5))
        | children.map(Box)
        | st.sets(KEYS, max_size=4)
    )


@given(st.recursive(SCALARS, containers, max_leaves=15))
def test_whatever_is_accepted_comes_back_equal(value: Any) -> None:
    try:
        check_storable(value)
    except StateNotStorable:
        return
    assert same(round_trip(value), value)


# --- refused, with the path ----


class Plain:
    pass


class Destroyed(BaseModel):
    def __del__(self) -> None: ...


def generate() -> Iterator[int]:
    yield 1


class OddZone(dt.tzinfo):
    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(0)

    def dst(self, _: dt.datetime | None) -> None:
        return None

    def tzname(self, _: dt.datetime | None) -> str:
        return "odd"


@dataclass
class Holder:
    lock: Any
    other: Any = field(default=None)


REFUSED: dict[str, tuple[Any, str]] = {
    "lock": ({"a": [1, threading.Lock()]}, "$.a[1]"),
    "module": ({"a": {"b-c": sys}}, '$.a["b-c"]'),
    "file": ({"a": (io.BytesIO(),)}, "$.a[0]"),
    "generator": ([generate()], "$[0]"),
    "lambda": (Holder(lock=lambda: 1), "$.lock"),
    "class": ({"a": Order}, "$.a"),
    "plain class": ({"a": Plain()}, "$.a"),
    "in a key": ({(Plain(),): 1}, "$[<tuple>][0]"),
    "exception": ({"a": ValueError("x")}, "$.a"),
    "factory": ({"a": collections.defaultdict(lambda: 1)}, "$.a"),
    "zone": ({"a": dt.datetime(2026, 1, 1, tzinfo=OddZone())}, "$.a"),
    "local class": ({"a": make_dataclass("Local", ["x"])(1)}, "$.a"),
    "local model": ({"a": create_model("Local", x=(int, 1))()}, "$.a"),
    "destructor": ([Destroyed()], "$[0]"),
    "memoryview": ([memoryview(b"x")], "$[0]"),
    "odd key": ({"a" * 99: Plain()}, "$[<str>]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_come_back_is_refused_with_its_path(name: str) -> None:
    value, path = REFUSED[name]
    with pytest.raises(StateNotStorable) as caught:
        SERIALIZER.dumps_typed(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(path)


def test_secret_types_are_refused_as_secrets() -> None:
    with pytest.raises(SecretInState) as caught:
        SERIALIZER.dumps_typed({"login": Holder(None, SecretStr("canary"))})
    assert caught.value.path == "$.login.other"
    assert "canary" not in str(caught.value)


def cyclic_list() -> Any:
    items: list[Any] = []
    items.append({"again": items})
    return items


def cyclic_dataclass() -> Any:
    node = Node("a")
    node.next = node
    return {"n": (node,)}


@pytest.mark.parametrize(("value", "path"), [(cyclic_list(), "$[0].again"), (cyclic_dataclass(), "$.n[0].next")])
def test_a_value_that_contains_itself_is_refused(value: Any, path: str) -> None:
    with pytest.raises(StateNotStorable, match="contains itself") as caught:
        check_storable(value)
    assert caught.value.path == path


def test_too_deep_nesting_is_refused_without_a_recursion_error() -> None:
    deep: Any = ()
    for _ in range(5000):
        deep = (deep,)
    with pytest.raises(StateNotStorable, match="deeper than 100"):
        check_storable(deep)
    chain: Node | None = None
    for _ in range(90):
        chain = Node("n", chain)
    assert same(round_trip(chain), chain)


# --- reading ----


def test_foreign_tags_are_an_error() -> None:
    with pytest.raises(StateNotStorable, match="'pickle'"):
        SERIALIZER.loads_typed(("pickle", b""))


def test_damaged_bytes_are_an_error() -> None:
    for packed in (b"\xc1", b"\x92\x01", SERIALIZER.dumps_typed((1,))[1][:-1]):
        with pytest.raises(StateNotStorable, match="damaged"):
            SERIALIZER.loads_typed((TAG, packed))


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "builtins:eval", "pathlib:Path", "gone.module:X"])
@pytest.mark.parametrize("code", [parts.ENUM, parts.RECORD, parts.MODEL, parts.BUILTIN])
def test_a_stored_name_leads_to_nothing_but_data_classes(code: int, name: str) -> None:
    heads = {parts.ENUM: [name, None], parts.MODEL: [name, None]}
    payload = [heads.get(code, name), {}, {}, {}] if code != parts.ENUM else [heads[code], ["x"]]
    forged = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(payload)))
    with pytest.raises(StateNotStorable, match=r"gone|not declared|does not come back|live object"):
        SERIALIZER.loads_typed((TAG, forged))


def test_a_changed_class_is_defaults_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = SERIALIZER.dumps_typed(Money(amount=Decimal(1)))

    def become(*names: Any) -> None:
        new = make_dataclass("Money", names, kw_only=True)
        new.__module__ = state_samples.__name__
        monkeypatch.setattr(state_samples, "Money", new)

    become("amount", "currency", ("note", str, field(default="none")))
    assert StateSerializer().loads_typed(packed).note == "none"
    become("amount", "currency", "must")
    with pytest.raises(StateNotStorable, match="new field 'must'"):
        StateSerializer().loads_typed(packed)
    become("amount")
    with pytest.raises(StateNotStorable, match="no longer has the stored fields currency"):
        StateSerializer().loads_typed(packed)
    monkeypatch.delattr(state_samples, "Money")
    with pytest.raises(StateNotStorable, match="gone or was renamed"):
        StateSerializer().loads_typed(packed)


def test_only_declared_classes_when_asked() -> None:
    strict = StateSerializer(undeclared="refused")
    with pytest.raises(StateNotStorable, match="declare it") as caught:
        strict.dumps_typed({"p": Point(1, 2.0)})
    assert caught.value.path == "$.p"
    declared = strict.with_declared([Point, (Order.__module__, "Status")])
    assert same(declared.loads_typed(declared.dumps_typed(Point(1, 2.0))), Point(1, 2.0))
    assert declared.loads_typed(declared.dumps_typed(Order.Status.OPEN)) is Order.Status.OPEN
    assert same(strict.loads_typed(strict.dumps_typed(SAMPLES["messages"])), SAMPLES["messages"])


# --- errors of nodes ----


def test_an_error_write_is_stored_as_text_without_credentials() -> None:
    error = ValueError("postgresql://app:canary-7@db/x \ud800")
    text = SERIALIZER.loads_typed(SERIALIZER.dumps_write("__error__", error))
    assert text.startswith("ValueError(")
    assert "canary-7" not in text
    with pytest.raises(StateNotStorable):
        SERIALIZER.dumps_write("answer", error)
    assert SERIALIZER.loads_typed(SERIALIZER.dumps_write("answer", (1,))) == (1,)


def test_a_graph_runs_with_it() -> None:
    class State(TypedDict):
        order: Order
        seen: Annotated[list[tuple[int, ...]], operator.add]
        answer: Any

    def ask(state: State) -> dict[str, Any]:
        return {"seen": [(1, 2)], "answer": interrupt({"total": state["order"].total})}

    def each(state: State) -> dict[str, Any]:
        arg: Any = state
        return {"seen": [arg["pair"]]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("each", each)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", lambda _: [Send("each", {"pair": (n,)}) for n in range(2)], ["each"])
    graph = builder.compile(checkpointer=InMemorySaver(serde=StateSerializer()))
    config: Any = {"configurable": {"thread_id": "t"}}
    order = Order("o", Decimal("1.10"))
    first: Any = graph.invoke({"order": order, "seen": [], "answer": None}, config)
    assert first["__interrupt__"][0].value == {"total": Decimal("1.10")}
    graph.invoke(Command(resume=(True,)), config)
    state = graph.get_state(config).values
    assert same(state, {"order": order, "seen": [(1, 2), (0,), (1,)], "answer": (True,)})


def cost(serializer: SerializerProtocol, state: Any) -> float:
    return min(timeit.repeat(lambda: serializer.dumps_typed(state), number=3, repeat=3)) / 3


def test_cost_compared_with_langgraphs_serializer(capsys: pytest.CaptureFixture[str]) -> None:
    state = {"messages": SAMPLES["messages"][:4] * 50, "rows": [{"id": i, "x": i / 3} for i in range(500)]}
    ours, theirs = cost(SERIALIZER, state), cost(JsonPlusSerializer(allowed_msgpack_modules=None), state)
    with capsys.disabled():
        print(f"\ndumps {ours * 1e3:.2f} ms, langgraph {theirs * 1e3:.2f} ms, ratio {ours / theirs:.2f}")  # noqa: T201
