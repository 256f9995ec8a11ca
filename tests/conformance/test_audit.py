"""The audit trail: what people do is noted with who and why, in the transaction that does it, and stays as it is."""

import json
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from counterfoil import Delivery, Policy, Principal
from counterfoil.access import system_user
from counterfoil.core import audit as words
from counterfoil.core.access import Act, Actor, Role
from counterfoil.core.audit import Deed, Kind
from counterfoil.errors import (
    ConstraintViolated,
    CounterfoilError,
    InvalidArguments,
    InvalidId,
    NotAllowed,
    OutcomeUnknown,
    RightsMissing,
    TenantMissing,
    VerdictConflict,
    WorkflowHindered,
)
from counterfoil.storage.script import Ddl, Script
from counterfoil.storage.scripts import audit
from counterfoil.storage.tenants import ALL_TENANTS
from tests.conformance.flows import chain
from tests.conformance.subject import SYNC, Subject
from tests.conformance.test_outbox import lose, not_sent
from tests.stores import MEMORY, POSTGRES, on_each

MEI = Actor(who="mei", shown="Mei", role=Role.OPERATOR, token_id="k-1")
INTENT = words.Subject(Kind.OPERATION, "o-1")


@pytest.fixture(params=(MEMORY, POSTGRES))
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=("sync", "async"))
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def note(subject: Subject, actor: Actor = MEI, **more: Any) -> None:
    given = {"tenant": "team-a", "reason": "it works again", **more}
    whose = given["tenant"] or ALL_TENANTS
    subject.settle(subject.write(lambda: audit.note(actor, Deed.REQUEUE, INTENT, **given), tenant=whose))


def test_an_entry_says_who_did_what_to_what_and_why(subject: Subject) -> None:
    note(subject, before="parked", after="pending", request_id="r-1")
    (row,) = subject.rows("audit")
    assert dict(row) == {
        "seq": 1, "tenant": "team-a", "at": subject.clock.now_ms(), "who": "mei", "shown": "Mei", "role": "operator",
        "token_id": "k-1", "act": "requeue", "kind": "operation", "subject": "o-1", "state_before": "parked",
        "state_after": "pending", "reason": "it works again", "request_id": "r-1", "operation_id": None,
    }  # fmt: skip


def test_a_credential_in_a_reason_is_not_kept(subject: Subject) -> None:
    note(subject, reason="the key was AKIA" + "IOSFODNN7EXAMPLE")
    assert [row["reason"] for row in subject.rows("audit")] == ["the key was [redacted]"]


@pytest.mark.parametrize("statement", ["update counterfoil_audit set who = 'bo'", "delete from counterfoil_audit"])
def test_the_database_itself_refuses_to_change_or_remove_an_entry(subject: Subject, statement: str) -> None:
    def by_hand() -> Script[Any]:
        return (yield Ddl(statement))

    note(subject)
    with pytest.raises((ConstraintViolated, RightsMissing)):  # roles that were granted less are refused before
        subject.settle(subject.write(by_hand))
    assert [row["who"] for row in subject.rows("audit")] == ["mei"]


def test_no_entry_is_put_in_the_place_of_another(subject: Subject) -> None:
    columns = "seq, tenant, at, who, shown, act, kind, subject, reason"
    says = "insert or replace" if subject.url.startswith("sqlite") else "insert"
    ends = "" if subject.url.startswith("sqlite") else " on conflict (tenant, seq) do update set who = 'bo'"

    def by_hand() -> Script[Any]:
        values = "select seq, tenant, at, 'bo', shown, act, kind, subject, reason from counterfoil_audit"
        forced = "" if subject.url.startswith("sqlite") else " overriding system value"
        return (yield Ddl(f"{says} into counterfoil_audit ({columns}){forced} {values}{ends}"))

    note(subject)
    with pytest.raises((ConstraintViolated, RightsMissing)):
        subject.settle(subject.write(by_hand))
    assert [row["who"] for row in subject.rows("audit")] == ["mei"]


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["approve", "reject", "edit", "cancel", "grant"])
def test_what_is_done_about_an_operation_is_found_by_its_id(subject: Subject, deed: str) -> None:
    create = subject.ticket(approval=Policy())
    given = {"tenant": TENANT, "request_id": "r-1", "title": "a"}
    if deed == "grant":
        subject.settle(subject.cf.grants.issue(create, by="ops", **given))
        itself = "grant-1"
    else:
        asked = subject.settle(subject.cf.approvals.request(create, **given))
        itself = asked.approval_id
        more = {"changes": {"title": "b"}} if deed == "edit" else {}
        call(subject, f"approvals.{deed}", itself, tenant=TENANT, by="ops", reason="so", **more)
    note(subject)
    for wanted in (ID, itself):
        page = subject.settle(subject.cf.audit.list(tenant=TENANT, subject=wanted))
        (entry,) = page.items
        assert (entry.subject, entry.operation_id, entry.request_id) == (itself, ID, "r-1")
        (same,) = subject.settle(subject.cf.audit.list(tenant=TENANT, subject=wanted, who="ops")).items
        assert same == entry
        assert subject.settle(subject.cf.audit.list(tenant=TENANT, subject=wanted, who="mei")).items == ()
        assert subject.settle(subject.cf.audit.list(tenant=TENANT, subject=wanted, after=entry.seq)).items == ()


