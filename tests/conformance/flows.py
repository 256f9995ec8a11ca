"""Workflows in every colour: nodes are written once, as generators that yield what they ask Counterfoil for."""

from collections.abc import Callable, Generator, Mapping
from itertools import pairwise
from operator import add
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

import counterfoil.langgraph as inside
from tests.conformance.subject import ASYNC, Subject

TENANT = "team-a"
ID = "w-1"
Asked = tuple[str, tuple[Any, ...], dict[str, Any]]
Steps = Generator[Asked, Any, Any]
Node = Callable[[Any], Any]


class State(TypedDict, total=False):
    number: int
    log: Annotated[list[str], add]


class _Asking:
    """`do.wait_for("paid")` is what a node yields to wait for it, in its colour."""

    def __getattr__(self, name: str) -> Callable[..., Asked]:
        return lambda *args, **kwargs: (name, args, kwargs)


do = _Asking()


def coloured(subject: Subject, steps: Callable[[Any], Steps]) -> Node:
    """Return a node of the subject's colour."""

    def node(state: Any) -> Any:
        running, answer = steps(state), None
        while True:
            try:
                name, args, kwargs = running.send(answer)
            except StopIteration as end:
                return end.value
            answer = getattr(inside, name)(*args, **kwargs)

    async def anode(state: Any) -> Any:
        running, answer = steps(state), None
        while True:
            try:
                name, args, kwargs = running.send(answer)
            except StopIteration as end:
                return end.value
            answer = await getattr(inside, f"a{name}")(*args, **kwargs)

    return anode if subject.colour == ASYNC else node


def chain(**nodes: Node) -> Any:
    """Build a graph that runs its nodes one after the other."""
    builder: Any = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in pairwise((START, *nodes, END)):
        builder.add_edge(before, after)
    return builder


def beside(**nodes: Node) -> Any:
    """Build a graph that runs its nodes in one superstep."""
    builder: Any = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder


class Flows:
    """The workflows of a subject, called in its colour."""

    def __init__(self, subject: Subject, cf: Any = None) -> None:
        self.subject = subject
        self.cf = cf or subject.cf

    def node(self, steps: Callable[[Any], Steps]) -> Node:
        return coloured(self.subject, steps)

    def register(self, builder: Any, **given: Any) -> Any:
        return self.cf.workflows.register(builder, **{"name": "flow", **given})

    def start(self, given: Mapping[str, Any] | None = None, *, graph: str = "flow", **who: Any) -> Any:
        whole = {"tenant": TENANT, "workflow_id": ID, **who}
        return self.call("start", graph, given or {}, **whole)

    def deliver(self, event: str, event_id: str, payload: Any = None, **given: Any) -> Any:
        whole = {"tenant": TENANT, "workflow_id": ID, **given}
        return self.call("deliver", event, event_id=event_id, payload=payload, **whole)

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self.subject.settle(getattr(self.cf.workflows, name)(*args, **kwargs))

    def get(self, workflow_id: str = ID) -> Any:
        return self.call("get", workflow_id, tenant=TENANT)

    def status(self, workflow_id: str = ID) -> str:
        return str(self.get(workflow_id).status)

    def result(self, workflow_id: str = ID) -> Any:
        return self.call("result", workflow_id, tenant=TENANT)

    def waits(self, workflow_id: str = ID) -> list[tuple[str, str]]:
        return [(each.name, each.state) for each in self.call("waits", workflow_id, tenant=TENANT)]

    def act(self, name: str, workflow_id: str = ID, **given: Any) -> Any:
        return self.call(name, workflow_id, tenant=TENANT, **{"by": "ann", "reason": "as she was told", **given})

    def drain(self, *effects: Any) -> None:
        self.subject.settle(self.cf.drain(*effects))

    def run(self, graph: Any, given: Any, workflow_id: str = ID) -> Any:
        return self.subject.settle(self.cf.run(graph, given, tenant=TENANT, thread_id=workflow_id))
