"""One scenario for each way through the outbox's scripts: an intent is recorded, and a dispatcher sends what is due."""

from collections.abc import Callable
from typing import Any

from counterfoil import Delivery, EffectCall, NotSent, Provider
from counterfoil.core.states import OperationState
from counterfoil.testing.scenario import Scenario
from counterfoil.testing.world import ProviderTraits, World
from tests.crash.scenarios import (
    FAILED,
    HONOURS_KEYS,
    KEYED,
    LAGS,
    OPAQUE,
    QUERYABLE,
    SUCCEEDED,
    UNKNOWN,
    WHO,
    accept,
    declare,
    declared,
    lose_reply,
    lose_request,
    not_sent_at_first,
    refuse,
)

PARKED = frozenset({OperationState.PARKED})
UNSENT = frozenset({OperationState.EXPIRED})
PLAIN = ProviderTraits()


def never_sent(call: EffectCall) -> Any:
    raise NotSent("busy")


def scenarios(
    name: str,
    provider: Provider,
    do: Callable[[EffectCall], Any],
    traits: ProviderTraits,
    may_end: frozenset[OperationState],
    delivery: Delivery | None = None,
) -> tuple[Scenario, Scenario]:
    """Return a scenario in both colours: enqueue it, send what is due; and again after a crash."""
    declare(name, provider, do)

    def run(world: World) -> None:
        cf = world.open()
        cf.enqueue(declared(name), title="Printer offline", delivery=delivery, **WHO)
        cf.drain(declared(name))

    async def run_async(world: World) -> None:
        cf = world.open_async()
        await cf.enqueue(declared(f"{name}/async"), title="Printer offline", delivery=delivery, **WHO)
        await cf.drain(declared(f"{name}/async"))

    bodies = {name: run, f"{name}/async": run_async}
    one, other = (
        Scenario(name=title, run=body, traits=traits, may_end=may_end, entries=6, patience="5m", ordered=False)
        for title, body in bodies.items()
    )
    return one, other


ALL = (
    *scenarios("outbox-opaque", OPAQUE, accept, PLAIN, SUCCEEDED | UNKNOWN),
    *scenarios("outbox-keyed", KEYED, accept, HONOURS_KEYS, SUCCEEDED),
    *scenarios("outbox-queryable", QUERYABLE, accept, LAGS, SUCCEEDED),
    *scenarios("outbox-keyed-lost", KEYED, lose_reply, HONOURS_KEYS, SUCCEEDED),
    *scenarios("outbox-queryable-lost", QUERYABLE, lose_request, LAGS, SUCCEEDED),
    *scenarios("outbox-not-sent", OPAQUE, not_sent_at_first, PLAIN, SUCCEEDED | UNKNOWN),
    *scenarios("outbox-refused", OPAQUE, refuse, PLAIN, FAILED | UNKNOWN),
    *scenarios("outbox-parked", OPAQUE, never_sent, PLAIN, PARKED | UNKNOWN, Delivery(max_attempts=2)),
)
