"""One operation, one effect, one receipt, however often it is asked for."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from counterfoil import NotSent, Refused
from counterfoil.errors import (
    DifferentEffect,
    EffectNotSent,
    EffectRefused,
    FingerprintMismatch,
    InvalidId,
    LoneSurrogate,
    NonFiniteNumber,
    NulCharacter,
    OperationNotFound,
    ReceiptUnreadable,
    TemplateFieldMissing,
    TrustedFieldMismatch,
    UnsupportedValue,
)
from tests.conformance.subject import Subject


def test_the_first_call_runs_the_effect_and_the_next_ones_answer_from_its_receipt(subject: Subject) -> None:
    ticket = subject.ticket()
    first = subject.perform(ticket, title="Printer offline")
    again = [subject.perform(ticket, title="Printer offline") for _ in range(3)]
    assert first.value == {"id": 1, "title": "Printer offline"}
    assert [r.value for r in again] == [first.value] * 3
    assert (first.answered_from, first.already_happened) == ("effect", False)
    assert {(r.answered_from, r.already_happened) for r in again} == {("receipt", True)}
    assert len(subject.sent) == 1
    row = subject.operation
    assert (row["state"], row["attempt"], row["fence"], row["settled_by"]) == ("succeeded", 1, 1, "reply")
    assert row["payload"] is None
    assert row["lease_until"] == 0
    assert subject.attempts() == ["succeeded"]
    assert subject.rows("case") == []


def test_a_receipt_says_whose_it_is_and_when_it_was_settled(subject: Subject) -> None:
    ticket = subject.ticket()
    receipt = subject.perform(ticket, title="Printer offline")
    assert (receipt.tenant, receipt.operation_id) == ("team-a", "ticket:r-1")
    assert (receipt.effect, receipt.effect_version, receipt.attempt) == (ticket.name, 1, 1)
    assert receipt.settled_at == subject.clock.now_ms()
    assert receipt.fingerprint.startswith("jcs1:")


@dataclass
class Line:
    sku: str
    amount: int


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)


FAITHFUL = {
    "a tuple": ((1, 2), (1, 2)),
    "a set": ({1, 2}, {1, 2}),
    "a decimal": (Decimal("10.00"), Decimal("10.00")),
    "a moment": (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
    "bytes": (b"\x00\xff", b"\x00\xff"),
    "a dataclass": (Order(7, [Line("x", 2)]), {"id": 7, "lines": [{"sku": "x", "amount": 2}]}),
    "text with NUL": ("a\0b", "a\0b"),
    "text with a lone surrogate": ("a\ud800b", "a\ud800b"),
    "an emoji": ("\U0001f9fe", "\U0001f9fe"),
    "nothing": (None, None),
    "keys that are not strings": ({1: "one", (2, 3): "pair"}, {1: "one", (2, 3): "pair"}),
}


@pytest.mark.parametrize("kind", FAITHFUL)
def test_a_receipts_value_is_the_stored_one_the_first_time_included(subject: Subject, kind: str) -> None:
    returned, stored = FAITHFUL[kind]
    made = subject.effect(lambda call: returned)
    first, second = subject.perform(made), subject.perform(made)
    assert first.value == second.value == stored
    assert type(first.value) is type(second.value) is type(stored)


def test_a_result_that_was_changed_after_the_return_does_not_change_the_receipt(subject: Subject) -> None:
    shared = {"id": 1}
    made = subject.effect(lambda call: shared)
    receipt = subject.perform(made)
    shared["id"] = 2
    assert receipt.value == {"id": 1}
    assert subject.perform(made).value == {"id": 1}


class Live:
    """Something that no receipt can hold."""


UNSTORABLE = {"a live object": Live(), "one deep inside": {"reply": [Live()]}, "a function": len, "a cycle": []}
UNSTORABLE["a cycle"].append(UNSTORABLE["a cycle"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", UNSTORABLE)
def test_a_result_that_cannot_be_stored_leaves_a_receipt_that_stands(subject: Subject, kind: str) -> None:
    ticket = subject.ticket(lambda: UNSTORABLE[kind])
    for _ in range(2):
        receipt = subject.perform(ticket, title="Printer offline")
        assert receipt.marker is not None
        with pytest.raises(ReceiptUnreadable) as caught:
            _ = receipt.value
        assert caught.value.operation_id == "ticket:r-1"
    assert subject.state == "succeeded"
    assert len(subject.sent) == 1


def test_a_result_whose_own_code_fails_leaves_a_receipt_that_stands(subject: Subject) -> None:
    class Hostile:
        def get_secret_value(self) -> str:
            return "hunter2"

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("do not look")

    subject.perform(subject.ticket(lambda: {"x": Hostile(), "y": Live()}), title="x")
    assert subject.state == "succeeded"


def test_declared_secrets_are_not_stored(subject: Subject) -> None:
    made = subject.effect(
        lambda call: {"id": 1, "card": {"client_secret": "sk_live_123", "last4": "4242"}},
        redact=("card.client_secret",),
    )
    first, second = subject.perform(made), subject.perform(made)
    assert first.value == second.value
    assert first.value["card"]["last4"] == "4242"
    assert repr(first.value["card"]["client_secret"]) == "Redacted"
    assert all(b"sk_live_123" not in bytes(v) for v in subject.operation.values() if isinstance(v, bytes))
    assert "sk_live_123" not in repr(subject.rows("evidence"))


@pytest.mark.parametrize(("ending", "error"), [(Refused, EffectRefused), (NotSent, EffectNotSent)])
def test_credentials_in_the_words_of_a_refusal_are_neither_stored_nor_told(
    subject: Subject, ending: type[Exception], error: type[Exception]
) -> None:
    def effect(call: Any) -> Any:
        raise ending("401: incorrect key sk-proj-" + "A1b2C3d4" * 5 + ", {'password': 'canary'}" + "-" * 600)

    with pytest.raises(error) as caught:
        subject.perform(subject.effect(effect))
    told = f"{caught.value} {subject.operation} {subject.rows('attempt')}"
    assert "401: incorrect key [redacted], {'password': '[redacted]'}" in told
    assert "A1b2C3d4" not in told
    assert "canary" not in told


# --- identity --------------------------------------------------------------------------------------------------------


def test_other_arguments_under_the_same_id_are_refused_with_the_fields_that_differ(subject: Subject) -> None:
    def pay(call: Any, *, amount: int, note: str = "", payee: str) -> Any:
        return subject.sent.tally.accept("pay", call.provider_key)

    made = subject.effect(pay)
    subject.perform(made, amount=10, payee="ada")
    before = subject.rows("operation")
    for given, fields in (
        ({"amount": 12, "payee": "ada"}, ("amount",)),
        ({"amount": 10, "payee": "ada", "note": "hello-secret"}, ("note",)),
        ({"amount": 11, "payee": "eve", "note": "hello-secret"}, ("amount", "note", "payee")),
    ):
        with pytest.raises(FingerprintMismatch) as caught:
            subject.perform(made, **given)
        assert caught.value.fields == fields
        assert caught.value.facts["stored"] != caught.value.facts["given"]
        assert "hello-secret" not in str(caught.value)
    assert subject.perform(made, amount=10, payee="ada", note="").already_happened
    assert len(subject.sent) == 1
    assert subject.rows("operation") == before


@pytest.mark.parametrize("state", ["unknown", "pending", "failed"])
def test_other_arguments_are_refused_in_every_state(subject: Subject, state: str) -> None:
    errors = {"unknown": OSError(), "pending": NotSent(), "failed": Refused()}

    def ending() -> None:
        raise errors[state]

    ticket = subject.ticket(ending)
    with pytest.raises(RuntimeError):
        subject.perform(ticket, title="one")
    assert subject.state == state
    with pytest.raises(FingerprintMismatch):
        subject.perform(ticket, title="two")
    assert len(subject.sent) == 1


def test_the_same_id_of_another_effect_is_refused(subject: Subject) -> None:
    ticket, invite = subject.ticket(), subject.ticket()
    subject.perform(ticket, title="Printer offline")
    with pytest.raises(DifferentEffect) as caught:
        subject.perform(invite, title="Printer offline")
    assert caught.value.facts["stored"] == ticket.name
    assert len(subject.sent) == 1


def test_two_tenants_may_use_the_same_id(subject: Subject) -> None:
    ticket = subject.ticket()
    a = subject.perform(ticket, tenant="tenant-one", title="Printer offline")
    b = subject.perform(ticket, tenant="tenant-two", title="Something else")
    assert (a.value["id"], b.value["id"]) == (1, 2)
    assert len(set(subject.sent.keys)) == 2
    with pytest.raises(FingerprintMismatch) as caught:
        subject.perform(ticket, tenant="tenant-two", title="Printer offline")
    assert "tenant-one" not in f"{caught.value} {caught.value.facts}"
    assert str(caught.value.facts["stored"]).removeprefix("jcs1:") != a.fingerprint
    other = subject.effect(
        lambda call, *, title: None, provider=subject.provider(lookup=lambda call, *, title: None, lookup_lag="0s")
    )
    with pytest.raises(OperationNotFound) as unknown:
        subject.verify(other, tenant="tenant-three", title="Printer offline")
    assert "tenant-one" not in str(unknown.value)


def test_equal_content_is_the_same_operation_whatever_its_form(subject: Subject) -> None:
    made = subject.effect(lambda call, *, order: subject.sent.tally.accept("order", None))
    subject.perform(made, order={"id": 7, "lines": [{"sku": "x", "amount": 2}]})
    subject.perform(made, order={"lines": [{"amount": 2.0, "sku": "x"}], "id": Decimal(7)})
    subject.perform(made, order=Order(7, [Line("x", 2)]))
    assert len(subject.sent) == 1
    with pytest.raises(FingerprintMismatch):
        subject.perform(made, order={"id": 7, "lines": [{"sku": "y", "amount": 2}]})


def test_fields_that_are_not_identity_may_differ_and_the_stored_ones_are_sent(subject: Subject) -> None:
    down = [True]

    def send(call: Any, *, text: str, trace: str) -> Any:
        if down:
            raise NotSent("the line is down")
        return subject.sent.tally.accept("send", None, {"text": text, "trace": trace})

    made = subject.effect(send, not_identity=("trace",))
    with pytest.raises(EffectNotSent):
        subject.perform(made, text="hello", trace="first")
    down.clear()
    assert subject.perform(made, text="hello", trace="second").value == 1
    assert subject.perform(made, text="hello", trace="third").already_happened
    assert subject.sent.bodies == [{"text": "hello", "trace": "first"}]


def test_stored_arguments_come_back_as_the_types_that_the_effect_declares(subject: Subject) -> None:
    seen: list[Any] = []

    def send(call: Any, *, order: Order, line: Line | None, lines: list[Line], trace: str) -> Any:
        seen.append((order, line, lines))
        if len(seen) == 1:
            raise NotSent
        return len(seen)

    made = subject.effect(send, not_identity=("trace",))
    given = {"order": Order(7, [Line("x", 2)]), "line": Line("y", 1), "lines": [Line("z", 3)]}
    with pytest.raises(EffectNotSent):
        subject.perform(made, **given, trace="first")
    subject.perform(made, **given, trace="second")
    assert seen[0] == seen[1]


def test_arguments_equal_to_their_default_change_nothing(subject: Subject) -> None:
    made = subject.effect(lambda call, *, title, priority="low": subject.sent.tally.accept("x", None))
    subject.perform(made, title="a")
    assert subject.perform(made, title="a", priority="low").already_happened
    with pytest.raises(FingerprintMismatch) as caught:
        subject.perform(made, title="a", priority="high")
    assert caught.value.fields == ("priority",)


def test_a_trusted_field_comes_from_the_context_alone(subject: Subject) -> None:
    made = subject.effect(lambda call, *, workflow_id: {"workflow": workflow_id}, key="w:{workflow_id}")
    assert subject.perform(made, workflow_id="w-1").value == {"workflow": "w-1"}
    with pytest.raises(TemplateFieldMissing):
        subject.perform(subject.effect(lambda call: None, key="w:{workflow_id}"))
    with pytest.raises(TrustedFieldMismatch):
        subject.settle(_with_argument(subject, made))


def _with_argument(subject: Subject, made: Any) -> Any:
    from counterfoil.desk import NOWHERE
    from counterfoil.model import Trusted

    return subject.cf.perform_as(made, {"workflow_id": "w-2"}, Trusted(tenant="team-a", workflow_id="w-1"), NOWHERE)


REFUSED_VALUES = {
    "NUL": ("a\0b", NulCharacter),
    "a lone surrogate": ("\ud800", LoneSurrogate),
    "NaN": (float("nan"), NonFiniteNumber),
    "infinity": (float("inf"), NonFiniteNumber),
    "a live object": (Live(), UnsupportedValue),
    "a NUL deep inside": ({"a": [{"b": "\0"}]}, NulCharacter),
    "a surrogate in a key": ({"\udfff": 1}, LoneSurrogate),
}


@pytest.mark.parametrize("kind", REFUSED_VALUES)
def test_arguments_that_no_database_can_hold_are_refused_before_the_effect(subject: Subject, kind: str) -> None:
    value, error = REFUSED_VALUES[kind]
    made = subject.effect(lambda call, *, body: subject.sent.tally.accept("x", None))
    with pytest.raises(error) as caught:
        subject.perform(made, body=value)
    assert "body" in str(caught.value)
    assert len(subject.sent) == 0
    assert subject.rows("operation") == []


@pytest.mark.parametrize("field", ["tenant", "request_id", "workflow_id", "principal"])
@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 513])
def test_trusted_fields_that_no_database_can_hold_are_refused_before_the_effect(
    subject: Subject, field: str, value: str
) -> None:
    made = subject.effect(lambda call, *, n: subject.sent.tally.accept("x", None), key="n:{n}")
    with pytest.raises(InvalidId) as caught:
        subject.perform(made, n=1, **{field: value})
    assert field in str(caught.value)
    assert len(subject.sent) == 0


# --- provably not, and never ------------------------------------------------------------------------------------------


def test_an_effect_that_provably_did_not_happen_may_be_tried_again(subject: Subject) -> None:
    answers: list[Any] = [NotSent("503, nothing accepted"), NotSent("still 503")]

    def send(call: Any, *, title: str) -> Any:
        if answers:
            raise answers.pop(0)
        return {"attempt": call.attempt}

    made = subject.effect(send)
    for attempt in (1, 2):
        with pytest.raises(EffectNotSent) as caught:
            subject.perform(made, title="a")
        assert isinstance(caught.value.__cause__, NotSent)
        assert caught.value.retry == "safe"
        assert (subject.state, subject.operation["attempt"]) == ("pending", attempt)
    receipt = subject.perform(made, title="a")
    assert (receipt.value, receipt.attempt) == ({"attempt": 3}, 3)
    assert subject.attempts() == ["not_sent", "not_sent", "succeeded"]
    assert subject.rows("case") == []


def test_a_refusal_is_final_and_repeated_from_the_store(subject: Subject) -> None:
    runs: list[int] = []

    def send(call: Any, *, title: str) -> Any:
        runs.append(1)
        raise Refused("402: the card was declined")

    made = subject.effect(send)
    for _ in range(3):
        with pytest.raises(EffectRefused, match="402: the card was declined") as caught:
            subject.perform(made, title="a")
        assert caught.value.retry == "never"
    assert len(runs) == 1
    assert (subject.state, subject.operation["payload"]) == ("failed", None)
    assert subject.attempts() == ["refused"]


class GatewayBusy(Exception):
    """A client library's own error."""


