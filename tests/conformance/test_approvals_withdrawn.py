"""What may follow a decision to send, until something was sent: who withdraws it is named, wherever anybody asks."""

from typing import Any

import pytest

from counterfoil import Absent, Delivery, Principal, Provider
from counterfoil.errors import (
    ApprovalRequired,
    DecisionConflict,
    EffectNotSent,
    EffectRefused,
    NotAllowed,
    OperationClosed,
    OutcomeUnknown,
    OwnRequest,
)
from counterfoil.storage.script import Ddl, Script
from tests.conformance.subject import Background, Gate, Subject
from tests.conformance.test_approvals import (
    GATED,
    ID,
    TENANT,
    asked,
    colour,
    decide,
    listed,
    request,
    rule,
    show,
    store,
)
from tests.conformance.test_outbox import MINUTE, Turning, lose, not_sent, pass_by, refuse

__all__ = ["colour", "store"]

KEYED = Provider(key_lifetime="24h")
ZOE = {**TENANT, "by": "zoe", "reason": "not wanted"}


def tried(subject: Subject, made: Any, way: str = "perform") -> str:
    """Have an operation approved by ann, and tried once without that anything was sent."""
    if way == "perform":
        approval_id = asked(subject, made)
        decide(subject, "approve", approval_id, by="ann")
        with pytest.raises(EffectNotSent):
            subject.perform(made, title="a")
    else:
        subject.enqueue(made, title="a")
        approval_id = str(listed(subject)[0].approval_id)
        decide(subject, "approve", approval_id, by="ann")
        subject.drain(made)
    assert (subject.state, subject.attempts()) == ("pending", ["not_sent"])
    return approval_id


def explained(subject: Subject, operation_id: str = ID) -> str:
    return str(subject.settle(subject.cf.operations.explain(operation_id, **TENANT)).why)


def end(subject: Subject, call: str, approval_id: str) -> None:
    if call == "approvals.cancel":
        subject.settle(subject.cf.approvals.cancel(approval_id, **ZOE))
    else:
        subject.settle(subject.cf.outbox.cancel(ID, **ZOE))


UNUSED = {"approve": "approved", "cancel": "cancelled", "edit": "pending", "reject": None}
"""What follows a decision that is approved and not used, by what is decided next; None is a conflict."""


@pytest.mark.parametrize(("ruling", "state"), UNUSED.items())
def test_what_is_approved_and_not_used_is_cancelled_or_edited_and_to_reject_it_is_a_conflict(
    subject: Subject, ruling: str, state: str | None
) -> None:
    create = subject.ticket(approval=GATED)
    approval_id = asked(subject, create)
    decide(subject, "approve", approval_id, by="ann")
    if state is None:
        with pytest.raises(DecisionConflict, match=r"by ann.*to withdraw it, cancel it"):
            rule(subject, ruling, approval_id, "zoe")
    else:
        assert rule(subject, ruling, approval_id, "zoe").state == state
    still = ruling in {"approve", "reject"}
    then = show(subject, approval_id).approval
    assert (then.approved, then.decided_by) == (still, "ann" if still else "zoe")
    if still:
        subject.perform(create, title="a")
    else:
        with pytest.raises(OperationClosed if ruling == "cancel" else ApprovalRequired):
            subject.perform(create, title="a")
        for other in {"approve", "reject", "cancel", "edit"} - {ruling}:  # final by now
            with pytest.raises(DecisionConflict, match="by zoe"):
                rule(subject, other, approval_id, "mei")
    assert len(subject.sent) == still


@pytest.mark.parametrize("role", ["viewer", "reviewer", "operator", "admin"])
def test_whoever_asked_withdraws_it_if_its_role_may_decide(subject: Subject, role: str) -> None:
    asking = request(subject, subject.ticket(approval=GATED), title="a", principal="bot")
    itself: Any = Principal(tenant="team-a", name="Bot", role=role)  # type: ignore[arg-type]
    if role == "viewer":
        with pytest.raises(NotAllowed, match="viewer"):
            decide(subject, "cancel", asking.approval_id, by=itself)
        assert subject.state == "awaiting_approval"
    else:
        with pytest.raises(OwnRequest):
            decide(subject, "approve", asking.approval_id, by=itself)
        assert decide(subject, "cancel", asking.approval_id, by=itself).state == "cancelled"


