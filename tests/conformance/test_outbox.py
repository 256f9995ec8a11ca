"""An intent commits with what caused it; a dispatcher sends it once, in order, in time, and never on a guess."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from counterfoil import Absent, Delivery, Found, NotSent, Provider, Refused
from counterfoil.core.outbox import FIRST_PAUSE_MS, PATIENCE_MS
from counterfoil.errors import (
    DifferentEffect,
    FingerprintMismatch,
    InvalidArguments,
    OperationClosed,
    OperationParked,
    OperationQueued,
)
from counterfoil.storage.tenants import ALL_TENANTS
from tests.conformance.subject import Background, Gate, Subject
from tests.conformance.test_unknown import Answers

MINUTE = 60_000
EACH = "ticket:{request_id}/{title}"


def refuse() -> Any:
    raise Refused("no such customer")


def not_sent() -> Any:
    raise NotSent("busy")


def lose() -> Any:
    raise TimeoutError


def pass_by(subject: Subject, milliseconds: int) -> None:
    subject.clock.advance(timedelta(milliseconds=milliseconds))


class Turning:
    """An effect's end that changes from one attempt to the next."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)

    def __call__(self) -> Any:
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return end() if callable(end) else end


# --- once ------------------------------------------------------------------------------------------------------------


def test_an_intent_is_sent_once_and_its_receipt_answers_who_performs_it(subject: Subject) -> None:
    create = subject.ticket()
    intent = subject.enqueue(create, title="a")
    assert (intent.state, intent.is_new, intent.operation_id) == ("pending", True, "ticket:r-1")
    assert len(subject.sent) == 0
    subject.drain(create)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "succeeded")
    receipt = subject.perform(create, title="a")
    assert (receipt.value["id"], receipt.answered_from, receipt.attempt) == (1, "receipt", 1)
    assert subject.enqueue(create, title="a").state == "succeeded"
    assert len(subject.sent) == 1


def test_the_same_id_with_other_arguments_is_refused(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a")
    assert not subject.enqueue(create, title="a").is_new
    with pytest.raises(FingerprintMismatch, match="title differ"):
        subject.enqueue(create, title="b")
    with pytest.raises(DifferentEffect):
        subject.enqueue(subject.ticket(), title="a")
    subject.drain(create)
    assert subject.sent.bodies == [{"title": "a"}]


def test_who_performs_what_is_queued_is_told_so(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a")
    with pytest.raises(OperationQueued, match=r"left to the dispatcher.*counterfoil explain"):
        subject.perform(create, title="a")
    assert len(subject.sent) == 0


def test_who_performs_a_dead_letter_or_what_was_cancelled_is_told_what_to_do(subject: Subject) -> None:
    create = subject.ticket(not_sent, delivery=Delivery(max_attempts=1))
    subject.enqueue(create, title="a")
    subject.drain(create)
    with pytest.raises(OperationParked, match="counterfoil outbox show"):
        subject.perform(create, title="a")
    subject.settle(subject.cf.outbox.skip(subject.operation["operation_id"], tenant="team-a", by="ada", reason="no"))
    subject.enqueue(create, request_id="r-2", title="a", delivery=Delivery(delay="1h"))
    subject.settle(subject.cf.outbox.cancel("ticket:r-2", tenant="team-a", by="ada", reason="no"))
    with pytest.raises(OperationClosed, match="counterfoil explain ticket:r-2 --tenant team-a"):
        subject.perform(create, request_id="r-2", title="a")


def test_several_are_recorded_together_or_not_at_all(subject: Subject) -> None:
    create = subject.ticket(key=EACH)
    titles = [{"title": title} for title in "abc"]
    intents = subject.settle(subject.cf.enqueue_all(create, titles, tenant="team-a", request_id="r-1"))
    assert [intent.operation_id for intent in intents] == [f"ticket:r-1/{title}" for title in "abc"]
    noted = subject.ticket(key="ticket:{request_id}/d", name="outbox.noted")
    subject.enqueue(noted, title="x")
    with pytest.raises(DifferentEffect):
        subject.settle(
            subject.cf.enqueue_all(
                create, [{"title": "c"}, {"title": "d"}, {"title": "e"}], tenant="team-a", request_id="r-1"
            )
        )
    subject.drain(create, noted)
    assert sorted(body["title"] for body in subject.sent.bodies) == ["a", "b", "c", "x"]


@pytest.mark.parametrize("several", [None, 5, "ab", {"title": "a"}])
def test_several_are_an_iterable_of_mappings(subject: Subject, several: Any) -> None:
    create = subject.ticket(key=EACH)
    with pytest.raises(InvalidArguments, match=r"enqueue_all\(\.\.\.\).*mapping"):
        subject.settle(subject.cf.enqueue_all(create, several, tenant="team-a", request_id="r-1"))
    assert subject.rows("operation") == []


# --- when ------------------------------------------------------------------------------------------------------------


def test_it_is_sent_when_it_is_due_and_not_before(subject: Subject) -> None:
    create = subject.ticket(key=EACH)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=subject.clock.now_ms() + 2 * MINUTE)
    subject.enqueue(create, title="later", delivery=Delivery(delay="1m"))
    subject.enqueue(create, title="latest", delivery=Delivery(at=at))
    subject.drain(create)
    assert len(subject.sent) == 0
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == ["later"]
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == ["later", "latest"]


def test_what_was_not_sent_in_its_time_expires_unsent(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a", delivery=Delivery(time_to_live="1m"))
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (0, "expired")


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"at": datetime(2027, 1, 4, 9)}, "with a zone"),  # noqa: DTZ001 - that is the point
        ({"delay": "1m", "at": datetime(2027, 1, 4, 9, tzinfo=UTC)}, "two times"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"time_to_live": "0s"}, "nothing would ever be sent"),
        ({"stream": ""}, "stream"),
        ({"stream": "a\0b"}, "stream"),
    ],
)
def test_terms_that_can_never_be_kept_are_refused(terms: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArguments, match=told):
        Delivery(**terms)


