"""Code changes while operations are open: what is sent is what was stored with them, the defaults of then included."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from counterfoil import Delivery, Effect, Policy, Provider
from counterfoil.errors import ApprovalRequired, InvalidArguments, OutcomeUnknown
from tests.conformance.subject import Subject
from tests.conformance.test_approvals import TENANT, colour, decide, listed, show, store
from tests.conformance.test_outbox import MINUTE, Turning, lose, pass_by

__all__ = ["colour", "store"]

_names = (f"changed.mail-{number}" for number in count())
KEYED = Provider(key_lifetime="24h")
Release = Callable[..., Effect[Any]]


@pytest.fixture
def release(subject: Subject) -> Release:
    """Declare one effect anew, as the next release of a program does."""
    name = next(_names)

    def declare(default: str, do: Callable[[], Any] = lambda: None, **contract: Any) -> Effect[Any]:
        def mail(call: Any, *, text: str, to: str = default) -> Any:
            subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text})
            return do()

        return subject.effect(mail, name=name, key="{request_id}/mail", **contract)

    return declare


def demanding(subject: Subject, name: str, **contract: Any) -> Effect[Any]:
    """Declare the effect with an argument that nobody gave before."""

    def mail(call: Any, *, text: str, sender: str, to: str = "bob") -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text, "from": sender})

    mail.__qualname__ = "release.<locals>.declare.<locals>.mail"
    return subject.effect(mail, name=name, key="{request_id}/mail", **contract)


@pytest.mark.parametrize("way", ["perform", "enqueue"])
def test_a_default_that_changes_after_the_approval_changes_nothing_that_is_sent(
    subject: Subject, release: Release, way: str
) -> None:
    before = release("bob", approval=Policy())
    if way == "enqueue":
        subject.enqueue(before, text="a")
    else:
        with pytest.raises(ApprovalRequired):
            subject.perform(before, text="a")
    (waiting,) = listed(subject)
    assert show(subject, waiting.approval_id).arguments == {"text": "a", "to": "bob"}
    decide(subject, "approve", waiting.approval_id)
    after = release("eve", approval=Policy())
    if way == "enqueue":
        subject.drain(after)
    else:
        subject.perform(after, text="a")
    assert subject.sent.bodies == [{"text": "a", "to": "bob"}]


def test_an_approved_default_may_be_given_as_well(subject: Subject, release: Release) -> None:
    mail = release("bob", approval=Policy())
    subject.settle(subject.cf.approvals.request(mail, **TENANT, request_id="r-1", text="a"))
    (waiting,) = listed(subject)
    with pytest.raises(InvalidArguments, match="change nothing"):
        decide(subject, "edit", waiting.approval_id, changes={"to": "bob"})
    decide(subject, "approve", waiting.approval_id)
    subject.perform(mail, text="a", to="bob")
    assert subject.sent.bodies == [{"text": "a", "to": "bob"}]


@pytest.mark.parametrize("way", ["perform", "enqueue"])
def test_what_is_sent_again_under_its_key_is_what_was_sent_before(subject: Subject, release: Release, way: str) -> None:
    turning = Turning(lose, None)
    before = release("bob", turning, provider=KEYED)
    if way == "enqueue":
        subject.enqueue(before, text="a")
        subject.drain(before)
    else:
        with pytest.raises(OutcomeUnknown):
            subject.perform(before, text="a")
    after = release("eve", turning, provider=KEYED)
    pass_by(subject, MINUTE)
    if way == "enqueue":
        subject.drain(after)
        pass_by(subject, MINUTE)
        subject.drain(after)
    else:
        subject.perform(after, text="a")
    assert subject.sent.bodies == [{"text": "a", "to": "bob"}] * 2
    assert subject.state == "succeeded"


def test_what_a_changed_function_cannot_take_is_provably_not_sent(subject: Subject, release: Release) -> None:
    before = release("bob")
    subject.enqueue(before, text="a", delivery=Delivery(max_attempts=1))
    after = demanding(subject, before.name)
    subject.drain(after)
    assert (len(subject.sent), subject.state, subject.cases()) == (0, "parked", ["dead_letter"])
    (case,) = subject.rows("case")
    assert "takes other arguments than were stored for it: sender" in case["reason"]


def test_a_caller_of_a_changed_function_learns_that_the_stored_arguments_do_not_fit(
    subject: Subject, release: Release
) -> None:
    with pytest.raises(OutcomeUnknown):
        subject.perform(release("bob", lose, provider=KEYED), text="a", to="bob")
    name = subject.operation["effect"]
    after = demanding(subject, name, provider=KEYED, not_identity=("sender",))
    with pytest.raises(InvalidArguments, match="takes other arguments than were stored for it: sender"):
        subject.perform(after, text="a", to="bob", sender="ann")
    assert (len(subject.sent), subject.state) == (1, "unknown")


def test_a_default_that_cannot_be_stored_stands_for_the_arguments_absence(subject: Subject) -> None:
    nothing = object()

    def mail(call: Any, *, text: str, to: Any = nothing) -> Any:
        subject.sent.tally.accept("mail", call.provider_key, {"text": text, "is_given": to is not nothing})

    made = subject.effect(mail, approval=Policy())
    subject.enqueue(made, text="a")
    (waiting,) = listed(subject)
    assert show(subject, waiting.approval_id).arguments == {"text": "a"}
    decide(subject, "approve", waiting.approval_id)
    subject.drain(made)
    assert subject.sent.bodies == [{"text": "a", "is_given": False}]
