"""The ids of branches: suffixed, told from the main line's, and spelled by nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.branches import branch_of, marked, plain_id, validate_branch, within
from counterfoil.core.templates import Template
from counterfoil.errors import InvalidId

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", fullmatch=True)
paths = st.lists(names, max_size=3).map(lambda found: "~".join(found) or None)
values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | names.map("x~branch-{}".format)


def test_a_branch_of_a_branch_is_marked_twice() -> None:
    path = within(within(None, "what-if"), "deeper")
    assert path == "what-if~deeper"
    assert marked("r-1/charge", path) == "r-1/charge~branch-what-if~branch-deeper"
    assert marked("r-1/charge", None) == "r-1/charge"


@given(values, paths, values, paths)
def test_no_two_pairs_of_a_value_and_a_branch_spell_the_same_id(
    left: str, left_path: str | None, right: str, right_path: str | None
) -> None:
    template = Template.parse("charge/{a}")
    ids = [marked(template.render({"a": a}, {}), path) for a, path in ((left, left_path), (right, right_path))]
    assert (ids[0] == ids[1]) == ((left, left_path) == (right, right_path))


@given(values, paths)
def test_an_id_tells_its_branch_and_what_it_is_called_without(value: str, path: str | None) -> None:
    plain = Template.parse("charge/{a}").render({"a": value}, {})
    assert branch_of(marked(plain, path)) == path
    assert plain_id(marked(plain, path)) == plain


@pytest.mark.parametrize("name", ["", "-x", "_x", "a b", "a~b", "a/b", "é", "x" * 41, "a\n", None, 7])
def test_a_name_that_cannot_be_told_apart_is_refused(name: object) -> None:
    with pytest.raises(InvalidId, match="branch"):
        validate_branch(name)


@pytest.mark.parametrize("name", ["a", "9", "what-if", "A_b-C", "x" * 40])
def test_a_plain_name_is_a_name(name: str) -> None:
    assert validate_branch(name) == name
