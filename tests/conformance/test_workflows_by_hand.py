"""What people do to a workflow by hand leaves it what it was, and takes nothing that is not theirs to give."""

from typing import Any

import pytest
from langgraph.types import Command, interrupt

from counterfoil.errors import InvalidArguments, SecretInState, ThreadParked, WorkflowConflict
from tests.conformance.flows import ID, TENANT, Flows, State, chain, do
from tests.conformance.subject import SYNC, Subject
from tests.conformance.test_workflows import noting, waiting


@pytest.fixture(params=(SYNC,))
def colour(request: pytest.FixtureRequest) -> str:
    """What is tested here is the same code in both."""
    return str(request.param)


@pytest.fixture
def flows(subject: Subject) -> Flows:
    return Flows(subject)


def config(flows: Flows) -> Any:
    return flows.cf.config(tenant=TENANT, thread_id=ID)


def raising(state: State) -> State:
    raise ThreadParked("of another thread", tenant=TENANT, operation_id="")


@pytest.mark.parametrize("given", [Command(update={"number": 2}), Command(goto="a"), None], ids=str)
def test_nobody_enters_an_accepted_workflow_before_its_worker(flows: Flows, given: Any) -> None:
    graph = flows.register(chain(a=noting("a")))
    flows.start({"number": 1})
    with pytest.raises(WorkflowConflict):
        flows.run(graph, given)
    with pytest.raises(WorkflowConflict):
        graph.update_state(config(flows), {"number": 2})
    flows.drain()
    assert flows.result() == {"number": 1, "log": ["a"]}


def test_a_change_of_state_lets_a_failed_workflow_wait_for_a_person_still(flows: Flows) -> None:
    def fails(state: State) -> State:
        if not state.get("number"):
            raise InvalidArguments("there is no number")
        return {"log": ["b"]}

    graph = flows.register(chain(a=noting("a"), b=fails))
    flows.start()
    flows.drain()
    failed = flows.get()
    graph.update_state(config(flows), {"number": 1})
    flows.drain()
    mended = flows.get()
    assert (mended.status, mended.error_class, mended.error_text) == ("failed", failed.error_class, failed.error_text)
    flows.act("resume")
    flows.drain()
    assert flows.result()["log"] == ["a", "b"]


def test_a_change_of_state_loses_no_wait(flows: Flows) -> None:
    graph = flows.register(chain(a=waiting(flows)))
    flows.start()
    flows.drain()
    graph.update_state(config(flows), {"number": 1})
    flows.drain()
    assert flows.get().waits_for == "paid"
    flows.deliver("paid", "e-1")
    flows.drain()
    assert flows.status() == "done"


def test_a_node_that_raises_what_we_raise_uses_its_tries(flows: Flows) -> None:
    flows.register(chain(a=raising), tries=1)
    flows.start()
    flows.drain()
    assert flows.status() == "parked"


def test_a_graph_with_breakpoints_is_refused(flows: Flows) -> None:
    with pytest.raises(InvalidArguments, match="breakpoints"):
        flows.register(flows.cf.compile(chain(a=noting("a")), interrupt_before=["a"]))


def test_an_event_with_a_credential_is_refused(flows: Flows) -> None:
    flows.register(chain(a=waiting(flows)))
    flows.start()
    with pytest.raises(SecretInState, match="Nothing was stored"):
        flows.deliver("paid", "e-1", {"key": "AKIA" + "IOSFODNN7EXAMPLE"})
    assert flows.deliver("paid", "e-1", {"key": "by reference"}).is_new


def test_a_question_stays_a_question_after_a_change_of_state(flows: Flows) -> None:
    def asks(state: State) -> State:
        return {"log": [interrupt("sure?")]}

    graph = flows.register(chain(a=asks))
    flows.start()
    flows.drain()
    graph.update_state(config(flows), {"number": 1})
    flows.drain()
    assert flows.status() == "waiting"
    assert flows.run(graph, Command(resume="yes"))["log"] == ["yes"]
    assert flows.status() == "done"


def test_what_a_step_does_is_written_once(flows: Flows) -> None:
    def asks(state: State) -> Any:
        event = yield do.wait_for("paid")
        return {"log": [event.event_id]}

    flows.register(chain(a=flows.node(asks)))
    flows.start()
    flows.deliver("paid", "e-1")
    flows.drain()
    assert flows.result()["log"] == ["e-1"]