# --- what is noted ---------------------------------------------------------------------------------------------------

TENANT, ID = "team-a", "ticket:r-1"
OPERATOR = Principal(tenant=TENANT, name=" Mei ", role=Role.OPERATOR, token_id="k-1")
SAID = {"reason": "it works again"}
FLOW = "w-1"


def call(subject: Subject, name: str, /, *given: Any, **more: Any) -> Any:
    return subject.settle(attrgetter(name)(subject.cf)(*given, **more))


def noted(subject: Subject) -> list[tuple[Any, ...]]:
    names = ("act", "kind", "subject", "state_before", "state_after", "request_id")
    rows = sorted(subject.rows("audit"), key=lambda row: int(row["seq"]))
    for row in rows:
        assert (row["who"], row["shown"], row["role"], row["token_id"]) == ("mei", "Mei", "operator", "k-1")
    return [tuple(row[name] for name in names) for row in rows]


def parked(subject: Subject) -> None:
    create = subject.ticket(not_sent)
    subject.enqueue(create, title="a", delivery=Delivery(max_attempts=1))
    subject.drain(create)


def waiting(subject: Subject) -> None:
    create = subject.ticket(not_sent)
    subject.enqueue(create, title="a")
    subject.drain(create)


def lost(subject: Subject) -> None:
    with pytest.raises(OutcomeUnknown):
        subject.perform(subject.ticket(lose), title="a")


def nothing(subject: Subject) -> None:
    """Everything that the act is about has to be made by itself."""


def paused(subject: Subject) -> None:
    call(subject, "outbox.pause", tenant=TENANT, effect="e", stream="s", by=OPERATOR, reason="why")


def workflow(subject: Subject) -> None:
    subject.cf.workflows.register(chain(a=lambda state: {}), name="flow")
    call(subject, "workflows.start", "flow", {"number": 1}, tenant=TENANT, workflow_id=FLOW, request_id="r-1")


def failed(subject: Subject) -> None:
    def fails(state: Any) -> Any:
        raise InvalidArguments("there is no number")

    subject.cf.workflows.register(chain(a=fails), name="flow")
    call(subject, "workflows.start", "flow", {"number": 1}, tenant=TENANT, workflow_id=FLOW, request_id="r-1")
    subject.drain()