# --- how often -------------------------------------------------------------------------------------------------------


def test_what_provably_did_not_happen_is_tried_again_after_a_pause(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, not_sent, None))
    subject.enqueue(create, title="a")
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "pending")
    pass_by(subject, FIRST_PAUSE_MS)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "pending")
    pass_by(subject, FIRST_PAUSE_MS - 1)  # half of a pause is certain, and the second is twice the first
    subject.drain(create)
    assert len(subject.sent) == 2
    pass_by(subject, FIRST_PAUSE_MS + 1)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (3, "succeeded")


def test_a_providers_wish_to_wait_is_heeded(subject: Subject) -> None:
    def busy() -> None:
        error = NotSent("busy")
        error.retry_after = 60
        raise error

    create = subject.ticket(Turning(busy, None))
    subject.enqueue(create, title="a")
    subject.drain(create)
    pass_by(subject, MINUTE - 1)
    subject.drain(create)
    assert len(subject.sent) == 1
    pass_by(subject, 1)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "succeeded")


def test_tries_that_are_used_up_make_a_dead_letter_with_its_reason(subject: Subject) -> None:
    create = subject.ticket(not_sent)
    subject.enqueue(create, title="a", delivery=Delivery(max_attempts=2))
    for _ in range(4):
        subject.drain(create)
        pass_by(subject, 10 * FIRST_PAUSE_MS)
    assert (len(subject.sent), subject.state, subject.cases()) == (2, "parked", ["dead_letter"])
    (case,) = subject.rows("case")
    assert case["reason"] == "its tries are used up; the last one: busy"


def test_a_refusal_is_final(subject: Subject) -> None:
    create = subject.ticket(refuse)
    subject.enqueue(create, title="a")
    for _ in range(2):
        subject.drain(create)
        pass_by(subject, MINUTE)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "failed", [])


# --- what nobody knows -----------------------------------------------------------------------------------------------


def test_a_lost_reply_of_an_opaque_provider_is_never_sent_again(subject: Subject) -> None:
    create = subject.ticket(lose)
    subject.enqueue(create, title="a")
    for _ in range(3):
        subject.drain(create)
        pass_by(subject, 10 * MINUTE)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])


