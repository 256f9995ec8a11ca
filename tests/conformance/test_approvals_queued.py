"""What waits for a decision in the outbox, in a transaction, and in what is kept: all by the same gate."""

from typing import Any

import pytest

from counterfoil import Delivery, Policy, Provider, Retention
from counterfoil.errors import (
    ApprovalExpired,
    ApprovalNotFound,
    ApprovalRejected,
    ApprovalRequired,
    DecisionConflict,
    EffectNotSent,
    OperationClosed,
    OperationQueued,
)
from counterfoil.model import OperationKey
from counterfoil.shown import Purged
from counterfoil.storage.scripts import outbox, purging
from counterfoil.storage.tenants import ALL_TENANTS
from tests.conformance.own import Own
from tests.conformance.subject import Subject
from tests.conformance.test_approvals import (
    GATED,
    ID,
    TENANT,
    asked,
    colour,
    decide,
    deeds,
    listed,
    request,
    show,
    store,
)
from tests.conformance.test_approvals_in_time import BRIEF, VALID, WITHIN
from tests.conformance.test_outbox import EACH, MINUTE, Turning, lose, not_sent, pass_by
from tests.conformance.test_statement import book as stated
from tests.conformance.test_transactional import TABLE, book, bookings, dialect
from tests.stores import FILE, POSTGRES, on_each

__all__ = ["colour", "store"]


def queued(subject: Subject, made: Any, **given: Any) -> str:
    intent = subject.enqueue(made, **{"title": "a", **given})
    assert (intent.state, intent.is_new) == ("awaiting_approval", True)
    return str(next(one.approval_id for one in listed(subject) if one.operation_id == intent.operation_id))


def titles(subject: Subject) -> list[str]:
    return [body["title"] for body in subject.sent.bodies]


# --- the dispatcher --------------------------------------------------------------------------------------------------


def test_a_dispatcher_sends_only_what_was_approved(subject: Subject) -> None:
    create = subject.ticket(approval=GATED, key=EACH)
    ids = {title: queued(subject, create, title=title) for title in "abc"}
    subject.drain(create)
    assert titles(subject) == []
    decide(subject, "approve", ids["b"])
    decide(subject, "reject", ids["c"])
    subject.drain(create)
    subject.drain(create)
    assert titles(subject) == ["b"]
    with pytest.raises(OperationClosed):
        subject.perform(create, title="c")
    assert subject.perform(create, title="b").answered_from == "receipt"


def test_several_are_recorded_together_and_each_is_asked_about(subject: Subject) -> None:
    create = subject.ticket(approval=Policy(when=lambda title: title != "b"), key=EACH)
    several = [{"title": title} for title in "abc"]
    intents = subject.settle(subject.cf.enqueue_all(create, several, **TENANT, request_id="r-1"))
    assert [intent.state for intent in intents] == ["awaiting_approval", "pending", "awaiting_approval"]
    subject.drain(create)
    assert titles(subject) == ["b"]
    for one in listed(subject):
        decide(subject, "approve", one.approval_id)
    subject.drain(create)
    assert sorted(titles(subject)) == ["a", "b", "c"]
    again = subject.settle(subject.cf.enqueue_all(create, several, **TENANT, request_id="r-1"))
    assert [intent.is_new for intent in again] == [False] * 3


def test_a_stream_waits_behind_what_is_not_decided(subject: Subject) -> None:
    create = subject.ticket(approval=Policy(when=lambda title: title in "ad"), key=EACH, delivery=Delivery(stream="s"))
    first = queued(subject, create, title="a")
    for title in "bc":
        subject.enqueue(create, title=title)
    last = queued(subject, create, title="d")
    subject.drain(create)
    assert titles(subject) == []
    decide(subject, "approve", first)
    subject.drain(create)
    assert titles(subject) == ["a", "b", "c"]
    decide(subject, "reject", last)
    subject.enqueue(create, title="e")
    subject.drain(create)
    assert titles(subject) == ["a", "b", "c", "e"]


def test_a_stream_goes_on_when_time_ended_what_it_waited_for(subject: Subject) -> None:
    create = subject.ticket(approval=Policy(when=lambda title: title == "a", decide_within="10m"), key=EACH)
    stream = Delivery(stream="s")
    queued(subject, create, title="a", delivery=stream)
    subject.enqueue(create, title="b", delivery=stream)
    pass_by(subject, WITHIN)
    subject.drain(create)
    assert titles(subject) == ["b"]


def test_a_decision_that_ran_out_before_the_dispatcher_came_is_asked_for_again(subject: Subject) -> None:
    create = subject.ticket(approval=BRIEF)
    first = queued(subject, create)
    decide(subject, "approve", first)
    pass_by(subject, VALID)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (0, "awaiting_approval")
    (again,) = listed(subject)
    assert again.approval_id != first
    decide(subject, "approve", again.approval_id)
    subject.drain(create)
    assert len(subject.sent) == 1


