"""A worker that comes back after it lost its claim is told the truth, and what it knows is never dropped."""

from typing import Any

import pytest

from counterfoil import Absent, Found, NotSent, Provider, Refused
from counterfoil.core.states import CaseKind
from counterfoil.errors import EffectNotSent, EffectRefused, FenceLost, OutcomeUnknown
from tests.conformance.subject import Background, Gate, Subject

DOUBLE, CONTRADICTION = CaseKind.POSSIBLE_DOUBLE_EFFECT, CaseKind.CONTRADICTING_RECEIPTS
AFTER_DEADLINE = "31s"  # of the time limit of 30 s, which is the lease as well


class Race:
    """A first worker that stands still inside its effect, and what happens meanwhile.

    Args:
        subject: Where it happens.
        endings: What each attempt returns or raises, by its number.
        provider: `queryable`, `keyed` or `opaque`.
        answer: What a queryable provider answers.
    """

    def __init__(self, subject: Subject, *endings: Any, provider: str = "queryable", answer: Any = None) -> None:
        self.subject = subject
        self.endings = endings
        self.answer = answer or Absent()
        self.gates = [Gate() for _ in endings]
        self.made = subject.effect(self._effect(), time_limit="30s", provider=self._provider(provider))
        self.first = Background(self.perform)
        self.gates[0].wait()
        subject.clock.advance(AFTER_DEADLINE)

    def perform(self) -> Any:
        return self.subject.perform(self.made, title="Printer offline")

    def _effect(self) -> Any:
        def effect(call: Any, *, title: str) -> Any:
            self.subject.sent.tally.accept("ticket", call.provider_key)
            self.gates[call.attempt - 1]()
            ending = self.endings[call.attempt - 1]
            if isinstance(ending, Exception):
                raise ending
            return ending

        return effect

    def _provider(self, kind: str) -> Provider:
        def lookup(call: Any, *, title: str) -> Any:
            return self.answer

        if kind == "queryable":
            return self.subject.provider(lookup=lookup, lookup_lag="0s")
        return Provider(key_lifetime="1h") if kind == "keyed" else Provider()

    def second(self) -> Any:
        """Let a second worker come, do its attempt, if it may, and end."""
        if len(self.gates) > 1:
            self.gates[1].open()
        return self.perform()

    def second_stops(self) -> Background:
        """Let a second worker come and stand still inside its own attempt."""
        second = Background(self.perform)
        self.gates[1].wait()
        return second

    def first_returns(self) -> Any:
        self.gates[0].open()
        return self.first.result()


# --- nobody else has sent ---------------------------------------------------------------------------------------------


def test_a_late_result_settles_its_own_unknown_attempt(subject: Subject) -> None:
    race = Race(subject, {"id": 1}, provider="opaque")
    with pytest.raises(OutcomeUnknown):
        race.second()
    assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])
    receipt = race.first_returns()
    assert (receipt.value, subject.operation["settled_by"]) == ({"id": 1}, "late_reply")
    assert (subject.cases(), subject.cases("settled")) == ([], ["unknown_outcome"])
    assert (subject.attempts(), subject.evidence()) == (["succeeded"], ["late_reply"])
    assert race.second().value == {"id": 1}
    assert len(subject.sent) == 1


@pytest.mark.parametrize(
    ("ending", "error", "state", "attempt"),
    [
        (NotSent(), EffectNotSent, "pending", "not_sent"),
        (Refused("402"), EffectRefused, "failed", "refused"),
        (OSError(), OutcomeUnknown, "unknown", "unknown"),
    ],
)
def test_a_late_no_settles_its_own_unknown_attempt_too(
    subject: Subject, ending: Exception, error: type[Exception], state: str, attempt: str
) -> None:
    race = Race(subject, ending, provider="opaque")
    with pytest.raises(OutcomeUnknown):
        race.second()
    with pytest.raises(error):
        race.first_returns()
    assert (subject.state, subject.attempts()) == (state, [attempt])
    assert subject.cases() == (["unknown_outcome"] if state == "unknown" else [])


def test_a_late_result_of_a_claim_that_nobody_noticed_is_an_ordinary_one(subject: Subject) -> None:
    race = Race(subject, {"id": 1}, provider="opaque")
    assert race.first_returns().answered_from == "effect"
    assert (subject.operation["settled_by"], subject.rows("evidence"), subject.rows("case")) == ("reply", [], [])


