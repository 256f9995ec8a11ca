"""A worker in a process of its own, with real effects at a real HTTP provider; it dies or stops where it is told to.

Run as `python -m tests.processes.worker ORDERS` with `Orders` as JSON. It prints one line of JSON for each operation.
"""

import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from counterfoil import (
    Absent,
    CannotTell,
    Counterfoil,
    CounterfoilError,
    Effect,
    EffectCall,
    Found,
    NotSent,
    Provider,
    effect,
    performing,
)
from counterfoil.testing.provider_client import ProviderClient

KINDS = ("opaque", "keyed", "queryable", "both")
TENANT = "team-a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker does; `point` names where `signal` hits it: claimed, before-send, or after-send."""

    database: str
    provider: str
    kind: str
    requests: list[str] = field(default_factory=lambda: ["r-1"])
    threads: int = 1
    lease: str | None = None
    signal: str | None = None
    point: str | None = None


_hit: dict[str, int] = {}  # the points at which this process is hit, each once, and by which signal


def reach(point: str) -> None:
    if point in _hit:
        # At this very thread: another one would take it while this one runs on, into the next transaction.
        signal.pthread_kill(threading.get_ident(), _hit.pop(point))


def find(call: Any, *, title: str) -> Found | Absent | CannotTell:
    reply = call.resource(ProviderClient).find("tickets", key=call.provider_key)
    if reply.status != 200:
        return CannotTell(f"status {reply.status}")
    found = reply.body["found"]
    return Found(found[0]) if found else Absent()


def create(call: Any, *, title: str) -> Any:
    reach("before-send")
    reply = call.resource(ProviderClient).post("tickets", {"title": title}, key=call.provider_key)
    reach("after-send")
    if reply.status in {429, 503}:
        raise NotSent(f"status {reply.status}")
    if reply.status != 201:
        raise ValueError(reply.status)
    return reply.body


PROVIDERS = {
    "opaque": Provider(),
    "keyed": Provider(key_lifetime="24h"),
    "queryable": Provider(lookup=find, lookup_lag="0s"),
    "both": Provider(key_lifetime="24h", lookup=find, lookup_lag="0s"),
}


def tickets(kind: str, lease: str | None = None) -> Effect[Any]:
    return effect(
        f"processes.{kind}", key="ticket:{request_id}", provider=PROVIDERS[kind], time_limit="20s", lease=lease
    )(create)


def opened(database: str, provider: str, **options: Any) -> Counterfoil:
    cf = Counterfoil.open(database, **options)
    cf.resources.provide(ProviderClient, lambda: ProviderClient(provider))
    return cf


def perform(cf: Counterfoil, made: Effect[Any], request_id: str) -> dict[str, Any]:
    """Perform one operation and say in plain data what came of it."""
    try:
        receipt = cf.perform(made, tenant=TENANT, request_id=request_id, title=f"ticket of {request_id}")
    except CounterfoilError as error:
        winner = error.facts.get("receipt")
        return {"request": request_id, "error": error.code, "winner": winner and winner.value["id"]}
    return {"request": request_id, "id": receipt.value["id"], "from": receipt.answered_from}


sending = performing.Job.sending


def sending_when_claimed(job: performing.Job, attempt: int) -> EffectCall:
    """Be hit between the COMMIT of the claim and the effect, where the protocol makes the call."""
    reach("claimed")
    return sending(job, attempt)


def main(orders: Orders) -> None:
    if orders.point is not None and orders.signal is not None:
        _hit[orders.point] = signal.Signals[orders.signal]
        performing.Job.sending = sending_when_claimed  # type: ignore[method-assign,assignment]
    made = tickets(orders.kind, orders.lease)
    with opened(orders.database, orders.provider, wait="60s") as cf, ThreadPoolExecutor(orders.threads) as pool:
        for told in pool.map(lambda request: perform(cf, made, request), orders.requests):
            print(json.dumps(told), flush=True)  # noqa: T201 - the parent reads it


def arguments(orders: Orders) -> list[str]:
    return [sys.executable, "-m", "tests.processes.worker", json.dumps(asdict(orders))]


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
