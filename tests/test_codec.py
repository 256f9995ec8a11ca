"""The canonical form, faithful storage and digests."""

import json
import math
import os
import subprocess
import sys
import textwrap
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.codec import (
    MAX_DEPTH,
    REDACTED,
    Redacted,
    canonical,
    decode,
    differing_fields,
    digest_arguments,
    encode,
    encode_receipt,
    encode_row,
    fingerprint,
    pack_fields,
    text_digest,
    unpack_fields,
)
from counterfoil.codec.canonical import _dump, _tag
from counterfoil.errors import (
    InvalidMappingKey,
    LoneSurrogate,
    NonFiniteNumber,
    NulCharacter,
    SchemaNewer,
    StoredValueDamaged,
    UnsupportedValue,
)

SRC = Path(__file__).parents[1] / "src"
PARIS = ZoneInfo("Europe/Paris")
Point = namedtuple("Point", "x y")  # noqa: PYI024 - the untyped form is what is under test


class Colour(Enum):
    RED = "red"


class Mood(StrEnum):
    GOOD = "good"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    x: int


class Order(pydantic.BaseModel):
    id: str
    lines: list[dict[str, Any]]
    colour: Colour = Colour.RED

    @pydantic.computed_field
    def label(self) -> str:
        return f"order {self.id}"


class Tags(pydantic.RootModel[list[str]]):
    pass


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr
    session: object = pydantic.Field(default=None, exclude=True)


# --- RFC 8785 --------------------------------------------------------------------------------------------------------

