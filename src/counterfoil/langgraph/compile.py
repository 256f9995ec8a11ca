"""Compile a graph so that each run claims its thread first and every checkpoint is fenced."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import EmptyInputError
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl
from langgraph.types import StateSnapshot
from langgraph.utils.config import ensure_config  # type: ignore[attr-defined]

from counterfoil.errors import InvalidArguments
from counterfoil.langgraph import endings
from counterfoil.langgraph.agreeing import refuse_other
from counterfoil.langgraph.beginnings import beginning, may_begin_branch, refuse_nothing
from counterfoil.langgraph.claims import aclaim_now, aowning, claim_now, owning, with_run
from counterfoil.langgraph.context import CONF, KEY, Context, Run, carried, conf_of, refuse_exit, storable, unclaimed
from counterfoil.langgraph.intents import CHANNEL, IntentChannel
from counterfoil.langgraph.nodes import wrapped_node, wrapped_spec
from counterfoil.langgraph.parking import is_answer_to, refuse_answer
from counterfoil.langgraph.policy import check_state
from counterfoil.langgraph.saver import CounterfoilSaver
from counterfoil.langgraph.serving import served_run
from counterfoil.langgraph.skipping import Skipping, astore_held, store_held

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.graph._node import StateNodeSpec

    from counterfoil.desk import Desk

ROOT = "__root__"
"""The one channel of a graph whose state has no fields."""
EVERY_STEP = "every_step"
"""Store a checkpoint after each step, which is what LangGraph does."""
DURABILITY = "sync"
"""The only durability under which a run whose claim was lost is stopped before its next node."""


def compile_graph(saver: CounterfoilSaver, graph: Any, **options: Any) -> Any:
    """Compile a builder, or compile a compiled graph anew; the original is left as it is.

    Raises:
        InvalidArguments: it is none of the graphs that can be compiled.
    """
    if "checkpointer" in options:
        raise InvalidArguments("cf.compile brings its own checkpointer, which is the point of it: leave that one out.")
    _warn_of_other_saver(graph)
    if isinstance(graph, ManagedRuns) and not options and graph.checkpointer and graph.desk is saver.desk:
        return graph
    return compiled_with(saver, graph, options)


def for_server(graph: Any, /, **options: Any) -> Any:
    """Compile a graph for LangGraph's own server, which brings the checkpointer: one that `cf.saver` made.

    Each run claims its thread, as with `cf.compile`. Name the result under `graphs` in `langgraph.json`, and a saver
    under `checkpointer`.

    Args:
        graph: A `StateGraph` builder, a compiled graph, an agent's graph or an `@entrypoint`; left as it is.
        **options: What the builder's own `compile` takes, apart from the checkpointer.

    Raises:
        InvalidArguments: it is not a graph.
    """
    if options.keys() & {"checkpointer", "checkpoint"}:
        raise InvalidArguments(
            "for_server takes no checkpointer, and stores each step: name a saver under checkpointer in langgraph.json,"
            " and the server brings it along."
        )
    return compiled_with(None, graph, options)


def compiled_with(saver: CounterfoilSaver | None, graph: Any, options: dict[str, Any]) -> Any:
    """Compile a graph with a checkpointer, or for one that comes later, and mix the claims in."""
    checkpoint = options.pop("checkpoint", EVERY_STEP)
    compiled: Any
    match graph:
        case StateGraph():
            compiled = unlisted(managed_builder(graph).compile(checkpointer=saver, **options))
        case CompiledStateGraph():
            builder = managed_builder(graph.builder)
            compiled = unlisted(builder.compile(checkpointer=saver, **(_options(graph) | options)))
        case Pregel():
            compiled = managed_nodes(graph, update={"checkpointer": saver, **options})
        case _:
            raise InvalidArguments(
                f"Counterfoil compiles a StateGraph builder, a compiled graph, an agent's graph or an @entrypoint, not"
                f" {type(graph).__qualname__}."
            )
    _refuse_names(compiled)
    base: type = type(compiled)
    managed: Any = object.__new__(managed_class(base))
    managed.__dict__.update(compiled.__dict__)
    if saver is not None:  # which every copy of the graph keeps
        saver.key_nodes = key_nodes(compiled, checkpoint)
    return managed


def key_nodes(compiled: Any, checkpoint: Collection[str] | str) -> frozenset[str] | None:
    """Return the nodes after which alone a graph's checkpoints are stored at once, or None for all.

    Raises:
        InvalidArguments: the graph has no node of a name.
    """
    if checkpoint == EVERY_STEP:
        return None
    named = frozenset([checkpoint] if isinstance(checkpoint, str) else checkpoint)
    if unknown := sorted(named - compiled.nodes.keys()):
        raise InvalidArguments(
            f"checkpoint names {', '.join(unknown)}, which the graph has no node of. Name nodes of the graph, or write"
            f" checkpoint={EVERY_STEP!r}, which is what it is without."
        )
    return named


def _refuse_names(compiled: Any) -> None:
    """Refuse names that no checkpoint can hold before a run meets them, perhaps after an effect.

    Raises:
        InvalidId: a node or a state field, here or in a child graph, has one.
    """
    for graph in (compiled, *(child for _, child in compiled.get_subgraphs(recurse=True))):
        for name in (*graph.nodes, *graph.channels):
            storable("name of a node or state field", name)


def _warn_of_other_saver(graph: Any) -> None:
    other = getattr(graph, "checkpointer", None)
    if isinstance(other, BaseCheckpointSaver) and not isinstance(other, CounterfoilSaver):
        warnings.warn(
            f"The graph was compiled with a {type(other).__qualname__}; Counterfoil's checkpointer takes its place, and"
            " threads that are stored there are not seen.",
            stacklevel=4,
        )


def managed_builder(builder: StateGraph[Any, Any, Any, Any], lost: str | None = None) -> StateGraph[Any, Any, Any, Any]:
    """Return a copy of a builder with its nodes wrapped, a channel for what they enqueue, and its children likewise.

    Args:
        builder: The builder.
        lost: Why nothing can be enqueued in this graph, or None.
    """
    clone = copy(builder)
    if ROOT in builder.channels:
        lost = lost or "whose graph has a state without fields. Give it a state with fields, a TypedDict for one."
    else:
        clone.channels = {**builder.channels, CHANNEL: IntentChannel()}
    clone.nodes = {name: wrapped_spec(name, _with_child(spec, lost), lost) for name, spec in builder.nodes.items()}
    return clone


def _with_child(spec: StateNodeSpec[Any, Any], lost: str | None) -> StateNodeSpec[Any, Any]:
    """Return a node with its nodes wrapped, if it is a child graph that was compiled plainly."""
    child: Any = spec.runnable
    if not isinstance(child, Pregel) or isinstance(child, ManagedRuns):
        return spec
    if child.checkpointer is False:
        lost = "in a child graph with checkpointer=False, which stores nothing. Leave checkpointer out."
    if not isinstance(child, CompiledStateGraph):
        return replace(spec, runnable=managed_nodes(child, lost))
    made = unlisted(managed_builder(child.builder, lost).compile(checkpointer=child.checkpointer, **_options(child)))
    clone = copy(child)
    for name in ("builder", "nodes", "channels", "stream_channels", "trigger_to_nodes"):
        setattr(clone, name, getattr(made, name))
    return replace(spec, runnable=clone)


def managed_nodes(graph: Any, lost: str | None = None, *, update: dict[str, Any] | None = None) -> Any:
    """Return a copy of an `@entrypoint` or another graph without a builder, with its nodes wrapped."""
    nodes = {name: wrapped_node(name, node, lost) for name, node in graph.nodes.items()}
    channels = {**graph.channels, CHANNEL: IntentChannel()}
    return unlisted(graph.copy({"nodes": nodes, "channels": channels, **(update or {})}))


def unlisted(graph: Any) -> Any:
    """Take the channel of intents off the list of those that a graph shows in streams and states."""
    shown = graph.stream_channels_asis
    if not isinstance(shown, str):
        graph.stream_channels = [name for name in shown if name != CHANNEL]
    return graph


def _options(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, Any]:
    """Return what a graph was compiled with, apart from its checkpointer."""
    return {
        "interrupt_before": graph.interrupt_before_nodes,
        "interrupt_after": graph.interrupt_after_nodes,
        "debug": graph.debug,
        "store": graph.store,
        "cache": graph.cache,
        "name": graph.name,
    }


class ManagedRuns:
    """Claims around every way to run a graph or to change its state; mixed into the graph's own class."""

    if TYPE_CHECKING:
        checkpointer: Any
        config: RunnableConfig | None

    @property
    def desk(self) -> Desk:
        """Return the desk of the Counterfoil that compiled this graph."""
        desk: Desk = self.checkpointer.desk
        return desk

    def skipping(self) -> Skipping | None:
        """Return what a new run of this graph leaves in memory, if it stores key nodes alone."""
        keys = getattr(self.checkpointer, "key_nodes", None)
        return None if keys is None else Skipping(keys)

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:  # noqa: A002 - the interface's name
        """Claim the thread, then stream the graph's steps; the claim ends with the stream."""
        whole = self._whole(config)
        if not self.checkpointer or is_nested(whole):
            yield from super().stream(input, config, **options)  # type: ignore[misc]
            return
        options = prepared(input, options, served=served_run(whole) is not None)
        run, parked = claim_now(self.desk, whole, input, self._context(whole))
        run.skipping = self.skipping()
        config = with_run(config, run)
        with owning(run, options["control"]):
            if is_answer_to(input, run, parked):
                with endings.unless_accepted(run):
                    refuse_answer(run, input, parked, self.get_state(config))
            if may_begin_branch(run, input, config):
                config = beginning(run, config, self.get_state(config))
            try:
                yield from super().stream(input, config, **options)  # type: ignore[misc]
            except EmptyInputError:
                endings.untouched(run)
                refuse_nothing(run, input, config, self.get_state(config))
                raise
            store_held(run)
            if run.is_workflow:
                run.ending = endings.of_state(run, self.get_state(newest(config)), options["control"])

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:  # noqa: A002 - the interface's name
        """Claim the thread, then stream the graph's steps; the claim ends with the stream."""
        whole = self._whole(config)
        if not self.checkpointer or is_nested(whole):
            async for chunk in super().astream(input, config, **options):  # type: ignore[misc]
                yield chunk
            return
        options = prepared(input, options, served=served_run(whole) is not None)
        run, parked = await aclaim_now(self.desk, whole, input, self._context(whole))
        run.skipping = self.skipping()
        config = with_run(config, run)
        async with aowning(run, options["control"]):
            if is_answer_to(input, run, parked):
                state = await self.aget_state(config)
                with endings.unless_accepted(run):
                    refuse_answer(run, input, parked, state)
            if may_begin_branch(run, input, config):
                config = beginning(run, config, await self.aget_state(config))
            try:
                async for chunk in super().astream(input, config, **options):  # type: ignore[misc]
                    yield chunk
            except EmptyInputError:
                endings.untouched(run)
                refuse_nothing(run, input, config, await self.aget_state(config))
                raise
            await astore_held(run)
            if run.is_workflow:
                run.ending = endings.of_state(run, await self.aget_state(newest(config)), options["control"])

    def bulk_update_state(self, config: RunnableConfig, supersteps: Any) -> RunnableConfig:
        """Claim the thread, then change its state."""
        whole = self._whole(config)
        if is_nested(whole):
            return super().bulk_update_state(config, supersteps)  # type: ignore[misc, no-any-return]
        run, parked = claim_now(self.desk, whole, None, self._context(whole))
        run.parked.extend([parked] if parked is not None else [])  # a change of state settles no outcome
        endings.untouched(run)
        with owning(run, RunControl()):
            return super().bulk_update_state(with_run(config, run), supersteps)  # type: ignore[misc, no-any-return]

    async def abulk_update_state(self, config: RunnableConfig, supersteps: Any) -> RunnableConfig:
        """Claim the thread, then change its state."""
        whole = self._whole(config)
        if is_nested(whole):
            return await super().abulk_update_state(config, supersteps)  # type: ignore[misc, no-any-return]
        run, parked = await aclaim_now(self.desk, whole, None, self._context(whole))
        run.parked.extend([parked] if parked is not None else [])
        endings.untouched(run)
        async with aowning(run, RunControl()):
            return await super().abulk_update_state(with_run(config, run), supersteps)  # type: ignore[misc, no-any-return]

    def get_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """Return the thread's state; every configuration in it carries the context."""
        reader, context = self._reader(config)
        return carrying(super(ManagedRuns, reader).get_state(config, subgraphs=subgraphs), context)  # type: ignore[misc]

    async def aget_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """Return the thread's state; every configuration in it carries the context."""
        reader, context = self._reader(config)
        return carrying(await super(ManagedRuns, reader).aget_state(config, subgraphs=subgraphs), context)  # type: ignore[misc]

    def get_state_history(self, config: RunnableConfig, **options: Any) -> Iterator[StateSnapshot]:
        """Yield the thread's states, the newest first."""
        reader, context = self._reader(config)
        for snapshot in super(ManagedRuns, reader).get_state_history(config, **options):  # type: ignore[misc]
            yield carrying(snapshot, context)

    async def aget_state_history(self, config: RunnableConfig, **options: Any) -> AsyncIterator[StateSnapshot]:
        """Yield the thread's states, the newest first."""
        reader, context = self._reader(config)
        async for snapshot in super(ManagedRuns, reader).aget_state_history(config, **options):  # type: ignore[misc]
            yield carrying(snapshot, context)

    def _reader(self, config: RunnableConfig) -> tuple[Self, dict[str, Context]]:
        """Return a copy of the graph that also reads the states of subgraphs in this configuration's context."""
        context = unclaimed(self._whole(config))
        reader = copy(self)
        if self.checkpointer:
            reader.checkpointer = self.checkpointer.within(context.get(KEY))
        return reader, context

    def _context(self, whole: RunnableConfig) -> Context | None:
        """Return the context that the checkpointer makes for a configuration which brings none, as a server's does."""
        return None if unclaimed(whole) else self.checkpointer.context_for(whole)

    def _whole(self, config: RunnableConfig | None) -> RunnableConfig:
        """Return the configuration as the runtime will see it: the graph's own and the surrounding run's are in it.

        Only to be looked at: handed on, it would be merged once more, and every callback of the graph called twice.

        Raises:
            TrustedFieldMismatch: the graph is bound to another context.
        """
        refuse_other(self.config, config)
        return ensure_config(self.config, config)


