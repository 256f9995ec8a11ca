"""Requests and decisions run out by the database's clock; what ran out is asked about again, or is over for good."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from counterfoil import Absent, Found, Policy, Provider, codec
from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import (
    ApprovalExpired,
    ApprovalRequired,
    DecisionConflict,
    EffectNotSent,
    OutcomeUnknown,
)
from counterfoil.model import Origin, Trusted
from counterfoil.storage.scripts import claims, settling
from counterfoil.storage.scripts.moves import Outcome
from tests.conformance.subject import Background, Subject
from tests.conformance.test_approvals import asked, colour, decide, listed, request, show, store
from tests.conformance.test_joined_postgres import WAITING
from tests.conformance.test_outbox import MINUTE, Turning, lose, not_sent, pass_by
from tests.conformance.test_unknown import Answers
from tests.stores import POSTGRES, execute, on_each, outside

__all__ = ["colour", "store"]

BRIEF = Policy(decide_within="10m", valid_for="5m")
SOON, WITHIN, VALID = 1, 10 * MINUTE, 5 * MINUTE


@pytest.mark.parametrize("ruling", ["approve", "reject", "cancel", "edit"])
@pytest.mark.parametrize("late_by", [-SOON, 0, SOON])
def test_a_request_runs_out_at_its_time(blocking: Subject, late_by: int, ruling: str) -> None:
    create = blocking.ticket(approval=BRIEF)
    first = asked(blocking, create)
    more = {"changes": {"title": "b"}} if ruling == "edit" else {}
    pass_by(blocking, WITHIN + late_by)
    if late_by < 0:
        decide(blocking, ruling, first, **more)
        return
    for _ in range(2):
        with pytest.raises(DecisionConflict, match=r"decided any more.*expired.*nobody decided in time") as caught:
            decide(blocking, ruling, first, **more)
        assert "by time" not in caught.value.message
    told = blocking.settle(blocking.cf.operations.explain("ticket:r-1", tenant="team-a"))
    assert ": nobody decided in time." in told.why
    assert (blocking.state, len(blocking.sent)) == ("expired", 0)
    with pytest.raises(ApprovalExpired):
        blocking.perform(create, title="a")


def held_until_too_late(subject: Subject, work: Callable[[], Any]) -> Background:
    """Begin some work while another transaction has the operation's row, until its time is over."""
    with psycopg.connect(outside(subject.url)) as other:
        other.execute("select * from counterfoil_operation for update")
        waits = Background(work)
        while waits.is_under_way() and execute(subject.url, WAITING) == [(0,)]:
            pass
        assert waits.is_under_way()
        pass_by(subject, SOON)
    return waits


@on_each(POSTGRES)
def test_whoever_waited_for_the_row_until_it_was_too_late_cannot_decide(blocking: Subject) -> None:
    first = asked(blocking, blocking.ticket(approval=BRIEF))
    pass_by(blocking, WITHIN - SOON)
    waits = held_until_too_late(blocking, lambda: decide(blocking, "approve", first))
    with pytest.raises(DecisionConflict, match="nobody decided in time"):
        waits.result()
    assert blocking.state == "expired"


@on_each(POSTGRES)
def test_whoever_waited_for_the_row_until_the_decision_ran_out_sends_nothing(blocking: Subject) -> None:
    create = blocking.ticket(approval=BRIEF)
    first = asked(blocking, create)
    decide(blocking, "approve", first)
    pass_by(blocking, VALID - SOON)
    waits = held_until_too_late(blocking, lambda: blocking.perform(create, title="a"))
    with pytest.raises(ApprovalRequired) as caught:
        waits.result()
    assert (caught.value.approval_id, blocking.state, len(blocking.sent)) == ("approval-2", "awaiting_approval", 0)