RFC_VECTORS = {
    "arrays": (r'[56, {"d": true, "10": null, "1": []}]', '[56,{"1":[],"10":null,"d":true}]'),
    "french": (
        """{"peach": "This sorting order", "péché": "is wrong according to French",
            "pêche": "but canonicalization MUST", "sin": "ignore locale"}""",
        (
            """{"peach":"This sorting order","péché":"is wrong according to French","""
            """"pêche":"but canonicalization MUST","sin":"ignore locale"}"""
        ),
    ),
    "structures": (
        r'{"1": {"f": {"f": "hi", "F": 5}, "\n": 56.0}, "10": {}, "": "empty", "a": {}, "111": [{}], "A": {}}',
        r'{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{}],"A":{},"a":{}}',
    ),
    "unicode": (r'{"Unnormalized Unicode": "A\u030a"}', '{"Unnormalized Unicode":"A\u030a"}'),
    "values": (
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
             "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}""",
        (
            r"""{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"""
            r""""string":"€$\u000f\nA'B\"\\\\\"/"}"""
        ),
    ),
    "weird": (
        r"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
             "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control\u007f",
             "\u00f6": "Latin Small Letter O With Diaeresis", "</script>": "Browser Challenge"}""",
        (
            """{"\\r":"Carriage Return","1":"One","</script>":"Browser Challenge","\x80":"Control\x7f","""
            """"ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","\U0001f600":"Emoji: Grinning Face","""
            """"\ufb33":"Hebrew Letter Dalet With Dagesh"}"""
        ),
    ),
}

RFC_NUMBERS = {  # appendix B, as bits of the double
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize("name", RFC_VECTORS)
def test_the_rfcs_examples(name: str) -> None:
    source, expected = RFC_VECTORS[name]
    assert canonical(json.loads(source)).decode() == expected


@pytest.mark.parametrize("bits", RFC_NUMBERS)
def test_the_rfcs_numbers(bits: str) -> None:
    import struct

    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number).decode() == RFC_NUMBERS[bits]


# --- what counts as the same -----------------------------------------------------------------------------------------

SAME: list[tuple[object, object]] = [
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
    ([1, 2], (1, 2)),
    (10, 10.0),
    (10, Decimal("10.00")),
    (12.5, Decimal("12.50")),
    (0, -0.0),
    (0, Decimal("-0E+7")),
    (10**22, 1e22),
    (2**53, float(2**53)),
    (Decimal("0.1"), Decimal("0.10000")),
    (Decimal(2**53 + 1), 2**53 + 1),
    (Decimal("1E+400"), 10**400),
    ({3, 1, 2}, frozenset([2, 3, 1])),
    ({"a", "b"}, {"b", "a"}),
    ({Colour.RED, "red"}, {"red"}),
    (b"x", bytearray(b"x")),
    (Colour.RED, "red"),
    (Mood.GOOD, "good"),
    (Level.HIGH, 3),
    (Point(1, 2), [1, 2]),
    (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({Mood.GOOD: 1}, {"good": 1}),
    (Line("s", Decimal("1.50"), ["t"]), {"tags": ["t"], "price": 1.5, "sku": "s"}),
    (Order(id="o", lines=[{"n": 1}]), {"id": "o", "lines": [{"n": 1}], "colour": "red"}),
    (Tags(["a"]), ["a"]),
    (datetime(2024, 1, 1, tzinfo=PARIS), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))),
    (timedelta(hours=1), timedelta(minutes=60)),
]

DIFFERENT: list[tuple[object, object]] = [
    ([1, 2], [2, 1]),
    (1, True),
    (0, False),
    (None, False),
    (1, "1"),
    (0.1, Decimal("0.1")),
    (2**53, 2**53 + 1),
    (2**53 + 1, str(2**53 + 1)),
    (10**400, 10**400 + 1),
    (Decimal("0.1"), "0.1"),
    ("é", "e\u0301"),
    (datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=PARIS)),
    (datetime(2024, 10, 27, 2, 30, tzinfo=PARIS), datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=PARIS)),
    (datetime(2024, 1, 1), date(2024, 1, 1)),  # noqa: DTZ001
    (date(2024, 1, 1), "2024-01-01"),
    (time(9), time(9, tzinfo=UTC)),
    (time(9, tzinfo=PARIS), time(9, tzinfo=ZoneInfo("Europe/Berlin"))),
    (UUID(int=1), str(UUID(int=1))),
    (b"x", "x"),
    ({1, 2}, [1, 2]),
    (timedelta(seconds=1), 1_000_000),
    ({}, []),
    ({"$set": [1]}, {1}),
    ({"$$set": [1]}, {"$set": [1]}),
    ({"$number": "1e-1"}, Decimal("0.1")),
    ({"a": None}, {}),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_same_content_has_the_same_bytes(left: object, right: object) -> None:
    assert canonical(left) == canonical(right)
    assert canonical({"x": [left]}) == canonical({"x": [right]})


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_different_content_has_different_bytes(left: object, right: object) -> None:
    assert canonical(left) != canonical(right)
    assert canonical({"x": [left]}) != canonical({"x": [right]})


def test_a_models_excluded_fields_do_not_count() -> None:
    class Job(pydantic.BaseModel):
        name: str
        trace: str = pydantic.Field(exclude=True)

    assert canonical(Job(name="n", trace="1")) == canonical(Job(name="n", trace="2")) == canonical({"name": "n"})


def test_tags_are_readable() -> None:
    value = {"price": Decimal("19.99"), "when": date(2024, 2, 29), "$ref": {1}}
    expected = b'{"$$ref":{"$set":[1]},"price":{"$number":"1999e-2"},"when":{"$date":"2024-02-29"}}'
    assert canonical(value) == expected


# --- what is refused -------------------------------------------------------------------------------------------------


def cyclic() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED: list[tuple[Callable[[], object], type[UnsupportedValue], str]] = [
    (lambda: {"items": [0, 1, 2, {"price": math.nan}]}, NonFiniteNumber, "$.items[3].price"),
    (lambda: [math.inf], NonFiniteNumber, "$[0]"),
    (lambda: [Decimal("NaN")], NonFiniteNumber, "$[0]"),
    (lambda: [Decimal("sNaN")], NonFiniteNumber, "$[0]"),
    (lambda: Decimal("-Infinity"), NonFiniteNumber, "$"),
    (lambda: {"a": {1: 2}}, InvalidMappingKey, "$.a"),
    (lambda: {None: 2}, InvalidMappingKey, "$"),
    (lambda: {"a": "x\0y"}, NulCharacter, "$.a"),
    (lambda: {"a\0b": 1}, NulCharacter, '$["a\\u0000b"]'),
    (lambda: ["\ud800"], LoneSurrogate, "$[0]"),
    (lambda: {"é\udfff": 1}, LoneSurrogate, '$["\\u00e9\\udfff"]'),
    (lambda: {"f": print}, UnsupportedValue, "$.f"),
    (lambda: {"t": dict}, UnsupportedValue, "$.t"),
    (lambda: {"t": Line}, UnsupportedValue, "$.t"),
    (lambda: {"t": Order}, UnsupportedValue, "$.t"),
    (lambda: {"g": (n for n in [1])}, UnsupportedValue, "$.g"),
    (lambda: {"o": object()}, UnsupportedValue, "$.o"),
    (lambda: {"c": 1j}, UnsupportedValue, "$.c"),
    (lambda: Login(user="u", password=pydantic.SecretStr("p")), UnsupportedValue, "$.password"),
    (lambda: {"s": {1, print}}, UnsupportedValue, "$.s[*]"),
    (lambda: nested(MAX_DEPTH + 1), UnsupportedValue, "$" + "[0]" * (MAX_DEPTH + 1)),
    (cyclic, UnsupportedValue, "$" + "[0]" * (MAX_DEPTH + 1)),
    (lambda: {"a b": [print]}, UnsupportedValue, '$["a b"][0]'),
]


@pytest.mark.parametrize(("make", "error", "path"), REFUSED)
def test_what_has_no_canonical_form_is_refused_with_its_path(
    make: Callable[[], object], error: type[UnsupportedValue], path: str
) -> None:
    with pytest.raises(UnsupportedValue) as caught:
        canonical(make())
    assert type(caught.value) is error
    assert caught.value.path == path
    assert path in str(caught.value)


def test_a_refusal_names_the_type_and_never_the_content() -> None:
    with pytest.raises(UnsupportedValue, match=r"a value of type pydantic\.types\.SecretStr at \$\.password"):
        canonical(Login(user="u", password=pydantic.SecretStr("hunter2")))
    with pytest.raises(InvalidMappingKey) as caught:
        canonical({("alice@example.org",): 1})
    assert "alice" not in str(caught.value)


def test_the_deepest_nesting_taken_is_taken_in_every_form() -> None:
    assert canonical(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    tuples: object = 0.5
    maps: object = 0.5
    for _ in range(MAX_DEPTH):
        tuples, maps = (tuples,), {1: maps}
    assert decode(encode(tuples)) == tuples
    assert decode(encode(maps)) == maps


# --- properties ------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
keys = texts | st.sampled_from(["$set", "$$set", "$", "$number", "\U0001f600", "\ufb33", "ä", "a"])
atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from([1e-7, 1e16, 1e21, -0.0, 5.0, 2.0**53, 1e-5, "$x", '"$', "\\u0000"])
)
plain = st.recursive(atoms, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))
zones = st.sampled_from([None, UTC, PARIS, ZoneInfo("America/New_York"), timezone(timedelta(minutes=-90))])
hashable = (
    atoms
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.uuids()
    | st.binary(max_size=8)
)
rich = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.frozensets(hashable, max_size=4)
        | st.sets(hashable, max_size=4)
    ),
)


def slow_path(value: object) -> bytes:
    return rfc8785.dumps(cast("Any", _tag(value, "$", MAX_DEPTH)))


@given(plain)
def test_the_fast_path_gives_the_bytes_of_the_slow_path(value: object) -> None:
    assert canonical(value) == slow_path(value)


@given(rich)
def test_tagged_values_too(value: object) -> None:
    assert canonical(value) == slow_path(value) == _dump(_tag(value, "$", MAX_DEPTH))


@given(st.recursive(st.text("aä$\U0001f600", max_size=2) | st.integers(0, 9), st.lists))
def test_plain_json_data_without_dollar_keys_is_plain_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def by_rules(value: object) -> object:
    """What the rules call the same, as one comparable Python value, written apart from the codec."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, (int, float, Decimal)):
        return ("number", value)
    if isinstance(value, dict):
        return ("map", frozenset((key, by_rules(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(map(by_rules, value)))
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(map(by_rules, value)))
    if isinstance(value, (datetime, time)):
        zone = value.tzinfo if value.utcoffset() is None else None
        return (type(value), value.replace(tzinfo=None, fold=0), value.utcoffset(), str(zone))
    return (type(value), value)


look_alikes = st.recursive(
    st.sampled_from(
        [0, 0.0, False, 1, True, "1", Decimal(1), Decimal("0.1"), 0.1, 2**53, 2**53 + 1, 2.0**53, "1e-1", b"1", None]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["$set", "$$set", "$number", "$bytes", "a"]), inner, max_size=2)
        | st.just(frozenset([1]))
        | st.just(frozenset())
        | st.sampled_from([{"$set": [1]}, {"$number": "1e-1"}, {"$bytes": "MQ=="}, {"$set": []}])
    ),
    max_leaves=4,
)


@given(look_alikes | rich, look_alikes | rich)
def test_bytes_are_equal_exactly_when_the_rules_say_so(left: object, right: object) -> None:
    assert (canonical(left) == canonical(right)) == (by_rules(left) == by_rules(right))


@given(st.dictionaries(keys, look_alikes, min_size=1, max_size=2), hashable | st.frozensets(hashable, max_size=2))
def test_no_plain_mapping_collides_with_a_tagged_value(mapping: object, tagged: object) -> None:
    assert canonical(mapping) != canonical(tagged)


# --- the same in every process ---------------------------------------------------------------------------------------

CORPUS = textwrap.dedent(
    r"""
    from datetime import date, datetime, time, timedelta, timezone
    from decimal import Decimal
    from enum import Enum
    from uuid import UUID
    from counterfoil.codec import canonical, digest_arguments, encode, pack_fields, text_digest
    from counterfoil.core.templates import Template

    Colour = Enum("Colour", "RED GREEN BLUE")
    corpus = {
        "sets": [set("abcdefgh"), frozenset({1, 2.5, "x", b"x", None, Decimal("0.1"), ("t", 1)}), set(Colour)],
        "decimals": [Decimal("1.10"), Decimal("1E+40"), 10**50, 2**53 + 1],
        "times": [datetime(2024, 1, 2, 3, 4, 5, 6), datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=5.5)))],
        "dates": [date(1, 1, 1), time(1, 2, 3), timedelta(days=-1, microseconds=1)],
        "uuid": UUID(int=7),
        "bytes": bytes(range(256)),
        "floats": [1e21, 1e-7, 5e-324, 0.1 + 0.2, 1.0, -0.0, 123456789.125],
        "text": ["\u00e9", "e\u0301", "\U0001f600", "\ufb33", "\u2028\x7f\x80"],
        "\U0001f600": 1, "\ufb33": 2, "\u00e9": 3, "e\u0301": 4, "$set": [1],
    }
    digests = digest_arguments(corpus, not_identity=("bytes",), salt=b"salt")
    print(text_digest(digests.identity), text_digest(digests.content), pack_fields(digests).hex())
    print(canonical(corpus).hex())
    print(encode(corpus).hex())
    name = Template.parse("{a}:{b}-{c}").render({"a": "\u00e9/x\u2028\U0001fae9", "b": 1e22, "c": Decimal("1.50")}, {})
    print(name.encode().hex())
    """
)

IDENTITY = "jcs1:a53950c95e8cb81473eabaa38cae97378b4eda6fa4581701a8d07a41319008a5"
"""If this changes, every stored fingerprint is worthless: give the scheme a new name instead."""


def other_pythons() -> list[str]:
    """Return interpreters that can import the encoders: those named in the environment, and pyenv's."""
    named = os.environ.get("COUNTERFOIL_TEST_PYTHONS", "").split(os.pathsep)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*filter(None, named), *map(str, sorted(versions.glob("3.1[1-9]*/bin/python")))]
    return [binary for binary in found if can_encode(binary)]


