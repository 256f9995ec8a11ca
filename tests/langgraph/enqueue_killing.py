"""Kill a process that runs a graph and sends what it enqueues, at random moments, and judge what each kill left.

`python -m tests.langgraph.enqueue_killing URL FOLDER COLOUR DURABILITY SECONDS KILLS` prints one JSON object. Two nodes
in a row, four beside each other and one behind them enqueue one operation each. Each thread is begun by a child process
that is killed, and gone on with by the next ones, the last of which is left alone. Right after each kill an operation
must be in the outbox if and only if the result of its node is stored; in the end each was accepted once.

With `each` for SECONDS, one thread after the other is killed once, on either side of each of its COMMITs.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph

from counterfoil import Counterfoil, EffectCall, Provider, effect
from counterfoil.langgraph import aenqueue, enqueue
from counterfoil.testing.kills import in_child
from counterfoil.testing.tally import TallyFile
from tests.langgraph.killing import SIDES, Killer, Place
from tests.langgraph.shop import State

NODES = ("first", "second", "a", "b", "c", "d", "last")
EDGES = (
    (START, "first"),
    ("first", "second"),
    *(("second", one) for one in "abcd"),
    (list("abcd"), "last"),
    ("last", END),
)
MOST_KILLS_OF_A_THREAD = 3
LONGEST_WAIT_S = 60


@effect("kills.order", key="{request_id}/{name}", provider=Provider(key_lifetime="24h"), time_limit="1s")
def order(call: EffectCall, *, name: str) -> None:
    call.resource(TallyFile).accept("order", call.provider_key, {"name": name})


def node_of(name: str, colour: str) -> Any:
    def node(state: State) -> State:
        enqueue(order, name=name)
        return {"log": [name]}

    async def anode(state: State) -> State:
        await aenqueue(order, name=name)
        return {"log": [name]}

    return anode if colour == "awaiting" else node


def builder_of(colour: str) -> Any:
    builder: Any = StateGraph(State)
    for name in NODES:
        builder.add_node(name, node_of(name, colour))
    for start, end in EDGES:
        builder.add_edge(start, end)
    return builder


def who(thread: int) -> dict[str, Any]:
    return {"tenant": "team-A", "request_id": f"r-{thread}", "thread_id": f"t-{thread}"}


def drive(place: Place, thread: int, colour: str, durability: Any, probe: Killer | None = None) -> None:
    """Run a thread to its end from wherever it is, then send what is due, as a worker that is started again does."""
    with Counterfoil.open(place.url, probe=probe) as cf, warnings.catch_warnings(action="ignore"):
        cf.resources.provide(TallyFile, lambda: place.tally)
        graph, config = cf.compile(builder_of(colour)), cf.config(**who(thread))
        given = None if graph.get_state(config).created_at is not None else {"order": "1"}
        if colour == "awaiting":
            asyncio.run(graph.ainvoke(given, config, durability=durability))
        else:
            graph.invoke(given, config, durability=durability)
        cf.drain(order)


def dies_after(seconds: float) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def die(place: Place, thread: int, colour: str, durability: Any, when: float | Killer) -> bool:
    """Run a thread in a child process that is killed; say whether that met it alive."""
    child = os.fork()
    if not child:
        if isinstance(when, float):
            dies_after(when)
        try:
            drive(place, thread, colour, durability, when if isinstance(when, Killer) else None)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def violations(place: Place, thread: int, colour: str) -> list[str]:
    """Compare the outbox with the results that are stored."""
    with Counterfoil.open(place.url) as cf:
        found = cf.compile(builder_of(colour)).get_state(cf.config(**who(thread)))
    ended = {*found.values.get("log", ()), *(task.name for task in found.tasks if task.result)} & set(NODES)
    rows = place.select(f"select operation_id from counterfoil_operation where request_id = 'r-{thread}'")  # noqa: S608
    asked = {operation_id.rpartition("/")[2] for (operation_id,) in rows}
    lost = [f"thread {thread}: {name} is stored, its operation is not" for name in sorted(ended - asked)]
    return lost + [
        f"thread {thread}: {name} is in the outbox, its result is not stored" for name in sorted(asked - ended)
    ]


def finished(place: Place, thread: int, colour: str) -> list[str]:
    """Run a thread to its end, and say what of it is missing in the outbox."""
    drive(place, thread, colour, None)
    rows = place.select(f"select 1 from counterfoil_operation where request_id = 'r-{thread}'")  # noqa: S608 - ours
    return [] if len(rows) == len(NODES) else [f"thread {thread}: {len(rows)} operations"]


def settled(place: Place) -> list[str]:
    """Send the rest, also what killed dispatchers had claimed: they count as dead when their leases are over."""
    until = time.monotonic() + LONGEST_WAIT_S
    with Counterfoil.open(place.url) as cf:
        cf.resources.provide(TallyFile, lambda: place.tally)
        while left := place.select("select operation_id, state from counterfoil_operation where state <> 'succeeded'"):
            if time.monotonic() > until:
                return [f"not settled: {left}"]
            cf.drain(order)
            time.sleep(0.5)
    rows = place.select("select count(*) from counterfoil_operation")[0][0]
    return [] if place.tally.count() == rows else [f"{rows} operations, {place.tally.count()} accepted"]


def soak(place: Place, colour: str, durability: Any, seconds: float, least: int) -> dict[str, Any]:
    """Kill until both the time is over and there were so many kills."""
    in_child(lambda: Counterfoil.open(place.url).close())
    began = time.monotonic()
    in_child(lambda: drive(place, 0, colour, durability))
    took, kills, thread = time.monotonic() - began, 0, 0
    found: list[str] = []
    while (time.monotonic() - began < seconds or kills < least) and not found:
        thread += 1
        for _ in range(random.randint(1, MOST_KILLS_OF_A_THREAD)):
            kills += die(place, thread, colour, durability, random.uniform(0.01, took))
            if place.select("select 1 from counterfoil_thread limit 1"):
                found += in_child(partial(violations, place, thread, colour))
        found += in_child(partial(finished, place, thread, colour))
    found += in_child(lambda: settled(place))
    return {"kills": kills, "threads": thread, "violations": found, "accepted": place.tally.count()}


def at_each_commit(place: Place, colour: str, durability: Any) -> dict[str, Any]:
    """Kill on either side of each COMMIT of one thread, as often as an undisturbed one has COMMITs."""
    in_child(lambda: Counterfoil.open(place.url).close())
    commits = in_child(lambda: commits_of(place, colour, durability))
    thread, kills = 0, 0
    found: list[str] = []
    for number in range(commits):
        for side in SIDES:
            thread += 1
            kills += die(place, thread, colour, durability, Killer(number, side))
            found += in_child(partial(violations, place, thread, colour))
            found += in_child(partial(finished, place, thread, colour))
    found += in_child(lambda: settled(place))
    return {"kills": kills, "threads": thread, "violations": found, "accepted": place.tally.count()}


def commits_of(place: Place, colour: str, durability: Any) -> int:
    killer = Killer()
    drive(place, 0, colour, durability, killer)
    return len(killer.commits)


def main(url: str, folder: str, colour: str, durability: str, seconds: str, kills: str) -> None:
    place = Place(url, Path(folder))
    if seconds == "each":
        told = at_each_commit(place, colour, durability)
    else:
        told = soak(place, colour, durability, float(seconds), int(kills))
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
