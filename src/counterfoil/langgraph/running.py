"""Enter a graph with a trusted context: what `cf.config` and `cf.run` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.core.arguments import CALLED
from counterfoil.core.templates import validate_id
from counterfoil.errors import UnmanagedThread
from counterfoil.langgraph.agreeing import agreed
from counterfoil.langgraph.compile import ManagedRuns
from counterfoil.langgraph.context import CONF, KEY, Context, branch_around, conf_of
from counterfoil.model import Trusted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.runnables import RunnableConfig

    from counterfoil.desk import Desk


def make_config(desk: Desk, trusted: Trusted, config: Mapping[str, Any] | None) -> RunnableConfig:
    """Return a run's configuration with the trusted context in it.

    Raises:
        InvalidId: the thread id, tenant or another id cannot be stored.
        InvalidArguments: the configuration is no mapping.
        TrustedFieldMismatch: the configuration says another one of a field that is given.
    """
    validate_id("thread id", trusted.thread_id)
    made: Any = dict(CALLED.mapping("config", config))
    CALLED.mapping("config['configurable']", made.get(CONF))
    fields = agreed(trusted.fields(), made)
    trusted = Trusted(**fields, branch=branch_around())  # what a node of a branch starts is in the branch, too
    made[CONF] = {**conf_of(config), "thread_id": trusted.thread_id, KEY: Context(desk, trusted)}
    whole: RunnableConfig = made
    return whole


def managed(graph: Any) -> Any:
    """Return a graph that claims its threads.

    Raises:
        UnmanagedThread: it was not compiled by Counterfoil.
    """
    if not isinstance(graph, ManagedRuns):
        raise UnmanagedThread(
            f"cf.run takes a graph that Counterfoil compiled, not {type(graph).__qualname__}: without a claim two"
            " workers could run one thread. Write: graph = cf.compile(builder)."
        )
    return graph