@pytest.mark.parametrize("late_by", [-SOON, 0])
@pytest.mark.parametrize("how", ["perform", "enqueue", "drain", "request"])
def test_what_nobody_decided_is_over_whoever_looks_first(subject: Subject, how: str, late_by: int) -> None:
    create = subject.ticket(approval=BRIEF)
    first = asked(subject, create)
    pass_by(subject, WITHIN + late_by)
    over = late_by >= 0
    if how == "perform":
        with pytest.raises(ApprovalExpired if over else ApprovalRequired):
            subject.perform(create, title="a")
    elif how == "request":
        assert request(subject, create, title="a").state == ("expired" if over else "pending")
    elif how == "enqueue":
        subject.enqueue(create, title="a")
        subject.drain(create)
    else:
        subject.drain(create)
    assert subject.state == ("expired" if over else "awaiting_approval")
    found = show(subject, first).approval
    assert (found.state, found.decided_by) == (("expired", "time") if over else ("pending", None))
    assert len(subject.sent) == 0


@pytest.mark.parametrize("late_by", [-SOON, 0, SOON])
def test_a_decision_holds_for_its_time_and_is_asked_for_again_after_it(subject: Subject, late_by: int) -> None:
    create = subject.ticket(approval=BRIEF)
    first = asked(subject, create)
    decide(subject, "approve", first)
    pass_by(subject, VALID + late_by)
    if late_by < 0:
        assert subject.perform(create, title="a").answered_from == "effect"
        return
    again = asked(subject, create)
    assert again != first
    old = show(subject, first).approval
    assert (old.state, old.decided_by) == ("expired", "time")
    assert len(subject.sent) == 0
    decide(subject, "approve", again)
    assert subject.perform(create, title="a").answered_from == "effect"
    assert len(subject.sent) == 1


def test_a_decision_that_ran_out_is_asked_for_on_the_terms_of_the_first(subject: Subject) -> None:
    create = subject.ticket()
    plain = request(subject, create, title="a", principal="bot")
    decide(subject, "approve", plain.approval_id)
    pass_by(subject, 24 * 60 * MINUTE)
    again = show(subject, asked(subject, create)).approval
    assert again.requested_by == "bot"
    assert again.decide_by - again.requested_at == plain.decide_by - plain.requested_at


def test_the_same_decision_after_it_ran_out_does_not_look_as_if_it_held(subject: Subject) -> None:
    create = subject.ticket(approval=BRIEF)
    first = asked(subject, create)
    decide(subject, "approve", first)
    pass_by(subject, VALID)
    with pytest.raises(DecisionConflict, match=r"before the decision ran out.*asked about again, as approval-"):
        decide(subject, "approve", first)
    (again,) = listed(subject)
    assert again.approval_id != first
    assert decide(subject, "approve", again.approval_id).approved
    subject.perform(create, title="a")
    assert len(subject.sent) == 1


def test_a_decision_that_ran_out_before_the_next_attempt_is_asked_for_again(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None), approval=BRIEF)
    decide(subject, "approve", asked(subject, create))
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="a")
    pass_by(subject, VALID)
    again = asked(subject, create)
    assert (subject.state, subject.attempts()) == ("awaiting_approval", ["not_sent"])
    decide(subject, "approve", again)
    assert subject.perform(create, title="a").attempt == 2
    assert len(subject.sent) == 2


@pytest.mark.parametrize("ruling", ["reject", "cancel", "edit"])
def test_what_is_asked_again_after_an_attempt_is_decided_in_any_way(blocking: Subject, ruling: str) -> None:
    create = blocking.ticket(Turning(not_sent, None), approval=BRIEF)
    decide(blocking, "approve", asked(blocking, create))
    with pytest.raises(EffectNotSent):
        blocking.perform(create, title="a")
    pass_by(blocking, VALID)
    more = {"changes": {"title": "b"}} if ruling == "edit" else {}
    decide(blocking, ruling, asked(blocking, create), **more)
    assert len(blocking.sent) == 1


def test_two_attempts_under_one_decision(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None), approval=BRIEF)
    decide(subject, "approve", asked(subject, create))
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="a")
    pass_by(subject, VALID - SOON)
    assert subject.perform(create, title="a").attempt == 2


KEYED = Provider(key_lifetime="24h")


