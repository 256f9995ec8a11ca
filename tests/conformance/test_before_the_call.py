"""What goes wrong between the claim and the call of the function: nothing was sent, and that is what is recorded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from counterfoil import CannotTell, Delivery, Effect, Policy, Provider
from counterfoil.errors import OutcomeUnknown
from tests.conformance.subject import Subject
from tests.conformance.test_approvals import colour, decide, listed, request, store
from tests.conformance.test_outbox import EACH, MINUTE, Turning, lose, pass_by

__all__ = ["colour", "store"]

KEYED = Provider(key_lifetime="24h")
ONCE = Delivery(max_attempts=1)
HUGE = 1 << 46


def breaks(**_: Any) -> bool:
    raise ZeroDivisionError


class Interrupted(BaseException):
    """What is no `Exception`."""


def interrupted(**_: Any) -> bool:
    raise Interrupted


class Refusing(type):
    """Types whose values can be taken from storage only while they are `open`."""

    open: ClassVar[bool] = True


@dataclass(frozen=True)
class Price(metaclass=Refusing):
    amount: int

    def __post_init__(self) -> None:
        if not Refusing.open:
            raise ArithmeticError


def priced(subject: Subject, **contract: Any) -> Effect[Any]:
    def pay(call: Any, *, price: Price) -> Any:
        subject.sent.tally.accept("pay", call.provider_key, {"amount": price.amount})
        return price.amount

    return subject.effect(pay, **contract)


@contextmanager
def unreadable() -> Iterator[None]:
    """Let stored prices not be made anew, as by another release of their class."""
    Refusing.open = False
    try:
        yield
    finally:
        Refusing.open = True


@pytest.mark.parametrize("policy", [breaks, interrupted, lambda **_: "yes"])
def test_a_policy_that_breaks_in_the_dispatcher_sends_nothing_and_keeps_nobody_else_waiting(
    subject: Subject, policy: Any
) -> None:
    create, other = subject.ticket(), subject.ticket(key=f"{EACH}/other")
    subject.enqueue(create, title="a")
    subject.enqueue(other, title="b")
    object.__setattr__(create, "approval", Policy(when=policy))
    subject.drain(create, other)
    assert subject.sent.bodies == [{"title": "b"}]
    states = {row["operation_id"]: row["state"] for row in subject.rows("operation")}
    assert (states, subject.cases()) == ({"ticket:r-1": "pending", "ticket:r-1/b/other": "succeeded"}, [])
    object.__setattr__(create, "approval", None)
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert subject.sent.bodies == [{"title": "b"}, {"title": "a"}]


def test_an_intent_whose_policy_always_breaks_is_a_dead_letter_that_says_why(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a", delivery=ONCE)
    object.__setattr__(create, "approval", Policy(when=breaks))
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.attempts()) == (0, "parked", ["not_sent"])
    (case,) = subject.rows("case")
    assert case["kind"] == "dead_letter"
    assert "ZeroDivisionError, before the effect began" in case["reason"]


def test_a_policy_that_breaks_after_a_lost_reply_leaves_that_one_unknown(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), provider=KEYED)
    subject.enqueue(create, title="a")
    subject.drain(create)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (1, "pending")  # to be sent again under its key
    object.__setattr__(create, "approval", Policy(when=breaks))
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])


def test_a_policy_that_breaks_for_one_unknown_outcome_keeps_no_other_from_being_looked_up(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, lose, None), provider=KEYED, key=EACH)
    for title in "ab":
        subject.enqueue(create, title=title)
    subject.drain(create)
    assert (len(subject.sent), [row["state"] for row in subject.rows("operation")]) == (2, ["unknown"] * 2)

    def breaks_for_one(title: str) -> bool:
        return title == "a" and breaks()

    object.__setattr__(create, "approval", Policy(when=breaks_for_one))
    for _ in range(3):
        pass_by(subject, MINUTE)
        subject.drain(create)
    states = {row["operation_id"][-1]: row["state"] for row in subject.rows("operation")}
    assert (states, subject.sent.bodies[2:]) == ({"a": "unknown", "b": "succeeded"}, [{"title": "b"}])


@pytest.mark.parametrize("way", ["perform", "enqueue"])
@pytest.mark.parametrize("policy", [None, Policy()])
def test_stored_arguments_that_cannot_be_made_anew_are_provably_not_sent(
    subject: Subject, way: str, policy: Policy | None
) -> None:
    pay = priced(subject)
    if way == "enqueue":
        subject.enqueue(pay, price=Price(5), delivery=ONCE)
        object.__setattr__(pay, "approval", policy)
    else:
        decide(subject, "approve", request(subject, pay, price=Price(5)).approval_id)
    with unreadable():
        if way == "enqueue":
            subject.drain(pay)
        else:
            with pytest.raises(ArithmeticError):
                subject.perform(pay, price={"amount": 5})
    left = {"enqueue": "parked", "perform": "pending"}[way]
    assert (len(subject.sent), subject.state, subject.attempts()) == (0, left, ["not_sent"])


def test_a_look_up_whose_arguments_cannot_be_made_anew_keeps_no_other_from_being_asked(subject: Subject) -> None:
    def look(call: Any, **_: Any) -> Any:
        return CannotTell("busy")

    provider = subject.provider(lookup=look, lookup_lag="0s", on_absent="retry")

    def pay(call: Any, *, price: Price) -> Any:
        lose()

    first, other = subject.effect(pay, provider=provider), subject.ticket(lose, provider=KEYED, key=EACH)
    subject.enqueue(first, price=Price(5))
    subject.drain(first)
    subject.enqueue(other, title="b", delivery=Delivery(max_attempts=2))
    subject.drain(other)
    with unreadable():
        for _ in range(3):
            pass_by(subject, MINUTE)
            subject.drain(first, other)
    states = {row["operation_id"]: row["state"] for row in subject.rows("operation")}
    assert (states["ticket:r-1"], len(subject.sent)) == ("unknown", 2)


@contextmanager
def threadless() -> Iterator[None]:
    """Let no thread be startable, as where a system's limit is reached: none has so much room for its stack."""
    before = threading.stack_size(HUGE)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_what_cannot_be_kept_alive_is_not_begun(blocking: Subject) -> None:
    create = blocking.ticket(lease="10s", time_limit="30s")
    with threadless(), pytest.raises(RuntimeError, match="start new thread"):
        blocking.perform(create, title="a")
    assert (len(blocking.sent), blocking.state, blocking.attempts()) == (0, "pending", ["not_sent"])
    beats = blocking.cf.desk.heartbeats
    assert blocking.perform(create, title="a").attempt == 2
    assert beats._thread.is_alive()  # leases are renewed from now on


def test_a_policy_that_breaks_for_what_a_caller_stored_says_so_and_sends_nothing(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), provider=KEYED, not_identity=("title",))
    with pytest.raises(OutcomeUnknown):
        subject.perform(create, title="a")
    object.__setattr__(create, "approval", Policy(when=lambda title: title == "a" and interrupted()))
    with pytest.raises(Interrupted):
        subject.perform(create, title="b")
    assert (len(subject.sent), subject.attempts()) == (1, ["unknown", "not_sent"])
    assert listed(subject) == []
