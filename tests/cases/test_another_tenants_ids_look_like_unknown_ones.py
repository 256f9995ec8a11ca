"""B76: search was scoped, access by id was not; in one project the check of ownership had never fired.

Sources: https://github.com/langchain-ai/aegra/issues/336, https://github.com/Tracer-Cloud/opensre/issues/561,
https://github.com/JoshuaC215/agent-service-toolkit/pull/305

Each public method is called as the neighbour of a tenant that has a thing of each kind, once with that tenant's ids and
once with ids that nobody has: both are told the same, and no row of the tenant changes.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Any

import pytest

from counterfoil import Counterfoil, Delivery
from counterfoil.approvals import Approvals
from counterfoil.audit import Audit
from counterfoil.errors import (
    CounterfoilError,
    InvalidArguments,
    InvalidId,
    NotAllowed,
    TenantMissing,
    TrustedFieldMismatch,
)
from counterfoil.grants import Grants
from counterfoil.joining import Joined
from counterfoil.model import Origin, Trusted
from counterfoil.operations import Operations
from counterfoil.outbox import Outbox
from counterfoil.reviews import Reviews
from counterfoil.tenants import Tenants
from counterfoil.tokens import Tokens
from counterfoil.workflows import Workflows
from tests.cases.neighbours import (
    MARK,
    NOBODY,
    OPERATIONS,
    OURS,
    Ids,
    World,
    admin,
    arow,
    letter,
    looked,
    neighbours,
    pay,
    row,
    told,
    whose,
)
from tests.colours import COLOURS
from tests.stores import SHARED

THEIRS = "theirs"
FACADES: dict[str, type] = {
    "approvals": Approvals,
    "audit": Audit,
    "grants": Grants,
    "operations": Operations,
    "outbox": Outbox,
    "review": Reviews,
    "tenants": Tenants,
    "tokens": Tokens,
    "workflows": Workflows,
}
WHY = {"reason": "why"}
PAY = {"request_id": "{request}", "title": "x"}
TWO = {"after": 0, "limit": 1000}


@dataclass(frozen=True)
class Ask:
    """How a method is called, without whose and by whom; `{paid}` stands for an id, `{operation}` for each of them."""

    given: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    makes: bool = False
    """Whether it makes something of the caller's own, under the same id: what is told then differs by times."""

    def spelt(self, ids: Ids, name: str) -> tuple[list[Any], dict[str, Any]]:
        names = {**ids.named(), "operation": getattr(ids, name)}

        def filled(value: Any) -> Any:
            match value:
                case str():
                    return value.format(**names)
                case tuple():
                    return [filled(one) for one in value]
                case dict():
                    return {key: filled(one) for key, one in value.items()}
                case _:
                    return value

        return [filled(one) for one in self.given], filled(self.named)


def by_id(*given: Any, **named: Any) -> Ask:
    return Ask(given, named)


def lists(**named: Any) -> Ask:
    return Ask((), named)


def makes(*given: Any, **named: Any) -> Ask:
    return Ask(given, named, makes=True)


