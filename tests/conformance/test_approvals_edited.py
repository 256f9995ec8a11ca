"""A person writes other arguments: the first operation is closed, another follows it, and is asked about anew."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from counterfoil import Policy, effect
from counterfoil.effects import REGISTRY
from counterfoil.errors import (
    ApprovalRejected,
    ApprovalRequired,
    DecisionConflict,
    EffectVersionMissing,
    FingerprintMismatch,
    InvalidArguments,
    OwnRequest,
)
from counterfoil.model import Origin, Trusted
from tests.conformance.subject import Subject
from tests.conformance.test_approvals import GATED, ID, TENANT, asked, colour, decide, listed, request, show, store
from tests.conformance.test_outbox import MINUTE, pass_by

__all__ = ["colour", "store"]


def by_step(subject: Subject, made: Any, step: str, /, **given: Any) -> Any:
    """Perform as the step of a graph does."""
    trusted = Trusted(tenant="team-a", request_id="r-1", branch=given.pop("branch", None))
    return subject.settle(subject.cf.perform_as(made, {"title": "a", **given}, trusted, Origin(task_id=step)))


def asked_by(subject: Subject, made: Any, step: str, /, **given: Any) -> str:
    with pytest.raises(ApprovalRequired) as caught:
        by_step(subject, made, step, **given)
    return str(caught.value.approval_id)


def edit(subject: Subject, approval_id: str, title: str, by: str = "mei", **more: Any) -> Any:
    return decide(subject, "edit", approval_id, by=by, changes={"title": title}, **more)


def test_an_edit_closes_the_first_and_asks_about_another_one(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = asked(subject, create)
    follower = edit(subject, first, "b", reason="the other one")
    assert (follower.operation_id, follower.state, follower.follows) == (f"{ID}~edit-1", "pending", ID)
    assert (follower.edited_by, show(subject, follower.approval_id).arguments) == ("mei", {"title": "b"})
    closed = show(subject, first)
    assert (closed.approval.state, closed.approval.followed_by) == ("edited", f"{ID}~edit-1")
    assert closed.operation.state == "cancelled"
    assert closed.approval.fingerprint != follower.fingerprint
    assert asked(subject, create) == follower.approval_id  # whoever performs the first is led to the second
    decide(subject, "approve", follower.approval_id)
    receipt = subject.perform(create, title="a")
    assert (receipt.operation_id, receipt.value["title"]) == (f"{ID}~edit-1", "b")
    assert subject.perform(create, title="a").answered_from == "receipt"
    assert subject.sent.bodies == [{"title": "b"}]
    assert len(set(subject.sent.keys)) == 1


def test_an_argument_of_the_business_that_is_called_thread_id_needs_not_be_an_id(subject: Subject) -> None:
    @effect("edited.forum-post", key="{request_id}/post", approval=Policy(when=lambda **_: True))
    def post(call: Any, *, thread_id: int, title: str) -> str:
        return f"{thread_id}: {title}"

    with pytest.raises(ApprovalRequired) as caught:
        subject.settle(subject.cf.perform(post, **TENANT, request_id="r-1", thread_id=7, title="a"))
    follower = edit(subject, str(caught.value.approval_id), "b")
    assert show(subject, follower.approval_id).arguments == {"thread_id": 7, "title": "b"}


@pytest.mark.parametrize("state", ["succeeded", "pending", "rejected"])
def test_an_edit_does_not_ask_for_what_is_there_already(subject: Subject, state: str) -> None:
    create = subject.ticket(approval=Policy(when=lambda title: title != "small"), key="{request_id}/{title}")
    there = "small" if state != "rejected" else "no"
    match state:
        case "succeeded":
            subject.perform(create, title=there)
        case "pending":
            subject.enqueue(create, title=there)
        case _:
            decide(subject, "reject", asked(subject, create, title=there))
    first, sent = asked(subject, create, title="large"), len(subject.sent)
    with pytest.raises(DecisionConflict, match=rf"there already, as operation r-1/{there} \({state}\)"):
        edit(subject, first, there)
    assert show(subject, first).approval.state == "pending"
    follower = edit(subject, first, "other")
    assert follower.operation_id == "r-1/large~edit-1"
    assert edit(subject, follower.approval_id, "large", by="ann").operation_id == "r-1/large~edit-2"
    assert len(subject.sent) == sent


def test_what_a_person_wrote_is_not_what_somebody_else_may_ask_for(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    edit(subject, asked(subject, create), "b")
    for title in ("b", "c"):
        with pytest.raises(FingerprintMismatch):
            subject.perform(create, title=title)


def test_an_edited_one_is_edited_again(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    second = edit(subject, asked(subject, create), "b")
    third = edit(subject, second.approval_id, "c", by="ann")
    assert (third.operation_id, third.follows) == (f"{ID}~edit-2", f"{ID}~edit-1")
    assert asked(subject, create) == third.approval_id
    decide(subject, "approve", third.approval_id, by="bob")
    assert subject.perform(create, title="a").value["title"] == "c"
    others = show(subject, third.approval_id).others
    assert [(other.operation_id, other.state) for other in others] == [(ID, "cancelled"), (f"{ID}~edit-1", "cancelled")]
    assert subject.sent.bodies == [{"title": "c"}]


def test_a_rejected_edit_rejects_the_first(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    follower = edit(subject, asked(subject, create), "b")
    decide(subject, "reject", follower.approval_id, by="ann", reason="neither")
    with pytest.raises(ApprovalRejected, match=r"by ann.*neither"):
        subject.perform(create, title="a")
    assert len(subject.sent) == 0


def test_what_was_approved_and_not_sent_is_edited(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = asked(subject, create)
    decide(subject, "approve", first)
    follower = edit(subject, first, "b", by="ann")
    assert asked(subject, create) == follower.approval_id
    with pytest.raises(DecisionConflict, match=r"edited.*by ann.*~edit-1 follows it"):
        decide(subject, "approve", first)
    assert len(subject.sent) == 0


def test_whoever_edits_may_approve_it_unless_the_policy_says_otherwise(subject: Subject) -> None:
    strict = subject.ticket(approval=Policy(edits_need_another=True))
    follower = edit(subject, request(subject, strict, title="a", principal="bot").approval_id, "b")
    for by in ("mei", " MEI", "bot"):
        with pytest.raises(OwnRequest):
            decide(subject, "approve", follower.approval_id, by=by)
    assert decide(subject, "approve", follower.approval_id, by="ann").approved
    lax = subject.ticket(approval=GATED)
    follower = edit(subject, request(subject, lax, request_id="r-2", title="a", principal="bot").approval_id, "b")
    with pytest.raises(OwnRequest):
        decide(subject, "approve", follower.approval_id, by="bot")
    assert decide(subject, "approve", follower.approval_id).approved


def test_nobody_who_edited_what_led_to_it_approves_it_where_another_is_needed(subject: Subject) -> None:
    strict = subject.ticket(approval=Policy(edits_need_another=True))
    first = edit(subject, request(subject, strict, title="a", principal="bot").approval_id, "b", by="Mei")
    second = edit(subject, first.approval_id, "c", by="zoe")
    third = edit(subject, second.approval_id, "d", by="eve")
    for by in ("mei", " MEI", "me\u200bi", "zoe", "Zoe", "eve", "bot"):
        with pytest.raises(OwnRequest):
            decide(subject, "approve", third.approval_id, by=by)
    fourth = edit(subject, third.approval_id, "e", by="mei")  # to write again permits nothing
    assert decide(subject, "reject", fourth.approval_id, by="zoe").state == "rejected"


def test_who_edited_for_another_asker_may_approve_what_is_asked_anew(subject: Subject) -> None:
    strict = subject.ticket(approval=Policy(edits_need_another=True))
    edit(subject, asked_by(subject, strict, "one"), "b", by="mei")
    again = asked_by(subject, strict, "two")
    assert show(subject, again).arguments == {"title": "a"}  # nothing of it is mei's
    assert decide(subject, "approve", again, by="mei").approved
    follower = edit(subject, again, "c", by="zoe")
    with pytest.raises(OwnRequest):
        decide(subject, "approve", follower.approval_id, by="zoe")
    assert decide(subject, "approve", follower.approval_id, by="mei").approved


def test_who_edited_is_kept_in_mind_when_it_is_asked_about_again(subject: Subject) -> None:
    strict = subject.ticket(approval=Policy(edits_need_another=True, valid_for="10m"))
    first = edit(subject, asked(subject, strict), "b", by="mei")
    second = edit(subject, first.approval_id, "c", by="zoe")
    decide(subject, "approve", second.approval_id, by="ann")
    pass_by(subject, 11 * MINUTE)
    again = asked(subject, strict)
    assert again != second.approval_id
    for by in ("mei", "zoe"):
        with pytest.raises(OwnRequest):
            decide(subject, "approve", again, by=by)
    assert decide(subject, "approve", again, by="ann").approved


def test_an_edit_is_asked_about_whatever_it_says(subject: Subject) -> None:
    """Also where its arguments alone would need no decision."""
    create = subject.ticket(approval=Policy(when=lambda title: title == "dear"))
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(create, title="dear")
    follower = edit(subject, str(caught.value.approval_id), "cheap")
    with pytest.raises(ApprovalRequired):
        subject.perform(create, title="dear")
    assert (follower.state, len(subject.sent)) == ("pending", 0)


def test_another_step_that_asks_for_the_first_asks_anew(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    follower = edit(subject, asked_by(subject, create, "one"), "b")
    decide(subject, "approve", follower.approval_id)
    assert by_step(subject, create, "one").value["title"] == "b"
    again = asked_by(subject, create, "two")
    detail = show(subject, again)
    assert (detail.approval.operation_id, detail.arguments) == (f"{ID}~edit-2", {"title": "a"})
    assert {(one.operation_id, one.state, one.attempt) for one in detail.others} == {
        (ID, "cancelled", 0),
        (f"{ID}~edit-1", "succeeded", 1),
    }
    assert asked_by(subject, create, "two") == again
    assert by_step(subject, create, "one").answered_from == "receipt"
    assert subject.sent.bodies == [{"title": "b"}]
    decide(subject, "approve", again)
    assert by_step(subject, create, "two").value["title"] == "a"
    assert subject.sent.bodies == [{"title": "b"}, {"title": "a"}]


def test_an_operation_in_a_branch_is_edited_in_its_branch(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    follower = edit(subject, asked_by(subject, create, "one", branch="what-if"), "b")
    assert follower.operation_id == f"{ID}~branch-what-if~edit-1"
    operation = show(subject, follower.approval_id).operation
    assert (operation.branch, operation.trusted.branch) == ("what-if", "what-if")
    assert asked_by(subject, create, "one", branch="what-if") == follower.approval_id
    main = asked_by(subject, create, "one")
    assert show(subject, main).approval.operation_id == ID
    decide(subject, "approve", follower.approval_id)
    assert by_step(subject, create, "one", branch="what-if").value["title"] == "b"
    assert asked_by(subject, create, "one") == main


def test_an_edit_needs_the_declaration_of_its_effect(blocking: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asked(blocking, blocking.ticket(approval=GATED))
    monkeypatch.setattr(type(REGISTRY), "find", lambda *_: None)
    with pytest.raises(EffectVersionMissing, match="--app"):
        edit(blocking, first, "b")
    assert blocking.state == "awaiting_approval"


def test_an_edit_keeps_what_it_does_not_change(subject: Subject) -> None:
    def mail(call: Any, *, to: str, text: str = "hello") -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text})

    made = subject.effect(mail, approval=GATED, not_identity=("text",))
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(made, to="ann", text="bye")
    follower = decide(subject, "edit", str(caught.value.approval_id), changes={"to": "bob"})
    decide(subject, "approve", follower.approval_id)
    subject.perform(made, to="ann", text="something else")
    assert subject.sent.bodies == [{"to": "bob", "text": "bye"}]


def test_edits_at_the_same_time_get_numbers_of_their_own(blocking: Subject) -> None:
    """One edits what follows, others ask for the first anew: each is an operation of its own, and nobody breaks."""
    create = blocking.ticket(approval=GATED)
    second = edit(blocking, asked_by(blocking, create, "one"), "b")
    turns: list[Callable[[], Any]] = [
        lambda: edit(blocking, second.approval_id, "c").operation_id,
        *[lambda step=step: asked_by(blocking, create, step) for step in ("two", "three", "four")],
    ]

    def turn() -> Any:
        return turns.pop()()

    results = blocking.at_once(turn, len(turns))
    assert [one for one in results if isinstance(one, BaseException)] == []
    ids = {one.operation_id for one in listed(blocking, state=None)}
    assert ids == {ID, *(f"{ID}~edit-{number}" for number in range(1, 6))}


@pytest.mark.parametrize("rounds", [3])
def test_of_edits_of_one_question_one_wins(blocking: Subject, rounds: int) -> None:
    create = blocking.ticket(approval=GATED)
    for number in range(rounds):
        first = request(blocking, create, title="a", request_id=f"r-{number}").approval_id
        names = [f"p{each}" for each in range(4)]
        results = blocking.at_once(lambda: edit(blocking, first, "b", by=names.pop()), 4)  # noqa: B023 - joined
        lost = [one for one in results if isinstance(one, DecisionConflict)]
        (won,) = [one for one in results if not isinstance(one, BaseException)]
        assert (len(lost), {one.facts["decided_by"] for one in lost}) == (3, {won.edited_by})
    assert len(listed(blocking, **TENANT)) == rounds


class Kind(Enum):
    GIFT = "gift"
    REFUND = "refund"


@dataclass(frozen=True)
class Part:
    amount: int
    kind: Kind = Kind.REFUND


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amount", "lots"),
        ("amount", True),
        ("amount", 1.5),
        ("amount", None),
        ("kind", "theft"),
        ("parts", {"amount": 1}),
        ("parts", [{"amount": "lots"}]),
        ("parts", [{"amount": 1, "kind": "theft"}]),
        ("parts", [{"amuont": 1}]),
        ("day", "soon"),
        ("note", 5),
    ],
)
def test_what_does_not_fit_the_declared_type_is_refused_where_it_is_written(
    subject: Subject, name: str, value: Any
) -> None:
    first, pay = parted(subject)
    with pytest.raises(InvalidArguments, match=f"written for {name} does not fit"):
        decide(subject, "edit", first, changes={name: value})
    assert [each.state for each in listed(subject, state=None)] == ["pending"]
    decide(subject, "approve", first)
    assert subject.perform(pay, amount=500, parts=[], day=date(2026, 1, 1)).value == "paid"


def test_what_a_person_writes_as_json_reaches_the_function_as_what_it_declares(subject: Subject) -> None:
    first, pay = parted(subject)
    changes = {"kind": "gift", "parts": [{"amount": 1}], "day": "2026-01-02", "note": "so", "price": 5.10}
    follower = decide(subject, "edit", first, changes=changes)
    assert show(subject, follower.approval_id).arguments["parts"] == [{"amount": 1, "kind": "refund"}]
    decide(subject, "approve", follower.approval_id)
    subject.perform(pay, amount=500, parts=[], day=date(2026, 1, 1))
    (body,) = subject.sent.bodies
    assert body["seen"] == repr((500, Kind.GIFT, [Part(1)], date(2026, 1, 2), "so", Decimal("5.1")))


def test_an_annotation_that_the_caller_himself_does_not_keep_binds_no_editor(subject: Subject) -> None:
    def pay(call: Any, *, amount: int) -> str:
        subject.sent.tally.accept("pay", call.provider_key, {"amount": str(amount)})
        return "paid"

    made = subject.effect(pay, approval=GATED)
    lax: Any = {"amount": "5 EUR"}
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(made, **lax)
    follower = decide(subject, "edit", str(caught.value.approval_id), changes={"amount": "4 EUR"})
    assert show(subject, follower.approval_id).arguments == {"amount": "4 EUR"}


def parted(subject: Subject) -> tuple[str, Any]:
    """Ask about an effect with declared types, and return the question and the effect."""

    def pay(
        call: Any,
        *,
        amount: int,
        parts: list[Part],
        day: date,
        kind: Kind = Kind.REFUND,
        note: str | None = None,
        price: Decimal = Decimal(0),
    ) -> str:
        seen = repr((amount, kind, parts, day, note, price))
        subject.sent.tally.accept("pay", call.provider_key, {"seen": seen})
        return "paid"

    made = subject.effect(pay, approval=GATED)
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(made, amount=500, parts=[], day=date(2026, 1, 1))
    return str(caught.value.approval_id), made
