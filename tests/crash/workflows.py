"""A workflow that performs, enqueues, waits for an event and for a time, driven by drains and crashed anywhere."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from langgraph.graph import END, START, StateGraph

from counterfoil.langgraph import aenqueue, aperform, asleep_for, await_for, enqueue, perform, sleep_for, wait_for
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import World
from tests.crash.graphs import (
    HONOURS_KEYS,
    State,
    amail_effect,
    aticket_effect,
    checkpoints_are_linked,
    mail_effect,
    ticket_effect,
    values_are_stored,
)

ID: dict[str, Any] = {"tenant": "team-A", "workflow_id": "w-1"}
RESULT = {"title": "printer", "number": 1, "answer": "yes", "log": ["open", "tell", "ask", "rest", "close"]}


def opening(state: State) -> State:
    return {"number": perform(ticket_effect, title=state["title"]).value["number"], "log": ["open"]}


def telling(state: State) -> State:
    enqueue(mail_effect, title=state["title"])
    return {"log": ["tell"]}


def asking(_: State) -> State:
    came = wait_for("answer", timeout="3d")
    return {"answer": "none" if came is None else came.payload, "log": ["ask"]}


def resting(_: State) -> State:
    sleep_for("1h")
    return {"log": ["rest"]}


async def aopening(state: State) -> State:
    return {"number": (await aperform(aticket_effect, title=state["title"])).value["number"], "log": ["open"]}


async def atelling(state: State) -> State:
    await aenqueue(amail_effect, title=state["title"])
    return {"log": ["tell"]}


async def aasking(_: State) -> State:
    came = await await_for("answer", timeout="3d")
    return {"answer": "none" if came is None else came.payload, "log": ["ask"]}


async def aresting(_: State) -> State:
    await asleep_for("1h")
    return {"log": ["rest"]}


def closing(_: State) -> State:
    return {"log": ["close"]}


def built(*nodes: Any) -> Any:
    names = ("open", "tell", "ask", "rest", "close")
    builder: Any = StateGraph(State)
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
    for before, after in pairwise((START, *names, END)):
        builder.add_edge(before, after)
    return builder


BLOCKING = built(opening, telling, asking, resting, closing)
AWAITING = built(aopening, atelling, aasking, aresting, closing)


def run(world: World) -> None:
    """Start it, work, tell it what it waits for, work, let an hour pass, and work; all of it may be done again."""
    cf, effects = world.open(), (ticket_effect, mail_effect)
    cf.workflows.register(BLOCKING, name="flow")
    cf.workflows.start("flow", {"title": "printer"}, request_id="r-1", **ID)
    cf.drain(*effects)
    cf.workflows.deliver("answer", event_id="e-1", payload="yes", **ID)
    cf.drain(*effects)
    world.clock.advance("1h")
    cf.drain(*effects)


async def arun(world: World) -> None:
    """Do the same on an event loop."""
    cf, effects = world.open_async(), (aticket_effect, amail_effect)
    cf.workflows.register(AWAITING, name="flow")
    await cf.workflows.start("flow", {"title": "printer"}, request_id="r-1", **ID)
    await cf.drain(*effects)
    await cf.workflows.deliver("answer", event_id="e-1", payload="yes", **ID)
    await cf.drain(*effects)
    world.clock.advance("1h")
    await cf.drain(*effects)


def is_done(after: Aftermath, graph: Any) -> Iterator[str]:
    """Find a workflow that is asleep still, or ended in another state."""
    cf = after.world.open()
    cf.workflows.register(graph, name="flow")
    found = cf.workflows.get("w-1", tenant="team-A")
    if found.status != "done":
        yield f"the workflow is {found.status}, waits for {found.waits_for}, {found.error_class}: {found.error_text}"
        return
    if (result := cf.workflows.result("w-1", tenant="team-A")) != RESULT:
        yield f"it ended with {result}"
    waits = [(each.name, each.state) for each in cf.workflows.waits("w-1", tenant="team-A")]
    if sorted(waits) != [("answer", "answered"), ("timer", "timed_out")]:
        yield f"its waits are {waits}"
    after.world.close()


def scenario(name: str, body: Any, graph: Any) -> Scenario:
    checks = (ledger_invariants, checkpoints_are_linked, values_are_stored, partial(is_done, graph=graph))
    return Scenario(name=name, run=body, traits=HONOURS_KEYS, operations=2, entries=3, ordered=False, checks=checks)


WORKFLOWS = (scenario("workflow", run, BLOCKING), scenario("workflow/async", arun, AWAITING))
