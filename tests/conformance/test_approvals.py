"""Nothing is sent without a person's decision for exactly its content, and a decision is made once, whoever asks."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc, signature
from typing import Any

import pytest

from counterfoil import Policy, Principal
from counterfoil.aio.approvals import AsyncApprovals
from counterfoil.approvals import Approvals
from counterfoil.core.proposals import request_shape
from counterfoil.drivers.probes import Point
from counterfoil.errors import (
    ApprovalNotFound,
    ApprovalRejected,
    ApprovalRequired,
    ContradictoryDeclaration,
    DecisionConflict,
    FingerprintMismatch,
    InvalidArguments,
    InvalidId,
    NestedEffect,
    NotAllowed,
    OperationClosed,
    OwnRequest,
    TenantMissing,
    VerdictIncomplete,
)
from tests.conformance.subject import ASYNC, SYNC, Subject
from tests.conformance.test_outbox import EACH
from tests.stores import MEMORY, POSTGRES


@pytest.fixture(params=[MEMORY, POSTGRES])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[SYNC, ASYNC])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Price:
    amount: int


TENANT = {"tenant": "team-a"}
ID = "ticket:r-1"
GATED = Policy()


def decide(subject: Subject, ruling: str, approval_id: str, /, by: Any = "mei", **more: Any) -> Any:
    """Decide, with a reason where one is needed."""
    given = {**TENANT, "by": by, **({"reason": "so"} if ruling in {"reject", "cancel"} else {}), **more}
    return subject.settle(getattr(subject.cf.approvals, ruling)(approval_id, **given))


def request(subject: Subject, made: Any, /, **given: Any) -> Any:
    return subject.settle(subject.cf.approvals.request(made, **{**TENANT, "request_id": "r-1", **given}))


def listed(subject: Subject, **more: Any) -> list[Any]:
    return list(subject.settle(subject.cf.approvals.list(**{**TENANT, **more})).items)


def show(subject: Subject, approval_id: str, **more: Any) -> Any:
    return subject.settle(subject.cf.approvals.show(approval_id, **{**TENANT, **more}))


def asked(subject: Subject, made: Any, /, **given: Any) -> str:
    """Perform what is not approved, and return what was asked instead."""
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(made, **{"title": "a", **given})
    assert caught.value.approval_id is not None
    return caught.value.approval_id


def deeds(subject: Subject) -> list[tuple[str, str, str]]:
    """What the audit trail has of approvals: who did what, and what it came to."""
    return [(row["who"], row["act"], row["state_after"]) for row in subject.rows("audit")]


# --- the gate --------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_somebody_approves_and_then_once(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first, again = asked(subject, create), asked(subject, create)
    assert (first, subject.state, len(subject.sent)) == (again, "awaiting_approval", 0)
    (waiting,) = listed(subject)
    assert (waiting.approval_id, waiting.operation_id, waiting.state) == (first, ID, "pending")
    done = decide(subject, "approve", first)
    assert (done.state, done.decided_by, done.approved) == ("approved", "mei", True)
    assert (subject.state, len(subject.sent), listed(subject)) == ("pending", 0, [])
    receipt = subject.perform(create, title="a")
    assert (receipt.value["id"], receipt.answered_from, receipt.attempt) == (1, "effect", 1)
    assert subject.perform(create, title="a").answered_from == "receipt"
    assert len(subject.sent) == 1
    (spent,) = listed(subject, state=None)
    assert (spent.state, spent.spent_at) == ("approved", subject.clock.now_ms())


def test_the_refusal_names_the_approval_and_the_command(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(create, title="a")
    told = caught.value
    assert f"counterfoil approvals show {told.approval_id} --tenant team-a" in told.message
    assert told.decide_by == subject.clock.now_ms() + 7 * 24 * 3_600_000
    assert told.retry == "after_reconcile"


def test_only_what_the_policy_names_needs_a_decision(subject: Subject) -> None:
    def pay(call: Any, *, amount: int) -> Any:
        subject.sent.tally.accept("pay", call.provider_key, {"amount": amount})
        return amount

    policy = Policy(when=lambda amount: amount > 100)
    paid = subject.effect(pay, approval=policy, key="pay:{request_id}/{amount}")
    assert subject.perform(paid, amount=100).value == 100
    with pytest.raises(ApprovalRequired):
        subject.perform(paid, amount=101)
    assert subject.sent.bodies == [{"amount": 100}]


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_a_policy_that_does_not_say_yes_or_no_is_refused(blocking: Subject, wrong: Any) -> None:
    create = blocking.ticket(approval=Policy(when=lambda **_: wrong))
    with pytest.raises(InvalidArguments, match="when"):
        blocking.perform(create, title="a")
    assert (blocking.rows("operation"), len(blocking.sent)) == ([], 0)


def test_a_policy_that_breaks_sends_nothing(subject: Subject) -> None:
    def breaks(**_: Any) -> bool:
        raise ZeroDivisionError

    create = subject.ticket(approval=Policy(when=breaks))
    with pytest.raises(ZeroDivisionError):
        subject.perform(create, title="a")
    assert (subject.rows("operation"), len(subject.sent)) == ([], 0)


def test_a_policy_performs_nothing(blocking: Subject) -> None:
    inner = blocking.ticket(key="inner:{request_id}")
    create = blocking.ticket(approval=Policy(when=lambda **_: bool(blocking.perform(inner, title="b"))))
    with pytest.raises(NestedEffect, match="the policy of effect"):
        blocking.perform(create, title="a")
    assert len(blocking.sent) == 0


def test_what_is_asked_for_in_advance_is_the_same_question(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = request(subject, create, title="a", principal="bot")
    assert (first.state, first.requested_by, first.operation_id) == ("pending", "bot", ID)
    assert asked(subject, create) == first.approval_id
    assert request(subject, create, title="a").approval_id == first.approval_id
    with pytest.raises(FingerprintMismatch):
        request(subject, create, title="b")
    decide(subject, "approve", first.approval_id)
    assert request(subject, create, title="a").approved
    subject.perform(create, title="a")
    assert request(subject, create, title="a").approved
    assert len(subject.sent) == 1


def test_what_was_asked_about_is_gated_whether_its_effect_says_so_or_not(subject: Subject) -> None:
    create = subject.ticket()
    first = request(subject, create, title="a")
    assert asked(subject, create) == first.approval_id
    decide(subject, "approve", first.approval_id)
    assert subject.perform(create, title="a").answered_from == "effect"
    assert len(subject.sent) == 1


def test_what_was_sent_before_anybody_was_asked_cannot_be_decided_any_more(subject: Subject) -> None:
    create = subject.ticket()
    subject.perform(create, title="a")
    with pytest.raises(DecisionConflict, match="nobody was asked"):
        request(subject, create, title="a")


# --- bound to the content --------------------------------------------------------------------------------------------


def test_what_is_sent_is_what_was_approved_to_the_last_byte(subject: Subject) -> None:
    def mail(call: Any, *, to: str, text: str) -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text})
        return text

    sent = subject.effect(mail, approval=GATED, not_identity=("text",), key="mail:{request_id}")
    asking = {"to": "ann", "text": "first"}
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(sent, **asking)
    assert caught.value.approval_id is not None
    assert show(subject, caught.value.approval_id).arguments == asking
    with pytest.raises(FingerprintMismatch):
        subject.perform(sent, to="bob", text="first")
    with pytest.raises(ApprovalRequired):
        subject.perform(sent, to="ann", text="second")
    decide(subject, "approve", caught.value.approval_id)
    with pytest.raises(FingerprintMismatch):
        subject.perform(sent, to="bob", text="first")
    assert subject.perform(sent, to="ann", text="second").value == "first"
    assert subject.sent.bodies == [asking]


def test_what_the_caller_alters_after_it_asked_is_not_sent(subject: Subject) -> None:
    def mail(call: Any, *, to: list[str]) -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"to": to})
        return len(to)

    def add(point: Point, statement: str) -> None:
        if (point, statement) == (Point.BEFORE_STATEMENT, "take_operation_if_unmoved"):
            to.append("bob")

    sent, to = subject.effect(mail, approval=GATED, key="mail:{request_id}"), ["ann"]
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(sent, to=to)
    assert caught.value.approval_id is not None
    decide(subject, "approve", caught.value.approval_id)
    with subject.probe.during(add):
        assert subject.perform(sent, to=to).value == 1
    assert (subject.sent.bodies, to) == ([{"to": ["ann"]}], ["ann", "bob"])


def test_what_is_sent_without_a_decision_is_what_the_policy_saw(subject: Subject) -> None:
    def mail(call: Any, *, to: list[str], text: str = "hello") -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text})
        return len(to)

    def add(point: Point, statement: str) -> None:
        if point is Point.BEFORE_STATEMENT and statement in {"insert_claimed_operation", "look_or_claim_operation"}:
            to.append("bob")

    sent, to = subject.effect(mail, approval=Policy(when=lambda to, **_: len(to) > 1), key="mail:{request_id}"), ["ann"]
    with subject.probe.during(add):
        assert subject.perform(sent, to=to).value == 1
    assert (subject.sent.bodies, to) == ([{"to": ["ann"], "text": "hello"}], ["ann", "bob"])


def undeclared(call: Any, *, what: Any) -> Any:
    return type(what).__name__


def declared_otherwise(call: Any, *, what: Policy) -> Any:
    return type(what).__name__


@pytest.mark.parametrize("pay", [undeclared, declared_otherwise])
def test_what_is_sent_has_the_callers_own_types_where_others_are_declared(subject: Subject, pay: Any) -> None:
    paid = subject.effect(pay, approval=GATED, key="pay:{request_id}")
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(paid, what=Price(amount=5))
    assert caught.value.approval_id is not None
    decide(subject, "approve", caught.value.approval_id)
    assert subject.perform(paid, what=Price(amount=5)).value == "Price"


def test_a_decision_shows_the_fingerprint_of_all_that_is_sent(subject: Subject) -> None:
    create = subject.ticket(approval=GATED, not_identity=("title",))
    fingerprints = {
        request(subject, create, title=title, request_id=f"r-{title}").fingerprint for title in ("a", "b", "a ")
    }
    assert len(fingerprints) == 3


# --- one decision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ruling", ["approve", "reject", "cancel"])
def test_the_same_decision_again_is_already_applied(subject: Subject, ruling: str) -> None:
    first = asked(subject, subject.ticket(approval=GATED))
    done = decide(subject, ruling, first, by="mei")
    row, audited = subject.operation, deeds(subject)
    for by in ("mei", "ann"):
        again = decide(subject, ruling, first, by=by)
        assert (again.state, again.decided_by, again.decided_at) == (done.state, "mei", done.decided_at)
    assert (subject.operation, deeds(subject)) == (row, audited)
    assert len(audited) == 1


CONTRADICTIONS = [
    (first, second)
    for first in ("approve", "reject", "cancel", "edit")
    for second in ("approve", "reject", "cancel", "edit")
    if (first, second) not in {("approve", "cancel"), ("approve", "edit")} and (first != second or first == "edit")
]


def rule(subject: Subject, ruling: str, approval_id: str, by: str) -> Any:
    more = {"changes": {"title": f"by {by}"}} if ruling == "edit" else {}
    return decide(subject, ruling, approval_id, by=by, **more)


@pytest.mark.parametrize(("first", "second"), CONTRADICTIONS)
def test_a_contradiction_is_a_conflict_that_names_the_winner(blocking: Subject, first: str, second: str) -> None:
    approval_id = asked(blocking, blocking.ticket(approval=GATED))
    rule(blocking, first, approval_id, "mei")
    rows, audited = blocking.rows("approval"), deeds(blocking)
    with pytest.raises(DecisionConflict, match="by mei") as caught:
        rule(blocking, second, approval_id, "ann")
    told = caught.value.facts
    assert (told["decided_by"], told["decided_at"]) == ("mei", blocking.clock.now_ms())
    assert (
        told["state"] == {"approve": "approved", "reject": "rejected", "cancel": "cancelled", "edit": "edited"}[first]
    )
    assert (blocking.rows("approval"), deeds(blocking)) == (rows, audited)


@pytest.mark.parametrize("ruling", ["reject", "cancel"])
def test_what_was_refused_is_never_sent(subject: Subject, ruling: str) -> None:
    create = subject.ticket(approval=GATED)
    decide(subject, ruling, asked(subject, create), reason="not this customer")
    kind = {"reject": ApprovalRejected, "cancel": OperationClosed}[ruling]
    for _ in range(2):
        with pytest.raises(kind, match=r"by mei.*not this customer"):
            subject.perform(create, title="a")
    assert subject.enqueue(create, title="a").state == {"reject": "rejected", "cancel": "cancelled"}[ruling]
    subject.drain(create)
    assert (len(subject.sent), subject.operation["payload"]) == (0, None)
    assert request(subject, create, title="a").state == subject.state


def test_what_was_approved_is_withdrawn_while_nothing_was_sent(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = asked(subject, create)
    decide(subject, "approve", first)
    assert decide(subject, "cancel", first, by="ann").state == "cancelled"
    with pytest.raises(OperationClosed, match="cancelled by ann"):
        subject.perform(create, title="a")
    assert len(subject.sent) == 0


@pytest.mark.parametrize("ruling", ["cancel", "edit", "reject"])
def test_what_was_sent_is_not_withdrawn(blocking: Subject, ruling: str) -> None:
    create = blocking.ticket(approval=GATED)
    first = asked(blocking, create)
    decide(blocking, "approve", first)
    blocking.perform(create, title="a")
    with pytest.raises(DecisionConflict, match="It was sent under that decision"):
        rule(blocking, ruling, first, "ann")
    assert decide(blocking, "approve", first).decided_by == "mei"
    assert (blocking.state, len(blocking.sent)) == ("succeeded", 1)


def test_each_decision_is_noted_with_what_it_was_about(subject: Subject) -> None:
    create = subject.ticket(approval=GATED, key=EACH)
    ids = [asked(subject, create, title=title) for title in "abcd"]
    decide(subject, "approve", ids[0], by="mei")
    decide(subject, "reject", ids[1], by="ann", reason="no")
    decide(subject, "cancel", ids[2], by="bob", reason="late")
    decide(subject, "edit", ids[3], by="eve", changes={"title": "e"})
    noted = sorted(subject.rows("audit"), key=lambda row: row["seq"])
    assert [(row["who"], row["act"], row["subject"]) for row in noted] == [
        ("mei", "approval.approve", ids[0]),
        ("ann", "approval.reject", ids[1]),
        ("bob", "approval.cancel", ids[2]),
        ("eve", "approval.edit", ids[3]),
    ]
    prints = {
        row["seq"]: show(subject, f"approval-{row['seq']}").approval.fingerprint for row in subject.rows("approval")
    }
    for number, row in enumerate(noted):
        assert prints[int(ids[number].removeprefix("approval-"))] in row["state_before"]
    assert prints[max(prints)] in noted[-1]["state_after"]


@pytest.mark.parametrize("misfit", [{"titel": "c"}, {"title": "b"}])
def test_an_answer_of_which_one_does_not_fit_decides_nothing(subject: Subject, misfit: Any) -> None:
    create = subject.ticket(approval=GATED, key=EACH)
    shown = [
        {"approval_id": asked(subject, create, title=title), **request_shape("create_ticket", {"title": title}, "why")}
        for title in ("a", "b")
    ]
    answer = [{"type": "approve"}, {"type": "edit", "edited_action": {"name": "create_ticket", "args": misfit}}]
    with pytest.raises(InvalidArguments):
        subject.settle(subject.cf.approvals.answer(answer, to=shown, tenant="team-a", by="mei"))
    assert [each.state for each in listed(subject, state=None)] == ["pending", "pending"]
    assert deeds(subject) == []


LANGCHAIN, INBOX = "action_requests", "action_request"


@pytest.mark.parametrize("altered", ["operation_id", "effect", "fingerprint", "action", LANGCHAIN, INBOX, "nothing"])
@pytest.mark.parametrize("decision", ["approve", "reject", "accept", "edit"])
def test_nobody_decides_about_what_he_was_not_shown(subject: Subject, decision: str, altered: str) -> None:
    create = subject.ticket(approval=GATED, key=EACH)
    first, second = (show(subject, asked(subject, create, title=title)).approval for title in ("a", "b"))

    def question(approval: Any, title: str) -> Any:
        marks = {name: getattr(approval, name) for name in ("approval_id", "operation_id", "effect", "fingerprint")}
        return {**marks, **request_shape("create_ticket", {"title": title}, "why")}

    shown = question(second, "b")
    match altered:
        case "action":
            shown |= request_shape("look_at_ticket", {"title": "b"}, "why")
        case "nothing":
            shown = {"approval_id": second.approval_id}
        case "operation_id" | "effect" | "fingerprint":
            shown[altered] = "something else"
        case _:
            shown[altered] = question(first, "a")[altered]
    edited = {"edited_action": {"name": shown.get(INBOX, {}).get("action"), "args": {"title": "c"}}}
    answer = [{"type": "approve"}, {"type": decision, **(edited if decision == "edit" else {})}]
    who = {"tenant": "team-a", "by": "mei"}
    with pytest.raises(InvalidArguments, match="othing was decided"):
        subject.settle(subject.cf.approvals.answer(answer, to=[question(first, "a"), shown], **who))
    assert [each.state for each in listed(subject, state=None)] == ["pending", "pending"]
    assert deeds(subject) == []
    answer = [{"type": "approve"}] * 2
    subject.settle(subject.cf.approvals.answer(answer, to=[question(first, "a"), question(second, "b")], **who))
    assert [each.state for each in listed(subject, state=None)] == ["approved", "approved"]


# --- who decides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["ann", " Ann ", "ANN", "\uff41nn", "a\u200bnn", "ann\ufe0f", "an\u3164n", "\x01ann"])
@pytest.mark.parametrize("ruling", ["approve", "reject", "edit"])
def test_whoever_asked_cannot_decide(blocking: Subject, ruling: str, who: str) -> None:
    first = request(blocking, blocking.ticket(approval=GATED), title="a", principal="Ann").approval_id
    for by in (who, Principal(tenant="team-a", name=who, role="admin")):  # type: ignore[arg-type]
        with pytest.raises(OwnRequest):
            rule(blocking, ruling, first, by)  # type: ignore[arg-type]
    assert (blocking.state, deeds(blocking)) == ("awaiting_approval", [])
    assert rule(blocking, ruling, first, "mei").state in {"approved", "rejected", "pending"}


def test_whoever_asked_may_withdraw_it(subject: Subject) -> None:
    first = request(subject, subject.ticket(approval=GATED), title="a", principal="ann").approval_id
    assert decide(subject, "cancel", first, by="Ann").state == "cancelled"


def test_whoever_asked_learns_nothing_of_a_decision_by_trying(subject: Subject) -> None:
    first = request(subject, subject.ticket(approval=GATED), title="a", principal="ann").approval_id
    decide(subject, "approve", first)
    with pytest.raises(OwnRequest) as caught:
        decide(subject, "approve", first, by="ann")
    assert "mei" not in caught.value.message


def test_a_requester_whom_nobody_can_name_does_not_keep_others_from_deciding(subject: Subject) -> None:
    first = request(subject, subject.ticket(approval=GATED), title="a", principal="\u200b").approval_id
    assert decide(subject, "approve", first).approved


@pytest.mark.parametrize("ruling", ["approve", "reject", "cancel", "edit"])
def test_a_role_must_permit_it(blocking: Subject, ruling: str) -> None:
    first = asked(blocking, blocking.ticket(approval=GATED))
    viewer = Principal(tenant="team-a", name="vic", role="viewer")  # type: ignore[arg-type]
    stranger = Principal(tenant="team-b", name="sam", role="admin")  # type: ignore[arg-type]
    with pytest.raises(NotAllowed, match="vic is viewer"):
        rule(blocking, ruling, first, viewer)  # type: ignore[arg-type]
    with pytest.raises(ApprovalNotFound) as known:
        rule(blocking, ruling, first, stranger)  # type: ignore[arg-type]
    with pytest.raises(ApprovalNotFound) as unknown:
        rule(blocking, ruling, "approval-999", stranger)  # type: ignore[arg-type]
    assert known.value.message == unknown.value.message.replace("approval-999", first)
    assert (blocking.state, deeds(blocking)) == ("awaiting_approval", [])
    reviewer = Principal(tenant=None, name="rae", role="reviewer")  # type: ignore[arg-type]
    rule(blocking, ruling, first, reviewer)  # type: ignore[arg-type]
    (row,) = blocking.rows("audit")
    assert (row["who"], row["role"]) == ("rae", "reviewer")


@pytest.mark.parametrize("method", ["show", "approve", "reject", "cancel", "edit"])
def test_another_tenants_approval_looks_like_an_unknown_one(blocking: Subject, method: str) -> None:
    first = asked(blocking, blocking.ticket(approval=GATED))
    more = {"show": {}, "edit": {"by": "mei", "changes": {"title": "b"}}}.get(method, {"by": "mei", "reason": "so"})
    words = []
    for approval_id in (first, "approval-999", "approval-0", "approval-99999999999999999999", "case-1", "x"):
        with pytest.raises(ApprovalNotFound) as caught:
            blocking.settle(getattr(blocking.cf.approvals, method)(approval_id, tenant="team-b", **more))
        words.append(caught.value.message.replace(approval_id, "..."))
    assert len(set(words)) == 1
    assert listed(blocking, tenant="team-b", state=None) == []
    assert (blocking.state, deeds(blocking)) == ("awaiting_approval", [])


def test_wrong_types_are_refused_before_anything_is_done(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = asked(subject, create)
    wrong: list[tuple[Callable[[], Any], type[BaseException]]] = [
        (lambda: decide(subject, "approve", 7), InvalidArguments),  # type: ignore[arg-type]
        (lambda: decide(subject, "approve", first, by=7), InvalidArguments),
        (lambda: decide(subject, "approve", first, by=" "), InvalidId),
        (lambda: decide(subject, "approve", first, tenant=""), TenantMissing),
        (lambda: decide(subject, "approve", first, reason=None), InvalidArguments),
        (lambda: decide(subject, "reject", first, reason=" "), VerdictIncomplete),
        (lambda: decide(subject, "cancel", first, reason=""), VerdictIncomplete),
        (lambda: decide(subject, "edit", first, changes=None), InvalidArguments),
        (lambda: decide(subject, "edit", first, changes={}), InvalidArguments),
        (lambda: decide(subject, "edit", first, changes={"title": "a"}), InvalidArguments),
        (lambda: decide(subject, "edit", first, changes={"titel": "b"}), InvalidArguments),
        (lambda: listed(subject, state="open"), InvalidArguments),
        (lambda: listed(subject, limit=0), InvalidArguments),
        (lambda: listed(subject, after="1"), InvalidArguments),
        (lambda: request(subject, lambda: None, title="a"), InvalidArguments),
        (lambda: request(subject, create, tenant="", title="a"), TenantMissing),
    ]
    for number, (call, error) in enumerate(wrong):
        with pytest.raises(error):
            print(number, call())  # noqa: T201 - says which one was not refused
    assert (subject.state, deeds(subject)) == ("awaiting_approval", [])


@pytest.mark.parametrize("ruling", ["approve", "reject", "cancel", "edit"])
def test_a_credential_in_a_reason_is_not_stored(blocking: Subject, ruling: str) -> None:
    secret = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
    first = asked(blocking, blocking.ticket(approval=GATED))
    more = {"changes": {"title": "b"}} if ruling == "edit" else {}
    decide(blocking, ruling, first, reason=f"the key was {secret}", **more)
    assert secret not in repr([blocking.rows("approval"), blocking.rows("audit"), blocking.rows("operation")])


def test_policies_that_say_nothing_sensible_are_refused() -> None:
    for wrong in ({"decide_within": "0s"}, {"valid_for": "0s"}, {"when": "amount > 100"}, {"edits_need_another": 1}):
        with pytest.raises(ContradictoryDeclaration):
            Policy(**wrong)
    with pytest.raises(Exception, match="decide_within"):
        Policy(decide_within=5)  # type: ignore[arg-type]


# --- pages -----------------------------------------------------------------------------------------------------------


def test_approvals_are_listed_by_pages_the_oldest_first(subject: Subject) -> None:
    create = subject.ticket(approval=GATED, key=EACH)
    ids = [request(subject, create, title=str(number)).approval_id for number in range(5)]
    decide(subject, "approve", ids[2])
    page = subject.settle(subject.cf.approvals.list(**TENANT, limit=2))
    assert [one.approval_id for one in page.items] == ids[:2]
    assert [one.approval_id for one in listed(subject, after=page.next)] == ids[3:]
    last = subject.settle(subject.cf.approvals.list(**TENANT, after=page.next, limit=2))
    assert (len(last.items), last.next) == (2, None)
    assert [one.approval_id for one in listed(subject, state="approved")] == [ids[2]]
    assert [one.approval_id for one in listed(subject, state=None)] == ids


def test_both_colours_have_the_same_methods() -> None:
    names = {name for name in vars(Approvals) if not name.startswith("_")}
    assert names == {name for name in vars(AsyncApprovals) if not name.startswith("_")}
    for name in names:
        mine, theirs = getattr(Approvals, name), getattr(AsyncApprovals, name)
        assert str(signature(mine)) == str(signature(theirs)), name
        assert (getdoc(mine) or "").split("\n")[0] == (getdoc(theirs) or "").split("\n")[0], name