# --- a look-up has settled it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("equal", [{"id": 1, "title": "a"}, {"title": "a", "id": 1}, {"title": "a", "id": 1.0}])
def test_a_late_result_equal_to_what_a_look_up_found_is_the_same_effect(subject: Subject, equal: Any) -> None:
    race = Race(subject, {"id": 1, "title": "a"}, answer=Found(equal))
    assert race.second().answered_from == "lookup"
    assert race.first_returns().value == equal
    assert subject.cases() == []
    assert (subject.attempts(), subject.evidence()) == (["succeeded"], ["lookup", "late_reply"])


def test_a_late_result_unlike_what_a_look_up_found_opens_a_case(subject: Subject) -> None:
    race = Race(subject, {"id": 2}, answer=Found({"id": 1}))
    race.second()
    assert race.first_returns().value == {"id": 1}
    assert subject.cases() == [CONTRADICTION]
    assert race.second().value == {"id": 1}


@pytest.mark.parametrize("told", [None, "receipt-less"])
def test_a_look_up_that_only_says_that_it_happened_contradicts_nothing(subject: Subject, told: Any) -> None:
    race = Race(subject, {"id": 1} if told is None else object(), answer=Found() if told is None else Found({"id": 1}))
    race.second()
    race.first_returns()
    assert subject.cases() == []


@pytest.mark.parametrize("ending", [NotSent(), Refused("402")])
def test_a_late_no_after_a_look_up_found_it_is_told_the_receipt(subject: Subject, ending: Exception) -> None:
    race = Race(subject, ending, answer=Found({"id": 1}))
    race.second()
    with pytest.raises(FenceLost) as caught:
        race.first_returns()
    assert caught.value.receipt is not None
    assert caught.value.receipt.value == {"id": 1}
    assert (subject.state, subject.attempts()) == ("succeeded", ["succeeded"])


def test_a_late_time_out_after_a_look_up_found_it_gets_the_receipt(subject: Subject) -> None:
    race = Race(subject, OSError(), answer=Found({"id": 1}))
    race.second()
    assert race.first_returns().value == {"id": 1}
    assert (subject.state, subject.attempts(), subject.cases()) == ("succeeded", ["succeeded"], [])


# --- another attempt has begun, or won --------------------------------------------------------------------------------


@pytest.mark.parametrize(("provider", "cases"), [("queryable", [DOUBLE]), ("keyed", [])])
def test_a_late_result_while_another_attempt_runs(subject: Subject, provider: str, cases: list[str]) -> None:
    race = Race(subject, {"id": 1}, {"id": 2}, provider=provider)
    second = race.second_stops()
    with pytest.raises(FenceLost) as caught:
        race.first_returns()
    assert caught.value.receipt is None
    assert (subject.state, subject.cases()) == ("in_flight", cases)
    race.gates[1].open()
    assert second.result().value == {"id": 2}
    assert subject.attempts() == ["succeeded", "succeeded"]
    assert subject.evidence()[-1] == "late_reply"


@pytest.mark.parametrize("provider", ["queryable", "keyed"])
@pytest.mark.parametrize("ending", [NotSent("busy"), Refused("no"), OSError()], ids=["not sent", "refused", "lost"])
def test_a_late_result_settles_it_when_the_other_attempt_gets_nothing(
    subject: Subject, provider: str, ending: Exception
) -> None:
    race = Race(subject, {"id": 1}, ending, provider=provider)
    second = race.second_stops()
    with pytest.raises(FenceLost):
        race.first_returns()
    race.gates[1].open()
    assert second.result().value == {"id": 1}
    assert subject.state == "succeeded"
    sent = len(subject.sent)
    assert race.perform().value == {"id": 1}
    assert len(subject.sent) == sent


def test_a_late_result_settles_it_when_the_other_attempt_is_never_heard_of(subject: Subject) -> None:
    race = Race(subject, {"id": 1}, {"id": 2})
    second = race.second_stops()
    with pytest.raises(FenceLost):
        race.first_returns()
    subject.clock.advance(AFTER_DEADLINE)
    assert race.perform().value == {"id": 1}
    race.gates[1].open()
    assert second.result().value in ({"id": 1}, {"id": 2})
    assert subject.state == "succeeded"


@pytest.mark.parametrize(("provider", "cases"), [("queryable", [DOUBLE]), ("keyed", [])])
def test_a_late_result_after_another_attempt_won(subject: Subject, provider: str, cases: list[str]) -> None:
    race = Race(subject, {"id": 1}, {"id": 2}, provider=provider)
    winner = race.second()
    with pytest.raises(FenceLost) as caught:
        race.first_returns()
    assert caught.value.receipt is not None
    assert caught.value.receipt.value == winner.value == {"id": 2}
    assert subject.cases() == cases
    assert subject.operation["receipt"] == race_receipt(subject)
    assert race.second().value == {"id": 2}


