"""What people do with the outbox: pause, requeue, skip, cancel, retry; one act wins, and it says who and why."""

from collections.abc import Callable
from inspect import getdoc, signature
from typing import Any

import pytest

from counterfoil import Delivery, NotSent, Provider
from counterfoil.aio.outbox import AsyncOutbox
from counterfoil.core.outbox import FIRST_PAUSE_MS, MAX_ATTEMPTS
from counterfoil.errors import (
    InvalidArguments,
    OperationInProgress,
    OperationNotFound,
    OutcomeUnknown,
    PauseNotFound,
    TenantMissing,
    VerdictConflict,
    VerdictIncomplete,
)
from counterfoil.outbox import Outbox
from counterfoil.storage.scripts import outbox
from counterfoil.storage.tenants import ALL_TENANTS
from tests.conformance.subject import Subject
from tests.conformance.test_outbox import EACH, MINUTE, Turning, lose, not_sent, pass_by, refuse

TENANT = {"tenant": "team-a"}
WHO = {"by": "mei", "reason": "the queue works again"}
ID = "ticket:r-1"
ONE = Delivery(max_attempts=1)


def ask(subject: Subject, method: str, *given: Any, **more: Any) -> Any:
    return subject.settle(getattr(subject.cf.outbox, method)(*given, **more))


def act(subject: Subject, method: str, operation_id: str = ID, **more: Any) -> Any:
    return ask(subject, method, operation_id, **{**TENANT, **WHO, **more})


def park(subject: Subject, do: Callable[[], Any] = not_sent, **contract: Any) -> Any:
    """Enqueue the ordinary effect and let it become a dead letter."""
    create = subject.ticket(do, **contract)
    subject.enqueue(create, title="a", delivery=ONE)
    subject.drain(create)
    assert (subject.state, subject.cases()) == ("parked", ["dead_letter"])
    return create


def case(subject: Subject) -> Any:
    (found,) = subject.rows("case")
    return found


def resolve(subject: Subject, verdict: str, **more: Any) -> Any:
    found = case(subject)
    given = {**TENANT, "by": "mei", "expect_version": found["version"], **more}
    return subject.settle(subject.cf.review.resolve(f"case-{found['seq']}", verdict=verdict, **given))


# --- requeue ---------------------------------------------------------------------------------------------------------


def requeue(subject: Subject) -> None:
    done = act(subject, "requeue", attempts=2)
    assert (done.state, done.max_attempts, done.due_at) == ("pending", 3, subject.clock.now_ms())


def retry_verdict(subject: Subject) -> None:
    done = resolve(subject, "did_not_happen_retry", reason=WHO["reason"])
    assert (done.state, subject.operation["max_attempts"]) == ("resolved", 1 + MAX_ATTEMPTS)


@pytest.mark.parametrize("again", [requeue, retry_verdict])
def test_a_dead_letter_that_is_sent_back_is_due_at_once_with_new_tries(subject: Subject, again: Any) -> None:
    create = park(subject, Turning(not_sent, not_sent, None))
    again(subject)
    found = case(subject)
    assert (found["state"], found["verdict"], found["verdict_by"]) == ("resolved", "did_not_happen_retry", "mei")
    assert found["verdict_reason"] == WHO["reason"]
    assert subject.evidence() == ["verdict"]
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (2, "pending", [])
    pass_by(subject, 3 * FIRST_PAUSE_MS)
    subject.drain(create)
    assert (len(subject.sent), subject.attempts()) == (3, ["not_sent", "not_sent", "succeeded"])
    assert len(set(subject.sent.keys)) == 1


def test_new_tries_that_are_used_up_make_a_dead_letter_again(subject: Subject) -> None:
    create = park(subject)
    act(subject, "requeue", attempts=1)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (2, "parked", ["dead_letter"])
    assert subject.cases("resolved") == ["dead_letter"]