def can_encode(binary: str) -> bool:
    probe = [binary, "-c", "import orjson, rfc8785"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run_corpus(binary: str, **settings: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONIOENCODING": "utf-8", **settings}
    done = subprocess.run([binary, "-c", CORPUS], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_process_gives_the_same_bytes() -> None:
    settings = [
        {"PYTHONHASHSEED": "0", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "C.utf8", "TZ": "Asia/Tokyo"},
        {"PYTHONHASHSEED": "random", "LC_ALL": "C", "PYTHONUTF8": "0"},
    ]
    outputs = {run_corpus(sys.executable, **each) for each in settings}
    outputs |= {run_corpus(binary, PYTHONHASHSEED="2") for binary in other_pythons()}
    assert len(outputs) == 1
    assert outputs.pop().startswith(IDENTITY)


def test_the_encoders_are_imported_on_first_use() -> None:
    code = "import sys, counterfoil.codec; print([m for m in ('orjson', 'rfc8785', 'pydantic') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- storage ---------------------------------------------------------------------------------------------------------


def alike(left: object, right: object) -> bool:
    """Equal and of equal types all the way down; NaN is alike NaN, -0.0 is not alike 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return alike([*left.items()], [*right.items()])
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(left, (set, frozenset)):
        return sorted(map(repr, left)) == sorted(map(repr, cast("Any", right)))
    if isinstance(left, datetime) and isinstance(right, datetime):
        zones = str(left.tzinfo) == str(right.tzinfo)
        return zones and left.isoformat() == right.isoformat()
    return repr(left) == repr(right)


any_key = st.text(max_size=6) | st.floats() | st.just("\ud800\0") | hashable
storable = st.recursive(
    any_key | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys | any_key, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.frozensets(any_key, max_size=3)
        | st.sets(any_key, max_size=3)
    ),
)


@given(storable)
def test_what_is_stored_comes_back_the_same(value: object) -> None:
    stored = encode(value)
    assert alike(decode(stored), value)
    assert encode(decode(stored)) == stored


@given(rich)
def test_storage_keeps_the_canonical_form(value: object) -> None:
    assert canonical(decode(encode(value))) == canonical(value)


MODELS: list[tuple[object, object]] = [
    (Line("s", Decimal("1.50")), {"sku": "s", "price": Decimal("1.50"), "tags": []}),
    (Order(id="o", lines=[]), {"id": "o", "lines": [], "colour": "red"}),
    (Tags(["a"]), ["a"]),
    (Colour.RED, "red"),
    (Mood.GOOD, "good"),
    (Level.HIGH, 3),
    (Point(1, 2), (1, 2)),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({Colour.RED: 1, Level.HIGH: 2}, {"red": 1, 3: 2}),
]


@pytest.mark.parametrize(("value", "back"), MODELS)
def test_models_are_stored_as_plain_data(value: object, back: object) -> None:
    assert alike(decode(encode(value)), back)
    if not isinstance(value, dict):
        assert canonical(back) == canonical(value)


UNSTORABLE: list[tuple[object, str]] = [
    ({"a": [print]}, "$.a[0]"),
    ({Frozen(1)}, "$"),
    ({"k": {Frozen(1): 2}}, "$.k"),
    ({"k": {Colour.RED: 1, "red": 2}}, "$.k"),
    (nested(MAX_DEPTH + 1), "$" + "[0]" * (MAX_DEPTH + 1)),
]


@pytest.mark.parametrize(("value", "path"), UNSTORABLE)
def test_what_cannot_come_back_is_refused_before_it_is_stored(value: object, path: str) -> None:
    with pytest.raises(UnsupportedValue) as caught:
        encode(value)
    assert caught.value.path == path


def test_stored_text_is_legible() -> None:
    assert encode({"b": 1, "a": [1.0, "é"]}) == '\x01{"b":1,"a":[1.0,"é"]}'.encode()


@pytest.mark.parametrize("data", [b"", b"{}", b"\x03{}", b'\x01{"$later":1}', b'\x01[{"$later":{}}]'])
def test_an_unknown_format_is_refused(data: bytes) -> None:
    with pytest.raises(SchemaNewer, match="upgrade"):
        decode(data)


@pytest.mark.parametrize(
    "data", [b"\x01", b"\x01{", b'\x01{"$uuid":"x"}', b'\x01{"$map":[1]}', b'\x01{"$decimal":"x"}', b'\x01{"$int":1}']
)
def test_damaged_bytes_are_named_as_such(data: bytes) -> None:
    with pytest.raises(StoredValueDamaged, match="damaged"):
        decode(data)


def test_a_zone_that_is_gone_or_has_changed_leaves_the_offset() -> None:
    gone = decode(b'\x01{"$datetime":["2024-01-01T00:00:00+01:00","Mars/Olympus",0]}')
    changed = decode(b'\x01{"$datetime":["2024-01-01T00:00:00+07:00","Europe/Paris",0]}')
    with pytest.raises(StoredValueDamaged, match="install tzdata"):
        decode(b'\x01{"$time":["09:00:00","Mars/Olympus",0]}')
    assert (gone.utcoffset(), changed.utcoffset()) == (timedelta(hours=1), timedelta(hours=7))


# --- rows that a database wrote itself --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "back"),
    [
        ('{"id":1,"seat":"12a"}', {"id": 1, "seat": "12a"}),
        ('{"price":19.90}', {"price": Decimal("19.90")}),
        ('{"huge":12345678901234567890123.45}', {"huge": Decimal("12345678901234567890123.45")}),
        ('{"n":92233720368547758070, "e":1e3}', {"n": 92233720368547758070, "e": Decimal("1e3")}),
        ('{"$uuid":"x"}', {"$uuid": "x"}),
        ('{"a":null,"b":[true,{"c":"\\u00e9"}]}', {"a": None, "b": [True, {"c": "é"}]}),
    ],
)
def test_a_row_is_read_as_plain_json_with_exact_numbers(body: str, back: object) -> None:
    assert alike(decode(b"\x02" + body.encode()), back)


def test_a_row_that_is_encoded_here_reads_like_one_that_a_database_wrote() -> None:
    row = {"n": 1, "x": 0.1, "b": b"\x00\xff", "t": "é\0", "none": None, "inf": float("-inf"), "nan": float("nan")}
    assert alike(
        decode(encode_row(row)),
        {"n": 1, "x": Decimal("0.1"), "b": "\\x00ff", "t": "é\0", "none": None, "inf": "-Infinity", "nan": "NaN"},
    )


@pytest.mark.parametrize("data", [b"\x02", b"\x02{", b'\x02{"a":', b"\x02" + b"[" * 100_000, b"\x02\xff"])
def test_a_damaged_row_is_named_as_such(data: bytes) -> None:
    with pytest.raises(StoredValueDamaged, match="damaged"):
        decode(data)


# --- receipts --------------------------------------------------------------------------------------------------------


class Hostile:
    def __getattribute__(self, name: str) -> object:
        raise ZeroDivisionError(name)


@dataclass
class Broken:
    x: int

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            raise ZeroDivisionError
        return super().__getattribute__(name)


RECEIPT_MARKERS: list[tuple[object, str]] = [
    ({"items": [{"client": object()}]}, "a value of type object at $.items[0].client"),
    (print, "a value of type builtin_function_or_method at $"),
    (cyclic(), "nesting at $[0]"),
    (Broken(1), "could not be read (ZeroDivisionError)"),
]


@pytest.mark.parametrize(("value", "marker"), RECEIPT_MARKERS)
def test_a_receipt_that_cannot_be_stored_leaves_a_marker(value: object, marker: str) -> None:
    receipt = encode_receipt(value)
    assert receipt.marker is not None
    assert marker in receipt.marker
    assert receipt.marker.isascii()
    assert decode(receipt.body) is None


def test_a_receipt_survives_an_object_that_fails_on_every_look() -> None:
    receipt = encode_receipt([Hostile()])
    assert receipt.marker == "a value of type list at $ could not be read (ZeroDivisionError)"
    assert decode(receipt.body) is None


def test_a_receipt_keeps_any_text_and_any_number() -> None:
    value = {"log": "a\0b\ud800", "ratio": math.inf, "\0": [math.nan], 7: "seven"}
    receipt = encode_receipt(value)
    assert receipt.marker is None
    assert alike(decode(receipt.body), value)
    assert b"\0" not in receipt.body


REDACTIONS: list[tuple[object, tuple[str, ...], object]] = [
    ({"client_secret": "s", "id": 1}, ("client_secret",), {"client_secret": REDACTED, "id": 1}),
    ({"card": {"number": 4, "brand": "v"}}, ("card.number",), {"card": {"number": REDACTED, "brand": "v"}}),
    (
        {"card": [{"number": 4}, ({"number": 5},)]},
        ("card.number",),
        {"card": [{"number": REDACTED}, ({"number": REDACTED},)]},
    ),
    ({"card.number": 4}, ("card.number",), {"card.number": REDACTED}),
    ({"a.b": {"c": 1}}, ("a.b.c",), {"a.b": {"c": REDACTED}}),
    ({1: {"number": 4}, "number": 5}, ("number",), {1: {"number": 4}, "number": REDACTED}),
    ([{"secret": object()}], ("secret",), [{"secret": REDACTED}]),
    ({"cards": 1}, ("card", "card.x"), {"cards": 1}),
    (Login(user="u", password=pydantic.SecretStr("p")), (), {"user": "u", "password": REDACTED}),
    (Line("s", Decimal(1)), ("sku",), {"sku": REDACTED, "price": Decimal(1), "tags": []}),
    ({"$secret": 1}, ("$secret",), {"$secret": REDACTED}),
]


@pytest.mark.parametrize(("value", "paths", "back"), REDACTIONS)
def test_declared_secrets_never_reach_the_store(value: object, paths: tuple[str, ...], back: object) -> None:
    receipt = encode_receipt(value, redact=paths)
    assert receipt.marker is None
    assert decode(receipt.body) == back


def test_one_path_may_be_given_as_text() -> None:
    assert decode(encode_receipt({"token": "t"}, redact="token").body) == {"token": REDACTED}


def test_redacted_is_one_object_that_shows_itself() -> None:
    back = decode(encode_receipt({"token": "t"}, redact=("token",)).body)["token"]
    assert back is REDACTED
    assert isinstance(back, Redacted)
    assert repr(back) == "Redacted"
    assert decode(encode([back])) == [REDACTED]


@given(storable)
def test_receipts_are_stored_like_payloads(value: object) -> None:
    receipt = encode_receipt(value, redact=("no such path",))
    assert receipt.marker is None
    assert receipt.body == encode(value)


# --- digests ---------------------------------------------------------------------------------------------------------

arguments = st.dictionaries(keys, rich, max_size=4)


def sha256(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(data).digest()


@given(arguments, st.frozensets(keys, max_size=2))
def test_digests_built_from_parts_are_those_of_the_whole(given: Mapping[str, object], excluded: frozenset[str]) -> None:
    digests = digest_arguments(given, not_identity=excluded, salt=b"s")
    kept = {name: value for name, value in given.items() if name not in excluded}
    assert digests.content == sha256(canonical(given)) == fingerprint(given)
    assert digests.identity == sha256(canonical(kept)) == fingerprint(given, exclude=excluded)
    fields, salt = unpack_fields(pack_fields(digests))
    assert (fields.keys(), salt) == (given.keys(), b"s")


@given(arguments, arguments)
def test_exactly_the_differing_fields_are_named(old: Mapping[str, object], new: Mapping[str, object]) -> None:
    packed = pack_fields(digest_arguments(old, not_identity=(), salt=b"salt"))
    missing = object()
    expected = {
        name
        for name in old.keys() | new.keys()
        if (old.get(name, missing) is missing) != (new.get(name, missing) is missing)
        or canonical(old[name]) != canonical(new[name])
    }
    assert set(differing_fields(packed, new)) == expected


def test_a_conflict_names_changed_added_and_missing_fields() -> None:
    packed = pack_fields(digest_arguments({"amount": 10, "note": "a", "to": "x"}, not_identity=("note",), salt=b"1234"))
    new = {"amount": 12, "note": "b", "currency": "EUR"}
    assert differing_fields(packed, new) == ("amount", "currency", "note", "to")
    assert differing_fields(packed, new, ignore={"note"}) == ("amount", "currency", "to")
    assert differing_fields(packed, {"to": "x", "note": "a", "amount": 10.0}) == ()


def test_field_digests_are_salted_and_short() -> None:
    one = digest_arguments({"amount": 10}, not_identity=(), salt=b"one")
    two = digest_arguments({"amount": 10}, not_identity=(), salt=b"two")
    assert one.content == two.content
    of_one, of_two = (unpack_fields(pack_fields(each))[0]["amount"] for each in (one, two))
    assert of_one != of_two
    assert [len(one.identity), len(one.content), len(of_one)] == [32, 32, 16]


def test_a_refused_argument_is_named() -> None:
    with pytest.raises(NulCharacter) as caught:
        fingerprint({"note": ["a\0"]})
    assert caught.value.path == "$.note[0]"


def test_unknown_packed_fields_are_refused() -> None:
    with pytest.raises(StoredValueDamaged, match="upgrade"):
        unpack_fields(b"\x02")


def test_a_digest_shows_its_scheme() -> None:
    assert text_digest(b"\x01\xff") == "jcs1:01ff"