def test_a_decision_that_runs_out_between_two_tries_is_asked_for_again(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None), approval=BRIEF)
    decide(subject, "approve", queued(subject, create))
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "pending")
    pass_by(subject, VALID)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "awaiting_approval")
    decide(subject, "approve", listed(subject)[0].approval_id)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "succeeded")


def test_a_lost_reply_is_not_sent_again_by_the_dispatcher_once_its_decision_ran_out(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), approval=BRIEF, provider=Provider(key_lifetime="24h"))
    decide(subject, "approve", queued(subject, create))
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "unknown")
    subject.drain(create)  # it may be sent again, after a pause
    pass_by(subject, VALID)
    for _ in range(3):
        subject.drain(create)
        pass_by(subject, MINUTE)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])
    assert listed(subject) == []


def test_a_policy_that_came_after_the_intent_was_recorded_asks_then(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a")
    object.__setattr__(create, "approval", BRIEF)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.operation["attempt"]) == (0, "awaiting_approval", 0)
    (waiting,) = listed(subject)
    decide(subject, "approve", waiting.approval_id)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "succeeded")


def test_a_policy_that_came_after_a_reply_was_lost_lets_nobody_send_it_again(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), provider=Provider(key_lifetime="24h"))
    subject.enqueue(create, title="a")
    subject.drain(create)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "pending")  # to be sent again under its key
    object.__setattr__(create, "approval", BRIEF)
    for _ in range(3):
        pass_by(subject, MINUTE)
        subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])
    assert listed(subject) == []


def test_a_claim_that_is_given_back_leaves_the_decision_unused(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = queued(subject, create)
    decide(subject, "approve", first)
    lane = outbox.Lane(effect=create.name, effect_version=1, limit=1)
    turn = subject.settle(subject.write(lambda: outbox.turn((), [lane], "w/1"), tenant=ALL_TENANTS))
    assert show(subject, first).approval.spent_at is not None
    (claimed,) = turn.claimed
    key = subject.cf.desk.stored_job(create, claimed).key
    back = outbox.Unbegun(key=key, fence=claimed["fence"])
    subject.settle(subject.write(lambda: outbox.turn([back], (), "w/1"), tenant=ALL_TENANTS))
    assert show(subject, first).approval.spent_at is None
    assert decide(subject, "cancel", first).state == "cancelled"
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (0, "cancelled")


def test_what_a_dispatcher_sends_is_what_was_approved(subject: Subject) -> None:
    create = subject.ticket(approval=GATED, not_identity=("title",))
    first = queued(subject, create, title="first")
    subject.enqueue(create, title="second")
    decide(subject, "approve", first)
    subject.enqueue(create, title="third")
    subject.drain(create)
    assert titles(subject) == ["first"]


def test_an_edited_intent_is_sent_as_it_was_edited(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    follower = decide(subject, "edit", queued(subject, create), changes={"title": "b"})
    subject.drain(create)
    decide(subject, "approve", follower.approval_id)
    subject.drain(create)
    assert titles(subject) == ["b"]
    assert subject.perform(create, title="a").value["title"] == "b"


# --- from the caller to the dispatcher -------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["waiting", "approved"])
def test_what_its_caller_asked_about_is_left_to_the_dispatcher(subject: Subject, when: str) -> None:
    create = subject.ticket(approval=GATED)
    first = asked(subject, create)
    if when == "approved":
        decide(subject, "approve", first)
    intent = subject.enqueue(create, title="a")
    assert (intent.is_new, subject.operation["sender"]) == (False, "dispatcher")
    if when == "waiting":
        decide(subject, "approve", first)
    with pytest.raises(OperationQueued):
        subject.perform(create, title="a")
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "succeeded")
    assert subject.perform(create, title="a").answered_from == "receipt"


def test_what_was_rejected_or_tried_is_not_left_to_the_dispatcher(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None), approval=GATED, key=EACH)
    decide(subject, "reject", asked(subject, create))
    subject.enqueue(create, title="a")
    decide(subject, "approve", asked(subject, create, title="b"))
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="b")
    subject.enqueue(create, title="b")
    assert {row["sender"] for row in subject.rows("operation")} == {"caller"}


