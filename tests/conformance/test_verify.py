"""Asking the provider again, also after success: the ledger's word against the world's."""

from typing import Any

import pytest

from counterfoil import Absent, CannotTell, Effect, Found, Refused
from counterfoil.core.states import CaseKind
from counterfoil.errors import (
    ContradictoryDeclaration,
    FingerprintMismatch,
    InvalidLookupAnswer,
    OperationNotFound,
    OutcomeUnknown,
)
from tests.conformance.subject import Background, Gate, Subject

AFTER = "41s"  # the time limit of 30 s and the look-up's lag of 10 s are over


class Asked:
    """An effect whose provider can be asked, and what it answers."""

    def __init__(self, subject: Subject, ending: Any = None, answer: Any = None) -> None:
        self.subject, self.ending, self.answer = subject, ending, answer
        self.provider = subject.provider(lookup=self._lookup(), lookup_lag="10s")
        self.made: Effect[Any] = subject.ticket(self._end, provider=self.provider)

    def _lookup(self) -> Any:
        return lambda call, *, title: self.answer

    def _end(self) -> Any:
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending

    def perform(self) -> Any:
        return self.subject.perform(self.made, title="a")

    def verify(self, answer: Any) -> tuple[str, bool | None]:
        self.answer = answer
        told = self.subject.verify(self.made, title="a")
        assert (told.tenant, told.operation_id, told.answer) == ("team-a", "ticket:r-1", answer)
        return told.state, told.agrees


def test_a_receipt_that_the_provider_confirms(subject: Subject) -> None:
    asked = Asked(subject)
    asked.perform()
    assert asked.verify(Found({"title": "a", "id": 1})) == ("succeeded", True)
    assert asked.verify(Found()) == ("succeeded", True)
    assert (subject.cases(), subject.evidence(), len(subject.sent)) == ([], ["lookup", "lookup"], 1)


@pytest.mark.parametrize("answer", [Absent(), Found({"id": 2, "title": "a"})])
def test_an_answer_that_contradicts_a_receipt_opens_a_case_and_changes_nothing_else(
    subject: Subject, answer: Any
) -> None:
    asked = Asked(subject)
    receipt = asked.perform()
    subject.clock.advance(AFTER)
    before = subject.operation
    assert asked.verify(answer) == ("succeeded", False)
    assert subject.cases() == [CaseKind.CONTRADICTING_RECEIPTS]
    after = subject.operation
    assert {k: v for k, v in after.items() if k != "now"} == {k: v for k, v in before.items() if k != "now"}
    assert asked.perform().value == receipt.value
    assert len(subject.sent) == 1


def test_a_no_that_came_too_early_contradicts_nothing(subject: Subject) -> None:
    asked = Asked(subject)
    asked.perform()
    assert asked.verify(Absent()) == ("succeeded", None)
    assert asked.verify(CannotTell()) == ("succeeded", None)
    assert subject.cases() == []


def test_an_unknown_outcome_is_settled_by_what_is_found(subject: Subject) -> None:
    asked = Asked(subject, OSError(), CannotTell())
    with pytest.raises(OutcomeUnknown):
        asked.perform()
    assert asked.verify(CannotTell()) == ("unknown", None)
    assert asked.verify(Absent()) == ("unknown", None)
    assert asked.verify(Found({"id": 1})) == ("succeeded", True)
    assert (subject.cases(), asked.perform().value) == ([], {"id": 1})


def test_an_unknown_outcome_is_freed_by_proved_absence(subject: Subject) -> None:
    asked = Asked(subject, OSError(), CannotTell())
    with pytest.raises(OutcomeUnknown):
        asked.perform()
    subject.clock.advance(AFTER)
    assert asked.verify(Absent()) == ("pending", True)
    asked.ending = None
    assert asked.perform().attempt == 2


def test_a_refused_operation_that_the_provider_shows_all_the_same(subject: Subject) -> None:
    from counterfoil.errors import EffectRefused

    asked = Asked(subject, Refused("402"))
    with pytest.raises(EffectRefused):
        asked.perform()
    assert asked.verify(Found({"id": 1})) == ("succeeded", False)
    assert subject.cases() == [CaseKind.POSSIBLE_DOUBLE_EFFECT]
    assert asked.perform().value == {"id": 1}


def test_a_running_operation_is_left_alone(subject: Subject) -> None:
    gate = Gate()
    asked = Asked(subject)
    asked.made = subject.ticket(gate, provider=asked.provider)
    worker = Background(asked.perform)
    gate.wait()
    for answer in (Found({"id": 9}), Absent(), CannotTell()):
        assert asked.verify(answer) == ("in_flight", None)
    gate.open()
    assert worker.result().value["id"] == 1
    assert subject.cases() == []


def test_verify_refuses_what_perform_would_refuse(subject: Subject) -> None:
    asked = Asked(subject)
    with pytest.raises(OperationNotFound):
        asked.verify(Found())
    asked.perform()
    with pytest.raises(FingerprintMismatch):
        subject.verify(asked.made, title="another")
    with pytest.raises(InvalidLookupAnswer):
        asked.verify(None)
    opaque = subject.ticket()
    with pytest.raises(ContradictoryDeclaration, match="look-up"):
        subject.verify(opaque, title="a")
    assert subject.evidence() == []


def test_secrets_are_redacted_in_what_a_look_up_finds_too(subject: Subject) -> None:
    def lookup(call: Any) -> Any:
        return Found({"id": 1, "secret": "sk_live_123"}, {"secret": "sk_live_123"})

    def send(call: Any) -> Any:
        raise OSError

    provider = subject.provider(lookup=lookup, lookup_lag="0s")
    made = subject.effect(send, provider=provider, redact=["secret"])
    assert repr(subject.perform(made).value["secret"]) == "Redacted"
    assert "sk_live_123" not in repr((subject.operation, subject.rows("evidence")))