VERDICT = {"verdict": "happened", "value": {"id": 7}, "expect_version": 1}
NAMED = {"effect": "e", "stream": "s"}
HELD = ("pause", "effect e, stream s")
Deeds = list[tuple[Any, ...]]
DONE: dict[str, tuple[Callable[[Subject], None], tuple[Any, ...], dict[str, Any], Deeds]] = {
    "outbox.requeue": (parked, (ID,), SAID, [("requeue", "operation", ID, "parked", "pending", "r-1")]),
    "outbox.skip": (parked, (ID,), SAID, [("skip", "operation", ID, "parked", "failed", "r-1")]),
    "outbox.cancel": (waiting, (ID,), SAID, [("cancel", "operation", ID, "pending", "cancelled", "r-1")]),
    "outbox.retry": (waiting, (ID,), SAID, [("retry", "operation", ID, "pending", "pending", "r-1")]),
    "review.resolve": (
        lost, ("case-1",), {**SAID, **VERDICT}, [("verdict", "operation", ID, "unknown", "happened, succeeded", "r-1")]
    ),
    "outbox.pause": (nothing, (), {**SAID, **NAMED}, [("pause", *HELD, None, "paused", None)]),
    "outbox.resume": (
        paused, (), {**SAID, **NAMED},
        [("pause", *HELD, None, "paused", None), ("resume", *HELD, "paused", None, None)],
    ),
    "workflows.cancel": (
        workflow, (FLOW,), SAID, [("workflow.cancel", "workflow", FLOW, "accepted", "cancelled", "r-1")]
    ),
    "workflows.resume": (failed, (FLOW,), SAID, [("workflow.resume", "workflow", FLOW, "failed", "waiting", "r-1")]),
    "workflows.delete": (workflow, (FLOW,), SAID, [("workflow.delete", "workflow", FLOW, "accepted", None, "r-1")]),
}  # fmt: skip


@pytest.mark.parametrize("name", DONE)
def test_what_a_principal_does_is_noted(subject: Subject, name: str) -> None:
    prepare, given, more, expected = DONE[name]
    prepare(subject)
    call(subject, name, *given, tenant=TENANT, by=OPERATOR, **more)
    assert noted(subject) == expected
    assert subject.rows("audit")[-1]["reason"] == SAID["reason"]


NARROWED = {"role": Role.ADMIN, "scopes": {Act.READ, Act.DECIDE}}


@on_each(MEMORY)
@pytest.mark.parametrize("name", DONE)
@pytest.mark.parametrize("role", [{"role": Role.VIEWER}, NARROWED], ids=("viewer", "narrowed"))
def test_who_may_not_do_it_changes_and_notes_nothing(subject: Subject, name: str, role: dict[str, Any]) -> None:
    prepare, given, more, _ = DONE[name]
    prepare(subject)
    before = everything(subject)
    with pytest.raises(NotAllowed, match=r"^Mei is .*does not permit to (operate|verdict)\. Nothing") as caught:
        call(subject, name, *given, tenant=TENANT, by=replace(OPERATOR, **role), **more)
    assert caught.value.act in {Act.OPERATE, Act.VERDICT}
    assert everything(subject) == before


def everything(subject: Subject) -> list[Any]:
    return [subject.rows(table) for table in ("operation", "case", "evidence", "pause", "thread", "workflow", "audit")]