def test_a_dead_letter_is_requeued_after_its_time_to_live(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None))
    subject.enqueue(create, title="a", delivery=Delivery(max_attempts=1, time_to_live="1m"))
    subject.drain(create)
    pass_by(subject, 5 * MINUTE)
    act(subject, "requeue")
    subject.drain(create)
    assert subject.state == "succeeded"


# --- skip ------------------------------------------------------------------------------------------------------------


def skip(subject: Subject) -> None:
    assert act(subject, "skip").state == "failed"


def close_verdict(subject: Subject) -> None:
    resolve(subject, "did_not_happen_close", reason=WHO["reason"])


@pytest.mark.parametrize("end", [skip, close_verdict])
def test_a_dead_letter_that_is_given_up_lets_its_stream_go_on(subject: Subject, end: Any) -> None:
    create = subject.ticket(Turning(not_sent, None), key=EACH, delivery=Delivery(max_attempts=1, stream="s"))
    for title in "ab":
        subject.enqueue(create, title=title)
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == ["a"]
    if end is skip:
        assert act(subject, "skip", "ticket:r-1/a").state == "failed"
    else:
        end(subject)
    assert case(subject)["verdict"] == "did_not_happen_close"
    first = min(subject.rows("operation"), key=lambda row: row["seq"])
    assert (first["state"], first["payload"], first["settled_by"]) == ("failed", None, "verdict")
    assert first["error_text"] == "closed by mei: the queue works again"
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == ["a", "b"]


def test_a_dead_letter_that_happened_after_all_lets_its_stream_go_on(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None), key=EACH, delivery=Delivery(max_attempts=1, stream="s"))
    for title in "ab":
        subject.enqueue(create, title=title)
    subject.drain(create)
    resolve(subject, "happened", value={"id": 7})
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == ["a", "b"]
    assert subject.perform(create, title="a").value == {"id": 7}


@pytest.mark.parametrize("verdict", ["happened", "did_not_happen_close"])
def test_a_verdict_on_an_unknown_outcome_lets_its_stream_go_on(subject: Subject, verdict: str) -> None:
    create = subject.ticket(Turning(lose, None), key=EACH, delivery=Delivery(stream="s"))
    for title in "ab":
        subject.enqueue(create, title=title)
    subject.drain(create)
    more = {"value": 7} if verdict == "happened" else {"reason": "not in the list"}
    resolve(subject, verdict, **more)
    subject.drain(create)
    assert [body["title"] for body in subject.sent.bodies] == ["a", "b"]


def test_a_person_who_sends_an_unknown_outcome_again_waits_for_no_pause(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None))
    subject.enqueue(create, title="a", delivery=Delivery(max_attempts=1, time_to_live="1m"))
    subject.drain(create)
    pass_by(subject, 5 * MINUTE)
    resolve(subject, "did_not_happen_retry", reason="it is not in the list")
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "succeeded")


# --- cancel ----------------------------------------------------------------------------------------------------------


def test_what_was_never_tried_is_cancelled_and_never_sent(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a", delivery=Delivery(delay="1m"))
    done = act(subject, "cancel")
    assert (done.state, done.error_text) == ("cancelled", "cancelled by mei: the queue works again")
    pass_by(subject, 2 * MINUTE)
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.operation["payload"]) == (0, "cancelled", None)
    assert subject.evidence() == ["verdict"]


def test_what_provably_was_not_sent_is_cancelled(subject: Subject) -> None:
    create = subject.ticket(not_sent)
    subject.enqueue(create, title="a")
    subject.drain(create)
    assert act(subject, "cancel").state == "cancelled"


def test_what_its_caller_sends_is_cancelled_if_it_was_not_sent(subject: Subject) -> None:
    from counterfoil.errors import EffectNotSent, OperationClosed

    create = subject.ticket(Turning(not_sent, None))
    with pytest.raises(EffectNotSent):
        subject.perform(create, title="a")
    assert act(subject, "cancel").state == "cancelled"
    with pytest.raises(OperationClosed):
        subject.perform(create, title="a")
    assert len(subject.sent) == 1


