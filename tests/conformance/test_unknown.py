"""What nobody knows is recorded as unknown, is never sent again on a guess, and is always a case that is listed."""

import asyncio
import http.client
import threading
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil import Absent, CannotTell, Found, NotSent, Provider
from counterfoil.errors import (
    EffectNotSent,
    EffectRefused,
    InvalidLookupAnswer,
    NestedEffect,
    OutcomeUnknown,
    ResourceMissing,
    StoreUnavailable,
)
from tests.conformance.subject import ASYNC, Background, Gate, Subject
from tests.patience import until_sent

LOST: dict[str, Callable[[], BaseException]] = {
    "a built-in time-out": TimeoutError,
    "a reset": ConnectionResetError,
    "a broken pipe": BrokenPipeError,
    "an aborted connection": ConnectionAbortedError,
    "a lost reply": lambda: http.client.RemoteDisconnected("gone"),
    "half a reply": lambda: http.client.IncompleteRead(b"{"),
    "a defect of the effect": lambda: KeyError("id"),
    "an arbitrary exception": lambda: Exception("500"),
    "a group": lambda: ExceptionGroup("several", [OSError(), ValueError()]),
    "no such file": FileNotFoundError,
    "an end of iteration": StopIteration,
}


def losing(error: Callable[[], BaseException]) -> Callable[[], Any]:
    def lose() -> Any:
        raise error()

    return lose


