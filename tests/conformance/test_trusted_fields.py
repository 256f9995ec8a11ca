"""What a trusted field may be: None, or a text that can be stored; whatever else is refused before anything is."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from counterfoil import Counterfoil, Policy
from counterfoil.core.templates import TRUSTED_FIELDS
from counterfoil.errors import InvalidId, TenantMissing
from counterfoil.joining import Joined
from counterfoil.langgraph import perform
from counterfoil.model import Origin, Trusted
from tests.conformance.own import Own
from tests.conformance.subject import ASYNC, SYNC, Subject
from tests.conformance.test_transactional import book
from tests.stores import SHARED

ROWS = ("operation", "approval", "grant", "thread", "workflow", "checkpoint", "audit")
WRONG: list[Any] = ["", 0, 0.0, False, b"", (), [], {}, 1, True, "\0", "\ud800", "x" * 600]
WHO = {"tenant": "team-a", "request_id": "r-1"}


@pytest.fixture(params=SHARED)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[SYNC, ASYNC])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


ENTRANCES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    **dict.fromkeys(("perform", "enqueue", "verify", "approvals.request"), ({}, ("effect",))),
    "enqueue_all": ({}, ("effect", [{"title": "a"}])),
    "grants.issue": ({"by": "ops"}, ("effect",)),
    "config": ({"thread_id": "t"}, ()),
    "run": ({"thread_id": "t"}, ("graph", {})),
    "workflows.start": ({"workflow_id": "w"}, ("graph name", {})),
}
"""Each call that takes trusted fields: what it needs beside them."""
FILTERS = {"operations.list"}
"""Calls in which they narrow what is read; refused as arguments of the wrong type."""
BY_ID = {"workflow_id": ("workflows.",), "thread_id": ("fork", "operations.")}
"""Where an id of this name is what is asked for, and no trusted field."""


def public() -> Iterator[tuple[str, Any]]:
    with Counterfoil.open("sqlite:///:memory:") as cf:
        for name in (name for name in dir(type(cf)) if not name.startswith("_")):
            if isinstance(inspect.getattr_static(type(cf), name), property):
                facade = getattr(cf, name)
                yield from ((f"{name}.{one}", getattr(facade, one)) for one in dir(facade) if not one.startswith("_"))
            else:
                yield name, getattr(cf, name)


def test_every_call_that_takes_trusted_fields_is_among_them() -> None:
    found = set()
    for name, method in public():
        takes = inspect.signature(method).parameters if callable(method) else {}
        own = [one for one in ("request_id", "workflow_id", "principal", "thread_id") if one in takes]
        if any(not name.startswith(BY_ID.get(one, ())) or one not in BY_ID for one in own):
            found.add(name)
    assert found == ENTRANCES.keys() | FILTERS


class Asking:
    """The calls of one subject, over one effect and one graph."""

    def __init__(self, subject: Subject, name: str) -> None:
        self.subject = subject
        self.made = subject.ticket(approval=Policy() if name == "approvals.request" else None)
        builder: Any = StateGraph(dict)
        builder.add_node("n", lambda _: {"id": perform(self.made, title="a").operation_id})
        builder.add_edge(START, "n")
        self.things = {"effect": self.made, "graph": subject.cf.compile(builder), "graph name": "g"}
        if name == "workflows.start":
            subject.cf.workflows.register(builder, name="g")

    def call(self, on: Any, name: str, **given: Any) -> Any:
        needs, parts = ENTRANCES[name]
        arguments = {} if name in {"enqueue_all", "config", "run", "workflows.start"} else {"title": "a"}
        whole = {**WHO, **needs, **arguments, **given}
        things = [self.things.get(part, part) if isinstance(part, str) else part for part in parts]
        return self.subject.settle(attrgetter(name)(on)(*things, **whole))


def nothing(subject: Subject) -> bool:
    return len(subject.sent) == 0 and not any(subject.rows(table) for table in ROWS)


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_field_is_none_or_a_text_that_can_be_stored(subject: Subject, name: str) -> None:
    asking = Asking(subject, name)
    takes = inspect.signature(attrgetter(name)(subject.cf)).parameters
    for field in (one for one in TRUSTED_FIELDS if one in takes):
        for wrong in WRONG:
            with refusal(name, field, wrong):
                asking.call(subject.cf, name, **{field: wrong})
    assert nothing(subject)


@contextmanager
def refusal(name: str, field: str, wrong: Any) -> Iterator[None]:
    """Say which field it was, where one is taken."""
    with pytest.raises((InvalidId, TenantMissing) if field == "tenant" else InvalidId) as caught:
        yield
    assert field.replace("_", " ") in str(caught.value).replace("_", " ").lower(), (name, field, wrong)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["perform", "enqueue", "enqueue_all"])
def test_in_a_transaction_that_is_joined_as_well(subject: Subject, name: str) -> None:
    assert name in dir(Joined)
    asking, own = Asking(subject, name), Own(subject)
    if name == "perform":
        asking.things["effect"] = book(subject)
    own.begin()
    joined = subject.cf.join(own.connection)
    for field in ("tenant", "request_id", "workflow_id", "principal"):
        for wrong in WRONG:
            with refusal(name, field, wrong):
                asking.call(joined, name, **{field: wrong})
    own.execute("commit")
    own.close()
    assert nothing(subject)


def test_a_context_that_was_made_by_hand_is_looked_at_too(subject: Subject) -> None:
    made = subject.ticket()
    for field in ("request_id", "workflow_id", "principal", "thread_id"):
        for wrong in WRONG:
            trusted = Trusted(**{**WHO, field: wrong})
            with refusal("perform_as", field, wrong):
                subject.settle(subject.cf.perform_as(made, {"title": "a"}, trusted, Origin()))
    assert nothing(subject)


def test_none_is_none(subject: Subject) -> None:
    """The id of the operation names its workflow alone, so that the others may be absent."""
    made = subject.ticket(key="ticket:{workflow_id}")
    given = {"workflow_id": "w", "request_id": None, "principal": None}
    subject.perform(made, title="a", **given)
    row = subject.operation
    assert (row["workflow_id"], row["request_id"], row["principal"]) == ("w", None, None)
