"""B22: requests whose time was over still offered approve, and a cancelled run could still end with a granted approval.

Sources: https://github.com/ansible/awx/issues/13465, https://github.com/syntara-orchestration/syntara/pull/327
"""

import random
import threading
import time
from typing import Any

import pytest

from counterfoil import Policy, effect
from counterfoil.errors import ApprovalExpired, DecisionConflict, OperationClosed, WorkflowHindered
from counterfoil.langgraph import approve, perform
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests.cases.counted import Counted
from tests.cases.deciding import TENANT, opened, refund
from tests.cases.journeys import TENANT as T
from tests.cases.journeys import Journeys, beside, chain
from tests.stores import POSTGRES, execute, on_each

ASKED: dict[str, Any] = {"tenant": TENANT, "request_id": "r-1", "amount": 10}
MINUTES = 10


@pytest.mark.parametrize("ruling", ["approve", "reject", "cancel"])
@pytest.mark.parametrize(("milliseconds", "in_time"), [(-1, True), (0, False), (1, False)])
def test_before_at_and_after_its_time(
    counted: Counted,
    url: str,
    milliseconds: int,
    in_time: bool,  # noqa: FBT001 - a column of the table
    ruling: str,
) -> None:
    clock = FakeClock()
    with opened(url, counted.provider, clock=clock) as cf:
        question = cf.approvals.request(refund, **ASKED)
        clock.advance(f"{MINUTES * 60_000 + milliseconds}ms")
        decide = getattr(cf.approvals, ruling)
        if not in_time:
            with pytest.raises(DecisionConflict, match="nobody decided in time"):
                decide(question.approval_id, tenant=TENANT, by="ann", reason="so")
            with pytest.raises(ApprovalExpired):
                cf.perform(refund, **ASKED)
            assert cf.approvals.show(question.approval_id, tenant=TENANT).approval.state == "expired"
        else:
            decide(question.approval_id, tenant=TENANT, by="ann", reason="so")
            if ruling == "approve":
                cf.perform(refund, **ASKED)
    assert counted.provider.count() == (in_time and ruling == "approve")


@on_each(POSTGRES)
@pytest.mark.parametrize("wrong_by", [-300, 300])
@pytest.mark.parametrize("is_over", [False, True])
def test_the_clock_of_the_worker_says_nothing(
    counted: Counted,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    wrong_by: int,
    is_over: bool,  # noqa: FBT001 - as above
) -> None:
    """A file has the clock of its machine alone; a server has its own, which is the one that counts."""
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + wrong_by)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + wrong_by * 10**9)
    brief = effect("cases.brief-refund", key="{request_id}/brief", approval=Policy(decide_within="2m"))(
        refund.function  # its time is over by the wrong clock long before it is
    )
    with opened(url, counted.provider) as cf:
        question = cf.approvals.request(brief, **ASKED)
        if is_over:
            ended = "cast(extract(epoch from now()) * 1000 as bigint) - 1"
            for table in ("operation", "approval"):
                execute(url, f"update counterfoil_{table} set decide_by = {ended}")  # noqa: S608 - ours
            with pytest.raises(DecisionConflict, match="nobody decided in time"):
                cf.approvals.approve(question.approval_id, tenant=TENANT, by="ann")
        else:
            cf.approvals.approve(question.approval_id, tenant=TENANT, by="ann")
            cf.perform(brief, **ASKED)
    assert counted.provider.count() == (not is_over)


@pytest.mark.parametrize("first", ["approve", "cancel"])
def test_what_was_withdrawn_is_not_granted_by_a_late_approval(counted: Counted, url: str, first: str) -> None:
    with opened(url, counted.provider) as cf:
        approval_id = cf.approvals.request(refund, **ASKED).approval_id
        if first == "approve":
            cf.approvals.approve(approval_id, tenant=TENANT, by="ann")
        cf.approvals.cancel(approval_id, tenant=TENANT, by="bob", reason="not wanted")
        with pytest.raises(DecisionConflict, match="by bob"):
            cf.approvals.approve(approval_id, tenant=TENANT, by="ann")
        with pytest.raises(OperationClosed):
            cf.perform(refund, **ASKED)
    assert counted.provider.count() == 0


# --- a workflow that is cancelled ------------------------------------------------------------------------------------


@effect("cases.gated-ship", key="{workflow_id}/gated", approval=Policy())
def ship(call: Any) -> str:
    call.resource(TallyFile).accept("ship", call.operation_id, {"what": call.operation_id})
    return "shipped"


