"""Wrap a graph's nodes: what a node returns is checked before the runtime takes it, together with what it enqueued."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.config import run_in_executor
from langgraph.pregel import Pregel
from langgraph.utils.runnable import RunnableCallable  # type: ignore[attr-defined]

from counterfoil.langgraph.context import CACHED, CONF, Run, carried, conf_of, namespace_of
from counterfoil.langgraph.policy import check_state
from counterfoil.langgraph.tasks import running
from counterfoil.storage.scripts.checkpoints import NAMESPACE_END

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langgraph.graph._node import StateNodeSpec
    from langgraph.pregel._read import PregelNode

T = TypeVar("T")


class Cacheable(Protocol):
    """A node that may have a cache policy."""

    @property
    def cache_policy(self) -> Any:
        """Return the policy, or None."""
        ...


def wrapped_spec(name: str, spec: StateNodeSpec[Any, Any], lost: str | None) -> StateNodeSpec[Any, Any]:
    """Return a copy of a node with its runnable wrapped; `lost` says why it cannot enqueue, if it cannot."""
    clone = replace(spec)
    clone.runnable = wrapped(name, spec.runnable, clone, lost, partial(checked, name))  # type: ignore[arg-type]
    return clone


def wrapped_node(name: str, node: PregelNode, lost: str | None) -> PregelNode:
    """Return a copy of a node that was compiled already, of an `@entrypoint` for one, with its runnable wrapped.

    What it returns is not yet what is stored.
    """
    if isinstance(node.bound, RunnablePassthrough):
        return node
    clone = node.copy({})
    clone.bound = wrapped(name, node.bound, clone, lost, as_it_is)
    return clone


def wrapped(
    name: str, runnable: Runnable[Any, Any], spec: Cacheable, lost: str | None, judged: Callable[[Any], Any]
) -> RunnableCallable:
    """Return a node's runnable with the check behind it, and around it what collects what it enqueues.

    It is a closure and not a subclass, because LangGraph finds subgraphs by looking into closures. Of the node's
    function only module and qualified name are copied: more would leak its signature, less would make two nodes share
    a cache key. It is async only where the node is, so that LangGraph keeps refusing time-outs on blocking nodes.
    """
    suited = without_waiting if keeps_nothing(runnable) else as_it_is

    def call(state: Any, config: RunnableConfig) -> Any:
        with noted_if_cached(name, spec), running(config, name, lost) as collector:
            return ended(config, name, collector.send_with(judged(runnable.invoke(state, suited(collector.config)))))

    async def acall(state: Any, config: RunnableConfig) -> Any:
        with noted_if_cached(name, spec), running(config, name, lost) as collector:
            result = judged(await runnable.ainvoke(state, suited(collector.config)))
            return ended(config, name, collector.send_with(result))

    inner = getattr(runnable, "func", None) or getattr(runnable, "afunc", None) or runnable
    for function in (call, acall):
        function.__module__ = getattr(inner, "__module__", None) or __name__
        function.__qualname__ = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    blocking = call if has_blocking(runnable) else None
    beside: Any = partial(run_in_executor, None, call)  # type: ignore[call-arg]
    awaiting = acall if has_async(runnable) else beside
    return RunnableCallable(blocking, awaiting, name=name, trace=False, recurse=False)


def ended(config: RunnableConfig, name: str, result: T) -> T:
    """Note that a node of a run's root graph has ended, where that decides what is stored; return its result."""
    run = carried(config)
    if isinstance(run, Run) and run.skipping is not None and NAMESPACE_END not in namespace_of(config):
        run.skipping.note_end(name)
    return result


@contextmanager
def noted_if_cached(name: str, spec: Cacheable) -> Iterator[None]:
    """Note that a cache may answer for this node; asked when it runs, since `compile` still hands out defaults."""
    if spec.cache_policy is None:
        yield
        return
    token = CACHED.set(name)
    try:
        yield
    finally:
        CACHED.reset(token)


def keeps_nothing(runnable: Runnable[Any, Any]) -> bool:
    """Say whether a node is a child graph that was compiled with `checkpointer=False`."""
    return isinstance(runnable, Pregel) and runnable.checkpointer is False


def without_waiting(config: RunnableConfig) -> RunnableConfig:
    """Return the configuration for such a child: in "sync" it would wait for a checkpoint that it never puts."""
    return {**config, CONF: {**conf_of(config), "__pregel_durability": "async"}}


def as_it_is(given: T) -> T:
    """Return what was given: the configuration of every other node, or a result that is judged elsewhere."""
    return given


def has_blocking(runnable: Runnable[Any, Any]) -> bool:
    """Say whether a node can be invoked by a blocking run."""
    return not isinstance(runnable, RunnableCallable) or runnable.func is not None


def has_async(runnable: Runnable[Any, Any]) -> bool:
    """Say whether a node runs on the event loop, rather than in a thread beside it."""
    if isinstance(runnable, RunnableCallable):
        return runnable.afunc is not None and not isinstance(runnable.afunc, partial)
    if isinstance(runnable, RunnableLambda):
        return hasattr(runnable, "afunc")
    return True


def checked(node: str, result: Any) -> Any:
    """Return a node's result if all of it may be stored.

    Raises:
        StateNotStorable: a value would not come back equal.
        SecretInState: a value holds a credential.
    """
    check_state(result, f"{node}() -> $")
    return result
