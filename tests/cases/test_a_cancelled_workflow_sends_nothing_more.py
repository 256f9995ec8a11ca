"""B22: a cancelled run could still end with what it had asked for.

Sources: https://github.com/ansible/awx/issues/13465, https://github.com/syntara-orchestration/syntara/pull/327
"""

import random
import threading

import pytest

from counterfoil.errors import WorkflowHindered
from tests.cases.journeys import TENANT, Journeys, chain, collecting, noting, paying

AT_ONCE = 20


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_cancel_and_the_answer_in_any_order_end_in_one_of_two_states(ways: Journeys, rounds: int) -> None:
    people = ways.open()
    ways.cf.workflows.register(chain(wait=collecting(), ship=paying("a"), note=noting("b")), name="g")
    order = random.Random(22)
    for first in range(0, rounds, AT_ONCE):
        ids = [f"w-{number}" for number in range(first, first + AT_ONCE)]
        for workflow_id in ids:
            ways.start(workflow_id)
        ways.cf.drain()
        acts = [(workflow_id, act) for workflow_id in ids for act in ("deliver", "cancel")]
        order.shuffle(acts)
        going = threading.Thread(target=ways.cf.drain)
        refused = set[str]()
        going.start()
        for workflow_id, act in acts:
            if act == "deliver":
                people.workflows.deliver("paid", tenant=TENANT, workflow_id=workflow_id, event_id="e")
                continue
            try:
                people.workflows.cancel(workflow_id, tenant=TENANT, by="ann", reason="so")
            except WorkflowHindered:
                refused.add(workflow_id)
        going.join()
        ways.cf.drain()
        for workflow_id in ids:
            assert ways.get(workflow_id).status == ("done" if workflow_id in refused else "cancelled")
            late = ways.deliver("e-2", workflow_id)
            assert late.state == "too_late"
    keys = [one.key for one in ways.tally.accepted()]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("when", ["accepted", "waiting", "its-next-try"])
def test_one_that_is_cancelled_is_entered_no_more(ways: Journeys, when: str) -> None:
    entered: list[str] = []

    def step(_: object) -> dict[str, list[str]]:
        entered.append(when)
        if when == "its-next-try":
            raise ZeroDivisionError
        return {"log": ["a"]}

    ways.cf.workflows.register(chain(step=step, wait=collecting(timeout="1m"), ship=paying("a")), name="g")
    ways.start()
    if when != "accepted":
        ways.cf.drain()
    seen = list(entered)
    ways.cf.workflows.cancel("w", tenant=TENANT, by="ann", reason="so")
    for _ in range(3):
        ways.clock.advance("1h")
        ways.cf.drain()
    assert (entered, ways.sent, ways.get().status, ways.get().due_at) == (seen, [], "cancelled", None)