def newest(config: RunnableConfig) -> RunnableConfig:
    """Return a configuration that addresses the thread's newest checkpoint."""
    conf = {name: value for name, value in conf_of(config).items() if name != "checkpoint_id"}
    whole: Any = {**config, CONF: conf}
    addressed: RunnableConfig = whole
    return addressed


def carrying(snapshot: StateSnapshot, context: dict[str, Context]) -> StateSnapshot:
    """Return a snapshot in which the addresses of subgraphs carry the context, too."""
    return snapshot._replace(
        tasks=tuple(task._replace(state=_addressed(task.state, context)) for task in snapshot.tasks)
    )


def _addressed(state: Any, context: dict[str, Context]) -> Any:
    match state:
        case StateSnapshot():
            return carrying(state, context)
        case dict():
            return {**state, CONF: {**conf_of(state), **context}}
        case _:
            return state


@cache
def managed_class(base: type) -> type:
    """Return a graph class with the claims mixed in."""
    return type(f"Managed{base.__name__}", (ManagedRuns, base), {"__module__": __name__, "__doc__": base.__doc__})


def is_nested(config: RunnableConfig) -> bool:
    """Say whether a graph runs inside a run that owns this very thread: as a subgraph, or called by a node."""
    found = carried(config)
    thread = str(conf_of(config).get("thread_id"))
    return isinstance(found, Run) and not found.ended and found.key.thread_id == thread


def prepared(run_input: Any, options: dict[str, Any], *, served: bool = False) -> dict[str, Any]:
    """Return a run's options with the durability and control that managed runs need.

    LangGraph's server always says a durability, "async" where its client said none.

    Raises:
        ExitDurability: the caller asked for `durability="exit"`.
        SecretInState: the input holds a credential.
        StateNotStorable: the input would not come back equal.
    """
    durability = options.get("durability") or DURABILITY
    refuse_exit(durability)
    if durability != DURABILITY and served:
        durability = DURABILITY
    if durability != DURABILITY:
        warnings.warn(
            f"durability={durability!r}: a run that lost its thread to another one may execute one more node before it"
            ' is stopped. Leave durability out to have "sync".',
            stacklevel=3,
        )
    check_state(run_input, "input -> $")
    return {**options, "durability": durability, "control": options.get("control") or RunControl()}
