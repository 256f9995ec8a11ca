"""The Python reference names every public name, member and keyword, and nothing else."""

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

import counterfoil
import counterfoil.langgraph
import counterfoil.providers.http
from counterfoil import Counterfoil, EffectCall, Provider, Receipt, effect
from counterfoil.approvals import Approvals
from counterfoil.audit import Audit
from counterfoil.grants import Grants
from counterfoil.operations import Operations
from counterfoil.outbox import Outbox
from counterfoil.reviews import Reviews
from counterfoil.tenants import Tenants
from counterfoil.tokens import Tokens

PYTHON = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text("utf-8")


def rows(heading: str) -> list[str]:
    """Return the first cells of the table under a heading."""
    found = re.search(rf"^#+ `{re.escape(heading)}`\n(.*?)(?=^#|\Z)", PYTHON, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return re.findall(r"^\| `([^`]+)` \|", found[1], re.MULTILINE)


def members(cls: type) -> set[str]:
    own = [base for base in cls.__mro__ if base is not object]
    return {f"{cls.__name__}.{name}" for base in own for name in vars(base) if not name.startswith("_")}


def keywords(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def attributes(cls: type) -> set[str]:
    return {name for name in (*vars(cls), *(each.name for each in fields(cls))) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("counterfoil", counterfoil.__all__),
        ("counterfoil.langgraph", counterfoil.langgraph.__all__),
        ("counterfoil.providers", counterfoil.providers.__all__),
        ("counterfoil.providers.http", counterfoil.providers.http.__all__),
        ("Counterfoil", members(Counterfoil)),
        ("cf.operations", members(Operations)),
        ("cf.outbox", members(Outbox)),
        ("cf.approvals", members(Approvals)),
        ("cf.grants", members(Grants)),
        ("cf.review", members(Reviews)),
        ("cf.tokens", members(Tokens)),
        ("cf.tenants", members(Tenants)),
        ("cf.audit", members(Audit)),
        ("effect", keywords(effect)),
        ("Provider", keywords(Provider)),
        ("EffectCall", attributes(EffectCall)),
        ("Receipt", attributes(Receipt)),
    ],
)
def test_the_reference_is_complete_and_invents_nothing(heading: str, expected: Iterable[str]) -> None:
    assert sorted(rows(heading)) == sorted(expected)


@pytest.mark.parametrize(
    "function",
    [
        *(Counterfoil.open, Counterfoil.run, Operations.list, Reviews.list, Reviews.resolve, Outbox.list, Outbox.pause),
        *(Tokens.issue, Tokens.rotate, Audit.list),
    ],
)
def test_a_method_with_many_keywords_has_them_all_in_its_row(function: object) -> None:
    name = function.__qualname__  # type: ignore[attr-defined]
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", PYTHON, re.MULTILINE)
    beside = {"self", "case_id", "tenant", "options"}
    missing = [each for each in keywords(function) if each not in beside and not re.search(rf"\b{each}\b", row)]
    assert missing == []