def race_receipt(subject: Subject) -> bytes:
    from counterfoil import codec

    return codec.encode({"id": 2})


def test_after_the_keys_lifetime_two_sends_may_be_two_effects(subject: Subject) -> None:
    race = Race(subject, {"id": 1}, {"id": 2}, provider="keyed")
    race.second()
    subject.clock.advance("2h")  # nobody can say when the stalled first worker has sent
    with pytest.raises(FenceLost):
        race.first_returns()
    assert subject.cases() == [DOUBLE]


@pytest.mark.parametrize(("provider", "cases"), [("queryable", [DOUBLE]), ("keyed", [])])
def test_a_late_result_while_the_other_attempt_is_unknown_settles_it(
    subject: Subject, provider: str, cases: list[str]
) -> None:
    race = Race(subject, {"id": 1}, OSError(), provider=provider)
    with pytest.raises(OutcomeUnknown):
        race.second()
    assert subject.state == "unknown"
    assert race.first_returns().value == {"id": 1}
    assert (subject.state, subject.cases()) == ("succeeded", cases)
    assert subject.attempts() == ["succeeded", "unknown"]


@pytest.mark.parametrize(
    ("provider", "ending", "error", "state"),
    [
        ("queryable", NotSent(), EffectNotSent, "pending"),
        ("queryable", Refused(), EffectRefused, "failed"),
        ("keyed", Refused(), EffectRefused, "failed"),
    ],
)
def test_late_proof_wins_over_a_no_and_always_opens_a_case(
    subject: Subject, provider: str, ending: Exception, error: type[Exception], state: str
) -> None:
    race = Race(subject, {"id": 1}, ending, provider=provider)
    with pytest.raises(error):
        race.second()
    assert subject.state == state
    assert race.first_returns().value == {"id": 1}
    assert (subject.state, subject.cases()) == ("succeeded", [DOUBLE])
    assert race.second().value == {"id": 1}


def test_a_late_result_settles_what_a_resend_that_was_not_sent_left_unknown(subject: Subject) -> None:
    race = Race(subject, {"id": 1}, NotSent(), provider="keyed")
    with pytest.raises(OutcomeUnknown):
        race.second()
    assert race.first_returns().value == {"id": 1}
    assert (subject.state, subject.cases(), subject.attempts()) == ("succeeded", [], ["succeeded", "not_sent"])


def test_late_proof_wins_over_proved_absence(subject: Subject) -> None:
    race = Race(subject, {"id": 1})
    with pytest.raises(OutcomeUnknown):
        notice_only(race)
    assert subject.verify(race.made, title="Printer offline").state == "pending"
    assert race.first_returns().value == {"id": 1}
    assert (subject.state, subject.cases()) == ("succeeded", [DOUBLE])


def notice_only(race: Race) -> None:
    """Notice that the lease ran out without going on: the provider cannot tell yet."""
    from counterfoil import CannotTell

    race.answer, answer = CannotTell(), race.answer
    try:
        race.perform()
    finally:
        race.answer = answer


@pytest.mark.parametrize("ending", [NotSent(), Refused("402")])
def test_a_late_no_changes_nothing_for_another_attempt(subject: Subject, ending: Exception) -> None:
    race = Race(subject, ending, {"id": 2}, provider="keyed")
    second = race.second_stops()
    with pytest.raises(FenceLost):
        race.first_returns()
    race.gates[1].open()
    assert second.result().value == {"id": 2}
    assert (subject.state, subject.cases()) == ("succeeded", [])


def test_a_late_time_out_gets_the_winners_receipt(subject: Subject) -> None:
    race = Race(subject, OSError(), {"id": 2}, provider="keyed")
    race.second()
    assert race.first_returns().value == {"id": 2}
    assert subject.cases() == []


def test_a_late_time_out_whose_successor_ran_out_as_well_is_told_that_nobody_knows(subject: Subject) -> None:
    race = Race(subject, OSError(), {"id": 2})
    second = race.second_stops()
    subject.clock.advance(AFTER_DEADLINE)
    with pytest.raises(OutcomeUnknown):
        race.first_returns()
    race.gates[1].open()
    assert second.result().value == {"id": 2}