def test_a_lost_reply_is_sent_again_under_the_same_key_while_that_lives(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), provider=Provider(key_lifetime="24h"))
    subject.enqueue(create, title="a")
    subject.drain(create)
    assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])
    subject.drain(create)
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert (len(subject.sent), len(set(subject.sent.keys)), subject.state) == (2, 1, "succeeded")
    assert subject.cases() == []


def test_a_lost_reply_is_not_sent_again_after_the_keys_lifetime(subject: Subject) -> None:
    create = subject.ticket(lose, provider=Provider(key_lifetime="1h"))
    subject.enqueue(create, title="a")
    subject.drain(create)
    pass_by(subject, 60 * MINUTE)
    subject.drain(create)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])


def test_a_lost_reply_is_looked_up(subject: Subject) -> None:
    answers = Answers(Found({"id": 7}))
    create = subject.ticket(lose, provider=subject.provider(lookup=answers, lookup_lag="0s"))
    subject.enqueue(create, title="a")
    subject.drain(create)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "succeeded", [])
    assert subject.perform(create, title="a").value == {"id": 7}


def test_proved_absence_lets_it_be_sent_again(subject: Subject) -> None:
    answers = Answers(Absent())
    create = subject.ticket(Turning(lose, None), provider=subject.provider(lookup=answers, lookup_lag="0s"))
    subject.enqueue(create, title="a")
    subject.drain(create)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "unknown")  # too early: it may still arrive
    pass_by(subject, PATIENCE_MS + 30_001)
    subject.drain(create)
    pass_by(subject, 2 * FIRST_PAUSE_MS)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (2, "succeeded", [])


def test_the_claim_of_a_worker_that_died_counts_as_unknown_when_it_is_over(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a")
    from counterfoil.storage.scripts import outbox

    lane = outbox.Lane(effect=create.name, effect_version=1, limit=1)
    subject.settle(subject.write(lambda: outbox.turn((), [lane], "elsewhere@0-0:1:1:aa/d1"), tenant=ALL_TENANTS))
    pass_by(subject, PATIENCE_MS + 30_000 - 1)
    subject.drain(create)
    assert subject.state == "in_flight"
    pass_by(subject, 1)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (0, "unknown", ["unknown_outcome"])


def test_a_late_reply_of_what_waits_to_be_sent_again_under_its_key_asks_nobody(subject: Subject) -> None:
    gate = Gate()
    create = subject.ticket(gate, provider=Provider(key_lifetime="24h"))
    subject.enqueue(create, title="a")
    stalled = Background(lambda: subject.drain(create))
    gate.wait()
    pass_by(subject, PATIENCE_MS + 30_000)
    subject.drain(create)
    assert subject.state == "pending"
    gate.open()
    stalled.result()
    assert (len(subject.sent), subject.state, subject.operation["settled_by"]) == (1, "succeeded", "late_reply")
    assert (subject.cases(), subject.cases("settled")) == ([], ["unknown_outcome"])


# --- in which order --------------------------------------------------------------------------------------------------


def test_a_stream_is_sent_in_order_one_after_the_other(subject: Subject) -> None:
    create = subject.ticket(key=EACH, delivery=Delivery(stream="ticket/{request_id}"))
    titles = [f"{number:02}" for number in range(25)]
    for title in titles:
        subject.enqueue(create, title=title)
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == titles


def test_a_failed_message_holds_its_own_stream_only(subject: Subject) -> None:
    """`https://github.com/rebus-org/Rebus/issues/1067`"""

    def create_ticket(call: Any, *, title: str) -> Any:
        subject.sent.tally.accept("ticket", call.provider_key, {"title": title})
        if title == "bad":
            raise NotSent
        return title

    create = subject.effect(create_ticket, key=EACH, delivery=Delivery(max_attempts=1))
    for title, stream in [("bad", "5"), ("comment", "5"), ("close", "5"), ("other", "6")]:
        subject.enqueue(create, title=title, delivery=Delivery(stream=stream))
    for _ in range(2):
        subject.drain(create)
        pass_by(subject, MINUTE)
    assert sorted(body["title"] for body in subject.sent.bodies) == ["bad", "other"]
    states = {row["operation_id"]: row["state"] for row in subject.rows("operation")}
    assert states["ticket:r-1/bad"] == "parked"
    assert states["ticket:r-1/comment"] == states["ticket:r-1/close"] == "pending"