@pytest.mark.parametrize("late_by", [-SOON, 0])
def test_a_lost_reply_is_not_sent_again_under_a_decision_that_ran_out(subject: Subject, late_by: int) -> None:
    create = subject.ticket(Turning(lose, None), approval=BRIEF, provider=KEYED)
    decide(subject, "approve", asked(subject, create))
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, title="a")
    pass_by(subject, VALID + late_by)
    if late_by < 0:
        assert subject.perform(create, title="a").attempt == 2
        assert len(set(subject.sent.keys)) == 1
        return
    with pytest.raises(OutcomeUnknown, match="its approval ran out") as caught:
        subject.perform(create, title="a")
    assert caught.value.retry == "after_reconcile"
    subject.drain(create)
    assert (subject.state, len(subject.sent), subject.cases()) == ("unknown", 1, ["unknown_outcome"])
    assert listed(subject) == []  # what may have happened is not asked about: a person settles it


@pytest.mark.parametrize("kind", ["perform", "enqueue"])
def test_what_proved_absent_is_asked_about_again_if_its_decision_ran_out(subject: Subject, kind: str) -> None:
    looking = Answers(Absent())
    provider = subject.provider(lookup=looking, lookup_lag="1s")
    create = subject.ticket(Turning(lose, None), approval=BRIEF, provider=provider)
    if kind == "enqueue":
        subject.enqueue(create, title="a")
        decide(subject, "approve", listed(subject)[0].approval_id)
        subject.drain(create)
    else:
        decide(subject, "approve", asked(subject, create))
        with pytest.raises(OutcomeUnknown):
            subject.perform(create, title="a")
    pass_by(subject, VALID)
    if kind == "enqueue":
        subject.drain(create)
        pass_by(subject, MINUTE)
        subject.drain(create)
    else:
        with pytest.raises(ApprovalRequired):
            subject.perform(create, title="a")
    assert (subject.state, len(subject.sent)) == ("awaiting_approval", 1)
    decide(subject, "approve", listed(subject)[0].approval_id)
    if kind == "enqueue":
        subject.drain(create)
    else:
        subject.perform(create, title="a")
    assert (subject.state, len(subject.sent)) == ("succeeded", 2)


def test_a_late_reply_wins_over_what_is_asked_again(subject: Subject) -> None:
    """The attempt was taken for absent, its decision ran out: its late success settles it, and nothing is asked."""
    late_success(subject, ruling=None)
    assert (subject.state, subject.cases(), listed(subject)) == ("succeeded", ["possible_double_effect"], [])
    states = [row["state"] for row in sorted(subject.rows("approval"), key=lambda row: row["seq"])]
    assert states == ["expired", "cancelled"]


@pytest.mark.parametrize("ruling", [None, "approve"])
def test_what_the_provider_shows_wins_over_what_is_asked(subject: Subject, ruling: str | None) -> None:
    found = subject.provider(lookup=Answers(Found({"id": 7})), lookup_lag="0s")
    create = subject.ticket(approval=BRIEF, provider=found)
    first = asked(subject, create)
    if ruling is not None:
        decide(subject, ruling, first)
    assert subject.verify(create, title="a").state == "succeeded"
    assert (subject.cases(), listed(subject)) == (["possible_double_effect"], [])
    ended = show(subject, first).approval
    assert (ended.state, ended.decided_by) == ("cancelled", "a look-up")
    assert len(subject.sent) == 0


def test_a_late_reply_wins_over_a_rejection(subject: Subject) -> None:
    late_success(subject, ruling="reject")
    assert (subject.state, subject.cases()) == ("succeeded", ["possible_double_effect"])


def test_a_late_reply_wins_over_an_approval_that_was_not_used(subject: Subject) -> None:
    late_success(subject, ruling="approve")
    assert (subject.state, subject.cases()) == ("succeeded", ["possible_double_effect"])
    assert listed(subject, state="approved") == []


