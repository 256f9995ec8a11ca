"""Enqueue operations inside LangGraph: they are recorded together with the result of the node that asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.config import get_config

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.desk import check_effect
from counterfoil.enqueuing import Enqueuing
from counterfoil.errors import EffectInCachedNode, IntentWouldBeLost
from counterfoil.langgraph.context import CACHED, Here, locate
from counterfoil.langgraph.decisions import Decision, named
from counterfoil.langgraph.intents import CURRENT, Collector
from counterfoil.model import OperationKey
from counterfoil.storage.scripts import outbox
from counterfoil.storage.scripts.claims import existing_operation
from counterfoil.writing import awrite, write

if TYPE_CHECKING:
    from counterfoil.delivery import Delivery
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.model import Intent
    from counterfoil.storage.script import Maker

T = TypeVar("T")


def enqueue(effect: Effect[Any] | Decision[Any], /, *, delivery: Delivery | None = None, **arguments: Any) -> Intent:
    """Ask for an operation that a dispatcher sends once the node's result is stored, and only then.

    Nothing is recorded before the node ends; an attempt that fails, or an interrupt, leaves nothing of it. Tenant,
    request, workflow and principal come from the run.

    Args:
        effect: The declared effect; or what `approve` returned, which names its arguments, too.
        delivery: When it is sent, in which order, how often, and until when.
        **arguments: The effect's arguments.

    Raises:
        NoActiveCounterfoil: there is no LangGraph run here, or its node has ended.
        IntentWouldBeLost: the graph around the node was not compiled by Counterfoil, or stores nothing.
        EffectInCachedNode: a cache may answer for this node.
        FingerprintMismatch: the id was used with other arguments.
        DifferentEffect: the id belongs to another effect.
        TenantMissing: the run has no tenant.
    """
    refuse_nested("enqueue")
    refuse_on_loop("enqueue", f"await aenqueue({getattr(effect, '__name__', '...')}, ...)")
    collector, call = _asked(effect, arguments, delivery)
    if (edited := _edited(effect, call)) is not None:
        call.go_on_with(call.desk.store.read(lambda: existing_operation(edited), tenant=call.tenant))
    find = write if call.desk.strict else _read  # what a strict program refuses is noted
    return _taken(collector, call, find(call.desk, lambda: outbox.find(call.wish), tenant=call.tenant))


async def aenqueue(
    effect: Effect[Any] | Decision[Any], /, *, delivery: Delivery | None = None, **arguments: Any
) -> Intent:
    """Ask for an operation in an async node, task or tool; see `enqueue`."""
    refuse_nested("aenqueue")
    collector, call = _asked(effect, arguments, delivery)
    if (edited := _edited(effect, call)) is not None:
        call.go_on_with(await call.desk.async_store.read(lambda: existing_operation(edited), tenant=call.tenant))
    find = awrite if call.desk.strict else _aread
    return _taken(collector, call, await find(call.desk, lambda: outbox.find(call.wish), tenant=call.tenant))


def _read(desk: Desk, maker: Maker[T], *, tenant: str) -> T:
    return desk.store.read(maker, tenant=tenant)


async def _aread(desk: Desk, maker: Maker[T], *, tenant: str) -> T:
    return await desk.async_store.read(maker, tenant=tenant)


def _asked(
    asked: Effect[Any] | Decision[Any], given: dict[str, Any], delivery: Delivery | None
) -> tuple[Collector, Enqueuing]:
    effect, arguments = named(asked, given)
    check_effect(effect)
    here = locate("enqueue", elsewhere="Elsewhere use cf.enqueue(effect, tenant=..., ...).")
    collector = _collector(effect, here)
    return collector, Enqueuing(here.desk, effect, arguments, here.trusted, here.origin, delivery)


def _edited(asked: Effect[Any] | Decision[Any], call: Enqueuing) -> OperationKey | None:
    """Return which operation was approved in place of the one that was asked about, if a person edited that."""
    if not isinstance(asked, Decision) or asked.approval.operation_id == call.job.key.operation_id:
        return None
    return OperationKey(tenant=call.job.key.tenant, operation_id=asked.approval.operation_id)


def _collector(effect: Effect[Any], here: Here) -> Collector:
    """Return what collects for the task that this code belongs to.

    Raises:
        NoActiveCounterfoil: the task has ended.
        IntentWouldBeLost: nothing does, or what it collects would be lost.
        EffectInCachedNode: a cache may answer for the task.
    """
    if (node := CACHED.get()) is not None:
        raise EffectInCachedNode(
            f"The effect {effect.name} was enqueued in the node {node}, which has a cache policy: for another request"
            " with the same input the cache would answer, and its effect would not happen. Enqueue it in a node without"
            " one."
        )
    found = CURRENT.get()
    if found is None or here.run is None or not found.belongs_to(get_config()):
        raise IntentWouldBeLost(
            f"The effect {effect.name} was enqueued in a graph that Counterfoil did not compile, so that no checkpoint"
            " would carry it. Compile the graph with cf.compile(builder), a child graph that a node calls with"
            " cf.compile(child), and run it with cf.run(graph, input, tenant=..., thread_id=...)."
        )
    if found.lost is not None:
        raise IntentWouldBeLost(f"The effect {effect.name} was enqueued in the node {found.node}, {found.lost}")
    if found.ended:
        raise found.is_over(effect.name)
    return found


def _taken(collector: Collector, call: Enqueuing, known: outbox.Queued | outbox.Known) -> Intent:
    """Let the collector have a call that nothing stands in the way of."""
    intent = call.conclude(known)
    return intent if collector.take(call) else replace(intent, is_new=False)
