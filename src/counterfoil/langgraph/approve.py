"""Ask inside a node whether an operation may be sent; a run that waits for the answer holds no process or thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.config import get_config

from counterfoil import answers, approving
from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.aio.approvals import afind_or_ask
from counterfoil.approvals import find_or_ask
from counterfoil.core.effects import AwaitsApproval
from counterfoil.errors import IntentWouldBeLost, NoActiveCounterfoil
from counterfoil.langgraph.decisions import Decision
from counterfoil.langgraph.intents import CURRENT
from counterfoil.langgraph.parking import park
from counterfoil.langgraph.perform import ready, refuse_minted, suspicions
from counterfoil.langgraph.skipping import astore_held, store_held

if TYPE_CHECKING:
    from counterfoil.effects import Effect
    from counterfoil.langgraph.context import Here, Run
    from counterfoil.performing import Job
    from counterfoil.storage.scripts.claims import Seen

T = TypeVar("T")


def approve(effect: Effect[T], /, **arguments: Any) -> Decision[T]:
    """Return what a person decided about an operation; until then the run is parked.

    The decision is bound to the very arguments that will be sent. Hand it to `perform` or `enqueue`; or perform the
    effect with the same arguments. A person may have edited them: then what is performed is what was approved.

    Raises:
        NoActiveCounterfoil: there is no run here that owns its thread.
        IntentWouldBeLost: the step enqueued something, which would not leave before it ends.
        FingerprintMismatch: the id was used with other arguments.
        UsageError: the caller's code is wrong.
    """
    refuse_nested("approve")
    refuse_on_loop("approve", f"await aapprove({getattr(effect, '__name__', '...')}, ...)")
    here, run = _asking(effect)
    for question in suspicions(here, effect, arguments):
        refuse_minted(effect, here.desk.store.read(question, tenant=here.trusted.tenant))
    store_held(run)
    job = approving.asking(here.desk, effect, arguments, here.trusted, here.origin)

    return _decided(here, effect, arguments, job, find_or_ask(here.desk, job))


async def aapprove(effect: Effect[T], /, **arguments: Any) -> Decision[T]:
    """Return what a person decided about an operation, in an async node; see `approve`."""
    refuse_nested("aapprove")
    here, run = _asking(effect)
    for question in suspicions(here, effect, arguments):
        refuse_minted(effect, await here.desk.async_store.read(question, tenant=here.trusted.tenant))
    await astore_held(run)
    job = approving.asking(here.desk, effect, arguments, here.trusted, here.origin)

    return _decided(here, effect, arguments, job, await afind_or_ask(here.desk, job))


def _asking(effect: Effect[Any]) -> tuple[Here, Run]:
    here = ready("approve", effect)
    collector = CURRENT.get()
    if here.run is None or collector is None or not collector.belongs_to(get_config()):
        raise NoActiveCounterfoil(
            f"A step asks for an approval of {effect.name} in a run that does not own its thread, so that it could not"
            " wait for the answer. Compile the graph with cf.compile(builder), a child graph that a node calls with"
            " cf.compile(child), and run it with cf.run(graph, input, tenant=..., thread_id=...)."
        )
    if collector.asked:
        raise IntentWouldBeLost(
            f"The node {collector.node} enqueued {', '.join(collector.asked)} and then asks for an approval: what it"
            " enqueued would leave only when that is decided. Enqueue in a step before the one that asks."
        )
    return here, here.run


def _decided(here: Here, effect: Effect[T], arguments: dict[str, Any], job: Job, seen: Seen) -> Decision[T]:
    if isinstance(seen.decision, AwaitsApproval):
        park(here, answers.approval_required(job.key, seen.row, seen.approval))
    return Decision(approval=approving.asked(job, seen), effect=effect, arguments=arguments)
