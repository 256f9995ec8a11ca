"""B56: "updated" came before "created" in the same second; the older state overwrote the newer.

Sources: https://github.com/stripe/stripe-cli/issues/418, https://github.com/opsknight-labs/OpsKnight/pull/623
"""

from itertools import permutations
from typing import Any

import pytest

from counterfoil.langgraph import perform, wait_for
from tests.cases.journeys import Journeys, chain, ship
from tests.engine.names import EMBEDDED, ENGINES

STATES = {"created": 1, "updated": 2, "closed": 3}


def following(_: Any) -> Any:
    """Follow an object until it is closed, with an effect for each state that is seen."""
    seen: list[str] = []
    while not seen or seen[-1] != "closed":
        came = wait_for("changed", subject="o-1")
        assert came is not None
        perform(ship, what=came.payload["state"])
        seen.append(came.payload["state"])
    return {"log": seen}


@pytest.mark.parametrize(
    ("engine", "drained"), [*((each, "after-each") for each in EMBEDDED), *((each, "at-the-end") for each in ENGINES)]
)
def test_in_every_order_with_duplicates_the_newest_state_is_the_last(ways: Journeys, drained: str) -> None:
    ways.cf.workflows.register(chain(follow=following), name="g")
    for number, order in enumerate(permutations(STATES)):
        workflow_id = f"w-{number}"
        ways.start(workflow_id)
        newest, expected = 0, list[str]()
        for state in [*order, *order]:
            told = ways.deliver(
                f"e-{state}",
                workflow_id,
                event="changed",
                subject="o-1",
                sequence=STATES[state],
                payload={"state": state},
            )
            if told.is_new:
                is_old = STATES[state] < newest
                assert told.state == ("superseded" if is_old else "kept")
                expected += [] if is_old else [state]
                newest = max(newest, STATES[state])
            if drained == "after-each":
                ways.cf.drain()
        ways.cf.drain()
        assert ways.log(workflow_id) == expected
        assert expected[-1] == "closed"
    shipped = [one.key for one in ways.tally.accepted()]
    assert len(shipped) == len(set(shipped))


def test_of_equal_numbers_none_is_lost_and_the_one_that_came_last_is_the_last(ways: Journeys) -> None:
    ways.cf.workflows.register(chain(follow=following), name="g")
    ways.start()
    for event_id, state in (("e-1", "created"), ("e-2", "updated"), ("e-3", "closed")):
        told = ways.deliver(event_id, event="changed", subject="o-1", sequence=7, payload={"state": state})
        assert told.state == "kept"
    ways.cf.drain()
    assert ways.log() == ["created", "updated", "closed"]


def test_events_without_a_number_come_in_the_order_in_which_they_came(ways: Journeys) -> None:
    ways.cf.workflows.register(chain(follow=following), name="g")
    for event_id, state in (("e-1", "updated"), ("e-2", "created"), ("e-3", "closed")):
        ways.deliver(event_id, event="changed", subject="o-1", payload={"state": state})
    ways.start()
    ways.cf.drain()
    assert ways.log() == ["updated", "created", "closed"]