@pytest.mark.parametrize("way", ["perform", "enqueue"])
@pytest.mark.parametrize("call", ["approvals.cancel", "outbox.cancel"])
def test_who_cancels_after_a_try_that_sent_nothing_is_named_and_not_who_approved(
    subject: Subject, way: str, call: str
) -> None:
    create = subject.ticket(Turning(not_sent, None), approval=GATED)
    approval_id = tried(subject, create, way)
    end(subject, call, approval_id)
    with pytest.raises(OperationClosed, match=r"cancelled by zoe at .*: not wanted"):
        subject.perform(create, title="a")
    assert "cancelled by zoe: not wanted" in explained(subject)
    detail = show(subject, approval_id)
    assert (detail.approval.state, detail.approval.decided_by) == ("cancelled", "zoe")
    assert (detail.approval.reason, detail.operation.error_text) == ("not wanted", "cancelled by zoe: not wanted")
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert len(subject.sent) == 1  # the try that says of itself that it sent nothing


def test_who_cancelled_is_told_from_the_operation_where_the_approval_says_nothing_of_it(subject: Subject) -> None:
    """As in rows of before, whose approval stayed approved."""
    create = subject.ticket(not_sent, approval=GATED)
    approval_id = tried(subject, create)
    end(subject, "outbox.cancel", approval_id)
    stored = "update counterfoil_approval set state = 'approved', decided_by = 'ann', reason = ''"

    def as_before() -> Script[Any]:
        return (yield Ddl(stored))

    subject.settle(subject.write(as_before))
    with pytest.raises(OperationClosed, match="cancelled by zoe: not wanted") as caught:
        subject.perform(create, title="a")
    assert "ann" not in caught.value.message
    assert "ann" not in explained(subject)
    assert "cancelled by zoe: not wanted" in explained(subject)


@pytest.mark.parametrize("way", ["perform", "enqueue"])
def test_an_edit_after_a_try_that_sent_nothing_is_asked_about_and_sent_in_its_place(subject: Subject, way: str) -> None:
    create = subject.ticket(Turning(not_sent, None), approval=GATED)
    approval_id = tried(subject, create, way)
    follower = rule(subject, "edit", approval_id, "zoe")
    assert (follower.operation_id, follower.state) == (f"{ID}~edit-1", "pending")
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert len(subject.sent) == 1
    decide(subject, "approve", follower.approval_id, by="ann")
    if way == "perform":
        subject.perform(create, title="a")
    subject.drain(create)
    assert subject.sent.bodies[1:] == [{"title": "by zoe"}]


def test_nothing_is_said_to_be_sent_after_tries_that_sent_nothing(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, not_sent, None), approval=GATED)
    approval_id = tried(subject, create)
    assert show(subject, approval_id).approval.spent_at is None
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="a")
    assert show(subject, approval_id).approval.spent_at is None
    with pytest.raises(DecisionConflict, match="Nothing was sent yet: to withdraw it, cancel it"):
        decide(subject, "reject", approval_id, by="zoe")
    pass_by(subject, MINUTE)
    subject.perform(create, title="a")
    assert show(subject, approval_id).approval.spent_at == subject.clock.now_ms()
    with pytest.raises(DecisionConflict, match="It was sent under that decision"):
        decide(subject, "cancel", approval_id, by="zoe")


@pytest.mark.parametrize("ruling", ["cancel", "edit", "reject"])
def test_what_may_have_been_sent_is_not_withdrawn_and_nobody_says_that_it_was_sent(
    subject: Subject, ruling: str
) -> None:
    create = subject.ticket(lose, approval=GATED)
    approval_id = asked(subject, create)
    decide(subject, "approve", approval_id, by="ann")
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, title="a")
    with pytest.raises(DecisionConflict, match="may have sent it") as caught:
        rule(subject, ruling, approval_id, "zoe")
    assert "It was sent" not in caught.value.message