def answer(subject: Subject, name: str, given: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """Return what a call returns, or the class, code, text and facts of what it raises."""
    try:
        return call(subject, name, *given, **more)
    except CounterfoilError as error:
        return type(error), str(error), {key: value for key, value in error.facts.items() if value is not None}


@on_each(MEMORY)
@pytest.mark.parametrize("name", DONE)
@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
def test_to_another_tenants_principal_it_looks_like_nothing(subject: Subject, name: str, role: Role) -> None:
    prepare, given, more, _ = DONE[name]
    prepare(subject)
    before = everything(subject)
    stranger = replace(OPERATOR, tenant="team-b", role=role)
    told = answer(subject, name, given, {"tenant": TENANT, "by": stranger, **more})
    unknown = "team-z"
    if name == "outbox.pause":  # one who acts for all tenants may pause any
        assert told == answer(subject, name, given, {"tenant": TENANT, "by": replace(stranger, tenant="c"), **more})
    else:
        nobody = answer(subject, name, given, {"tenant": unknown, "by": replace(OPERATOR, tenant=None), **more})
        assert repr(told).replace(TENANT, "...") == repr(nobody).replace(unknown, "...")
    assert everything(subject) == before


@on_each(MEMORY)
@pytest.mark.parametrize("name", ["outbox.pause", "outbox.resume"])
def test_what_is_about_all_tenants_is_for_who_is_here_for_all(subject: Subject, name: str) -> None:
    with pytest.raises(NotAllowed, match="is here for tenant team-a alone, and this is about all tenants"):
        call(subject, name, effect="e", by=OPERATOR, reason="why")
    for does in ("outbox.pause", "outbox.resume"):
        call(subject, does, effect="e", by=replace(OPERATOR, tenant=None), reason="why")
    assert [row["tenant"] for row in subject.rows("audit")] == ["", ""]


@on_each(MEMORY)
def test_a_name_is_noted_without_a_role_and_the_system_user_where_nobody_is_named(subject: Subject) -> None:
    call(subject, "outbox.pause", effect="e", by=" Ann ", reason="why")
    call(subject, "outbox.resume", effect="e")
    first, second = subject.rows("audit")
    assert (first["who"], first["shown"], first["role"], first["token_id"]) == ("ann", "Ann", None, None)
    assert second["shown"] == system_user()


@on_each(MEMORY)
@pytest.mark.parametrize("name", ["outbox.requeue", "workflows.cancel", "workflows.delete"])
def test_what_was_not_done_is_not_noted(subject: Subject, name: str) -> None:
    prepare, given, more, _ = DONE[name]
    prepare(subject)
    moved = {"expect_version": 99, **more}
    with pytest.raises((VerdictConflict, WorkflowHindered)):
        call(subject, name, *given, tenant=TENANT, by=OPERATOR, **moved)
    assert subject.rows("audit") == []


def test_what_is_done_twice_is_noted_once(subject: Subject) -> None:
    workflow(subject)
    for _ in range(2):
        call(subject, "workflows.cancel", FLOW, tenant=TENANT, by=OPERATOR, **SAID)
    for _ in range(2):
        call(subject, "workflows.delete", FLOW, tenant=TENANT, by=OPERATOR)
    assert [deed[0] for deed in noted(subject)] == ["workflow.cancel", "workflow.delete"]


# --- read ------------------------------------------------------------------------------------------------------------


def export(subject: Subject, tenant: str | None) -> list[dict[str, Any]]:
    async def collected() -> list[str]:
        return [line async for line in subject.cf.audit.export(tenant)]

    lines = subject.cf.audit.export(tenant) if subject.colour == SYNC else subject.settle(collected())
    return [json.loads(line) for line in lines]


def test_entries_are_listed_by_pages_by_whom_and_about_what(subject: Subject) -> None:
    bo = Actor(who="bo", shown="Bo")
    for number in range(3):
        note(subject, reason=f"{number}")
    note(subject, bo)
    note(subject, bo, tenant="team-b")
    note(subject, tenant="")

    def listed(**more: Any) -> list[tuple[str | None, str, str]]:
        page = call(subject, "audit.list", **{"tenant": TENANT, **more})
        return [(each.tenant, each.who, each.reason) for each in page.items]

    first = call(subject, "audit.list", tenant=TENANT, limit=2)
    assert [each.reason for each in first.items] == ["0", "1"]
    assert listed(after=first.next) == [(TENANT, "mei", "2"), (TENANT, "bo", SAID["reason"])]
    assert listed(who=" BO ") == listed(who="Bo", subject="o-1") == [(TENANT, "bo", SAID["reason"])]
    assert len(listed(subject="o-1")) == 4
    assert listed(subject="o-2") == listed(who="ann") == listed(tenant="team-c") == []
    assert [entry[0] for entry in listed(tenant=None)] == [TENANT] * 4 + ["team-b", None]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"after": -1}, {"subject": ""}, {"who": ""}):
        with pytest.raises((InvalidArguments, InvalidId)):
            listed(**wrong)
    with pytest.raises(TenantMissing):
        listed(tenant="")


@on_each(MEMORY)
def test_all_entries_are_exported_as_lines(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("counterfoil.audit", "counterfoil.aio.audit"):
        monkeypatch.setattr(f"{room}.EXPORT_PAGE", 2)
    for number in range(5):
        note(subject, reason=f"{number} 票", before="parked", after="pending", request_id="r-1")
    note(subject, tenant="team-b")
    lines = export(subject, TENANT)
    assert [each["reason"][0] for each in lines] == ["0", "1", "2", "3", "4"]
    assert lines[0] == {
        "seq": 1, "tenant": TENANT, "at": subject.clock.now_ms(), "who": "mei", "shown": "Mei", "role": "operator",
        "token_id": "k-1", "act": "requeue", "kind": "operation", "subject": "o-1", "before": "parked",
        "after": "pending", "reason": "0 票", "request_id": "r-1", "operation_id": "o-1",
    }  # fmt: skip
    assert len(export(subject, None)) == 6