def test_what_may_have_happened_is_not_cancelled(subject: Subject) -> None:
    create = subject.ticket(lose)
    subject.enqueue(create, title="a")
    subject.drain(create)
    with pytest.raises(OutcomeUnknown, match=r"counterfoil review open ticket:r-1 --tenant team-a"):
        act(subject, "cancel")
    assert (subject.state, subject.evidence()) == ("unknown", [])


def test_what_is_sent_again_after_a_lost_reply_is_not_cancelled(subject: Subject) -> None:
    create = subject.ticket(Turning(lose, None), provider=Provider(key_lifetime="24h"))
    subject.enqueue(create, title="a")
    subject.drain(create)
    subject.drain(create)
    assert subject.state == "pending"
    with pytest.raises(OutcomeUnknown, match="may have reached the provider"):
        act(subject, "cancel")
    act(subject, "retry")
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "succeeded")


def test_what_is_under_way_is_not_cancelled(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a")
    lane = outbox.Lane(effect=create.name, effect_version=1, limit=1)
    subject.settle(subject.write(lambda: outbox.turn((), [lane], "elsewhere@0-0:1:1:aa/d1"), tenant=ALL_TENANTS))
    with pytest.raises(OperationInProgress, match="elsewhere"):
        act(subject, "cancel")
    pass_by(subject, 10 * MINUTE)
    with pytest.raises(OutcomeUnknown):
        act(subject, "cancel")
    assert subject.state == "in_flight"


# --- retry -----------------------------------------------------------------------------------------------------------


def test_an_intent_that_backs_off_is_retried_at_once(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None))
    subject.enqueue(create, title="a")
    subject.drain(create)
    assert act(subject, "retry").due_at == subject.clock.now_ms()
    subject.drain(create)
    assert (len(subject.sent), subject.state, subject.evidence()) == (2, "succeeded", ["verdict"])


def test_what_was_not_tried_yet_is_not_hastened(subject: Subject) -> None:
    create = subject.ticket()
    subject.enqueue(create, title="a", delivery=Delivery(delay="1m"))
    with pytest.raises(VerdictConflict, match=r"not tried yet.* it is due at"):
        act(subject, "retry")
    subject.drain(create)
    assert len(subject.sent) == 0


# --- one act wins ----------------------------------------------------------------------------------------------------

STATES: dict[str, Callable[[Subject], Any]] = {
    "parked": park,
    "failed": lambda subject: sent_once(subject, refuse),
    "succeeded": lambda subject: sent_once(subject, lambda: None),
    "unknown": lambda subject: sent_once(subject, lose),
    "pending": lambda subject: sent_once(subject, not_sent),
}
PERMITTED = {("parked", "requeue"), ("parked", "skip"), ("pending", "cancel"), ("pending", "retry")}


def sent_once(subject: Subject, do: Callable[[], Any]) -> None:
    create = subject.ticket(do)
    subject.enqueue(create, title="a")
    subject.drain(create)


@pytest.mark.parametrize("name", ["requeue", "skip", "cancel", "retry"])
@pytest.mark.parametrize("state", STATES)
def test_an_act_is_done_in_the_states_that_take_it_and_nowhere_else(blocking: Subject, state: str, name: str) -> None:
    STATES[state](blocking)
    before = (blocking.operation, blocking.rows("case"), blocking.rows("evidence"))
    assert blocking.state == state
    if (state, name) in PERMITTED:
        assert act(blocking, name).state != state or name == "retry"
        return
    with pytest.raises(
        (VerdictConflict, OutcomeUnknown), match=r"ticket:r-1 \(tenant team-a\).*[Nn]othing was changed"
    ):
        act(blocking, name)
    assert (blocking.operation, blocking.rows("case"), blocking.rows("evidence")) == before