def test_what_is_to_be_sent_again_after_a_lost_reply_is_not_withdrawn(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, not_sent, None), approval=GATED, provider=KEYED)
    subject.enqueue(create, title="a")
    approval_id = str(listed(subject)[0].approval_id)
    decide(subject, "approve", approval_id, by="ann")
    subject.drain(create)
    subject.drain(create)
    assert (subject.state, subject.attempts()) == ("pending", ["unknown"])
    with pytest.raises(DecisionConflict, match="may have sent it"):
        decide(subject, "cancel", approval_id, by="zoe")
    pass_by(subject, MINUTE)
    subject.drain(create)  # that the second try sent nothing says nothing of the first
    assert (subject.state, subject.attempts()) == ("unknown", ["unknown", "not_sent"])
    with pytest.raises(DecisionConflict, match="may have sent it"):
        decide(subject, "cancel", approval_id, by="zoe")


@pytest.mark.parametrize("ruling", ["cancel", "edit", "reject"])
def test_what_is_being_sent_is_not_withdrawn_and_nobody_says_that_it_was_sent(subject: Subject, ruling: str) -> None:
    gate = Gate()
    create = subject.ticket(gate, approval=GATED)
    approval_id = asked(subject, create)
    decide(subject, "approve", approval_id, by="ann")
    under_way = Background(lambda: subject.perform(create, title="a"))
    gate.wait()
    try:
        with pytest.raises(DecisionConflict, match="An attempt under that decision is under way since"):
            rule(subject, ruling, approval_id, "zoe")
    finally:
        gate.open()
    under_way.result()


def test_what_was_refused_by_its_provider_is_not_withdrawn(subject: Subject) -> None:
    create = subject.ticket(refuse, approval=GATED)
    approval_id = asked(subject, create)
    decide(subject, "approve", approval_id, by="ann")
    with pytest.raises(EffectRefused):
        subject.perform(create, title="a")
    with pytest.raises(DecisionConflict, match="it failed for good"):
        decide(subject, "cancel", approval_id, by="zoe")


def test_a_dead_letter_is_closed_by_skipping_it_and_that_withdraws_what_was_approved(subject: Subject) -> None:
    create = subject.ticket(not_sent, approval=GATED)
    subject.enqueue(create, title="a", delivery=Delivery(max_attempts=1))
    approval_id = str(listed(subject)[0].approval_id)
    decide(subject, "approve", approval_id, by="ann")
    subject.drain(create)
    assert subject.state == "parked"
    for ruling in ("cancel", "edit"):
        with pytest.raises(DecisionConflict, match=r"Nothing was sent.*counterfoil outbox skip ticket:r-1"):
            rule(subject, ruling, approval_id, "zoe")
    subject.settle(subject.cf.outbox.skip(ID, **ZOE))
    asked_about = show(subject, approval_id).approval
    assert (asked_about.state, asked_about.decided_by, asked_about.reason) == ("cancelled", "zoe", "not wanted")


def proved_absent(subject: Subject, how: str) -> tuple[Any, str]:
    """Have ann approve what is then tried, and proved not to have been sent, by a look-up or by a person."""
    lookup = subject.provider(lookup=lambda _call, **_: Absent(), lookup_lag="0s", on_absent="retry")
    create = subject.ticket(lose, approval=GATED, provider=lookup if how == "look-up" else Provider())
    approval_id = asked(subject, create)
    decide(subject, "approve", approval_id, by="ann")
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, title="a")
    pass_by(subject, MINUTE)
    if how == "look-up":
        subject.verify(create, title="a")
    else:
        (case,) = subject.settle(subject.cf.review.list(**TENANT)).items
        verdict = {"verdict": "did_not_happen_retry", "expect_version": case.version, "by": "mei", "reason": "absent"}
        subject.settle(subject.cf.review.resolve(case.case_id, **TENANT, **verdict))
    return create, approval_id


@pytest.mark.parametrize("how", ["look-up", "person"])
def test_what_is_proved_not_to_be_sent_is_withdrawn(subject: Subject, how: str) -> None:
    create, approval_id = proved_absent(subject, how)
    assert (subject.state, show(subject, approval_id).approval.spent_at) == ("pending", None)
    end(subject, "approvals.cancel", approval_id)
    with pytest.raises(OperationClosed, match="cancelled by zoe"):
        subject.perform(create, title="a")
    assert len(subject.sent) == 1
