"""Wrap a graph's nodes: what a node returns is checked against the checkpoint policy before the runtime takes it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import run_in_executor
from langgraph.pregel import Pregel
from langgraph.utils.runnable import RunnableCallable  # type: ignore[attr-defined]

from counterfoil.langgraph.context import CACHED, CONF, conf_of
from counterfoil.langgraph.policy import check_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.graph._node import StateNodeSpec


def wrapped_spec(name: str, spec: StateNodeSpec[Any, Any]) -> StateNodeSpec[Any, Any]:
    """Return a copy of a node with its runnable wrapped."""
    clone = replace(spec)
    clone.runnable = wrapped(name, spec.runnable, clone)  # type: ignore[arg-type]
    return clone


def wrapped(name: str, runnable: Runnable[Any, Any], spec: StateNodeSpec[Any, Any]) -> RunnableCallable:
    """Return a node's runnable with the check behind it.

    It is a closure and not a subclass, because LangGraph finds subgraphs by looking into closures. Of the node's
    function only module and qualified name are copied: more would leak its signature, less would make two nodes share
    a cache key. It is async only where the node is, so that LangGraph keeps refusing time-outs on blocking nodes.
    """
    suited = without_waiting if keeps_nothing(runnable) else as_it_is

    def call(state: Any, config: RunnableConfig) -> Any:
        with noted_if_cached(name, spec):
            return checked(name, runnable.invoke(state, suited(config)))

    async def acall(state: Any, config: RunnableConfig) -> Any:
        with noted_if_cached(name, spec):
            return checked(name, await runnable.ainvoke(state, suited(config)))

    inner = getattr(runnable, "func", None) or getattr(runnable, "afunc", None) or runnable
    for function in (call, acall):
        function.__module__ = getattr(inner, "__module__", None) or __name__
        function.__qualname__ = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    blocking = call if has_blocking(runnable) else None
    beside: Any = partial(run_in_executor, None, call)  # type: ignore[call-arg]
    awaiting = acall if has_async(runnable) else beside
    return RunnableCallable(blocking, awaiting, name=name, trace=False, recurse=False)


@contextmanager
def noted_if_cached(name: str, spec: StateNodeSpec[Any, Any]) -> Iterator[None]:
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


def as_it_is(config: RunnableConfig) -> RunnableConfig:
    """Return the configuration for every other node."""
    return config


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
