"""What `test_server.py` lets LangGraph's server load: a managed graph, a plain one, and the saver that keeps both.

It runs in the server's own environment, so it imports nothing that only tests need.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from operator import add
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from counterfoil import AsyncCounterfoil, EffectCall, effect
from counterfoil.langgraph import aperform, for_server
from counterfoil.langgraph.saver import CounterfoilSaver
from counterfoil.testing.tally import TallyFile

FOLDER = Path(os.environ.get("SERVED_FOLDER", "."))
GATE = FOLDER / "gate"


class State(TypedDict, total=False):
    order: str
    answer: str
    log: Annotated[list[str], add]


@effect("served.charge", key="{request_id}/charge/{order}")
def charge(call: EffectCall, *, order: str) -> int:
    return call.resource(TallyFile).accept("charge", call.operation_id, {})


async def pay(state: State) -> State:
    receipt = await aperform(charge, order=state["order"])
    return {"log": [f"{receipt.tenant} {receipt.operation_id}"]}


async def wait(state: State) -> State:
    """Wait until somebody opens the other end of the gate, and closes it again."""
    if state["order"] == "slow":
        await asyncio.to_thread(GATE.read_bytes)
    return {}


def ask(state: State) -> State:
    return {"answer": interrupt("well?")}


def build() -> Any:
    builder: Any = StateGraph(State)
    for node in (pay, wait, ask):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "pay")
    builder.add_edge("pay", "wait")
    builder.add_edge("wait", "ask")
    builder.add_edge("ask", END)
    return builder


managed = for_server(build())
plain = build().compile()


def trusted(config: Mapping[str, Any]) -> dict[str, str | None]:
    return {"request_id": config["configurable"].get("request_id")}


@asynccontextmanager
async def checkpointer() -> AsyncIterator[CounterfoilSaver]:
    async with AsyncCounterfoil.open(os.environ["SERVED_URL"]) as cf:
        cf.resources.provide(TallyFile, lambda: TallyFile(FOLDER / "tally"))
        yield cf.saver(tenant="team-A", trust=trusted)