QUESTION = {"approval_id": "{approval}", "action_requests": [{"name": "x", "args": {}}], "review_configs": []}
SETTLE = {"expect_version": 1, "verdict": "happened", "value": 1}
METHODS: dict[str, list[Ask]] = {
    "operations.get": [by_id("{operation}")],
    "operations.explain": [by_id("{operation}")],
    "operations.find": [by_id(f"{{{name}}}") for name in NOBODY.named()],
    "operations.list": [lists(), lists(request_id="{request}"), lists(thread_id="{thread}"), lists(effect=pay.name)],
    "operations.counts": [lists()],
    "outbox.get": [by_id("{operation}")],
    "outbox.list": [lists(), lists(state=None), lists(stream="{stream}"), lists(before=10**9)],
    "outbox.pauses": [lists()],
    "outbox.pause": [makes(**WHY), makes(stream="{stream}", **WHY)],
    "outbox.resume": [lists(stream="{stream}")],
    "outbox.requeue": [by_id("{operation}", **WHY), by_id("{parked}", expect_version=1, **WHY)],
    "outbox.skip": [by_id("{operation}", **WHY)],
    "outbox.cancel": [by_id("{operation}", **WHY)],
    "outbox.retry": [by_id("{operation}", **WHY)],
    "review.list": [lists(), lists(state=None, **TWO)],
    "review.show": [by_id("{case}")],
    "review.open": [by_id("{operation}")],
    "review.resolve": [by_id("{case}", **SETTLE)],
    "approvals.list": [lists(), lists(state=None, **TWO)],
    "approvals.show": [by_id("{approval}"), by_id("{decided}")],
    "approvals.request": [makes(letter, request_id="{request}", to="x")],
    "approvals.approve": [by_id("{approval}"), by_id("{decided}")],
    "approvals.reject": [by_id("{approval}", **WHY), by_id("{decided}", **WHY)],
    "approvals.cancel": [by_id("{approval}", **WHY), by_id("{decided}", **WHY)],
    "approvals.edit": [by_id("{approval}", changes={"to": "x"}), by_id("{decided}", changes={"to": "x"})],
    "approvals.answer": [by_id({"decisions": ({"type": "approve"},)}, to=QUESTION)],
    "grants.issue": [makes(pay, **PAY)],
    "grants.list": [lists(), lists(before=10**9)],
    "grants.revoke": [by_id("{grant}", **WHY)],
    "tokens.issue": [makes(name="x", role="viewer")],
    "tokens.list": [lists(), lists(**TWO)],
    "tokens.authenticate": [by_id("cfl_{token}_nonsense"), by_id("{token}")],
    "tokens.rotate": [by_id("{token}")],
    "tokens.revoke": [by_id("{token}")],
    "tenants.create": [by_id("{tenant}")],
    "tenants.suspend": [by_id("{tenant}", **WHY)],
    "tenants.resume": [by_id("{tenant}", **WHY)],
    "audit.list": [lists(**TWO), *(lists(subject=f"{{{name}}}") for name in NOBODY.named()), lists(who=f"{MARK}-bo")],
    "audit.export": [lists()],
    "workflows.start": [makes("waits", {"title": "x"}, workflow_id="{workflow}")],
    "workflows.get": [by_id("{workflow}"), by_id("{done}")],
    "workflows.list": [lists(), lists(graph="waits")],
    "workflows.history": [by_id("{workflow}"), by_id("{done}")],
    "workflows.waits": [by_id("{workflow}"), by_id("{done}")],
    "workflows.result": [by_id("{workflow}"), by_id("{done}")],
    "workflows.plan_resume": [by_id("{workflow}"), by_id("{done}")],
    "workflows.deliver": [makes("paid", workflow_id="{workflow}", event_id="{event}", payload="other")],
    "workflows.cancel": [by_id("{workflow}", **WHY), by_id("{done}", **WHY)],
    "workflows.resume": [by_id("{workflow}", **WHY), by_id("{done}", **WHY)],
    "workflows.delete": [by_id("{workflow}"), by_id("{done}"), by_id("{thread}")],
    "perform": [makes(pay, **PAY)],
    "perform_as": [makes(pay, {"title": "x"}, {"request_id": "{request}"}, Origin(thread_id=f"{MARK}-thread"))],
    "enqueue": [makes(pay, **PAY), makes(pay, delivery=Delivery(stream="s"), request_id="{request}", title="x")],
    "enqueue_all": [makes(pay, ({"title": "x"},), request_id="{request}")],
    "verify": [by_id(looked, request_id="{asker}", title="x")],
    "fork": [by_id("{thread}", branch="b"), by_id("{thread}", "{checkpoint}", branch="b")],
    "purge": [lists()],
    "join": [],
}
"""How each method is asked. Those without an entry in their list have a test of their own below."""
OF_NO_TENANT = {
    "open": "makes a Counterfoil",
    "close": "ends it",
    "compile": "makes a graph, walked by a test of its own",
    "config": "makes a configuration of what it is given",
    "run": "walked with the graph",
    "saver": "walked by a test of its own",
    "drain": "sends what is due, for whoever holds the database",
    "working": "sends what is due, for whoever holds the database",
    "resources.drain": "live objects of this process",
    "resources.get": "live objects of this process",
    "resources.provide": "live objects of this process",
    "retention.payload": "a setting",
    "retention.periods": "a setting",
    "retention.receipt": "a setting",
    "retention.tombstone": "a setting",
    "tenants.list": "names all tenants, for whoever holds the database; with a token, by the command line",
    "workflows.register": "declares a graph in this process",
}
OPERATORS = {
    *("outbox.pauses", "outbox.pause", "outbox.resume", "purge", "tokens.issue", "tokens.list"),
    *("audit.list", "audit.export"),
}
"""Calls that without a tenant are about all tenants, as their documentation says."""
JOINED = ("enqueue", "enqueue_all", "perform")


