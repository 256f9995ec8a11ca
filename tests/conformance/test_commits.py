"""A COMMIT that nobody heard of is looked up, never guessed: whether it took effect or not, the answer is right."""

import threading
from typing import Any

import pytest

from counterfoil import Absent, NotSent, Provider, Refused
from counterfoil.errors import Busy, CommitUnknown, EffectNotSent, EffectRefused, OutcomeNotStored, OutcomeUnknown
from tests.conformance.subject import ASYNC, Background, Gate, Subject

BEFORE, AFTER = "before-commit", "after-commit"


class LostCommit:
    """A probe that loses the answer of the nth transaction of the scenario: rolled back, or committed all the same.

    `since` names the statement from which on transactions are counted.
    """

    def __init__(self, nth: int, point: str, *, since: str | None = None) -> None:
        self.left, self.point, self.since, self.mutex = nth, point, since, threading.Lock()

    def __call__(self, point: Any, name: str) -> None:
        if name == self.since:
            self.since = None
        if point == self.point and self.since is None:
            with self.mutex:
                self.left -= 1
                lost = self.left == 0
            if lost:
                raise CommitUnknown("the connection was lost during COMMIT")


@pytest.mark.parametrize("point", [BEFORE, AFTER])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_lost_commit_of_claim_or_settle_does_not_show(subject: Subject, nth: int, point: str) -> None:
    ticket = subject.ticket()
    with subject.probe.during(LostCommit(nth, point)):
        receipt = subject.perform(ticket, title="a")
    assert receipt.value == {"id": 1, "title": "a"}
    assert len(subject.sent) == 1
    assert (subject.state, subject.attempts(), subject.cases()) == ("succeeded", ["succeeded"], [])
    assert subject.perform(ticket, title="a").already_happened


@pytest.mark.parametrize("point", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("ending", "error", "state"),
    [
        (NotSent(), EffectNotSent, "pending"),
        (Refused("402"), EffectRefused, "failed"),
        (OSError(), OutcomeUnknown, "unknown"),
    ],
)
def test_a_lost_commit_of_another_outcome_does_not_show_either(
    subject: Subject, ending: Exception, error: type[Exception], state: str, point: str
) -> None:
    def end() -> None:
        raise ending

    ticket = subject.ticket(end)
    with subject.probe.during(LostCommit(2, point)), pytest.raises(error):
        subject.perform(ticket, title="a")
    assert subject.state == state
    assert subject.cases() == (["unknown_outcome"] if state == "unknown" else [])
    assert (len(subject.sent), len(subject.rows("attempt")), subject.rows("evidence")) == (1, 1, [])


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_lost_commit_of_a_resend_sends_once(subject: Subject, point: str) -> None:
    errors: list[Exception] = [OSError()]

    def end() -> None:
        if errors:
            raise errors.pop()

    ticket = subject.ticket(end, provider=Provider(key_lifetime="1h"))
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    with subject.probe.during(LostCommit(1, point)):
        assert subject.perform(ticket, title="a").attempt == 2
    assert len(subject.sent) == 2
    assert subject.attempts() == ["unknown", "succeeded"]


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_lost_commit_of_a_look_ups_answer_asks_no_second_time(subject: Subject, point: str) -> None:
    asked: list[int] = []

    def lookup(call: Any, *, title: str) -> Any:
        asked.append(1)
        return Absent()

    errors: list[Exception] = [OSError()]

    def end() -> None:
        if errors:
            raise errors.pop()

    ticket = subject.ticket(end, provider=subject.provider(lookup=lookup, lookup_lag="0s"))
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    asked.clear()
    subject.clock.advance("31s")
    with subject.probe.during(LostCommit(1, point, since="insert_evidence")):
        if point == AFTER:
            assert subject.perform(ticket, title="a").attempt == 2
        else:
            with pytest.raises(OutcomeUnknown):
                subject.perform(ticket, title="a")
    assert len(asked) == 1
    assert subject.perform(ticket, title="a").attempt == 2
    assert len(subject.sent) == 2


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_lost_commit_of_a_transactional_effect_is_looked_up(subject: Subject, point: str) -> None:
    async def awaiting(tx: Any, *, title: str) -> Any:
        return {"title": title}

    def blocking(tx: Any, *, title: str) -> Any:
        return {"title": title}

    made = subject.effect(awaiting if subject.colour == ASYNC else blocking, provider=Provider.transactional())
    with subject.probe.during(LostCommit(1, point)):
        if point == BEFORE:
            with pytest.raises(CommitUnknown):
                subject.perform(made, title="a")
        else:
            assert subject.perform(made, title="a").value == {"title": "a"}
    assert subject.perform(made, title="a").already_happened is (point == AFTER)


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_lost_commit_of_a_late_result_settles_it_once(subject: Subject, point: str) -> None:
    gate = Gate()
    ticket = subject.ticket(gate)
    worker = Background(lambda: subject.perform(ticket, title="a"))
    gate.wait()
    subject.clock.advance("31s")
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    with subject.probe.during(LostCommit(1, point)):
        gate.open()
        assert worker.result().value["id"] == 1
    assert (subject.state, subject.attempts(), subject.cases()) == ("succeeded", ["succeeded"], [])


