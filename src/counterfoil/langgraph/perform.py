"""Perform effects inside LangGraph: in nodes, tasks, tools and subgraphs, for the run that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.types import RetryPolicy

from counterfoil.aio.ledger import AsyncCounterfoil
from counterfoil.desk import check_effect
from counterfoil.errors import (
    ApprovalRequired,
    CounterfoilError,
    EffectInCachedNode,
    MintedHere,
    OutcomeUnknown,
    Retry,
    TenantMissing,
    VersionConflict,
)
from counterfoil.langgraph.context import CACHED, Here, locate
from counterfoil.langgraph.decisions import Decision, named
from counterfoil.langgraph.mint import PREFIX
from counterfoil.langgraph.parking import park
from counterfoil.ledger import Counterfoil
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from counterfoil.effects import Effect
    from counterfoil.langgraph.context import Run
    from counterfoil.model import Receipt
    from counterfoil.storage.script import Maker

T = TypeVar("T")
_DEFAULT: Callable[[Exception], bool] = RetryPolicy().retry_on  # type: ignore[assignment]


def perform(effect: Effect[T] | Decision[T], /, **arguments: Any) -> Receipt[T]:
    """Perform an operation once, whatever re-enters this node; see `Counterfoil.perform`.

    Tenant, request, workflow and principal come from the run. In a managed run an unknown outcome parks the run, and so
    does an operation that waits for a person's decision.

    Args:
        effect: A declared effect; or what `approve` returned, which names its arguments, too.
        **arguments: The effect's business arguments.

    Raises:
        NoActiveCounterfoil: there is no LangGraph run here, or it knows no Counterfoil.
        TenantMissing: the run has no tenant.
        EffectInCachedNode: a cache may answer for this node.
        MintedHere: an id is used in the step that minted it.
        VersionConflict: the run no longer owns its workflow.
        OperationError: the operation cannot go on now.
    """
    effect, arguments = named(effect, arguments)
    here = ready("perform", effect)
    for question in suspicions(here, effect, arguments):
        refuse_minted(effect, here.desk.store.read(question, tenant=here.trusted.tenant))
    if (run := here.run) is not None and run.is_workflow:
        _refuse_unowned(run, effect, here.desk.store.read(_owns(run), tenant=here.trusted.tenant))
    try:
        return Counterfoil(here.desk).perform_as(effect, arguments, here.trusted, here.origin)
    except (OutcomeUnknown, ApprovalRequired) as error:
        park(here, error)


async def aperform(effect: Effect[T] | Decision[T], /, **arguments: Any) -> Receipt[T]:
    """Perform an operation once in an async node, task or tool; see `perform`."""
    effect, arguments = named(effect, arguments)
    here = ready("perform", effect)
    for question in suspicions(here, effect, arguments):
        refuse_minted(effect, await here.desk.async_store.read(question, tenant=here.trusted.tenant))
    if (run := here.run) is not None and run.is_workflow:
        _refuse_unowned(run, effect, await here.desk.async_store.read(_owns(run), tenant=here.trusted.tenant))
    try:
        return await AsyncCounterfoil(here.desk).perform_as(effect, arguments, here.trusted, here.origin)
    except (OutcomeUnknown, ApprovalRequired) as error:
        park(here, error)


def retry_on(error: Exception) -> bool:
    """Say whether an error may be met by running the node again; for `RetryPolicy(retry_on=retry_on)`.

    Errors of ours say so themselves; all others are left to LangGraph's own default.
    """
    if isinstance(error, CounterfoilError):
        return error.retry is Retry.SAFE
    return _DEFAULT(error)


def ready(asked: str, effect: Effect[Any]) -> Here:
    """Find the run that asks for an effect, and refuse where its answer would not be its own.

    Raises:
        NoActiveCounterfoil: there is none, or it knows no Counterfoil.
        EffectInCachedNode: a cache may answer for this node.
        TenantMissing: the run has no tenant.
    """
    check_effect(effect)
    here = locate(asked)
    if (node := CACHED.get()) is not None:
        raise EffectInCachedNode(
            f"The effect {effect.name} was asked for in the node {node}, which has a cache policy: for another request"
            " with the same input the cache would answer, and its effect would not happen. Perform it in a node"
            " without one."
        )
    if not here.trusted.tenant:
        raise TenantMissing(
            f"The effect {effect.name} was asked for in a run without a tenant. Start the run with cf.run(graph, input,"
            " tenant='...', thread_id=...), or pass cf.config(tenant='...', thread_id=...) to graph.invoke."
        )
    return here


def suspicions(here: Here, effect: Effect[Any], arguments: Mapping[str, Any]) -> list[Maker[bool]]:
    """Return a question for each key field whose value may have been minted in this very step."""
    values = [arguments.get(name) for name in effect.key.fields]
    minted = [value for value in values if isinstance(value, str) and value.startswith(PREFIX)]
    step = here.step
    if step is None:
        return []
    key = ThreadKey(tenant=here.trusted.tenant, thread_id=here.origin.thread_id or "")
    return [lambda value=value: threads.is_minted_here(key, minted_id=value, step=step) for value in minted]  # type: ignore[misc]


def _owns(run: Run) -> Maker[bool]:
    return lambda: threads.is_owned(run.key, attempt=run.attempt)


def _refuse_unowned(run: Run, effect: Effect[Any], is_owned: bool) -> None:  # noqa: FBT001 - the answer to the question
    if not is_owned:
        raise VersionConflict(
            f"This run no longer owns workflow {run.key.thread_id}: it was cancelled, or another worker entered it. The"
            f" effect {effect.name} was not sent from here.",
            tenant=run.key.tenant,
            operation_id="",
            thread_id=run.key.thread_id,
        )


def refuse_minted(effect: Effect[Any], minted_here: bool) -> None:  # noqa: FBT001 - the answer to the question
    """Refuse an id that may be another one when the step is entered again.

    Raises:
        MintedHere: it is one.
    """
    if minted_here:
        raise MintedHere(
            f"The effect {effect.name} would use an id that this very step minted: if the step runs again before it"
            " is finished, the id may be another one. Mint it in an earlier step, put it into the state, and perform"
            " the effect in a later one."
        )