def late_success(subject: Subject, ruling: str | None) -> None:
    """Let an attempt succeed long after it was proved absent and its operation was asked about again."""
    provider = subject.provider(lookup=Answers(Absent()), lookup_lag="1s")
    create = subject.ticket(lambda: 7, approval=BRIEF, provider=provider)
    decide(subject, "approve", asked(subject, create))
    store = subject.cf.desk.store
    job = subject.cf.desk.job(create, {"title": "a"}, Trusted(tenant="team-a", request_id="r-1"), Origin())
    granted = store.write(lambda: claims.claim(job.request), tenant="team-a")
    pass_by(subject, VALID)
    again = asked(subject, create)  # the lease is over, the look-up proves absence, the decision ran out
    if ruling is not None:
        decide(subject, ruling, again)
    outcome = Outcome(outcome=AttemptOutcome.SUCCEEDED, receipt=codec.encode_receipt(7).body)
    store.write(lambda: settling.settle(job.request, granted, outcome), tenant="team-a")


def test_a_policy_that_came_later_asks_before_the_next_attempt(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None))
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="a")
    object.__setattr__(create, "approval", BRIEF)
    asked(subject, create)
    assert (subject.state, len(subject.sent)) == ("awaiting_approval", 1)


def test_a_policy_that_came_later_lets_nobody_send_a_lost_one_again(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), provider=KEYED)
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, title="a")
    object.__setattr__(create, "approval", BRIEF)
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, title="a")
    assert (subject.state, len(subject.sent)) == ("unknown", 1)


@pytest.mark.parametrize("end", [not_sent, lose])
def test_a_policy_that_came_later_judges_what_is_stored_and_not_what_the_caller_brings(
    subject: Subject, end: Any
) -> None:
    ends = Turning(end, None)

    def mail(call: Any, *, to: str, text: str) -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text})
        return ends() or text

    sent = subject.effect(mail, not_identity=("text",), key="mail:{request_id}", provider=KEYED)
    expected = {not_sent: (EffectNotSent, ApprovalRequired), lose: (OutcomeUnknown, OutcomeUnknown)}[end]
    with pytest.raises(expected[0]):
        subject.perform(sent, to="ann", text="urgent")
    object.__setattr__(sent, "approval", Policy(when=lambda text, **_: text == "urgent"))
    for _ in range(2):
        with pytest.raises(expected[1]):
            subject.perform(sent, to="ann", text="mild")
    assert (subject.state, len(subject.sent)) == ("awaiting_approval" if end is not_sent else "unknown", 1)


def test_an_approval_says_that_it_ran_out_before_anybody_asks_again(subject: Subject) -> None:
    create = subject.ticket(approval=BRIEF)
    first = asked(subject, create)
    decide(subject, "approve", first)
    pass_by(subject, VALID - SOON)
    assert (show(subject, first).approval.approved, show(subject, first).approval.ran_out) == (True, False)
    pass_by(subject, SOON)
    for lapsed in (show(subject, first).approval, *listed(subject, state="approved")):
        assert (lapsed.state, lapsed.approved, lapsed.ran_out) == ("approved", False, True)
    assert listed(subject) == []
    again = asked(subject, create)
    assert [one.approval_id for one in listed(subject)] == [again]
    assert (show(subject, first).approval.state, show(subject, first).approval.ran_out) == ("expired", False)


def test_a_question_says_that_nobody_decided_in_time_before_that_is_recorded(subject: Subject) -> None:
    first = asked(subject, subject.ticket(approval=BRIEF))
    pass_by(subject, WITHIN - SOON)
    assert not show(subject, first).approval.ran_out
    pass_by(subject, SOON)
    (over,) = listed(subject)
    assert (over.state, over.ran_out, over.approved) == ("pending", True, False)


def test_a_decision_that_was_used_in_time_does_not_run_out(subject: Subject) -> None:
    create = subject.ticket(approval=BRIEF)
    first = asked(subject, create)
    decide(subject, "approve", first)
    subject.perform(create, title="a")
    pass_by(subject, VALID)
    assert (show(subject, first).approval.approved, show(subject, first).approval.ran_out) == (True, False)


def test_a_decision_runs_out_also_after_a_try_that_sent_nothing(subject: Subject) -> None:
    create = subject.ticket(not_sent, approval=BRIEF)
    first = asked(subject, create)
    decide(subject, "approve", first)
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="a")
    pass_by(subject, VALID)
    assert (show(subject, first).approval.approved, show(subject, first).approval.ran_out) == (False, True)