# --- what follows a lost COMMIT fails, too ---------------------------------------------------------------------------


class LostAndGone:
    """A probe that loses the answer of the nth COMMIT, which took effect, and from then on the whole database."""

    def __init__(self, nth: int = 1, *, since: str | None = None) -> None:
        self.lost, self.gone = LostCommit(nth, AFTER, since=since), False

    def __call__(self, point: Any, name: str) -> None:
        if self.gone:
            raise Busy("the database stayed locked; nothing was written")
        try:
            self.lost(point, name)
        except CommitUnknown:
            self.gone = True
            raise


def lose_reply() -> None:
    raise OSError


def test_a_claim_that_cannot_be_looked_up_is_not_said_to_be_none(subject: Subject) -> None:
    ticket = subject.ticket()
    with subject.probe.during(LostAndGone()), pytest.raises(CommitUnknown) as caught:
        subject.perform(ticket, title="a")
    assert isinstance(caught.value.__cause__, Busy)
    assert (subject.state, len(subject.sent)) == ("in_flight", 0)


def test_a_claim_made_again_is_not_said_to_be_none_either(subject: Subject) -> None:
    """The first one's COMMIT may be on its way still when it is looked up."""
    ticket, lost = subject.ticket(), LostCommit(1, BEFORE)

    def probe(point: Any, name: str) -> None:
        if lost.left < 1 and point == BEFORE:
            raise Busy("the database stayed locked; nothing was written")
        lost(point, name)

    with subject.probe.during(probe), pytest.raises(CommitUnknown):
        subject.perform(ticket, title="a")


def test_an_outcome_that_may_be_stored_is_not_said_to_be_lost(subject: Subject) -> None:
    ticket = subject.ticket()
    with subject.probe.during(LostAndGone(2)), pytest.raises(OutcomeNotStored, match="nobody knows") as caught:
        subject.perform(ticket, title="a")
    assert "nothing was written" not in str(caught.value)
    assert caught.value.result == {"id": 1, "title": "a"}
    assert subject.perform(ticket, title="a").already_happened


def test_a_look_up_s_answer_that_may_be_stored_is_not_said_to_be_lost(subject: Subject) -> None:
    ticket = subject.ticket(lose_reply, provider=subject.provider(lookup=never_shown, lookup_lag="0s"))
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    subject.clock.advance("31s")
    with subject.probe.during(LostAndGone(since="insert_evidence")), pytest.raises(CommitUnknown):
        subject.perform(ticket, title="a")
    assert subject.state == "pending"


def never_shown(call: Any, *, title: str) -> Any:
    return Absent()


def test_a_verification_that_may_be_stored_is_not_said_to_be_lost(subject: Subject) -> None:
    ticket = subject.ticket(provider=subject.provider(lookup=never_shown, lookup_lag="0s"))
    subject.perform(ticket, title="a")
    subject.clock.advance("31s")
    with subject.probe.during(LostAndGone()), pytest.raises(CommitUnknown):
        subject.verify(ticket, title="a")
    assert subject.cases() == ["contradicting_receipts"]


def test_a_review_that_may_be_stored_is_not_said_to_be_lost(subject: Subject) -> None:
    ticket = subject.ticket(lose_reply)
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    (operation_id,) = [row["operation_id"] for row in subject.rows("operation")]
    opened = subject.settle(subject.cf.review.open(operation_id, tenant="team-a"))
    with subject.probe.during(LostAndGone()), pytest.raises(CommitUnknown):
        subject.settle(subject.cf.review.open(operation_id, tenant="team-a"))
    said = {"verdict": "happened", "by": "ann", "evidence": "seen", "expect_version": opened.version}
    with subject.probe.during(LostAndGone()), pytest.raises(CommitUnknown):
        subject.settle(subject.cf.review.resolve(opened.case_id, tenant="team-a", **said))
    assert subject.state == "succeeded"