class CardDeclined(Exception):
    """A client library's own error."""


def test_declared_exceptions_count_as_what_they_are_declared_to_be(subject: Subject) -> None:
    raised: list[Exception] = [GatewayBusy(), CardDeclined("payload-word")]

    def send(call: Any, *, title: str) -> Any:
        raise raised.pop(0)

    made = subject.effect(send, not_sent=GatewayBusy, refused=(CardDeclined,))
    with pytest.raises(EffectNotSent):
        subject.perform(made, title="a")
    with pytest.raises(EffectRefused) as caught:
        subject.perform(made, title="a")
    assert "payload-word" not in str(caught.value)
    assert "CardDeclined" in str(caught.value)


@pytest.mark.parametrize("words", ["a\0b", "a\ud800b", "x" * 5000, ""])
def test_any_words_in_a_refusal_can_be_stored(subject: Subject, words: str) -> None:
    def send(call: Any) -> Any:
        raise Refused(words)

    made = subject.effect(send)
    for _ in range(2):
        with pytest.raises(EffectRefused):
            subject.perform(made)
    assert len(subject.operation["error_text"]) <= 600
    assert "\0" not in subject.operation["error_text"]


# --- evidence beside the value ----------------------------------------------------------------------------------------


def test_an_effect_may_keep_evidence_beside_its_value(subject: Subject) -> None:
    from counterfoil import Answered

    answer = Answered({"id": 7, "secret": "s"}, {"status": 201, "secret": "s"})
    ticket = subject.ticket(lambda: answer, redact=["secret"])
    first = subject.perform(ticket, title="a")
    again = subject.perform(ticket, title="a")
    for receipt in (first, again):
        assert receipt.value["id"] == 7
        assert receipt.evidence["status"] == 201
        assert "s" not in {str(receipt.value["secret"]), str(receipt.evidence["secret"])}
    assert (first.answered_from, again.answered_from) == ("effect", "receipt")


def test_an_effect_whose_answer_cannot_be_read_has_happened(subject: Subject) -> None:
    from counterfoil import Answered

    ticket = subject.ticket(lambda: Answered(None, {"status": 201}, "the body\0 is not JSON"))
    for _ in range(2):
        receipt = subject.perform(ticket, title="a")
        assert receipt.evidence == {"status": 201}
        with pytest.raises(ReceiptUnreadable, match="is not JSON"):
            _ = receipt.value
    assert (subject.state, len(subject.sent)) == ("succeeded", 1)


def test_how_long_the_provider_wants_to_be_left_alone_reaches_the_caller(subject: Subject) -> None:
    errors: list[Exception] = [NotSent("429", retry_after=7.5), NotSent("busy")]

    def end() -> None:
        raise errors.pop(0)

    ticket = subject.ticket(end)
    for seconds in (7.5, None):
        with pytest.raises(EffectNotSent) as caught:
            subject.perform(ticket, title="a")
        assert caught.value.retry_after == seconds