def test_of_two_acts_one_wins_and_the_other_is_told_by_whom(blocking: Subject) -> None:
    park(blocking)
    results = blocking.at_once(lambda: act(blocking, "skip"), 4) + blocking.at_once(lambda: act(blocking, "requeue"), 4)
    refused = [one for one in results if isinstance(one, BaseException)]
    assert len(refused) == 7
    for one in refused:
        assert isinstance(one, VerdictConflict)
        assert (one.facts["verdict_by"], one.facts["verdict"]) == (
            "mei",
            "did_not_happen_close: the queue works again",
        )
        assert "mei was here before" in one.message
    assert blocking.evidence() == ["verdict"]


def test_an_act_and_a_verdict_at_once_are_one(blocking: Subject) -> None:
    park(blocking)
    number = case(blocking)["seq"]

    def verdict() -> Any:
        return blocking.cf.review.resolve(
            f"case-{number}", verdict="did_not_happen_close", expect_version=1, **TENANT, **WHO
        )

    turns: list[Callable[[], Any]] = [verdict, lambda: act(blocking, "requeue")] * 3

    def turn() -> Any:
        return turns.pop()()

    results = blocking.at_once(turn, 6)
    assert sum(isinstance(one, VerdictConflict) for one in results) == 5, results
    assert blocking.evidence() == ["verdict"]


def test_an_act_on_what_moved_since_it_was_seen_is_not_done(subject: Subject) -> None:
    create = park(subject)
    seen = ask(subject, "get", ID, **TENANT).operation.version
    act(subject, "requeue", attempts=1, expect_version=seen)
    subject.drain(create)
    with pytest.raises(VerdictConflict, match=f"was seen at version {seen}.*mei was here before"):
        act(subject, "skip", expect_version=seen)
    assert subject.state == "parked"


@pytest.mark.parametrize("name", ["requeue", "skip", "cancel", "retry"])
def test_an_act_says_who_and_why(subject: Subject, name: str) -> None:
    park(subject)
    for wrong in ({"by": " "}, {"reason": ""}):
        with pytest.raises(VerdictIncomplete):
            act(subject, name, **wrong)
    with pytest.raises(TenantMissing):
        act(subject, name, tenant="")
    if name == "requeue":
        for attempts in (0, -1, 2**63):
            with pytest.raises(InvalidArguments, match="attempts"):
                act(subject, name, attempts=attempts)
    assert (subject.state, subject.evidence()) == ("parked", [])


@pytest.mark.parametrize("name", ["requeue", "skip", "cancel", "retry", "get"])
def test_another_tenants_intent_looks_like_an_unknown_one(subject: Subject, name: str) -> None:
    park(subject)
    who = {} if name == "get" else WHO
    words = []
    for tenant, operation_id in (("team-b", ID), ("team-b", "ticket:r-9")):
        with pytest.raises(OperationNotFound) as caught:
            ask(subject, name, operation_id, tenant=tenant, **who)
        words.append(caught.value.message.replace(operation_id, "..."))
    assert words[0] == words[1]
    assert subject.state == "parked"


# --- late ------------------------------------------------------------------------------------------------------------


def test_a_look_up_that_finds_a_dead_letter_closes_its_case(subject: Subject) -> None:
    from counterfoil import Found
    from tests.conformance.test_unknown import Answers

    answers = Answers(Found({"id": 7}))
    create = park(subject, provider=subject.provider(lookup=answers, lookup_lag="0s"))
    subject.verify(create, title="a")
    assert (subject.state, subject.cases()) == ("succeeded", ["possible_double_effect"])
    assert subject.cases("settled") == ["dead_letter"]
    with pytest.raises(VerdictConflict):
        act(subject, "requeue")


# --- pauses ----------------------------------------------------------------------------------------------------------


