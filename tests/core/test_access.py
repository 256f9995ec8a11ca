"""Roles permit what their table says, names are compared in one form, and what is another tenant's comes first."""

import unicodedata
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.access import (
    MAY,
    Act,
    AnotherTenants,
    NotInRole,
    OneTenantsOnly,
    Permitted,
    Principal,
    Role,
    canonical,
    decide_access,
    is_same_principal,
)
from counterfoil.core.unseen import DEFAULT_IGNORABLE
from counterfoil.errors import InvalidArguments, InvalidId


def test_each_role_may_do_more_than_the_one_before_it() -> None:
    assert list(MAY) == list(Role)
    for less, more in pairwise(MAY.values()):
        assert less < more
    assert MAY[Role.ADMIN] == frozenset(Act)


@pytest.mark.parametrize(
    ("role", "acts"),
    [
        ("viewer", {"read"}),
        ("reviewer", {"read", "decide", "verdict"}),
        ("operator", {"read", "decide", "verdict", "operate", "grant"}),
        ("admin", {"read", "decide", "verdict", "operate", "grant", "export", "administer"}),
    ],
)
def test_what_a_role_may_do(role: str, acts: set[str]) -> None:
    assert {act for act in Act if made(role=role).may(act)} == acts


def made(**given: Any) -> Principal:
    return Principal(**{"tenant": "team-A", "name": "mei", "role": "operator", **given})


@pytest.mark.parametrize(("role", "act"), list(product(Role, Act)))
def test_scopes_narrow_a_role_and_never_widen_it(role: Role, act: Act) -> None:
    narrowed = made(role=role, scopes=frozenset({act}))
    assert {each for each in Act if narrowed.may(each)} == MAY[role] & {act}


@pytest.mark.parametrize(
    ("mine", "asked", "role", "decision"),
    [
        ("a", "a", "operator", Permitted()),
        ("a", "a", "viewer", NotInRole()),
        ("a", "b", "operator", AnotherTenants()),
        ("a", "b", "viewer", AnotherTenants()),
        ("a", None, "operator", OneTenantsOnly()),
        ("a", None, "viewer", OneTenantsOnly()),
        (None, "a", "operator", Permitted()),
        (None, None, "operator", Permitted()),
        (None, None, "viewer", NotInRole()),
    ],
)
def test_the_tenant_comes_before_the_role(mine: str | None, asked: str | None, role: str, decision: object) -> None:
    assert decide_access(made(tenant=mine, role=role), Act.OPERATE, asked) == decision


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mei", "mei"),
        (" Mei\t", "mei"),
        ("\uff2d\uff25\uff29@Example.com", "mei@example.com"),
        ("Straße", "strasse"),
        ("İ", "i̇"),
        ("ﬁona", "fiona"),
        ("ann\u200b", "ann"),
        ("\u202eann", "ann"),
        ("ann\ufe0f", "ann"),
        ("\u034fa\u115fnn\U000e0101", "ann"),
        ("an\u3164n\x01", "ann"),
        ("Ann \t\u00a0 Lee", "ann lee"),
        ("e\u0301va", "éva"),
        ("梅", "梅"),
    ],
)
def test_a_name_has_one_form(name: str, form: str) -> None:
    assert canonical(name) == form
    assert is_same_principal(name, form)


def test_a_name_is_the_same_without_each_character_that_nobody_sees() -> None:
    points = [point for first, last in DEFAULT_IGNORABLE for point in range(first, last + 1)]
    assert len(set(points)) == 4174  # as DerivedCoreProperties.txt counts them
    for char in map(chr, points):
        assert {canonical(name) for name in (f"{char}ann", f"an{char}n", f"ann{char}", f"ann {char} ")} == {"ann"}


@pytest.mark.parametrize("space", [" ", "  ", "\t \n", "\u00a0", "\u2003\u3000", " \u200b ", "\u2028"])
def test_a_run_of_white_space_is_one_space(space: str) -> None:
    assert canonical(f"{space}Ann{space}Lee{space}") == "ann lee"


def test_other_names_are_other_principals() -> None:
    assert not is_same_principal("mei", "mei2")
    assert not is_same_principal("ann", "an n")


@pytest.mark.parametrize(
    "name", ["", " ", "\u200b", "a\0b", "ann\0", "\ud800", "ann\udfff", "x" * 513, "票" * 400, "ﷺ" * 60]
)
def test_a_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(InvalidId, match="the name of a principal"):
        canonical(name)
    with pytest.raises(InvalidId, match="the name of a principal"):
        made(name=name)


def test_a_name_is_a_text() -> None:
    with pytest.raises(InvalidArguments):
        canonical(5)  # type: ignore[arg-type]


@given(st.text(max_size=20))
def test_the_form_of_a_form_is_itself(name: str) -> None:
    try:
        form = canonical(name)
    except InvalidId:
        return
    assert canonical(form) == form
    assert unicodedata.is_normalized("NFKC", form)


# --- principals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"role": "owner"}, InvalidArguments),
        ({"role": None}, InvalidArguments),
        ({"tenant": ""}, InvalidId),
        ({"tenant": 5}, InvalidId),
        ({"scopes": {"fly"}}, InvalidArguments),
        ({"scopes": ()}, InvalidArguments),
        ({"scopes": {5}}, InvalidArguments),
        ({"scopes": 5}, InvalidArguments),
        ({"scopes": {"read": True}}, InvalidArguments),
        ({"scopes": iter([5])}, InvalidArguments),
    ],
)
def test_a_principal_is_made_of_what_exists(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        made(**given)


def test_words_become_what_they_name() -> None:
    assert (made().role, made(scopes=["read"]).scopes) == (Role.OPERATOR, frozenset({Act.READ}))