@pytest.fixture(scope="module", params=SHARED)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two tenants on each database, for all tests of this file."""
    yield from neighbours(request, tmp_path_factory)


@pytest.fixture(autouse=True)
def kept(world: World) -> Iterator[None]:
    """See that what is the tenant's stays as it is."""
    before = world.rows(OURS)
    yield
    assert world.rows(OURS) == before


# --- the tables are whole --------------------------------------------------------------------------------------------


def public(cf: Any) -> Iterator[str]:
    """Name each public method of a Counterfoil, and of what its properties return."""
    for name in dir(type(cf)):
        if name.startswith("_"):
            continue
        if isinstance(inspect.getattr_static(type(cf), name), property):
            yield from (f"{name}.{one}" for one in dir(getattr(cf, name)) if not one.startswith("_"))
        else:
            yield name


@pytest.mark.parametrize("colour", COLOURS)
def test_every_public_method_is_in_a_table(world: World, colour: str) -> None:
    found = set(public(world.colours[colour].cf))
    assert found == METHODS.keys() | OF_NO_TENANT.keys()
    assert not METHODS.keys() & OF_NO_TENANT.keys()
    assert {name for name in dir(Joined) if not name.startswith("_")} == set(JOINED)


# --- the walk --------------------------------------------------------------------------------------------------------

_numbers = count(1)


def newcomer() -> str:
    """Return a tenant that has nothing."""
    return f"caller-{next(_numbers)}"


def parameters(name: str) -> set[str]:
    """Name what a method takes besides the ids."""
    *inside, last = name.split(".")
    found = set(inspect.signature(getattr(FACADES[inside[0]] if inside else Counterfoil, last)).parameters)
    return found - {"tenant"} if inside == ["tenants"] else found


def walks(name: str) -> Iterator[tuple[Ask, str]]:
    """Yield each way in which a method is asked, with the operation that it is about."""
    for ask in METHODS[name]:
        about = [value for value in (*ask.given, *ask.named.values()) if value == "{operation}"]
        yield from ((ask, operation) for operation in (OPERATIONS if about else OPERATIONS[:1]))


def call(world: World, colour: str, name: str, ids: Ids, walked: tuple[Ask, str], **who: Any) -> tuple[Any, ...]:
    """Return what a method tells of these ids."""
    ask, operation = walked
    given, named = ask.spelt(ids, operation)
    if name == "perform_as":
        given[2] = Trusted(**given[2], tenant=who["tenant"] or "")
    named |= {key: value for key, value in who.items() if key in parameters(name)}
    return told(ids, lambda: world.ask(colour, attrgetter(name)(world.colours[colour].cf), *given, **named))


def assert_alike(world: World, colour: str, name: str, **who: Any) -> set[Any]:
    """Ask with the neighbour's ids and with those of nobody: both are told the same. Return the kinds of answers."""
    seen, before = set(), world.rows()
    for walked in walks(name):
        answers, ran = [], []
        for ids in (world.ids, NOBODY):
            asking = {**who, "tenant": ids.tenant} if who["tenant"] is THEIRS else who
            world.ran()
            answers.append(call(world, colour, name, ids, walked, **asking))
            ran.append(world.ran())
        assert ran[0] == ran[1]  # what is as long in coming tells no more than the words
        assert MARK not in str(answers), answers
        kinds = {answer[:2] if answer[0] != "value" else "value" for answer in answers}
        assert len(kinds) == 1, answers
        if kinds != {"value"} or not walked[0].makes:
            assert answers[0] == answers[1]
        seen |= kinds
    if not any(ask.makes for ask in METHODS[name]):
        assert world.rows() == before
    return seen


WITHIN = [name for name in METHODS if "tenant" in parameters(name) or name == "perform_as"]
BY = [name for name in METHODS if "by" in parameters(name)]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", [*WITHIN, "tokens.authenticate"])
def test_within_another_tenant_its_ids_are_unknown(world: World, colour: str, name: str) -> None:
    assert_alike(world, colour, name, tenant=newcomer(), by="eve")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", BY)