def test_what_is_paused_is_not_sent_until_it_is_resumed(subject: Subject) -> None:
    create = subject.ticket(key=EACH)
    other = subject.ticket(key="other:{request_id}")
    streams = {"a": Delivery(stream="s"), "b": Delivery(stream="t"), "c": None}
    for scope, sent in [
        ({"effect": create.name}, ["other"]),
        ({"tenant": "team-a"}, []),
        ({"tenant": "team-a", "stream": "s"}, ["b", "c", "other"]),
        ({"tenant": "team-a", "effect": create.name, "stream": "s"}, ["b", "c", "other"]),
        ({"tenant": "team-b"}, ["a", "b", "c", "other"]),
        ({"tenant": "team-a", "effect": other.name}, ["a", "b", "c"]),
    ]:
        request = f"r-{len(subject.sent)}"
        made = ask(subject, "pause", **scope, by="mei", reason="they maintain it")
        assert (made.paused_by, made.reason, made.effect) == ("mei", "they maintain it", scope.get("effect"))
        for title, delivery in streams.items():
            subject.enqueue(create, request_id=request, title=title, delivery=delivery)
        subject.enqueue(other, request_id=request, title="other")
        begun = len(subject.sent)
        subject.drain(create, other)
        assert sorted(body["title"] for body in subject.sent.bodies[begun:]) == sent
        assert ask(subject, "resume", **scope) == made
        subject.drain(create, other)
        assert len(subject.sent) == begun + 4
    assert ask(subject, "pauses") == ()


def held_with_its_key(subject: Subject) -> Any:
    """Lose a reply, let it be sent again under its key, and hold it back."""
    create = subject.ticket(Turning(lose, None), provider=Provider(key_lifetime="1h"))
    subject.enqueue(create, title="a", delivery=Delivery(time_to_live="1m"))
    subject.drain(create)
    subject.drain(create)
    assert subject.state == "pending"
    ask(subject, "pause", effect=create.name, by="mei", reason="maintenance")
    return create


def test_what_was_paused_beyond_the_lifetime_of_its_key_is_not_sent_again_on_a_guess(subject: Subject) -> None:
    create = held_with_its_key(subject)
    pass_by(subject, 2 * MINUTE)  # its time to live was for the first attempt, which may have happened
    subject.drain(create)
    assert subject.state == "pending"
    pass_by(subject, 60 * MINUTE)
    ask(subject, "resume", effect=create.name)
    for _ in range(2):
        subject.drain(create)
    assert (len(subject.sent), subject.state, subject.cases()) == (1, "unknown", ["unknown_outcome"])
    reasons = [row["reason"] for row in subject.rows("case") if row["state"] == "open"]
    assert reasons == ["an attempt's outcome was lost, and the lifetime of its key ended before it was sent again"]
    subject.drain(create)
    assert len(subject.sent) == 1


def test_what_was_paused_within_the_lifetime_of_its_key_is_sent_again(subject: Subject) -> None:
    create = held_with_its_key(subject)
    pass_by(subject, 50 * MINUTE)
    subject.drain(create)
    ask(subject, "resume", effect=create.name)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "succeeded")


def test_a_time_to_live_is_for_the_first_attempt(subject: Subject) -> None:
    create = subject.ticket(Turning(not_sent, None))
    subject.enqueue(create, title="a", delivery=Delivery(time_to_live="1m"))
    subject.drain(create)
    pass_by(subject, 5 * MINUTE)
    subject.drain(create)
    assert (len(subject.sent), subject.state) == (2, "succeeded")


def test_pauses_are_listed_and_renewed_and_lifted_by_their_exact_name(subject: Subject) -> None:
    for by in ("mei", "bo"):
        ask(subject, "pause", effect="e", by=by, reason="why")
    ask(subject, "pause", tenant="team-b", by="bo", reason="why")
    assert [(one.tenant, one.effect, one.paused_by) for one in ask(subject, "pauses")] == [
        (None, "e", "bo"),
        ("team-b", None, "bo"),
    ]
    assert [one.effect for one in ask(subject, "pauses", tenant="team-a")] == ["e"]
    for scope in ({"tenant": "team-a", "effect": "e"}, {"effect": "f"}):
        with pytest.raises(PauseNotFound, match=r"exactly effect \w"):
            ask(subject, "resume", **scope)
    assert len(ask(subject, "pauses")) == 2