class Answers:
    """A look-up whose answers a test sets; it counts the questions."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[Any] = []

    def __call__(self, call: Any, *, title: str) -> Any:
        self.calls.append((call, title))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize("kind", LOST)
def test_whatever_is_not_known_to_mean_less_leaves_the_outcome_unknown(subject: Subject, kind: str) -> None:
    if kind == "an end of iteration" and subject.colour == ASYNC:
        pytest.skip("a coroutine cannot raise StopIteration")
    ticket = subject.ticket(losing(LOST[kind]))
    for again in (False, True):
        with pytest.raises(OutcomeUnknown) as caught:
            subject.perform(ticket, title="Printer offline")
        assert caught.value.retry == "after_reconcile"
        assert (caught.value.tenant, caught.value.operation_id) == ("team-a", "ticket:r-1")
        assert caught.value.case_id is not None
        assert (caught.value.__cause__ is None) is again
    assert len(subject.sent) == 1
    assert subject.state == "unknown"
    assert subject.operation["payload"] is not None
    assert subject.attempts() == ["unknown"]
    assert subject.cases() == ["unknown_outcome"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupted_blocking_caller_leaves_unknown_and_is_interrupted(
    blocking: Subject, error: type[BaseException]
) -> None:
    ticket = blocking.ticket(losing(error))
    with pytest.raises(error):
        blocking.perform(ticket, title="a")
    assert (blocking.state, blocking.cases()) == ("unknown", ["unknown_outcome"])
    with pytest.raises(OutcomeUnknown):
        blocking.perform(ticket, title="a")
    assert len(blocking.sent) == 1


def test_an_async_effect_that_outlives_its_time_limit_is_unknown(awaiting: Subject) -> None:
    if awaiting.colour != ASYNC:
        pytest.skip("see the test of a hung blocking effect")

    async def hang(call: Any, *, title: str) -> None:
        awaiting.sent.tally.accept("ticket", call.provider_key)
        await asyncio.Event().wait()

    made = awaiting.effect(hang, time_limit="50ms")
    with pytest.raises(OutcomeUnknown) as caught:
        until_sent(lambda: awaiting.perform(made, title="a"))
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert awaiting.cases() == ["unknown_outcome"]


def test_a_hung_blocking_effect_of_an_async_caller_is_unknown_and_its_late_result_settles_it(awaiting: Subject) -> None:
    if awaiting.colour == ASYNC:
        pytest.skip("the effect is async")
    gate = Gate()
    ticket = awaiting.ticket(gate, time_limit="50ms")
    with pytest.raises(OutcomeUnknown):
        until_sent(lambda: awaiting.perform(ticket, title="a"))
    assert awaiting.cases() == ["unknown_outcome"]
    gate.open()
    awaiting.loop.drain()
    assert awaiting.state == "succeeded"
    assert awaiting.operation["settled_by"] == "late_reply"
    assert (awaiting.cases(), awaiting.cases("settled")) == ([], ["unknown_outcome"])
    assert awaiting.evidence() == ["late_reply"]


class Away:
    """A probe of a database that is away for a number of transactions."""

    def __init__(self, times: int) -> None:
        self.left, self.mutex = times, threading.Lock()

    def __call__(self, point: Any, _name: str) -> None:
        if point == "before-commit":
            with self.mutex:
                self.left -= 1
                away = self.left >= 0
            if away:
                raise StoreUnavailable("the database could not do its work; nothing was written")


@pytest.mark.parametrize("times", [2, 3])
def test_a_late_result_that_nobody_waits_for_is_stored_or_logged(
    awaiting: Subject, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    if awaiting.colour == ASYNC:
        pytest.skip("the effect is async")
    gate = Gate()
    ticket = awaiting.ticket(gate, time_limit="50ms")
    with pytest.raises(OutcomeUnknown):
        until_sent(lambda: awaiting.perform(ticket, title="a"))
    with awaiting.probe.during(Away(times)):
        gate.open()
        awaiting.loop.drain()
    stored = times < 3
    assert awaiting.state == ("succeeded" if stored else "unknown")
    lost = f"operation ticket:r-1 (tenant team-a), attempt {awaiting.operation['attempt']}"
    assert [lost in said for said in caplog.messages] == [True] * (not stored)


def cancelled(subject: Subject, made: Any, at: Callable[[], None], **given: Any) -> BaseException | None:
    """Perform in a task, cancel it as soon as `at` returns, and say what came of it."""

    async def caller() -> BaseException | None:
        task = asyncio.ensure_future(subject.cf.perform(made, tenant="team-a", request_id="r-1", **given))
        await asyncio.to_thread(at)
        task.cancel()
        await asyncio.wait([task])
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    return subject.loop.run(caller())


def test_a_caller_cancelled_while_the_effect_runs_leaves_unknown(awaiting: Subject) -> None:
    gate = Gate()
    ticket = awaiting.ticket(gate)
    assert isinstance(cancelled(awaiting, ticket, gate.wait, title="a"), asyncio.CancelledError)
    assert (awaiting.state, awaiting.cases()) == ("unknown", ["unknown_outcome"])
    with pytest.raises(OutcomeUnknown):
        awaiting.perform(ticket, title="a")
    gate.open()
    awaiting.loop.drain()
    # An async effect was cancelled itself; a blocking one goes on in its thread, and its late result settles it.
    assert awaiting.state == ("unknown" if awaiting.colour == ASYNC else "succeeded")
    assert len(awaiting.sent) == 1


@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
def test_a_caller_cancelled_while_it_claims_has_not_sent(awaiting: Subject, point: str) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def stop(at: Any, name: str) -> None:
        if at == point:
            reached.set()
            assert go_on.wait(30)

    def claiming() -> None:
        assert reached.wait(30)
        threading.Timer(0.05, go_on.set).start()  # the cancellation comes first; it cannot end the transaction

    ticket = awaiting.ticket()
    with awaiting.probe.during(stop):
        result = cancelled(awaiting, ticket, claiming, title="a")
    assert isinstance(result, asyncio.CancelledError)
    assert len(awaiting.sent) == 0
    assert awaiting.state == "pending"
    assert awaiting.perform(ticket, title="a").attempt == 2


def test_a_caller_cancelled_while_it_settles_has_recorded_the_receipt(awaiting: Subject) -> None:
    reached, go_on, sent = threading.Event(), threading.Event(), threading.Event()

    def stop(at: Any, name: str) -> None:
        if at == "before-commit" and sent.is_set():
            reached.set()
            assert go_on.wait(30)

    def settling() -> None:
        assert reached.wait(30)
        threading.Timer(0.05, go_on.set).start()

    ticket = awaiting.ticket(sent.set)
    with awaiting.probe.during(stop):
        assert isinstance(cancelled(awaiting, ticket, settling, title="a"), asyncio.CancelledError)
    assert (awaiting.state, awaiting.cases()) == ("succeeded", [])
    assert awaiting.perform(ticket, title="a").already_happened
    assert len(awaiting.sent) == 1


def test_a_cancellation_is_not_hidden_by_the_answer_that_came_meanwhile(awaiting: Subject) -> None:
    def stop(at: Any, name: str) -> None:
        if at == "before-commit" and sent.is_set():
            reached.set()
            assert go_on.wait(30)

    def refuse() -> None:
        sent.set()
        raise NotSent

    def settling() -> None:
        assert reached.wait(30)
        threading.Timer(0.05, go_on.set).start()

    reached, go_on, sent = threading.Event(), threading.Event(), threading.Event()
    with awaiting.probe.during(stop):
        result = cancelled(awaiting, awaiting.ticket(refuse), settling, title="a")
    assert isinstance(result, asyncio.CancelledError)
    assert awaiting.state == "pending"


def test_a_blocking_effect_for_which_no_thread_is_free_was_not_sent(awaiting: Subject) -> None:
    if awaiting.colour == ASYNC:
        pytest.skip("the effect is async")
    gate = Gate()
    awaiting.loop.drain(threads=1)
    busy = awaiting.ticket(gate)
    first = Background(lambda: awaiting.perform(busy, request_id="first", title="a"))
    gate.wait()
    starved = awaiting.ticket(time_limit="50ms")
    with pytest.raises(EffectNotSent):
        awaiting.perform(starved, request_id="second", title="b")
    gate.open()
    first.result()
    assert len(awaiting.sent) == 1
    assert awaiting.cases() == []


# --- the provider can be asked ----------------------------------------------------------------------------------------


def queryable(subject: Subject, answers: Answers, **facts: Any) -> Provider:
    def lookup(call: Any, *, title: str) -> Any:
        return answers(call, title=title)

    return subject.provider(lookup=lookup, **{"lookup_lag": "10s", **facts})


def test_a_lost_reply_is_found_in_the_same_call(subject: Subject) -> None:
    found = Answers(Found({"id": 1}, {"seen_in": "the provider's list"}))
    ticket = subject.ticket(losing(OSError), provider=queryable(subject, found))
    receipt = subject.perform(ticket, title="Printer offline")
    assert (receipt.value, receipt.answered_from) == ({"id": 1}, "lookup")
    assert receipt.evidence == {"seen_in": "the provider's list"}
    assert subject.perform(ticket, title="Printer offline").answered_from == "receipt"
    (asked,) = found.calls
    assert (asked[0].operation_id, asked[0].provider_key, asked[1]) == (
        "ticket:r-1",
        subject.sent.keys[0],
        "Printer offline",
    )
    assert len(subject.sent) == 1
    assert (subject.state, subject.operation["settled_by"]) == ("succeeded", "lookup")
    assert (subject.cases(), subject.cases("settled")) == ([], ["unknown_outcome"])
    assert (subject.attempts(), subject.evidence()) == (["succeeded"], ["lookup"])


def test_a_no_counts_only_after_the_deadline_and_the_look_ups_lag(subject: Subject) -> None:
    ends: list[BaseException | None] = [OSError(), None]

    def end() -> Any:
        error = ends.pop(0)
        if error is not None:
            raise error

    ticket = subject.ticket(end, provider=queryable(subject, Answers(Absent())), time_limit="30s")
    for step in ("0s", "29s", "10s", "1s"):  # at 0, 29, 39 and 40 s; from 30 + 10 s on, exclusive, a no counts
        subject.clock.advance(step)
        with pytest.raises(OutcomeUnknown) as caught:
            subject.perform(ticket, title="a")
        assert caught.value.facts["ask_again_at"] is not None
        assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])
        assert len(subject.sent) == 1
        due = caught.value.facts["ask_again_at"]
        assert subject.clock.now_ms() < due
    subject.clock.advance("1ms")
    receipt = subject.perform(ticket, title="a")
    assert (receipt.attempt, receipt.value["id"]) == (2, 2)
    assert subject.attempts() == ["not_sent", "succeeded"]
    assert (subject.cases(), subject.cases("settled")) == ([], ["unknown_outcome"])


@pytest.mark.parametrize("answer", [CannotTell(), CannotTell("no access"), OSError(), CannotTell("a\0b\ud800")])
def test_a_provider_that_cannot_tell_leaves_it_to_a_person(subject: Subject, answer: Any) -> None:
    answers = Answers(answer)
    ticket = subject.ticket(losing(OSError), provider=queryable(subject, answers))
    subject_calls = 0
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="counterfoil review show case-"):
            subject.perform(ticket, title="a")
        subject.clock.advance("30d")
        subject_calls += 1
    assert len(answers.calls) == subject_calls
    assert len(subject.sent) == 1
    assert subject.cases() == ["unknown_outcome"]


def test_absence_is_left_to_a_person_where_that_is_declared(subject: Subject) -> None:
    provider = queryable(subject, Answers(Absent()), on_absent="review")
    ticket = subject.ticket(losing(OSError), provider=provider)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            subject.perform(ticket, title="a")
        subject.clock.advance("1d")
    assert len(subject.sent) == 1


def test_absence_proves_nothing_without_a_stated_lag(subject: Subject) -> None:
    provider = queryable(subject, Answers(Absent()), on_absent="review", lookup_lag=None)
    ticket = subject.ticket(losing(OSError), provider=provider)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="proves nothing"):
            subject.perform(ticket, title="a")
        subject.clock.advance("1d")
    assert len(subject.sent) == 1


@pytest.mark.parametrize("answer", [None, False, {}, "absent", Found, Absent])
def test_an_answer_that_is_none_of_the_three_is_refused(subject: Subject, answer: Any) -> None:
    ticket = subject.ticket(losing(OSError), provider=queryable(subject, Answers(answer)))
    for _ in range(2):
        with pytest.raises(InvalidLookupAnswer, match="Found"):
            subject.perform(ticket, title="a")
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])


@pytest.mark.parametrize("evidence", [{"a": {1, 2}}, "req_1", None, [1, 2], object()])
def test_any_evidence_can_be_kept(subject: Subject, evidence: Any) -> None:
    found: Any = Found({"id": 1}, evidence)
    ticket = subject.ticket(losing(OSError), provider=queryable(subject, Answers(found)))
    assert subject.perform(ticket, title="a").value == {"id": 1}
    assert subject.state == "succeeded"


def test_what_a_look_up_finds_may_be_unstorable_as_well(subject: Subject) -> None:
    ticket = subject.ticket(losing(OSError), provider=queryable(subject, Answers(Found(object()))))
    assert subject.perform(ticket, title="a").marker is not None
    assert (subject.state, len(subject.sent)) == ("succeeded", 1)


def test_a_look_up_whose_own_code_is_wrong_says_so(subject: Subject) -> None:
    def lookup(call: Any, *, title: str) -> Any:
        call.resource(Answers)

    provider = subject.provider(lookup=lookup, lookup_lag="0s")
    with pytest.raises(ResourceMissing):
        subject.perform(subject.ticket(losing(OSError), provider=provider), title="a")
    assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])


def test_one_entry_makes_at_most_one_attempt_and_one_look_up(subject: Subject) -> None:
    answers = Answers(Absent())
    ticket = subject.ticket(losing(OSError), provider=queryable(subject, answers, key_lifetime="1d"))
    for entries in range(1, 5):
        with pytest.raises(OutcomeUnknown):
            subject.perform(ticket, title="a")
        assert len(subject.sent) == entries
        assert len(answers.calls) <= 2 * entries - 1
    assert len(set(subject.sent.keys)) == 1


# --- the provider honours a key ---------------------------------------------------------------------------------------


def test_inside_the_keys_lifetime_the_same_call_is_sent_again_under_the_same_key(subject: Subject) -> None:
    errors: list[Exception] = [OSError(), OSError()]

    def end() -> None:
        if errors:
            raise errors.pop()

    ticket = subject.ticket(end, provider=Provider(key_lifetime="1h"), time_limit="30s")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown) as caught:
            subject.perform(ticket, title="a")
        assert caught.value.retry == "safe"
        assert subject.cases() == ["unknown_outcome"]
        subject.clock.advance("10m")
    assert subject.perform(ticket, title="a").attempt == 3
    assert subject.attempts() == ["unknown", "unknown", "succeeded"]
    assert len(set(subject.sent.keys)) == 1
    assert subject.cases() == []


def test_after_the_keys_lifetime_a_person_decides(subject: Subject) -> None:
    ticket = subject.ticket(losing(OSError), provider=Provider(key_lifetime="1h"), time_limit="30s")
    sends = 0
    # counted from the first attempt, less the time limit and a margin of a minute: until 58 min 30 s, exclusive
    for moment, sent_again in (("0s", True), ("58m", True), ("29999ms", True), ("1ms", False), ("1d", False)):
        subject.clock.advance(moment)
        with pytest.raises(OutcomeUnknown) as caught:
            subject.perform(ticket, title="a")
        sends += sent_again
        assert len(subject.sent) == sends
        assert caught.value.retry == ("safe" if sent_again else "after_reconcile")
    assert subject.cases() == ["unknown_outcome"]


def test_after_the_keys_lifetime_the_provider_is_asked_first(subject: Subject) -> None:
    answers = Answers(CannotTell(), Found({"id": 1}))
    provider = queryable(subject, answers, key_lifetime="1h")
    ticket = subject.ticket(losing(OSError), provider=provider)
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    subject.clock.advance("2h")
    assert subject.perform(ticket, title="a").answered_from == "lookup"
    assert len(subject.sent) == 1


def test_a_resend_that_was_not_sent_tells_nothing_of_the_first_one(subject: Subject) -> None:
    """The first send may have happened: once its key is over, a free operation would be sent a second time."""
    errors: list[Exception] = [OSError(), NotSent("the line is down"), NotSent("still down")]

    def end() -> None:
        if errors:
            raise errors.pop(0)

    ticket = subject.ticket(end, provider=Provider(key_lifetime="1h"))
    for _ in range(3):
        with pytest.raises(OutcomeUnknown) as caught:
            subject.perform(ticket, title="a")
        assert caught.value.retry == "safe"
        assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])
    assert subject.attempts() == ["unknown", "not_sent", "not_sent"]
    sent = len(subject.sent)
    subject.clock.advance("2h")
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    assert len(subject.sent) == sent


def test_proved_absence_holds_for_all_attempts_until_then(subject: Subject) -> None:
    errors: list[Exception] = [OSError(), OSError(), NotSent("down")]

    def end() -> None:
        if errors:
            raise errors.pop(0)

    ticket = subject.ticket(end, provider=queryable(subject, Answers(Absent()), key_lifetime="1h"))
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            subject.perform(ticket, title="a")
    subject.clock.advance("2h")
    with pytest.raises(EffectNotSent):
        subject.perform(ticket, title="a")
    assert (subject.state, subject.attempts()) == ("pending", ["not_sent", "not_sent", "not_sent"])
    assert subject.perform(ticket, title="a").attempt == 4


def test_a_refusal_under_a_resend_is_final(subject: Subject) -> None:
    from counterfoil import Refused

    errors: list[Exception] = [OSError(), Refused("402")]

    def end() -> None:
        raise errors.pop(0)

    ticket = subject.ticket(end, provider=Provider(key_lifetime="1h"))
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    with pytest.raises(EffectRefused):
        subject.perform(ticket, title="a")
    assert subject.cases() == []


@pytest.mark.parametrize("by_classifier", [False, True], ids=["raised", "classified"])
def test_a_refusal_at_the_door_tells_nothing_of_a_first_send_that_was_lost(
    subject: Subject, *, by_classifier: bool
) -> None:
    from counterfoil import Refused

    door = Refused("401", covers_earlier=False)
    errors: list[Exception] = [OSError(), KeyError("401") if by_classifier else door]

    def end() -> None:
        raise errors.pop(0)

    def classify(error: BaseException) -> Refused | None:
        return door if isinstance(error, KeyError) else None

    ticket = subject.ticket(end, provider=Provider(key_lifetime="1h", classify=classify))
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            subject.perform(ticket, title="a")
    assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])
    assert subject.attempts() == ["unknown", "refused"]


def test_a_refusal_at_the_door_is_final_where_nothing_was_lost(subject: Subject) -> None:
    from counterfoil import Refused

    errors: list[Exception] = [NotSent("busy"), Refused("401", covers_earlier=False)]

    def end() -> None:
        raise errors.pop(0)

    ticket = subject.ticket(end, provider=Provider(key_lifetime="1h"))
    with pytest.raises(EffectNotSent):
        subject.perform(ticket, title="a")
    for _ in range(2):
        with pytest.raises(EffectRefused):
            subject.perform(ticket, title="a")
    assert (subject.state, subject.cases(), subject.attempts()) == ("failed", [], ["not_sent", "refused"])


# --- a call inside an effect ------------------------------------------------------------------------------------------


def test_a_nested_call_is_refused_at_once(subject: Subject) -> None:
    inner, refused = subject.ticket(), list[NestedEffect]()

    def outer(call: Any) -> str:
        for nested in (
            lambda: subject.perform(inner, request_id="inner", title="a"),
            lambda: subject.verify(inner, request_id="inner", title="a"),
        ):
            with pytest.raises(NestedEffect) as caught:
                nested()
            refused.append(caught.value)
        return "done"

    made = subject.effect(outer)
    assert subject.perform(made).value == "done"
    assert len(refused) == 2
    assert made.name in str(refused[0])
    assert len(subject.sent) == 0


def test_a_nested_call_from_a_thread_that_took_the_context_along_is_refused(subject: Subject) -> None:
    from contextvars import copy_context

    inner = subject.ticket()

    def outer(call: Any) -> str:
        context = copy_context()
        work = Background(lambda: context.run(lambda: subject.perform(inner, request_id="inner", title="a")))
        with pytest.raises(NestedEffect):
            work.result()
        return "done"

    assert subject.perform(subject.effect(outer)).value == "done"
    assert len(subject.sent) == 0


def test_a_nested_call_that_an_effect_does_not_catch_is_shown_and_leaves_it_unknown(subject: Subject) -> None:
    inner = subject.ticket()

    def outer(call: Any) -> Any:
        return subject.perform(inner, request_id="inner", title="a")

    broken = subject.effect(outer)
    with pytest.raises(NestedEffect) as caught:
        subject.perform(broken)
    assert "is unknown" in "".join(caught.value.__notes__)
    with pytest.raises(OutcomeUnknown):
        subject.perform(broken)


def test_a_call_inside_a_look_up_is_refused(subject: Subject) -> None:
    inner = subject.ticket()

    def lookup(call: Any, *, title: str) -> Any:
        return Found(subject.perform(inner, request_id="inner", title="a").value)

    provider = subject.provider(lookup=lookup, lookup_lag="0s")
    with pytest.raises(NestedEffect, match="look-up"):
        subject.perform(subject.ticket(losing(OSError), provider=provider), title="a")
    assert len(subject.sent) == 1


# --- what an exception means can be said by the provider --------------------------------------------------------------


def test_a_providers_classifier_decides_what_an_exception_means(subject: Subject) -> None:
    from counterfoil.core.states import AttemptOutcome

    class Status(Exception):
        pass

    meanings = {429: AttemptOutcome.NOT_SENT, 402: AttemptOutcome.REFUSED, 500: AttemptOutcome.UNKNOWN, 418: None}
    errors = {429: EffectNotSent, 402: EffectRefused, 500: OutcomeUnknown, 418: OutcomeUnknown}
    provider = Provider(classify=lambda error: meanings[error.args[0]] if isinstance(error, Status) else None)

    def send(call: Any, *, status: int) -> Any:
        raise Status(status)

    made = subject.effect(send, provider=provider, key="s:{status}")
    for status, error in errors.items():
        with pytest.raises(error):
            subject.perform(made, status=status)


@pytest.mark.parametrize("told", [ValueError("a defect"), "succeeded", "running", True])
def test_a_classifier_that_is_wrong_itself_leaves_the_outcome_unknown(subject: Subject, told: Any) -> None:
    def classify(error: BaseException) -> Any:
        if isinstance(told, Exception):
            raise told
        return told

    ticket = subject.ticket(losing(OSError), provider=Provider(classify=classify))
    with pytest.raises(OutcomeUnknown):
        subject.perform(ticket, title="a")
    assert (subject.state, subject.cases()) == ("unknown", ["unknown_outcome"])
