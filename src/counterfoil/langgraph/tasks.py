"""What a `@task` enqueues goes into its own writes: a task that has ended is not run again where its caller is."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.config import get_config

from counterfoil.langgraph.context import CACHED, CONF, conf_of
from counterfoil.langgraph.intents import Collector, collecting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.runnables import RunnableConfig

CALL: Final = "__pregel_call"
"""Under this key LangGraph gives each node and task the function that schedules a `@task`."""


def with_tasks(config: RunnableConfig, lost: str | None) -> RunnableConfig:
    """Return a node's configuration in which the tasks that it calls collect what they enqueue."""
    call = conf_of(config).get(CALL)
    if call is None:
        return config
    return {**config, CONF: {**conf_of(config), CALL: scheduling(call, lost)}}


def scheduling(call: Callable[..., Any], lost: str | None) -> Callable[..., Any]:
    """Return the function that schedules tasks, for tasks that collect."""

    def schedule(function: Callable[..., Any], given: Any, **options: Any) -> Any:
        is_cached = options.get("cache_policy") is not None
        return call(collected(function, lost, is_cached=is_cached), given, **options)

    return schedule


def collected(function: Callable[..., Any], lost: str | None, *, is_cached: bool) -> Callable[..., Any]:
    """Return a task's function with a collector around it, under its name: by that LangGraph finds finished tasks."""
    name = _name_of(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _in_task(name, lost, is_cached=is_cached) as collector:
            return collector.send(function(*args, **kwargs))

    async def acall(*args: Any, **kwargs: Any) -> Any:
        with _in_task(name, lost, is_cached=is_cached) as collector:
            return collector.send(await function(*args, **kwargs))

    around: Any = wraps(function)(acall if _is_async(function) else call)
    around.__name__ = name
    return around  # type: ignore[no-any-return]


@contextmanager
def _in_task(name: str, lost: str | None, *, is_cached: bool) -> Iterator[Collector]:
    cached = CACHED.set(name if is_cached else CACHED.get())
    try:
        with running(get_config(), name, lost) as collector:
            yield collector
    finally:
        CACHED.reset(cached)


@contextmanager
def running(config: RunnableConfig, name: str, lost: str | None) -> Iterator[Collector]:
    """Collect what a node or task enqueues, and let the tasks that it calls do likewise."""
    config = with_tasks(config, lost)
    around = var_child_runnable_config.set(config)  # where LangGraph looks for the function that schedules tasks
    try:
        with collecting(config, name, lost) as collector:
            yield collector
    finally:
        var_child_runnable_config.reset(around)


def _name_of(function: Any) -> str:
    """Return the name that LangGraph gives a task."""
    named = function if hasattr(function, "__name__") else getattr(function, "func", type(function))
    return str(named.__name__)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
