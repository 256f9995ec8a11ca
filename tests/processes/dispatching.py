"""A dispatcher in a process of its own, with real effects at a real HTTP provider; SIGTERM lets it finish.

Run as `python -m tests.processes.dispatching ORDERS` with `Shift` as JSON. It prints a line when it begins.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterfoil import Absent, CannotTell, Counterfoil, Effect, Found, NotSent, Provider, effect
from counterfoil.runners import AsyncRunner
from counterfoil.runtime import dispatcher
from counterfoil.runtime.messages import Message
from counterfoil.runtime.worker import Worker
from counterfoil.storage.scripts.outbox import Ended
from counterfoil.testing.provider_client import ProviderClient
from tests import children

ROOT = Path(__file__).parents[2]
TENANT = "team-a"
LIMITS: dict[str, Any] = {"time_limit": "3s", "lease": "2s"}
"""Short, so that what a dead or stopped worker held is found within the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What a dispatcher works on."""

    database: str
    provider: str
    kind: str
    batch: int = 10
    freezes: str | None = None
    """Where it stops itself, once: before-send or after-send."""


_freezing: set[str] = set()


def freeze(point: str) -> None:
    """Stop this process here, once, until somebody continues it."""
    if point in _freezing:
        _freezing.discard(point)
        os.kill(os.getpid(), signal.SIGSTOP)


class FreezingMessage(Message):
    """A message whose worker may be stopped between its claim and its effect."""

    __slots__ = ()

    async def send(self, runner: AsyncRunner) -> Ended:
        freeze("before-send")
        return await super().send(runner)


def find(call: Any, *, number: int) -> Found | Absent | CannotTell:
    reply = call.resource(ProviderClient).find("message", key=call.provider_key)
    if reply.status != 200:
        return CannotTell(f"status {reply.status}")
    return Found(reply.body["found"][0]["id"]) if reply.body["found"] else Absent()


def send(call: Any, *, number: int) -> Any:
    reply = call.resource(ProviderClient).post("message", {"number": number}, key=call.provider_key)
    freeze("after-send")
    if reply.status in {409, 429, 503}:
        raise NotSent(f"status {reply.status}")
    if reply.status != 201:
        raise ValueError(reply.status)
    return reply.body["id"]


PROVIDERS = {
    "opaque": Provider(),
    "keyed": Provider(key_lifetime="24h"),
    "queryable": Provider(lookup=find, lookup_lag="0s"),
}
EFFECTS: dict[str, Effect[Any]] = {
    kind: effect(f"dispatching.{kind}", key="{request_id}/{number}", provider=provider, **LIMITS)(send)
    for kind, provider in PROVIDERS.items()
}
BLOCKED_S = 4


@effect("dispatching.blocking", key="{request_id}/{number}", lease="2s", time_limit="20s")
async def send_slowly(call: Any, *, number: int) -> Any:
    """Send, and keep the event loop from everything else for much longer than the lease."""
    reply = call.resource(ProviderClient).post("message", {"number": number}, key=call.provider_key)
    time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the point
    return reply.body["id"]


EFFECTS["blocking"] = send_slowly


def opened(database: str, provider: str) -> Counterfoil:
    cf = Counterfoil.open(database, wait="0s")
    cf.resources.provide(ProviderClient, lambda: ProviderClient(provider))
    return cf


def start(shift: Shift) -> "subprocess.Popen[str]":
    """Start a dispatcher, and wait until it works."""
    command = [sys.executable, "-m", "tests.processes.dispatching", json.dumps(asdict(shift))]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = children.start(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    return process


async def work(worker: Worker) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    print("at work", flush=True)  # noqa: T201 - the parent waits for it
    await worker.run()


def main(shift: Shift) -> None:
    if shift.freezes is not None:
        _freezing.add(shift.freezes)
        dispatcher.Message = FreezingMessage  # type: ignore[attr-defined]
    with opened(shift.database, shift.provider) as cf:
        asyncio.run(work(Worker(cf.desk, [EFFECTS[shift.kind]], batch=shift.batch)))


if __name__ == "__main__":
    main(Shift(**json.loads(sys.argv[1])))
