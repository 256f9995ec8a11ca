"""A workflow is started once, waits as rows, is entered again by whichever worker is there, and forgets nothing."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from counterfoil import CannotTell, Found, NotSent, Policy
from counterfoil.access import system_user
from counterfoil.core.access import Actor
from counterfoil.core.entries import FIRST_PAUSE_MS
from counterfoil.errors import (
    EventConflict,
    GraphMissing,
    InvalidArguments,
    ThreadExists,
    ThreadParked,
    VerdictIncomplete,
    WorkflowConflict,
    WorkflowEnded,
    WorkflowFailed,
    WorkflowHindered,
    WorkflowNotDone,
    WorkflowNotFound,
)
from counterfoil.langgraph.claims import LEASE_MS
from counterfoil.liveness import place as this_place
from counterfoil.storage.scripts import threads, workflows
from counterfoil.storage.scripts.threads import Entry, ThreadKey, ThreadRequest
from counterfoil.storage.scripts.workflows import LOOK_AGAIN_MS, find_due
from counterfoil.storage.tenants import ALL_TENANTS
from tests.conformance.flows import ID, TENANT, Flows, State, Steps, beside, chain, do
from tests.conformance.subject import ASYNC, SYNC, Subject
from tests.stores import FILE, MEMORY, on_each

MINUTE = 60_000
ANN = Actor(who="ann", shown="ann")


@pytest.fixture(params=(SYNC, ASYNC))
def colour(request: pytest.FixtureRequest) -> str:
    """Both colours; a worker runs blocking nodes in threads whoever started it, so that the third shows nothing new."""
    return str(request.param)


@pytest.fixture
def flows(subject: Subject) -> Flows:
    return Flows(subject)


def pass_by(flows: Flows, milliseconds: int) -> None:
    flows.subject.clock.advance(timedelta(milliseconds=milliseconds))


def noting(word: str) -> Callable[[State], State]:
    return lambda state: {"log": [word]}


def waiting(flows: Flows, event: str = "paid", **asked: Any) -> Any:
    """Return a node that waits and notes what came."""

    def steps(state: State) -> Steps:
        came = yield do.wait_for(event, **asked)
        return {"log": ["nothing" if came is None else f"{came.event_id}={came.payload}"]}

    return flows.node(steps)


def timer(flows: Flows, duration: str) -> Any:
    def steps(state: State) -> Steps:
        yield do.sleep_for(duration)
        return {"log": ["woken"]}

    return flows.node(steps)


# --- start -----------------------------------------------------------------------------------------------------------


def test_when_start_answers_it_is_stored_and_the_same_one_again_is_returned(flows: Flows) -> None:
    flows.register(chain(note=noting("a")))
    first = flows.start({"number": 1}, request_id="r-1", principal="ann")
    (thread,), (row,) = flows.subject.rows("thread"), flows.subject.rows("workflow")
    assert (thread["status"], thread["state"], thread["request_id"], row["workflow_id"]) == (
        "accepted",
        "idle",
        "r-1",
        ID,
    )
    again = flows.start({"number": 1.0})
    assert (first.is_new, again.is_new, again) == (True, False, first)
    flows.drain()
    assert flows.result() == {"number": 1, "log": ["a"]}
    assert flows.start({"number": 1}).status == "done"
    assert flows.result()["log"] == ["a"]


def test_the_same_id_with_another_input_or_graph_is_a_conflict_and_leaves_the_first_alone(flows: Flows) -> None:
    flows.register(chain(note=noting("a")))
    flows.register(chain(note=noting("b")), name="other")
    first = flows.start({"number": 1})
    with pytest.raises(WorkflowConflict, match="in number") as caught:
        flows.start({"number": 2})
    assert caught.value.facts["fields"] == ("number",)
    with pytest.raises(WorkflowConflict, match="runs flow, not other"):
        flows.start({"number": 1}, graph="other")
    assert flows.get() == first
    flows.start({"number": 2}, tenant="team-b")
    flows.drain()
    assert flows.result() == {"number": 1, "log": ["a"]}
    assert flows.call("result", ID, tenant="team-b") == {"number": 2, "log": ["a"]}


def test_what_cannot_be_started_is_refused_and_stores_nothing(flows: Flows) -> None:
    graph = flows.register(chain(note=noting("a")))
    with pytest.raises(GraphMissing, match="flow version 1"):
        flows.start(graph="unknown")
    with pytest.raises(GraphMissing):
        flows.start(version=2)
    with pytest.raises(InvalidArguments):
        flows.start([("number", 1)])  # type: ignore[arg-type]
    for named in ({"version": "1"}, {"graph": graph}):
        with pytest.raises(InvalidArguments, match=r"version is|graph is"):
            flows.start(**named)
    with pytest.raises(InvalidArguments, match="Another graph"):
        flows.register(chain(note=noting("a"), other=noting("b")))
    assert flows.subject.rows("workflow") == []
    flows.run(graph, {"number": 1}, "t-1")
    with pytest.raises(ThreadExists):
        flows.start({"number": 1}, workflow_id="t-1")
    assert flows.subject.rows("workflow") == []
    with pytest.raises(WorkflowNotFound):
        flows.get("t-1")
    with pytest.raises(WorkflowNotFound):
        flows.call("get", ID, tenant="team-b")


def test_a_workflow_takes_no_other_input_than_its_own(flows: Flows) -> None:
    graph = flows.register(chain(wait=waiting(flows)))
    flows.start({"number": 1})
    for _ in range(2):
        with pytest.raises(WorkflowConflict, match="takes no other input"):
            flows.run(graph, {"number": 2})
        flows.drain()
        assert flows.status() == "waiting"
    flows.deliver("paid", "e-1")
    flows.drain()
    assert flows.result() == {"number": 1, "log": ["e-1=None"]}


# --- look ------------------------------------------------------------------------------------------------------------


def test_it_is_listed_and_its_steps_are_told_without_what_they_wrote(flows: Flows) -> None:
    flows.register(chain(first=noting("secret-of-ann"), wait=waiting(flows), last=noting("b")))
    for number in range(3):
        flows.start({"number": number}, workflow_id=f"w-{number}")
    flows.deliver("paid", "e-1", workflow_id="w-1")
    flows.drain()
    page = flows.call("list", tenant=TENANT, limit=2)
    assert [(each.workflow_id, each.status) for each in page.items] == [("w-2", "waiting"), ("w-1", "done")]
    rest = flows.call("list", tenant=TENANT, before=page.next)
    assert ([each.workflow_id for each in rest.items], rest.next) == (["w-0"], None)
    assert [each.workflow_id for each in flows.call("list", tenant=TENANT, status="done").items] == ["w-1"]
    assert flows.call("list", tenant="team-b").items == flows.call("list", tenant=TENANT, graph="other").items == ()
    with pytest.raises(InvalidArguments, match="There is no status"):
        flows.call("list", tenant=TENANT, status="lost")
    steps = flows.call("history", "w-1", tenant=TENANT)
    assert [step.nodes for step in steps][:3] == [("last",), ("wait",), ("first",)]
    assert [step.fields for step in steps][:3] == [("log",)] * 3
    assert "secret-of-ann" not in str(steps)
    found = flows.get("w-0")
    assert (found.waits_for, found.holder, found.due_at, found.tries) == ("paid", None, None, 0)
    (wait,) = flows.call("waits", "w-1", tenant=TENANT)
    assert (wait.name, wait.node, wait.event, wait.state) == ("paid", "wait", "paid", "answered")


def test_who_asks_for_a_result_too_early_is_told_what_it_waits_for(flows: Flows) -> None:
    flows.register(chain(wait=waiting(flows)))
    flows.start()
    with pytest.raises(WorkflowNotDone, match="accepted"):
        flows.result()
    flows.drain()
    with pytest.raises(WorkflowNotDone, match="It waits for paid"):
        flows.result()
    with pytest.raises(WorkflowNotFound):
        flows.result("w-2")


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before-the-start", "before-the-wait", "while-it-waits"])
def test_an_event_is_taken_by_one_wait_whenever_it_comes(flows: Flows, when: str) -> None:
    flows.register(chain(first=waiting(flows), pause=timer(flows, "1m"), second=waiting(flows, timeout="1m")))
    if when == "before-the-start":
        told = flows.deliver("paid", "e-1", 7)
        assert (told.state, told.is_new, told.wakes) == ("kept", True, False)
    flows.start()
    if when == "before-the-wait":
        assert not flows.deliver("paid", "e-1", 7).wakes
    flows.drain()
    if when == "while-it-waits":
        assert flows.status() == "waiting"
        assert flows.deliver("paid", "e-1", 7).wakes
        flows.drain()
    assert flows.waits() == [("paid", "answered"), ("timer", "open")]
    pass_by(flows, MINUTE)
    flows.drain()
    pass_by(flows, MINUTE)
    flows.drain()
    assert flows.result()["log"] == ["e-1=7", "woken", "nothing"]
    assert [row["state"] for row in flows.subject.rows("event")] == ["taken"]


def test_an_event_that_comes_again_changes_nothing_and_with_other_content_is_refused(flows: Flows) -> None:
    flows.register(chain(first=waiting(flows), second=waiting(flows)))
    flows.start()
    flows.drain()
    assert flows.deliver("paid", "e-1", {"sum": 1}).is_new
    for state in ("kept", "taken"):
        again = flows.deliver("paid", "e-1", {"sum": 1.0})
        assert (again.state, again.is_new, again.wakes) == (state, False, False)
        for name, payload, more in (
            ("paid", {"sum": 2}, {}),
            ("sent", {"sum": 1}, {}),
            ("paid", {"sum": 1}, {"subject": "x"}),
        ):
            with pytest.raises(EventConflict):
                flows.deliver(name, "e-1", payload, **more)
        flows.drain()
    assert flows.status() == "waiting"
    assert flows.deliver("paid", "e-1", workflow_id="w-2").is_new
    flows.deliver("paid", "e-2")
    flows.drain()
    assert flows.result()["log"] == ["e-1={'sum': 1}", "e-2=None"]


def test_an_event_after_the_end_is_kept_as_too_late(flows: Flows) -> None:
    flows.register(chain(note=noting("a")))
    flows.start()
    flows.start(workflow_id="w-2")
    flows.act("cancel", "w-2")
    flows.drain()
    for workflow_id in (ID, "w-2"):
        told = flows.deliver("paid", "e-1", workflow_id=workflow_id)
        assert (told.state, told.is_new, told.wakes) == ("too_late", True, False)
        assert not flows.deliver("paid", "e-1", workflow_id=workflow_id).is_new
    flows.drain()
    assert (flows.status(), flows.status("w-2")) == ("done", "cancelled")


def test_an_older_event_does_not_overtake_a_newer_one_about_its_subject(flows: Flows) -> None:
    flows.register(chain(first=waiting(flows, subject="x"), second=waiting(flows, subject="x", timeout="1m")))
    flows.start()
    flows.drain()
    assert flows.deliver("paid", "e-3", 3, subject="x", sequence=3).state == "kept"
    flows.drain()
    assert flows.deliver("paid", "e-1", 1, subject="x", sequence=1).state == "superseded"
    assert flows.deliver("paid", "e-9", 9, subject="y", sequence=1).state == "kept"
    assert flows.deliver("paid", "e-33", 33, subject="x", sequence=3).state == "kept"
    with pytest.raises(InvalidArguments, match="subject"):
        flows.deliver("paid", "e-5", 5, sequence=1)
    flows.drain()
    assert flows.result()["log"] == ["e-3=3", "e-33=33"]
    states = {row["event_id"]: row["state"] for row in flows.subject.rows("event")}
    assert states == {"e-3": "taken", "e-1": "superseded", "e-9": "kept", "e-33": "taken"}


def test_subject_and_match_say_which_event_it_must_be(flows: Flows) -> None:
    flows.register(chain(wait=waiting(flows, subject="ann", match={"round": 1})))
    flows.start()
    flows.drain()
    flows.deliver("paid", "e-1", {"round": 1}, subject="bob")
    flows.deliver("paid", "e-2", {"round": 2}, subject="ann")
    flows.deliver("paid", "e-3", "round", subject="ann")
    flows.deliver("paid", "e-4", {"round": True}, subject="ann")
    flows.drain()
    assert flows.status() == "waiting"
    flows.deliver("paid", "e-5", {"round": 1.0, "more": 1}, subject="ann")
    flows.drain()
    assert flows.result()["log"] == ["e-5={'round': 1.0, 'more': 1}"]


def test_waits_of_one_superstep_each_get_an_answer_of_their_own(flows: Flows) -> None:
    flows.register(
        beside(
            a=waiting(flows, name="a"), b=waiting(flows, name="b", timeout="2m"), c=timer(flows, "1m"), d=noting("d")
        )
    )
    flows.start()
    flows.drain()
    assert flows.get().due_at == flows.subject.clock.now_ms() + MINUTE
    assert flows.get().waits_for == "paid, timer"
    flows.deliver("paid", "e-1")
    flows.drain()
    assert sorted(state for _, state in flows.waits()) == ["answered", "open", "open"]
    pass_by(flows, MINUTE)
    flows.deliver("paid", "e-2")
    flows.drain()
    log = flows.result()["log"]
    assert sorted(log) == ["d", "e-1=None", "e-2=None", "woken"]


def test_several_waits_in_one_node_are_answered_one_after_the_other(flows: Flows) -> None:
    def steps(state: State) -> Steps:
        came = []
        for _ in range(3):
            event = yield do.wait_for("paid")
            came.append(event.event_id)
        return {"log": came}

    flows.register(chain(wait=flows.node(steps)))
    flows.start()
    for number in (1, 2, 3):
        flows.drain()
        flows.deliver("paid", f"e-{number}")
    flows.drain()
    assert flows.result()["log"] == ["e-1", "e-2", "e-3"]


# --- times -----------------------------------------------------------------------------------------------------------


def test_a_time_out_is_judged_by_the_databases_clock_whoever_looks_when(flows: Flows) -> None:
    flows.register(chain(wait=waiting(flows, timeout="1m")))
    for workflow_id in ("in-time", "late", "never"):
        flows.start(workflow_id=workflow_id)
    flows.drain()
    pass_by(flows, MINUTE - 1)
    flows.deliver("paid", "e-1", workflow_id="in-time")
    pass_by(flows, 1)
    flows.deliver("paid", "e-1", workflow_id="late")
    pass_by(flows, 60 * MINUTE)
    flows.drain()
    assert flows.result("in-time")["log"] == ["e-1=None"]
    assert flows.result("late")["log"] == flows.result("never")["log"] == ["nothing"]


def test_it_sleeps_for_a_while_or_until_a_time_and_holds_nothing_meanwhile(flows: Flows) -> None:
    at = datetime.fromtimestamp(flows.subject.clock.now_ms() / 1000, UTC) + timedelta(minutes=3)

    def steps(state: State) -> Steps:
        yield do.sleep_until(at)
        yield do.sleep_until(at - timedelta(days=1))
        return {"log": ["at"]}

    flows.register(chain(first=timer(flows, "1m"), second=flows.node(steps)))
    flows.start()
    for waits, due in (("timer", MINUTE), ("timer", 2 * MINUTE)):
        flows.drain()
        found = flows.get()
        assert (found.status, found.waits_for, found.holder) == ("waiting", waits, None)
        assert found.due_at == flows.subject.clock.now_ms() + due
        pass_by(flows, due - 1)
        flows.drain()
        assert flows.get().version == found.version
        pass_by(flows, 1)
    flows.drain()
    assert flows.result()["log"] == ["woken", "at"]


def test_a_time_without_its_zone_is_refused(flows: Flows) -> None:
    def steps(state: State) -> Steps:
        yield do.sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused

    flows.register(chain(wait=flows.node(steps)))
    flows.start()
    flows.drain()
    assert (flows.get().status, flows.get().error_class) == ("failed", "InvalidArguments")


# --- what a step that waits may not do -------------------------------------------------------------------------------


def test_to_wait_after_enqueue_and_outside_of_a_workflow_is_refused(flows: Flows) -> None:
    create = flows.subject.ticket(key="{workflow_id}")

    def steps(state: State) -> Steps:
        yield do.enqueue(create, title="a")
        yield do.wait_for("paid")

    flows.register(chain(wait=flows.node(steps)))
    flows.start()
    flows.drain(create)
    assert (flows.get().status, flows.get().error_class) == ("failed", "IntentWouldBeLost")
    assert len(flows.subject.sent) == 0
    graph = flows.register(chain(wait=waiting(flows)), name="waits")
    with pytest.raises(Exception, match="is no workflow"):
        flows.run(graph, {}, "t-1")
    assert flows.subject.rows("wait") == []


def test_a_resume_value_is_no_event(flows: Flows) -> None:
    graph = flows.register(chain(wait=waiting(flows)))
    flows.start()
    flows.drain()
    with pytest.raises(ThreadParked, match="Deliver the event"):
        flows.run(graph, Command(resume="yes"))
    flows.drain()
    assert flows.status() == "waiting"
    assert flows.deliver("paid", "e-1").wakes
    flows.drain()
    assert flows.result()["log"] == ["e-1=None"]


def test_a_plain_interrupt_asks_a_person_who_answers_by_a_run(flows: Flows) -> None:
    def ask(state: State) -> State:
        return {"log": [interrupt("well?")]}

    graph = flows.register(chain(ask=ask, wait=waiting(flows)))
    flows.start()
    flows.drain()
    flows.drain()
    assert flows.get().waits_for == "an answer to its question"
    assert not flows.deliver("paid", "e-1").wakes
    told = flows.run(graph, Command(resume="yes"))
    assert told["log"] == ["yes", "e-1=None"]
    assert flows.status() == "done"
    with pytest.raises(WorkflowEnded):
        flows.run(graph, None)


# --- unknown outcomes ------------------------------------------------------------------------------------------------


def lose() -> Any:
    raise TimeoutError


def settle_case(flows: Flows) -> None:
    review = flows.cf.review
    case = flows.subject.settle(review.open(f"{ID}/pay", tenant=TENANT))
    flows.subject.settle(
        review.resolve(
            case.case_id,
            tenant=TENANT,
            verdict="happened",
            by="ann",
            reason="looked it up",
            evidence='{"id": 17}',
            value={"id": 17},
            expect_version=case.version,
        )
    )


def paying(flows: Flows, effect: Any) -> Any:
    def steps(state: State) -> Steps:
        receipt = yield do.perform(effect, title="a")
        return {"log": [f"paid {receipt.value['id']}"]}

    return flows.node(steps)


@pytest.mark.parametrize("beside_it", ["nothing", "a-wait"])
def test_an_unknown_outcome_parks_it_and_it_goes_on_by_itself_when_a_person_has_settled_it(
    flows: Flows, beside_it: str
) -> None:
    pay = flows.subject.ticket(lose, key="{workflow_id}/pay")
    more = {} if beside_it == "nothing" else {"wait": waiting(flows, timeout="1h")}
    flows.register(beside(pay=paying(flows, pay), **more))
    flows.start()
    flows.drain(pay)
    flows.drain(pay)
    found = flows.get()
    assert (found.status, found.parked_on) == ("waiting", f"{ID}/pay")
    settle_case(flows)
    flows.drain(pay)
    if more:
        assert (flows.status(), flows.get().parked_on) == ("waiting", None)
        flows.deliver("paid", "e-1")
        flows.drain(pay)
    assert "paid 17" in flows.result()["log"]
    assert len(flows.subject.sent) == 1


def test_an_unknown_outcome_that_a_look_up_settles_needs_nobody(flows: Flows) -> None:
    answers: list[Any] = [CannotTell("closed")]

    def find(call: Any, *, title: str) -> Any:
        return answers[-1]

    provider = flows.subject.provider(lookup=find, lookup_lag="0s")
    pay = flows.subject.ticket(lose, key="{workflow_id}/pay", provider=provider)
    flows.register(chain(pay=paying(flows, pay)))
    flows.start()
    flows.drain(pay)
    assert (flows.status(), flows.get().parked_on) == ("waiting", f"{ID}/pay")
    answers.append(Found({"id": 3}))
    pass_by(flows, 60 * MINUTE)
    flows.drain(pay)
    assert flows.result()["log"] == ["paid 3"]
    assert len(flows.subject.sent) == 1


# --- errors ----------------------------------------------------------------------------------------------------------


class Broken:
    """A node that raises until it is mended."""

    def __init__(self) -> None:
        self.is_mended = False
        self.entered = 0

    def __call__(self, _: State) -> State:
        self.entered += 1
        if not self.is_mended:
            raise ZeroDivisionError("a payload of 4242")
        return {"log": ["mended"]}


def test_a_step_that_raises_is_tried_again_later_and_later_then_parked_and_resumed_by_a_person(flows: Flows) -> None:
    broken = Broken()
    flows.register(chain(first=noting("a"), broken=broken), tries=3)
    flows.start()
    for tries in (1, 2):
        flows.drain()
        found = flows.get()
        pause = FIRST_PAUSE_MS << (tries - 1)
        assert (found.status, found.tries, found.waits_for) == ("waiting", tries, "its next try")
        assert (found.error_class, found.due_at) == ("ZeroDivisionError", flows.subject.clock.now_ms() + pause)
        pass_by(flows, pause - 1)
        flows.drain()
        assert broken.entered == tries
        pass_by(flows, 1)
    flows.drain()
    pass_by(flows, 60 * MINUTE)
    flows.drain()
    found = flows.get()
    assert (found.status, found.tries, found.due_at, broken.entered) == ("parked", 3, None, 3)
    assert "4242" not in str(flows.subject.rows("thread"))
    with pytest.raises(WorkflowFailed, match="ZeroDivisionError"):
        flows.result()
    with pytest.raises(VerdictIncomplete):
        flows.act("resume", reason="")
    with pytest.raises(WorkflowHindered):
        flows.act("resume", expect_version=found.version - 1)
    broken.is_mended = True
    flows.act("resume", expect_version=found.version)
    flows.drain()
    assert flows.result()["log"] == ["a", "mended"]
    with pytest.raises(WorkflowHindered):
        flows.act("resume")
    with pytest.raises(WorkflowNotFound):
        flows.act("resume", "w-2")


def test_a_workflow_that_gets_on_between_errors_has_all_its_tries_again(flows: Flows) -> None:
    nodes = {f"n{number}": Broken() for number in range(3)}
    flows.register(chain(**nodes), tries=2)
    flows.start()
    flows.drain()
    for broken in nodes.values():
        broken.is_mended = True
        pass_by(flows, MINUTE)
        flows.drain()
    assert flows.result()["log"] == ["mended"] * 3


def test_an_error_after_which_trying_again_is_senseless_fails_it_at_once(flows: Flows) -> None:
    create = flows.subject.ticket(key="{workflow_id}/pay")

    def steps(state: State) -> Steps:
        yield do.perform(create, title="a")
        yield do.perform(create, title="b")

    flows.register(chain(pay=flows.node(steps)))
    flows.start()
    flows.drain(create)
    found = flows.get()
    assert (found.status, found.error_class, found.due_at) == ("failed", "FingerprintMismatch", None)
    with pytest.raises(WorkflowFailed):
        flows.result()
    assert len(flows.subject.sent) == 1
    flows.act("resume")
    flows.drain(create)
    assert flows.status() == "failed"
    assert len(flows.subject.sent) == 1


@on_each(FILE, MEMORY)  # PostgreSQL's client complains about what the end of its loop cut short
def test_a_step_that_ends_its_worker_again_and_again_is_parked(blocking: Subject) -> None:
    flows = Flows(blocking)

    def end(state: State) -> State:
        raise KeyboardInterrupt

    flows.register(chain(first=noting("a"), end=end), tries=3)
    flows.start()
    for _ in range(5):
        with suppress(KeyboardInterrupt):
            flows.drain()
        pass_by(flows, MINUTE)
    found = flows.get()
    assert (found.status, found.tries) == ("parked", 3)


# --- people ----------------------------------------------------------------------------------------------------------


def test_a_cancelled_workflow_goes_on_no_more(flows: Flows) -> None:
    graph = flows.register(chain(wait=waiting(flows, timeout="1m"), note=noting("a")))
    flows.start()
    flows.drain()
    with pytest.raises(VerdictIncomplete):
        flows.act("cancel", by=" ")
    with pytest.raises(WorkflowHindered):
        flows.act("cancel", expect_version=99)
    assert flows.act("cancel").status == "cancelled"
    assert flows.act("cancel", by="bob").error_text == "cancelled by ann: as she was told"
    pass_by(flows, MINUTE)
    flows.drain()
    assert flows.start().status == flows.status() == "cancelled"
    with pytest.raises(WorkflowEnded):
        flows.result()
    with pytest.raises(WorkflowEnded):
        flows.run(graph, None)
    with pytest.raises(WorkflowHindered):
        flows.act("resume")


def test_a_run_that_is_cancelled_stores_nothing_more_and_sends_nothing_more(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}")
    key = ThreadKey(tenant=TENANT, thread_id=ID)

    def steps(state: State) -> Steps:
        yield do.perform(pay, title="before")
        flows.cf.desk.store.write(
            lambda: workflows.cancel(key, by=ANN, reason="so", expected_version=None), tenant=TENANT
        )
        yield do.perform(pay, title="after")
        return {"log": ["paid"]}

    flows.register(chain(pay=flows.node(steps), after=noting("after")))
    flows.start()
    flows.drain(pay)
    assert flows.status() == "cancelled"
    assert [body["title"] for body in flows.subject.sent.bodies] == ["before"]
    assert [step.nodes for step in flows.call("history", ID, tenant=TENANT)] == [(), ()]


def test_a_workflow_says_which_decision_it_waits_for_which_is_no_wait_for_an_event_or_a_time(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}", approval=Policy())

    def steps(state: State) -> Steps:
        yield do.perform(pay, title="a")
        return {}

    flows.register(chain(pay=flows.node(steps), wait=waiting(flows)))
    flows.start()
    flows.drain()
    assert (flows.get().waits_for, flows.get().parked_on) == (f"a decision about {ID}/a", f"{ID}/a")
    assert flows.waits() == []
    flows.subject.settle(flows.cf.approvals.approve("approval-1", tenant=TENANT, by="mei"))
    flows.drain()
    assert (flows.get().waits_for, flows.get().parked_on, flows.waits()) == ("paid", None, [("paid", "open")])


def test_what_ends_with_a_cancelled_workflow_is_noted_one_by_one(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}", approval=Policy())

    def steps(state: State) -> Steps:
        yield do.approve(pay, title="a")
        return {}

    flows.register(chain(pay=flows.node(steps)))
    flows.start()
    flows.drain()
    flows.act("cancel")
    assert (flows.subject.state, flows.subject.rows("approval")[0]["state"]) == ("cancelled", "cancelled")
    noted = sorted(flows.subject.rows("audit"), key=lambda row: int(row["seq"]))
    assert [(row["act"], row["subject"], row["state_before"], row["state_after"]) for row in noted] == [
        ("cancel", f"{ID}/a", "awaiting_approval", "cancelled"),
        ("workflow.cancel", ID, "waiting", "cancelled"),
    ]
    assert {(row["who"], row["reason"]) for row in noted} == {("ann", "as she was told")}


def test_what_was_tried_without_that_anything_was_sent_ends_with_a_cancelled_workflow(flows: Flows) -> None:
    def not_sent() -> Any:
        raise NotSent("busy")

    pay = flows.subject.ticket(not_sent, key="{workflow_id}/{title}", approval=Policy())

    def steps(state: State) -> Steps:
        yield do.perform(pay, title="a")
        return {}

    flows.register(chain(pay=flows.node(steps)))
    flows.start()
    flows.drain()
    flows.subject.settle(flows.cf.approvals.approve("approval-1", tenant=TENANT, by="mei"))
    flows.drain()
    assert (flows.status(), flows.subject.state, flows.subject.attempts()) == ("waiting", "pending", ["not_sent"])
    flows.act("cancel")
    (approval,) = flows.subject.rows("approval")
    assert (flows.subject.state, approval["state"], approval["decided_by"]) == ("cancelled", "cancelled", "ann")


def test_nobody_is_asked_any_more_for_a_workflow_that_is_deleted(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}", approval=Policy())

    def left(state: State) -> Steps:
        yield do.enqueue(pay, title="left")  # what was enqueued is sent all the same, once it is approved
        return {}

    def asks(title: str) -> Any:
        def steps(state: State) -> Steps:
            yield do.approve(pay, title=title)
            return {}

        return flows.node(steps)

    flows.register(chain(left=flows.node(left), approved=asks("approved"), asked=asks("asked")))
    flows.start()
    flows.drain()
    approvals = flows.cf.approvals
    numbers = {row["operation_id"]: f"approval-{row['seq']}" for row in flows.subject.rows("approval")}
    flows.subject.settle(approvals.approve(numbers[f"{ID}/approved"], tenant=TENANT, by="mei"))
    flows.drain()
    assert flows.act("delete")
    assert {row["operation_id"]: row["state"] for row in flows.subject.rows("approval")} == {
        f"{ID}/left": "pending",
        f"{ID}/approved": "cancelled",
        f"{ID}/asked": "cancelled",
    }
    noted = sorted(flows.subject.rows("audit"), key=lambda row: int(row["seq"]))
    assert [(row["act"], row["subject"], row["who"], row["reason"]) for row in noted[1:]] == [
        ("cancel", f"{ID}/approved", "ann", "as she was told"),
        ("cancel", f"{ID}/asked", "ann", "as she was told"),
        ("workflow.delete", ID, "ann", "as she was told"),
    ]
    assert not flows.act("delete")
    (waiting,) = flows.subject.settle(approvals.list(tenant=TENANT)).items
    flows.subject.settle(approvals.approve(waiting.approval_id, tenant=TENANT, by="mei"))
    flows.drain(pay)
    assert flows.subject.sent.bodies == [{"title": "left"}]


def test_nobody_is_asked_any_more_for_a_workflow_whose_thread_is_deleted(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}", approval=Policy())

    def steps(state: State) -> Steps:
        yield do.approve(pay, title="a")
        return {}

    flows.register(chain(pay=flows.node(steps)))
    flows.start()
    flows.drain()
    saver = flows.cf.saver(tenant=TENANT)
    flows.subject.settle(saver.adelete_thread(ID) if flows.subject.colour != SYNC else saver.delete_thread(ID))
    assert (flows.subject.state, flows.subject.rows("approval")[0]["state"]) == ("cancelled", "cancelled")
    (noted,) = flows.subject.rows("audit")
    assert (noted["act"], noted["subject"], noted["who"]) == ("cancel", f"{ID}/a", system_user())


def test_what_was_asked_is_asked_still_where_a_workflow_may_not_be_deleted(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}", approval=Policy())

    def steps(state: State) -> Steps:
        yield do.approve(pay, title="a")
        return {}

    flows.register(chain(pay=flows.node(steps)))
    flows.start()
    flows.drain()
    with pytest.raises(WorkflowHindered):
        flows.act("delete", expect_version=99)
    assert (flows.subject.state, flows.status()) == ("awaiting_approval", "waiting")
    assert flows.act("delete", reason="")
    assert flows.subject.rows("approval")[0]["reason"] == "its workflow was deleted"


# --- graphs that change ----------------------------------------------------------------------------------------------


def test_a_workflow_goes_on_in_the_version_in_which_it_began(flows: Flows) -> None:
    flows.register(chain(wait=waiting(flows), old=noting("old")))
    flows.start()
    flows.drain()
    flows.register(chain(wait=waiting(flows), new=noting("new")), version=2)
    assert flows.start().graph_version == 1
    flows.start(workflow_id="w-2")
    for workflow_id in (ID, "w-2"):
        flows.deliver("paid", "e-1", workflow_id=workflow_id)
    flows.drain()
    assert flows.result()["log"][1:] == ["old"]
    assert (flows.get("w-2").graph_version, flows.result("w-2")["log"][1:]) == (2, ["new"])


@pytest.mark.parametrize("version", [1, 2])
def test_another_graph_than_it_began_in_is_not_entered_and_the_row_names_what_differs(
    flows: Flows, version: int
) -> None:
    flows.register(chain(wait=waiting(flows), old=noting("old"), last=noting("last")))
    flows.start()
    flows.drain()
    flows.deliver("paid", "e-1")
    cf = flows.cf
    cf.desk.graphs.clear()  # another process, in which the changed graph alone is registered
    flows.register(chain(wait=waiting(flows), last=noting("last"), new=noting("new")), version=version)
    for _ in range(2):
        flows.drain()
        found = flows.get()
        assert (found.status, found.error_class) == ("waiting", "GraphMismatch")
        for named in ("node old is gone", "node new is new", "edge old -> last is gone", "edge last -> new is new"):
            assert named in found.error_text
    cf.desk.graphs.clear()
    flows.register(chain(wait=waiting(flows), old=noting("old"), last=noting("last")))
    pass_by(flows, LOOK_AGAIN_MS)
    flows.drain()
    assert flows.result()["log"] == ["e-1=None", "old", "last"]
    assert flows.get().error_class is None


def test_a_changed_child_graph_is_another_graph_too(flows: Flows) -> None:
    def parent(**inner: Any) -> Any:
        return chain(child=chain(**inner).compile(), note=noting("after"))

    flows.register(parent(wait=waiting(flows), old=noting("old")))
    flows.start()
    flows.drain()
    flows.deliver("paid", "e-1")
    flows.cf.desk.graphs.clear()
    flows.register(parent(wait=waiting(flows), new=noting("new")))
    flows.drain()
    assert "node child|old is gone" in flows.get().error_text
    assert "node child|new is new" in flows.get().error_text
    assert flows.waits() == [("paid", "open")]


# --- recovery --------------------------------------------------------------------------------------------------------

DEAD = f"here@{this_place()}:1:1:0/0"
"""A holder of this host that is certainly gone: process 1 began at another time."""


def die(flows: Flows, holder: str = "elsewhere@other:1:1:0/0", graph: str = "flow") -> None:
    """Enter the workflow that is due, and let nothing come of it."""
    (due,) = flows.subject.settle(flows.subject.write(lambda: find_due(graph, 1, limit=9), tenant=ALL_TENANTS))
    request = ThreadRequest(
        key=due.key,
        holder=holder,
        lease=LEASE_MS,
        trusted={"request_id": None, "workflow_id": ID, "principal": None},
        goes_on=False,
        entry=Entry(version=due.version, most_tries=3),
    )
    claimed = flows.subject.settle(flows.subject.write(lambda: threads.claim(request)))
    assert isinstance(claimed, threads.Claimed)


def test_a_workflow_whose_process_died_is_entered_when_its_lease_is_over(flows: Flows) -> None:
    flows.register(chain(note=noting("a")))
    flows.start()
    die(flows)
    flows.drain()
    assert (flows.status(), flows.get().holder) == ("running", "elsewhere@other:1:1:0/0")
    pass_by(flows, LEASE_MS - 1)
    flows.drain()
    assert flows.status() == "running"
    pass_by(flows, 1)
    flows.drain()
    assert flows.result()["log"] == ["a"]


def test_one_whose_process_is_known_to_be_gone_need_not_wait_for_its_lease_whatever_its_graph(flows: Flows) -> None:
    for graph in ("other", "flow", "more"):
        flows.register(chain(note=noting("a")), name=graph)
    flows.start()
    die(flows, DEAD)
    flows.drain()
    assert flows.result()["log"] == ["a"]


def test_one_whose_process_dies_again_and_again_at_the_same_place_is_parked(flows: Flows) -> None:
    flows.register(chain(note=noting("a")), tries=3)
    flows.start()
    for number in range(3):
        die(flows, f"elsewhere@other:1:1:0/{number}")
        pass_by(flows, LEASE_MS)
    flows.drain()
    found = flows.get()
    assert (found.status, found.error_class, found.tries) == ("parked", "ProcessDied", 3)
    pass_by(flows, 60 * MINUTE)
    flows.drain()
    assert flows.status() == "parked"
    flows.act("resume")
    flows.drain()
    assert flows.result()["log"] == ["a"]


def test_one_whose_process_died_before_its_graph_changed_is_held_like_one_that_waits(flows: Flows) -> None:
    flows.register(chain(old=noting("old")))
    flows.start()
    die(flows)
    pass_by(flows, LEASE_MS)
    flows.cf.desk.graphs.clear()
    flows.register(chain(new=noting("new")))
    flows.drain()
    assert (flows.status(), flows.get().error_class) == ("running", "GraphMismatch")
    flows.cf.desk.graphs.clear()
    flows.register(chain(old=noting("old")))
    pass_by(flows, LOOK_AGAIN_MS)
    flows.drain()
    assert flows.result()["log"] == ["old"]


def test_more_than_a_worker_runs_at_once_and_in_several_graphs_all_get_their_turn(blocking: Subject) -> None:
    flows = Flows(blocking)
    names = ("one", "two", "three")
    for name in names:
        flows.register(chain(pause=timer(flows, "1m"), note=noting(name)), name=name)
    ids = [(name, f"{name}-{number}") for name in names for number in range(12)]
    for name, workflow_id in ids:
        flows.start(graph=name, workflow_id=workflow_id)
    flows.drain()
    assert {flows.status(workflow_id) for _, workflow_id in ids} == {"waiting"}
    pass_by(flows, MINUTE)
    flows.drain()
    assert all(flows.result(workflow_id)["log"] == ["woken", name] for name, workflow_id in ids)


# --- what a resume would do ------------------------------------------------------------------------------------------


def planned(flows: Flows, workflow_id: str = ID) -> Any:
    return flows.call("plan_resume", workflow_id, tenant=TENANT)


def test_a_plan_names_what_runs_next_and_what_is_answered_and_changes_nothing(flows: Flows) -> None:
    pay = flows.subject.ticket(key="{workflow_id}/{title}")

    def steps(state: State) -> Steps:
        yield do.perform(pay, title="a")
        yield do.enqueue(pay, title="b")

    def waits_after_paying(state: State) -> Steps:
        yield do.perform(pay, title="c")
        came = yield do.wait_for("paid")
        return {"log": [came.event_id]}

    flows.register(chain(first=flows.node(steps), second=flows.node(waits_after_paying), last=noting("z")))
    flows.start()
    plan = planned(flows)
    assert (plan.next_nodes, plan.answered, plan.unsettled, plan.graph_fits) == (("first",), (), (), True)
    flows.drain(flows.subject.ticket(key="{workflow_id}/nothing"))  # what was enqueued is not sent yet
    before = flows.get()
    plan = planned(flows)
    assert (plan.next_nodes, plan.graph_fits, plan.differences) == (("second",), True, ())
    assert (set(plan.answered), plan.unsettled) == ({f"{ID}/a", f"{ID}/c"}, (f"{ID}/b",))
    assert [(each.name, each.node, each.state) for each in plan.waits] == [("paid", "second", "open")]
    assert flows.get() == before
    flows.deliver("paid", "e-1")
    flows.drain(pay)
    plan = planned(flows)
    assert (plan.workflow.status, plan.next_nodes, plan.waits) == ("done", (), ())
    assert set(plan.answered) == {f"{ID}/a", f"{ID}/b", f"{ID}/c"}
    with pytest.raises(WorkflowNotFound):
        planned(flows, "w-2")


def test_a_plan_says_whether_the_registered_graph_fits(flows: Flows) -> None:
    flows.register(chain(wait=waiting(flows), old=noting("old")))
    flows.start()
    flows.drain()
    flows.cf.desk.graphs.clear()
    assert (planned(flows).graph_fits, planned(flows).next_nodes) == (None, ())
    flows.register(chain(wait=waiting(flows), new=noting("new")), version=2)
    assert planned(flows).differences[:2] == (
        "version 1 is not registered, version 2 is",
        "node old is gone",
    )
    flows.register(chain(wait=waiting(flows), new=noting("new")))
    plan = planned(flows)
    assert (plan.graph_fits, plan.differences[:2]) == (False, ("node old is gone", "node new is new"))
