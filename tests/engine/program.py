"""The program of the workers, `counterfoil worker --app tests.engine.program:opened`, and of the tests beside them.

Where it works it is told by an environment variable. Leases and the times after which the dead are noticed are short
here, so that a test need not wait for half a minute.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from counterfoil import Absent, CannotTell, Counterfoil, Found, NotSent, Provider, effect
from counterfoil.engine import port
from counterfoil.langgraph import claims, perform, wait_for
from counterfoil.storage.scripts import workflows
from counterfoil.testing.provider_client import ProviderClient

VARIABLE = "COUNTERFOIL_ENGINE_TEST"
TENANT = "team-a"
NAMES = ("paying", "quick", "changing")
LIMITS: dict[str, Any] = {"time_limit": "2s", "lease": "1s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a program works, and what is another in it."""

    database: str
    folder: str
    provider: str = ""
    engine: str = "embedded"
    is_changed: bool = False

    def environment(self) -> dict[str, str]:
        return {**os.environ, VARIABLE: json.dumps(asdict(self))}

    def note(self, text: str) -> None:
        """Write a line where nothing takes it back, from any process; however many there are, it costs the same."""
        file = os.open(Path(self.folder) / "noted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{text}\n".encode())
        finally:
            os.close(file)

    def noted(self) -> list[str]:
        """Return all lines."""
        noted = Path(self.folder) / "noted"
        return noted.read_text().splitlines() if noted.exists() else []


class State(TypedDict, total=False):
    order: str
    paid: str
    said: str


def find(call: Any, *, order: str) -> Found | Absent | CannotTell:
    reply = call.resource(ProviderClient).find("charge", key=call.provider_key)
    if reply.status != 200:
        return CannotTell(f"status {reply.status}")
    return Found(reply.body["found"][0]["id"]) if reply.body["found"] else Absent()


@effect("engine.charge", key="{workflow_id}/charge", provider=Provider(lookup=find, lookup_lag="0s"), **LIMITS)
def charge(call: Any, *, order: str) -> Any:
    reply = call.resource(ProviderClient).post("charge", {"order": order}, key=call.provider_key)
    if reply.status in {429, 503}:
        raise NotSent(f"status {reply.status}")
    if reply.status != 201:
        raise ValueError(reply.status)
    return reply.body["id"]


def paying(place: Place) -> Any:
    """Charge, wait for a word, and end."""

    def pay(state: State) -> State:
        return {"paid": str(perform(charge, order=state["order"]).value)}

    def hear(state: State) -> State:
        word = wait_for("word")
        place.note(f"heard {state['order']} {time.time()}")
        return {"said": "" if word is None else str(word.payload)}

    return chain(pay=pay, hear=hear)


def quick(place: Place) -> Any:
    """Note the entry and end."""

    def count(state: State) -> State:
        place.note(state["order"])
        return {"paid": "no"}

    return chain(count=count)


def changing(place: Place) -> Any:
    """Wait for a word; the changed one has a node more."""

    def hear(state: State) -> State:
        wait_for("word")
        return {"said": "heard"}

    def more(state: State) -> State:
        return {"paid": "more"}

    return chain(hear=hear, more=more) if place.is_changed else chain(hear=hear)


def chain(**nodes: Any) -> Any:
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in zip([START, *nodes], [*nodes, END], strict=True):
        builder.add_edge(before, after)
    return builder


def hurry() -> None:
    """Notice the dead sooner."""
    claims.LEASE_MS = 2_000
    port.LOST_EVERY_S = 0.5
    workflows.LOOK_AGAIN_MS = 500  # a workflow that is held
    workflows.RESERVE_MS = 2_000
    try:
        from counterfoil.engine import procrastinate
    except ImportError:
        return
    procrastinate.HEARTBEAT_S, procrastinate.STALLED_S = 0.3, 1.2
    procrastinate.REAP_AT = "* * * * * */1"
    procrastinate.SWEEP_S, procrastinate.TOLD_AGAIN_S = 0.3, 2.0


def opened_at(place: Place, *, has_graphs: bool = True) -> Counterfoil:
    cf = Counterfoil.open(place.database, wait="0s", engine=place.engine)
    cf.resources.provide(ProviderClient, lambda: ProviderClient(place.provider))
    if has_graphs:
        for make in (paying, quick, changing):
            cf.workflows.register(make(place), name=make.__name__)
    return cf


def opened() -> Counterfoil:
    """What `counterfoil worker --app` names."""
    hurry()
    return opened_at(Place(**json.loads(os.environ[VARIABLE])))
