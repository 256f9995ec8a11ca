"""What both colours of Counterfoil do with graphs alike: compile them, configure a run, keep their checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.core.trusting import trusted_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.desk import Desk
    from counterfoil.langgraph.saver import CounterfoilSaver
    from counterfoil.langgraph.serving import Trust


class Graphs:
    """The part of a Counterfoil that makes graphs ready to be run; it touches no database."""

    desk: Desk

    def compile(self, graph: Any, **options: Any) -> Any:
        """Compile a graph so that each run claims its thread and each checkpoint is fenced.

        Args:
            graph: A `StateGraph` builder, a compiled graph, an agent's graph or an `@entrypoint`; left as it is.
            **options: What the builder's own `compile` takes, apart from the checkpointer.

        Raises:
            MissingExtra: LangGraph is not installed.
            InvalidArguments: it is not a graph.
        """
        from counterfoil.langgraph.compile import compile_graph  # noqa: PLC0415 - needs LangGraph

        return compile_graph(self.saver(), graph, **options)

    def config(
        self,
        *,
        thread_id: str,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return a LangGraph configuration that carries the trusted context, for code that calls `graph.invoke`.

        Raises:
            InvalidId: an id cannot be stored.
        """
        from counterfoil.langgraph.running import make_config  # noqa: PLC0415 - needs LangGraph

        trusted = trusted_context(
            tenant=tenant,
            request_id=request_id,
            workflow_id=workflow_id,
            principal=principal,
            thread_id=thread_id,
        )
        return make_config(self.desk, trusted, config)

    def saver(self, *, tenant: str = "", trust: Trust | None = None) -> CounterfoilSaver:
        """Return a LangGraph checkpointer over this database.

        Args:
            tenant: Whose checkpoints it sees where a configuration carries no context of its own.
            trust: For LangGraph's own server, which makes the configurations: a function that returns the request,
                workflow and principal of a run's configuration. Under the server nothing else is trusted.

        Raises:
            MissingExtra: LangGraph is not installed.
        """
        from counterfoil.langgraph.saver import CounterfoilSaver  # noqa: PLC0415 - needs LangGraph

        return CounterfoilSaver(self.desk, tenant=tenant, trust=trust)