@pytest.mark.parametrize("scope", [{}, {"stream": "s"}, {"effect": ""}, {"tenant": "team-a", "stream": "a\0b"}])
def test_a_pause_names_what_it_holds(subject: Subject, scope: dict[str, str]) -> None:
    with pytest.raises(InvalidArguments):
        ask(subject, "pause", **scope, by="mei", reason="why")
    with pytest.raises(InvalidArguments):
        ask(subject, "resume", **scope)
    with pytest.raises(VerdictIncomplete):
        ask(subject, "pause", effect="e", by="mei", reason=" ")


# --- reads -----------------------------------------------------------------------------------------------------------


def test_the_outbox_is_listed_by_pages_and_what_narrows_it(subject: Subject) -> None:
    create = subject.ticket(key=EACH)
    for number in range(6):
        subject.enqueue(create, title=str(number), delivery=Delivery(stream=f"s-{number % 2}", delay="1m"))
    subject.perform(subject.ticket(key="performed:{request_id}"), title="not of the outbox")
    subject.enqueue(create, title="b", tenant="team-b")

    def listed(**more: Any) -> list[str]:
        page = ask(subject, "list", **TENANT, **more)
        return [one.operation_id.removeprefix("ticket:r-1/") for one in page.items]

    first = ask(subject, "list", **TENANT, limit=4)
    assert [one.operation_id[-1] for one in first.items] == ["5", "4", "3", "2"]
    assert listed(before=first.next) == ["1", "0"]
    assert listed(stream="s-1") == ["5", "3", "1"]
    assert listed(effect="other") == listed(state="parked") == listed(state="succeeded") == []
    act(subject, "cancel", "ticket:r-1/5")
    pass_by(subject, MINUTE)
    subject.drain(create)
    assert (listed(), listed(state="cancelled")) == ([], ["5"])
    assert listed(state="succeeded", limit=2) == ["4", "3"]
    assert listed(state=None) == ["5", "4", "3", "2", "1", "0"]
    for wrong in ({"state": "lost"}, {"limit": 0}, {"stream": "s-1", "state": "failed"}):
        with pytest.raises(InvalidArguments):
            listed(**wrong)


def test_an_intent_tells_what_holds_it_back(subject: Subject) -> None:
    create = subject.ticket(not_sent, key=EACH, delivery=Delivery(stream="s", max_attempts=1))
    for title in "ab":
        subject.enqueue(create, title=title)
    pause = ask(subject, "pause", effect=create.name, by="mei", reason="why")
    first, second = (ask(subject, "get", f"ticket:r-1/{title}", **TENANT) for title in "ab")
    assert (first.behind, second.behind) == (None, "ticket:r-1/a")
    assert (first.pauses, first.operation.stream, first.operation.max_attempts) == ((pause,), "s", 1)
    subject.perform(subject.ticket(key="performed:{request_id}"), title="a")
    with pytest.raises(OperationNotFound, match="its caller sends it"):
        ask(subject, "get", "performed:r-1", **TENANT)


def test_both_colours_have_the_same_methods() -> None:
    names = {name for name in vars(Outbox) if not name.startswith("_")}
    assert names == {name for name in vars(AsyncOutbox) if not name.startswith("_")}
    for name in names:
        mine, theirs = getattr(Outbox, name), getattr(AsyncOutbox, name)
        assert str(signature(mine)) == str(signature(theirs)), name
        assert (getdoc(mine) or "").split("\n")[0] == (getdoc(theirs) or "").split("\n")[0], name


def test_a_dead_letter_of_another_effect_is_untouched(subject: Subject) -> None:
    def end(call: Any, *, title: str) -> Any:
        raise NotSent(title)

    create = subject.effect(end, key=EACH, delivery=ONE)
    for title in "ab":
        subject.enqueue(create, title=title)
    subject.drain(create)
    act(subject, "skip", "ticket:r-1/a")
    states = {row["operation_id"][-1]: row["state"] for row in subject.rows("operation")}
    assert states == {"a": "failed", "b": "parked"}
    assert sorted(row["state"] for row in subject.rows("case")) == ["open", "resolved"]
