"""Operation-id templates: stable, unambiguous, storable."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.templates import MAX_BYTES, MAX_CHARS, Template, check_trusted, validate_id
from counterfoil.errors import (
    ContradictoryDeclaration,
    InvalidId,
    TemplateFieldMissing,
    TrustedFieldMismatch,
    UnknownTemplateField,
    UnstableId,
)

INVITE = "invite:{workflow_id}:{candidate_id}:round-{round}"


class Size(Enum):
    BIG = "big"


class Level(IntEnum):
    HIGH = 3


def rendered(value: object, text: str = "x:{a}") -> str:
    return Template.parse(text).render({"a": value}, {})


def test_an_id_is_made_of_arguments_and_trusted_context() -> None:
    template = Template.parse(INVITE, arguments=["candidate_id", "round", "note"])
    assert template.fields == ("workflow_id", "candidate_id", "round")
    arguments = {"candidate_id": "c-7", "round": 2, "note": "hi"}
    assert template.render(arguments, {"workflow_id": "w 1"}) == "invite:w%201:c-7:round-2"


def test_doubled_braces_are_literal() -> None:
    assert rendered("v", "{{x}}:{a}") == "{x}:v"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain-._9", "plain-._9"),
        ("id~branch-x", "id%7Ebranch-x"),
        ("a/b:c%d", "a%2Fb%3Ac%25d"),
        ("{x} \n\0", "%7Bx%7D%20%0A%00"),
        ("招聘é", "招聘é"),
        ("e\u0301", "e\u0301"),
        ("\x85\u2028", "%C2%85%E2%80%A8"),
        ("\U0001fae9", "\U0001fae9"),
        (10, "10"),
        (10.0, "10"),
        (Decimal("10.00"), "10"),
        (Decimal("1E+2"), "100"),
        (-3, "-3"),
        (0.1, "0.1"),
        (Decimal("0.10"), "0.1"),
        (12.5, "12.5"),
        (Decimal("12.50"), "12.5"),
        (1e22, "1" + "0" * 22),
        (1e-7, "0.0000001"),
        (-0.0, "0"),
        (Decimal("-0E+500"), "0"),
        (Decimal(2**-30), Decimal(repr(2**-30)).__format__("f")),
        (2**-30, Decimal(repr(2**-30)).__format__("f")),
        (10**100 + 1, str(10**100 + 1)),
        (True, "true"),
        (False, "false"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 1, 1, 12, tzinfo=UTC), "2024-01-01T12%3A00%3A00%2B00%3A00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Size.BIG, "big"),
        (Level.HIGH, "3"),
    ],
)
def test_the_text_of_a_value(value: object, text: str) -> None:
    assert rendered(value) == f"x:{text}"


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", float("nan"), float("inf"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999999999")),
        *(Decimal("1e-999999999"), b"x"),
        *([], {}, ("a",), object(), print, 1j, "a\ud800", "x" * 511, "招" * 350),
    ],
)
def test_values_that_make_no_id_are_refused(value: object) -> None:
    with pytest.raises(InvalidId):
        rendered(value)


def test_a_number_that_python_itself_would_not_print_is_refused() -> None:
    with pytest.raises(InvalidId, match="too many digits"):
        rendered(10**5000)


# --- what a template may not say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("invite", "names no field"),
        ("{{a}}", "names no field"),
        ("{a", "cannot be read"),
        ("a}", "cannot be read"),
        ("{}", "plain"),
        ("{0}", "plain"),
        ("{a.b}", "plain"),
        ("{a[0]}", "plain"),
        ("{a!r}", "plain"),
        ("{a:>5}", "plain"),
        ("{a:{b}}", "plain"),
        ("{a }", "plain"),
        ("{a}{b}", "run together"),
        ("{a}x{b}", "run together"),
        ("{a}%{b}", "run together"),
        ("{a}:{b}9{c}", "run together"),
        ("{a}~{b}", "derives"),
        ("{a}~branch-x", "derives"),
        ("~{a}", "derives"),
    ],
)
def test_a_contradictory_template_is_refused(text: str, hint: str) -> None:
    with pytest.raises(ContradictoryDeclaration, match=hint):
        Template.parse(text)


@pytest.mark.parametrize("text", ["", "{a}:\0", "{a}:\ud800", "{a}" + "x" * 600])
def test_a_template_must_itself_be_storable(text: str) -> None:
    with pytest.raises(InvalidId):
        Template.parse(text)


@pytest.mark.parametrize(
    "name",
    [
        *("run_id", "attempt", "node_attempt", "task_id", "tool_call_id", "call_id", "checkpoint_id", "checkpoint_ns"),
        *("trace_id", "span_id", "timestamp", "now", "uuid", "uuid4", "random", "retry_count", "langgraph_step"),
    ],
)
def test_a_field_that_changes_between_tries_is_refused_by_name(name: str) -> None:
    text = f"t:{{order_id}}:{{{name}}}"
    with pytest.raises(UnstableId, match=name) as caught:
        Template.parse(text, arguments=["order_id", name])
    assert caught.value.facts == {"field": name}
    declared = Template.parse(text, arguments=["order_id", name], stable=(name,))
    assert declared.render({"order_id": "o", name: "v"}, {}) == "t:o:v"


def test_values_are_never_judged_by_their_look() -> None:
    assert rendered("8c5e1f0e-7c56-4f4e-9d6b-0e5b5c3d2a11") == "x:8c5e1f0e-7c56-4f4e-9d6b-0e5b5c3d2a11"


@pytest.mark.parametrize("text", ["{thread_id}", "a:{thread_id}:b", "{tenant}/{thread_id}", "{principal}:{thread_id}"])
def test_a_thread_id_alone_is_refused(text: str) -> None:
    with pytest.raises(UnstableId, match="thread_id"):
        Template.parse(text)
    assert Template.parse(text, stable=("thread_id",)).text == text


def test_a_thread_id_beside_a_business_id_is_taken() -> None:
    assert Template.parse("{thread_id}:{a}").render({"a": 1}, {"thread_id": "t"}) == "t:1"


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownTemplateField, match=r"candidate.*candidate_id, principal"):
        Template.parse("x:{candidate}", arguments=["candidate_id"])
    with pytest.raises(UnknownTemplateField, match=r"names a,"):
        Template.parse("x:{a}").render({}, {})


# --- trusted context -------------------------------------------------------------------------------------------------


def test_trusted_fields_come_from_the_context_alone() -> None:
    template = Template.parse("{request_id}/create")
    assert template.render({"request_id": "r"}, {"request_id": "r"}) == "r/create"
    with pytest.raises(TrustedFieldMismatch, match="the run has none"):
        template.render({"request_id": "r"}, {})
    with pytest.raises(TemplateFieldMissing):
        template.render({}, {"request_id": None})
    with pytest.raises(TrustedFieldMismatch) as caught:
        template.render({"request_id": "other"}, {"request_id": "r"})
    assert caught.value.facts == {"field": "request_id"}


def test_an_argument_may_not_contradict_a_trusted_field_that_the_template_does_not_use() -> None:
    with pytest.raises(TrustedFieldMismatch):
        Template.parse("{a}").render({"a": 1, "tenant": "B"}, {"tenant": "A"})
    check_trusted({"tenant": "A", "b": 1}, {"tenant": "A", "b": 2})


@pytest.mark.parametrize("name", ["request_id", "workflow_id", "principal"])
def test_an_argument_may_not_stand_for_a_trusted_field_that_the_run_has_not(name: str) -> None:
    with pytest.raises(TrustedFieldMismatch, match="the run has none") as caught:
        check_trusted({name: "boss"}, {"tenant": "A", name: None})
    assert caught.value.facts == {"field": name}
    check_trusted({"thread_id": "t-1"}, {"tenant": "A"})  # outside of graphs


# --- injectivity -----------------------------------------------------------------------------------------------------

letters = st.text("ab-._~:/%25é·\u2013{} 1", min_size=1, max_size=6) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6
)
SEPARATED = [
    "{a}:{b}:{c}",
    "{a}-{b}_{c}",
    "x{a}·{b}/{c}y",
    "{a}--{b}-{c}",
    "{a}x-{b}é{c}",
    "%{a}% {b}.{c}%",
    "-{a}{{{b}}}{c}-",
]


@pytest.mark.parametrize("text", SEPARATED)
@given(left=st.tuples(letters, letters, letters), right=st.tuples(letters, letters, letters))
def test_no_two_argument_sets_spell_the_same_id(text: str, left: tuple[str, ...], right: tuple[str, ...]) -> None:
    template = Template.parse(text)
    spelled = [template.render(dict(zip("abc", values, strict=True)), {}) for values in (left, right)]
    assert (spelled[0] == spelled[1]) == (left == right)


@given(st.text("ab:-%/é·_ 9", min_size=1, max_size=3), st.data())
def test_two_splits_of_one_text_at_the_separator_spell_two_ids(separator: str, data: st.DataObject) -> None:
    try:
        template = Template.parse(f"{{a}}{separator}{{b}}")
    except ContradictoryDeclaration:
        return
    pieces = st.lists(st.sampled_from([separator, separator[0], separator[-1], "a", "%", "25"]), min_size=3, max_size=8)
    text = "".join(data.draw(pieces))
    splits = {(text[:at], text[at + len(separator) :]) for at in range(1, len(text)) if text.startswith(separator, at)}
    splits -= {split for split in splits if not split[1]}
    assert len({template.render({"a": left, "b": right}, {}) for left, right in splits}) == len(splits)


numbers = (
    st.integers() | st.floats(-1e300, 1e300) | st.decimals("-1e30", "1e30", places=3) | st.integers(-9, 9).map(float)
)


@given(numbers, numbers)
def test_equal_numbers_have_one_text(left: Any, right: Any) -> None:
    texts = rendered(left), rendered(right)
    assert left != right or texts[0] == texts[1]
    assert rendered(Decimal(left)) == texts[0]


# --- ids given directly ----------------------------------------------------------------------------------------------


def test_an_id_comes_back_as_plain_text() -> None:
    class Name(str):
        __slots__ = ()

    assert type(validate_id("tenant", Name("team-A"))) is str
    assert validate_id("tenant", "x" * MAX_CHARS) == "x" * MAX_CHARS
    assert validate_id("tenant", "é" * MAX_CHARS) == "é" * MAX_CHARS


@pytest.mark.parametrize(
    "value", [None, 7, b"x", "", "a\0b", "\ud800", "x" * (MAX_CHARS + 1), "招" * (MAX_BYTES // 3 + 1)]
)
def test_an_id_that_cannot_be_stored_is_refused(value: object) -> None:
    with pytest.raises(InvalidId, match=r"^thread id .*[;:]"):
        validate_id("thread id", value)