def shipping(_: Any) -> Any:
    decision = approve(ship)
    return {"log": [perform(decision).value if decision.approved else decision.state]}


@pytest.mark.parametrize("rounds", [15, pytest.param(200, marks=pytest.mark.soak)])
def test_approve_against_the_cancel_of_its_workflow_in_any_order(ways: Journeys, rounds: int) -> None:
    people = ways.open()
    ways.cf.workflows.register(chain(ship=shipping), name="g")
    order = random.Random(22)
    ids = [f"w-{number}" for number in range(rounds)]
    for workflow_id in ids:
        ways.start(workflow_id)
    ways.cf.drain()
    pending = {one.operation_id: one.approval_id for one in people.approvals.list(tenant=T, limit=1000).items}
    assert len(pending) == rounds
    acts = [(workflow_id, act) for workflow_id in ids for act in ("approve", "cancel")]
    order.shuffle(acts)
    going = threading.Thread(target=ways.cf.drain)
    going.start()
    ended, losers = set[str](), set[str]()
    for workflow_id, act in acts:
        try:
            if act == "approve":
                people.approvals.approve(pending[f"{workflow_id}/gated"], tenant=T, by="ann")
            else:
                people.workflows.cancel(workflow_id, tenant=T, by="bob", reason="so")
        except DecisionConflict as lost:
            losers.add(str(lost.decided_by))
        except WorkflowHindered:
            ended.add(workflow_id)
    going.join()
    ways.cf.drain()
    assert losers <= {"bob"}
    sent = ways.sent
    assert len(sent) == len(set(sent))
    for workflow_id in ids:
        detail = people.approvals.show(pending[f"{workflow_id}/gated"], tenant=T)
        status = ways.get(workflow_id).status
        assert status == ("done" if workflow_id in ended else "cancelled")
        was_sent = f"{workflow_id}/gated" in sent
        assert (detail.operation.state, detail.approval.state) in (
            {("succeeded", "approved")} if was_sent else {("cancelled", "cancelled")}
        )
        assert was_sent or status == "cancelled"
    ways.clock.advance("2h")
    ways.cf.drain()
    assert ways.sent == sent


@pytest.mark.parametrize("ruling", ["approve", "reject"])
def test_a_decision_wakes_its_workflow(ways: Journeys, ruling: str) -> None:
    ways.cf.workflows.register(chain(ship=shipping), name="g")
    ways.start()
    ways.cf.drain()
    assert (ways.get().status, ways.get().waits_for) == ("waiting", "a decision about w/gated")
    (one,) = ways.cf.approvals.list(tenant=T).items
    getattr(ways.open().approvals, ruling)(one.approval_id, tenant=T, by="ann", reason="so")
    ways.cf.drain()
    assert (ways.get().status, ways.log()) == ("done", ["shipped" if ruling == "approve" else "rejected"])


@effect("cases.gated-parts", key="{workflow_id}/{part}", approval=Policy())
def part_of(call: Any, *, part: str) -> str:
    call.resource(TallyFile).accept("ship", call.operation_id, {"what": part})
    return part


def test_what_is_decided_while_its_run_is_about_to_wait_for_something_else_wakes_it(ways: Journeys) -> None:
    people = ways.open()

    def asks(part: str) -> Any:
        return lambda _: {"log": [perform(approve(part_of, part=part)).value]}

    def decides_first(state: Any) -> Any:
        while not (found := people.approvals.list(tenant=T, state=None).items):
            time.sleep(0)  # the other step asks in a thread of its own
        if found[0].state == "pending":
            people.approvals.approve(found[0].approval_id, tenant=T, by="ann")
        return asks("b")(state)

    ways.cf.workflows.register(beside(a=asks("a"), b=decides_first), name="g")
    ways.start()
    ways.cf.drain()
    assert ways.sent == ["a"]
    (left,) = people.approvals.list(tenant=T).items
    people.approvals.approve(left.approval_id, tenant=T, by="ann")
    ways.cf.drain()
    assert (ways.get().status, sorted(ways.sent)) == ("done", ["a", "b"])


def test_a_workflow_goes_on_when_nobody_decided(ways: Journeys) -> None:
    ways.cf.workflows.register(chain(ship=shipping), name="g")
    ways.start()
    ways.cf.drain()
    ways.clock.advance("7d")
    for _ in range(3):
        ways.cf.drain()
        ways.clock.advance("1h")
    assert (ways.get().status, ways.log(), ways.sent) == ("done", ["expired"], [])
