"""Graphs that workflows run, by name and version, and how they are entered."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph.constants import START
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from counterfoil import codec
from counterfoil.errors import InvalidArguments
from counterfoil.langgraph.compile import compile_graph
from counterfoil.langgraph.context import CONF, KEY, Context
from counterfoil.langgraph.intents import CHANNEL
from counterfoil.langgraph.policy import check_state
from counterfoil.langgraph.saver import CounterfoilSaver
from counterfoil.model import Trusted
from counterfoil.storage.scripts.threads import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from counterfoil.desk import Desk
    from counterfoil.storage.scripts.threads import ThreadKey
    from counterfoil.storage.scripts.workflows import Due, Kept


@dataclass(frozen=True, slots=True)
class RegisteredGraph:
    """A compiled graph under its name and version."""

    desk: Desk
    graph: Any
    name: str
    version: int
    tries: int
    shape: str

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse an input that no checkpoint could hold.

        Raises:
            SecretInState: it holds a credential.
            StateNotStorable: it would not come back equal.
        """
        check_state(dict(given), "$")

    def differences(self, began: str) -> tuple[str, ...]:
        """Return in words how this graph differs from the one of this shape."""
        return differences(began, self.shape)

    @property
    def first(self) -> tuple[str, ...]:
        """Return the nodes with which a workflow begins, as far as edges say it."""
        ways = (edge.split(" -> ") for edge in json.loads(self.shape)["order"])
        return tuple(dict.fromkeys(way[-1] for way in ways if way[0] == START))

    def control(self) -> RunControl:
        """Return what stops a run before its next node."""
        return RunControl()

    async def enter(self, due: Due, kept: Kept, control: RunControl) -> None:
        """Run a workflow until it waits or ends; it begins with its input where it has no checkpoint yet.

        Raises:
            VersionConflict: it went on since it was found due.
            ThreadBusy: somebody runs it.
            WorkflowParked: its process died too often.
            Exception: what a node raised.
        """
        trusted = Trusted(
            tenant=due.key.tenant,
            thread_id=due.key.thread_id,
            workflow_id=due.key.thread_id,
            request_id=due.request_id,
            principal=due.principal,
        )
        context = Context(self.desk, trusted, entry=Entry(version=due.version, most_tries=self.tries))
        config = {CONF: {"thread_id": due.key.thread_id, KEY: context}}
        given = None if kept.has_begun else codec.decode(kept.payload or b"null")
        with suppress(GraphDrained):  # its worker ends: the step that was under way is stored, and others go on
            await self.graph.ainvoke(given, config, control=control)

    def state(self, key: ThreadKey) -> Any:
        """Return the state of a workflow."""
        return self.graph.get_state(self._config(key))

    async def astate(self, key: ThreadKey) -> Any:
        """Return the state of a workflow."""
        return await self.graph.aget_state(self._config(key))

    def _config(self, key: ThreadKey) -> dict[str, Any]:
        context = Context(self.desk, Trusted(tenant=key.tenant, thread_id=key.thread_id))
        return {CONF: {"thread_id": key.thread_id, KEY: context}}

    def result(self, state: Any) -> Any:
        """Return of a state what the graph returns at its end."""
        shown = self.graph.output_channels
        if isinstance(shown, str):
            return state.values if not isinstance(state.values, dict) else state.values.get(shown, state.values)
        return {name: state.values[name] for name in shown if name in state.values}


def registered(desk: Desk, graph: Any, *, name: str, version: int, tries: int) -> RegisteredGraph:
    """Compile a graph for workflows.

    Raises:
        InvalidArguments: it has breakpoints, which no row remembers: a worker would pass them after a crash.
    """
    compiled = compile_graph(CounterfoilSaver(desk), graph)
    if compiled.interrupt_before_nodes or compiled.interrupt_after_nodes:
        raise InvalidArguments(
            f"The graph {name} has breakpoints (interrupt_before or interrupt_after), which a worker would pass without"
            " a person after a crash. Ask in the node itself, with interrupt(...) or wait_for(...)."
        )
    return RegisteredGraph(desk, compiled, name, version, tries, shape_of(compiled))


# --- what a graph looks like -----------------------------------------------------------------------------------------


def shape_of(graph: Any) -> str:
    """Return a graph's nodes, state fields and order as text: by that a workflow knows the graph that it began in."""
    parts = [("", graph), *((f"{name}|", child) for name, child in graph.get_subgraphs(recurse=True))]
    nodes = sorted(f"{of}{name}" for of, each in parts for name in each.nodes if not name.startswith("__"))
    fields = sorted(f"{of}{name}" for of, each in parts for name in each.channels if _is_field(name))
    order = sorted(f"{of}{edge}" for of, each in parts for edge in _order(each))
    return json.dumps({"nodes": nodes, "fields": fields, "order": order}, separators=(",", ":"))


def _is_field(name: str) -> bool:
    return name != CHANNEL and not name.startswith(("__", "branch:", "join:"))


def _order(graph: Any) -> Iterator[str]:
    builder = getattr(graph, "builder", None)
    if builder is None:
        return
    yield from (f"{before} -> {after}" for before, after in builder.edges)
    yield from (f"{' + '.join(sorted(before))} -> {after}" for before, after in builder.waiting_edges)
    for before, branches in builder.branches.items():
        for name, branch in branches.items():
            yield from (f"{before} -> {name}() -> {after}" for after in (branch.ends or {"": "?"}).values())


def differences(began: str, now: str) -> tuple[str, ...]:
    """Return in words how two graphs differ."""
    if began == now:
        return ()
    old, new = json.loads(began), json.loads(now)
    told = []
    for what, singular in (("nodes", "node"), ("fields", "state field"), ("order", "edge")):
        gone, come = sorted(set(old[what]) - set(new[what])), sorted(set(new[what]) - set(old[what]))
        told += [f"{singular} {name} is gone" for name in gone] + [f"{singular} {name} is new" for name in come]
    return tuple(told)