def test_a_principal_reaches_nothing_of_another_tenant(world: World, colour: str, name: str) -> None:
    caller = newcomer()
    assert_alike(world, colour, name, tenant=caller, by=admin(caller))
    seen = assert_alike(world, colour, name, tenant=THEIRS, by=admin(newcomer()))
    assert "value" not in seen or name == "workflows.delete"  # which says that there was nothing


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", BY)
def test_under_a_name_that_cannot_be_stored_nothing_is_done(world: World, colour: str, name: str) -> None:
    before = world.rows()
    for walked in walks(name):
        for by in ("eve\0", "e\0ve", "eve\ud800", "\udfffeve"):
            answer = call(world, colour, name, world.ids, walked, tenant=world.ids.tenant, by=by)
            assert answer[:2] == (InvalidId, "invalid-id"), answer
    assert world.rows() == before


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("nobody", ["", None])
@pytest.mark.parametrize("name", [name for name in WITHIN if name not in OPERATORS | {"fork"}])
def test_without_a_tenant_nothing_is_read_or_changed(world: World, colour: str, name: str, nobody: Any) -> None:
    before = world.rows()
    for walked in walks(name):
        answer = call(world, colour, name, world.ids, walked, tenant=nobody, by="eve")
        assert answer[:2] == (TenantMissing, "tenant-missing"), answer
    assert world.rows() == before


@pytest.mark.parametrize("colour", COLOURS)
def test_a_branch_without_a_tenant_is_one_of_nobodys_thread(world: World, colour: str) -> None:
    for nobody in ("", None):
        ((_, code),) = assert_alike(world, colour, "fork", tenant=nobody)
        assert code == "checkpoint-not-found"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_what_is_about_all_tenants_is_for_nobody_who_is_here_for_one(world: World, colour: str, name: str) -> None:
    before = world.rows()
    for walked in walks(name):
        assert call(world, colour, name, world.ids, walked, tenant="", by="eve")[0] != "value"
        if "by" in parameters(name):
            answer = call(world, colour, name, world.ids, walked, tenant=None, by=admin(newcomer()))
            assert answer[0] in {NotAllowed, InvalidArguments}, answer
    assert world.rows() == before


DOUBLED: dict[str, tuple[Any, ...]] = {
    "enqueue_all": ([{"tenant": OURS}],),
    "perform_as": ({"tenant": OURS}, Trusted(tenant="team-B", request_id="r-1"), Origin()),
}


TWICE = {"tenant": "team-B", "request_id": "r-1"}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", DOUBLED)
def test_a_tenant_that_is_named_twice_is_refused(world: World, colour: str, name: str) -> None:
    cf, before = world.colours[colour].cf, world.rows()
    named = {} if name == "perform_as" else TWICE
    for effect, error in ((whose, TrustedFieldMismatch), (pay, CounterfoilError)):
        with pytest.raises(error):
            world.ask(colour, getattr(cf, name), effect, *DOUBLED[name], **named)
    assert world.rows() == before


# --- inside a transaction of the caller's own -------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", JOINED)
def test_a_joined_transaction_is_within_its_tenant(world: World, colour: str, name: str) -> None:
    cf, connection = world.colours[colour].cf, world.connection(colour)
    writes = {"sync": row, "async": arow}[colour]
    given: dict[str, tuple[Any, ...]] = {"enqueue_all": (pay, [{"title": "x"}]), "perform": (writes,)}
    more = {} if name == "enqueue_all" else {"title": "x"}

    def answer(ids: Ids, tenant: Any) -> tuple[Any, ...]:
        method = getattr(cf.join(connection), name)
        named = {"tenant": tenant, "request_id": ids.request, **more}
        return told(ids, lambda: world.ask(colour, method, *given.get(name, (pay,)), **named))

    try:
        world.ask(colour, connection.execute, "begin")
        for ids in (world.ids, NOBODY):
            done = answer(ids, newcomer())
            assert (done[0], MARK in str(done)) == ("value", False)
            assert [answer(ids, nobody)[0] for nobody in ("", None)] == [TenantMissing] * 2
        if name == "enqueue_all":
            with pytest.raises(TrustedFieldMismatch):
                world.ask(colour, cf.join(connection).enqueue_all, whose, [{"tenant": OURS}], **TWICE)
        world.ask(colour, connection.execute, "commit")
    finally:
        world.ask(colour, connection.close)
