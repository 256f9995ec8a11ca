"""A worker of the soak run: performs what others perform as well, runs graphs, and notes every answer that it gets.

Run as `python -m tests.soak.worker ORDERS` with `Orders` as JSON. It works until the stop file is there.
"""

import asyncio
import json
import random
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterfoil import AsyncCounterfoil, Counterfoil, CounterfoilError
from counterfoil.drivers import postgres_open
from counterfoil.langgraph import claims
from tests.soak.effects import EFFECTS, KINDS, builder
from tests.soak.providers import TENANT, Providers, providers

HANDS = 6
"""Threads or tasks of one worker."""
PER_SECOND = 12
"""New operations that the run is asked for, by all workers together."""
WINDOW = 30
"""How many operations are asked for at one time, each by several workers."""
GRAPHS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker is told."""

    url: str
    notes: str
    stop: str
    began: float
    seed: int
    awaiting: bool


def hurry() -> None:
    """Shorten what a run of minutes could not wait for."""
    postgres_open.WAIT_S, postgres_open.SILENCE_S = 3.0, 2.0
    claims.LEASE_MS = 3_000


class Worker:
    """What both colours do."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.mutex = threading.Lock()
        self.stop = Path(orders.stop)

    def choose(self, chance: random.Random) -> tuple[str, str]:
        """Choose something that others choose as well, at about the same time."""
        newest = int((time.time() - self.orders.began) * PER_SECOND)
        number = chance.randrange(max(0, newest - WINDOW), newest + 1)
        if chance.random() < GRAPHS:
            return "graph", f"graph-{number}"
        kind = KINDS[number % len(KINDS)]
        return kind, f"{kind}-{number}"

    def note(self, request_id: str, **what: Any) -> None:
        """Write down what was answered, so that it outlives this process."""
        line = json.dumps({"request": request_id, **what}) + "\n"
        with self.mutex, Path(self.orders.notes).open("a") as file:
            file.write(line)

    def failed(self, request_id: str, error: BaseException) -> None:
        if isinstance(error, CounterfoilError):
            self.note(request_id, error=error.code)
        else:
            self.note(request_id, crash="".join(traceback.format_exception(error)))


def work(worker: Worker) -> None:
    """Be a blocking worker."""
    with Counterfoil.open(worker.orders.url, wait="1s") as cf:
        cf.resources.provide(Providers, providers)
        graph = cf.compile(builder(awaiting=False))
        hands = [threading.Thread(target=_hand, args=(worker, cf, graph, number)) for number in range(HANDS)]
        for hand in hands:
            hand.start()
        for hand in hands:
            hand.join()


def _hand(worker: Worker, cf: Counterfoil, graph: Any, number: int) -> None:
    chance = random.Random(f"{worker.orders.seed}-{number}")
    while not worker.stop.exists():
        kind, request_id = worker.choose(chance)
        try:
            if kind == "graph":
                _run(worker, cf, graph, request_id)
            else:
                receipt = cf.perform(EFFECTS[kind], tenant=TENANT, request_id=request_id, title=request_id)
                worker.note(request_id, id=receipt.value["id"])
        except Exception as error:  # noqa: BLE001 - the judge looks at it
            worker.failed(request_id, error)


def _run(worker: Worker, cf: Counterfoil, graph: Any, request_id: str) -> None:
    config = cf.config(tenant=TENANT, request_id=request_id, thread_id=request_id)
    state = graph.get_state(config)
    if not state.values or state.next:
        given = None if state.values else {"title": request_id}
        done = cf.run(graph, given, tenant=TENANT, request_id=request_id, thread_id=request_id)
        worker.note(request_id, **{name: done.get(name) for name in ("first", "second")})


async def awork(worker: Worker) -> None:
    """Be a worker on an event loop."""
    async with AsyncCounterfoil.open(worker.orders.url, wait="1s") as cf:
        cf.resources.provide(Providers, providers)
        graph = cf.compile(builder(awaiting=True))
        await asyncio.gather(*(_ahand(worker, cf, graph, number) for number in range(HANDS)))


async def _ahand(worker: Worker, cf: AsyncCounterfoil, graph: Any, number: int) -> None:
    chance = random.Random(f"{worker.orders.seed}-{number}")
    while not worker.stop.exists():
        kind, request_id = worker.choose(chance)
        try:
            if kind == "graph":
                await _arun(worker, cf, graph, request_id)
            else:
                receipt = await cf.perform(EFFECTS[kind], tenant=TENANT, request_id=request_id, title=request_id)
                worker.note(request_id, id=receipt.value["id"])
        except Exception as error:  # noqa: BLE001 - the judge looks at it
            worker.failed(request_id, error)


async def _arun(worker: Worker, cf: AsyncCounterfoil, graph: Any, request_id: str) -> None:
    config = cf.config(tenant=TENANT, request_id=request_id, thread_id=request_id)
    state = await graph.aget_state(config)
    if not state.values or state.next:
        given = None if state.values else {"title": request_id}
        done = await cf.run(graph, given, tenant=TENANT, request_id=request_id, thread_id=request_id)
        worker.note(request_id, **{name: done.get(name) for name in ("first", "second")})


def arguments(orders: Orders) -> list[str]:
    return [sys.executable, "-m", "tests.soak.worker", json.dumps(asdict(orders))]


def main(orders: Orders) -> None:
    hurry()
    worker = Worker(orders)
    while not worker.stop.exists():
        try:
            if orders.awaiting:
                asyncio.run(awork(worker))
            else:
                work(worker)
        except CounterfoilError as error:  # opening or closing met a fault: like a supervisor, start again
            worker.note("", error=error.code)
        except BaseException as error:
            worker.failed("", error)
            raise


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