def test_it_is_asked_about_no_longer_than_it_would_be_sent(subject: Subject) -> None:
    create = subject.ticket(approval=GATED, key=EACH)
    brief = Delivery(time_to_live="1m")
    first = queued(subject, create, title="a", delivery=brief)
    asked(subject, create, title="b")
    subject.enqueue(create, title="b", delivery=brief)
    pass_by(subject, MINUTE)
    for one in (first, listed(subject)[-1].approval_id):
        with pytest.raises(DecisionConflict, match="nobody decided in time"):
            decide(subject, "approve", one)
    subject.drain(create)
    assert {row["state"] for row in subject.rows("operation")} == {"expired"}
    assert len(subject.sent) == 0


def test_what_was_edited_is_asked_about_no_longer_than_it_would_be_sent(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = queued(subject, create, title="a", delivery=Delivery(time_to_live="2m"))
    pass_by(subject, MINUTE)
    edited = decide(subject, "edit", first, changes={"title": "b"})
    assert edited.decide_by == subject.clock.now_ms() + MINUTE
    pass_by(subject, MINUTE)
    with pytest.raises(DecisionConflict, match="nobody decided in time"):
        decide(subject, "approve", edited.approval_id)
    subject.drain(create)
    assert len(subject.sent) == 0


def test_what_was_approved_and_not_sent_in_its_time_ends_with_its_approval(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    first = queued(subject, create, delivery=Delivery(time_to_live="1m"))
    decide(subject, "approve", first)
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert (subject.state, show(subject, first).approval.state, len(subject.sent)) == ("expired", "expired", 0)
    for ruling in ("cancel", "approve"):
        with pytest.raises(DecisionConflict):
            decide(subject, ruling, first)
    with pytest.raises(ApprovalExpired):
        subject.perform(create, title="a")


@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("by_caller", [False, True])
def test_whoever_cancels_the_intent_ends_what_was_asked(subject: Subject, by_caller: bool, approved: bool) -> None:  # noqa: FBT001
    create = subject.ticket(approval=GATED)
    first = asked(subject, create) if by_caller else queued(subject, create)
    if approved:
        decide(subject, "approve", first)
    done = subject.settle(subject.cf.outbox.cancel(ID, **TENANT, by="ops", reason="not wanted"))
    assert (done.state, listed(subject)) == ("cancelled", [])
    ended = show(subject, first).approval
    assert (ended.state, ended.decided_by, ended.reason) == ("cancelled", "ops", "not wanted")
    with pytest.raises(DecisionConflict, match="by ops"):
        decide(subject, "approve", first)
    subject.drain(create)
    with pytest.raises(OperationClosed, match="cancelled by ops"):
        subject.perform(create, title="a")
    assert len(subject.sent) == 0


# --- transactional effects -------------------------------------------------------------------------------------------

TRANSACTIONAL = on_each(FILE, POSTGRES)


@pytest.fixture
def own(subject: Subject) -> Any:
    made = Own(subject)
    made.execute(TABLE[dialect(subject)])
    yield made
    made.close()


def gated_book(subject: Subject, form: str, **contract: Any) -> Any:
    return book(subject, **contract) if form == "body" else stated(**contract)


FORMS = pytest.mark.parametrize("form", ["body", "statement"])


@TRANSACTIONAL
@FORMS
def test_a_transactional_effect_waits_for_its_decision(own: Own, form: str) -> None:
    subject = own.subject
    booking = gated_book(subject, form, approval=GATED)
    with pytest.raises(ApprovalRequired) as caught:
        subject.perform(booking, seat="12a")
    assert bookings(subject) == []
    decide(subject, "approve", str(caught.value.approval_id))
    assert subject.perform(booking, seat="12a").value["seat"] == "12a"
    assert subject.perform(booking, seat="12a").answered_from == "receipt"
    assert bookings(subject) == ["12a"]
    assert listed(subject, state="approved")[0].spent_at is not None


@TRANSACTIONAL
@FORMS
def test_a_transactional_effect_does_what_was_edited(own: Own, form: str) -> None:
    subject = own.subject
    booking = gated_book(subject, form, approval=GATED)
    first = request(subject, booking, seat="12a").approval_id
    follower = decide(subject, "edit", first, changes={"seat": "14c"})
    with pytest.raises(ApprovalRequired):
        subject.perform(booking, seat="12a")
    decide(subject, "approve", follower.approval_id)
    assert subject.perform(booking, seat="12a").value["seat"] == "14c"
    assert bookings(subject) == ["14c"]


@TRANSACTIONAL
@FORMS
def test_a_transactional_effect_that_was_rejected_writes_nothing(own: Own, form: str) -> None:
    subject = own.subject
    booking = gated_book(subject, form, approval=GATED)
    decide(subject, "reject", request(subject, booking, seat="12a").approval_id)
    with pytest.raises(ApprovalRejected):
        subject.perform(booking, seat="12a")
    own.begin()
    with pytest.raises(ApprovalRejected):
        own.perform(booking, seat="12a")
    own.execute("rollback")
    assert bookings(subject) == []


@TRANSACTIONAL
@FORMS
@pytest.mark.parametrize("declared", [True, False])
def test_in_the_callers_transaction_it_must_be_approved_before(own: Own, form: str, declared: bool) -> None:  # noqa: FBT001
    subject = own.subject
    booking = gated_book(subject, form, **({"approval": GATED} if declared else {}))
    if declared:
        own.begin()
        with pytest.raises(ApprovalRequired, match=r"cf\.approvals\.request"):
            own.perform(booking, seat="12a")
        own.execute("rollback")
        assert subject.rows("operation") == []
    first = request(subject, booking, seat="12a").approval_id
    own.begin()
    with pytest.raises(ApprovalRequired, match=first):
        own.perform(booking, seat="12a")
    own.execute("rollback")
    decide(subject, "approve", first)
    own.begin()
    assert own.perform(booking, seat="12a").value["seat"] == "12a"
    own.execute("rollback")  # and with it the use of the approval
    assert (bookings(subject), show(subject, first).approval.spent_at) == ([], None)
    own.begin()
    own.perform(booking, seat="12a")
    own.execute("commit")
    assert (bookings(subject), show(subject, first).approval.spent_at is not None) == (["12a"], True)


@TRANSACTIONAL
@FORMS
def test_what_was_asked_about_is_gated_in_its_own_transaction_whatever_is_declared(own: Own, form: str) -> None:
    subject = own.subject
    booking = gated_book(subject, form)
    first = request(subject, booking, seat="12a").approval_id
    with pytest.raises(ApprovalRequired):
        subject.perform(booking, seat="12a")
    assert bookings(subject) == []
    decide(subject, "approve", first)
    assert subject.perform(booking, seat="12a").value["seat"] == "12a"
    assert bookings(subject) == ["12a"]


@TRANSACTIONAL
def test_an_intent_in_the_callers_transaction_is_asked_about_with_it(own: Own) -> None:
    subject = own.subject
    create = subject.ticket(approval=GATED)
    for ending in ("rollback", "commit"):
        own.begin()
        intent = subject.settle(subject.cf.join(own.connection).enqueue(create, **TENANT, request_id="r-1", title="a"))
        assert intent.state == "awaiting_approval"
        own.execute(ending)
        assert len(subject.rows("approval")) == (ending == "commit")
    decide(subject, "approve", listed(subject)[0].approval_id)
    subject.drain(create)
    assert len(subject.sent) == 1


# --- what is kept ----------------------------------------------------------------------------------------------------


@on_each(FILE, POSTGRES)
def test_what_is_forgotten_takes_what_was_asked_about_it_along(subject: Subject) -> None:
    kept = subject.open(retention=Retention(receipt="10d", tombstone="20d"))
    create = subject.ticket(approval=GATED, key=EACH)
    done = asked(subject, create)
    decide(subject, "approve", done)
    subject.perform(create, title="a")
    closed = asked(subject, create, title="b")
    follower = decide(subject, "edit", closed, changes={"title": "c"})
    subject.clock.advance("20d")
    assert subject.settle(kept.purge()) == Purged(tombstones=2)
    assert [one.approval_id for one in listed(subject, state=None)] == [follower.approval_id]
    for approval_id in (done, closed):
        with pytest.raises(ApprovalNotFound):
            decide(subject, "approve", approval_id)
    subject.drain(create)  # nobody decided about what follows
    subject.clock.advance("20d")
    subject.settle(kept.purge())
    assert (subject.rows("operation"), subject.rows("approval")) == ([], [])
    assert len(deeds(subject)) == 2  # the trail stays


def test_what_waits_for_a_decision_is_kept_as_long_as_it_waits(subject: Subject) -> None:
    create = subject.ticket(approval=Policy(decide_within="90d"))
    first = asked(subject, create)
    subject.clock.advance("89d")
    assert subject.settle(subject.cf.purge()) == Purged()
    decide(subject, "approve", first)
    assert subject.perform(create, title="a").answered_from == "effect"


def test_numbers_are_not_used_twice_when_an_older_one_is_forgotten(subject: Subject) -> None:
    create = subject.ticket(approval=GATED)
    second = decide(subject, "edit", asked(subject, create), changes={"title": "b"})
    third = decide(subject, "edit", second.approval_id, changes={"title": "c"})

    older = OperationKey(tenant="team-a", operation_id=second.operation_id)
    subject.settle(subject.write(lambda: purging._forget(older)))
    fourth = decide(subject, "edit", third.approval_id, changes={"title": "d"})
    assert fourth.operation_id == f"{ID}~edit-3"
