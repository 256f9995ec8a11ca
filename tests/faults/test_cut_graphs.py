"""A run of a graph, cut at points of its claim, checkpoints and effects: it ends as if nothing had happened."""

from operator import add
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from counterfoil.langgraph import aperform, perform
from counterfoil.testing.wire import Wire
from tests.conformance.subject import ASYNC, SYNC
from tests.faults.subject import Wired, at_each_point
from tests.strides import NEAR


class State(TypedDict, total=False):
    title: str
    numbers: Annotated[list[int], add]
    answer: str


def graph_of(subject: Wired, create: Any) -> Any:
    """Two effects with a question between them, in the subject's colour."""

    def first(state: State) -> Any:
        return {"numbers": [perform(create, title=state["title"], part="first").value]}

    async def afirst(state: State) -> Any:
        return {"numbers": [(await aperform(create, title=state["title"], part="first")).value]}

    def ask(state: State) -> Any:
        return {"answer": interrupt("go on?")}

    def second(state: State) -> Any:
        return {"numbers": [perform(create, title=state["title"], part="second").value]}

    async def asecond(state: State) -> Any:
        return {"numbers": [(await aperform(create, title=state["title"], part="second")).value]}

    builder = StateGraph(State)
    builder.add_node("first", first if subject.colour == SYNC else afirst)
    builder.add_node("ask", ask)
    builder.add_node("second", second if subject.colour == SYNC else asecond)
    builder.add_edge(START, "first")
    builder.add_edge("first", "ask")
    builder.add_edge("ask", "second")
    builder.add_edge("second", END)
    return subject.cf.compile(builder)


@pytest.mark.slow
@pytest.mark.parametrize("colour", [SYNC, ASYNC])
def test_a_run_ends_as_if_nothing_had_happened(subject: Wired, wire: Wire) -> None:
    def create(call: Any, *, title: str, part: str) -> int:
        return subject.sent.tally.accept(part, call.provider_key, {"title": title})

    graph = graph_of(subject, subject.effect(create, key="{request_id}/{part}"))

    def enter(request_id: str, given: Any) -> Any:
        return subject.settle(
            subject.cf.run(graph, given, tenant="team-a", request_id=request_id, thread_id=f"thread-{request_id}")
        )

    def act(request_id: str) -> None:
        assert "__interrupt__" in enter(request_id, {"title": request_id})
        done = enter(request_id, Command(resume="yes"))
        assert (len(done["numbers"]), done["answer"]) == (2, "yes")

    def check(request_id: str) -> None:
        sent = [one.kind for one in subject.sent.tally.accepted() if one.body["title"] == request_id]
        assert sent == ["first", "second"]
        (thread,) = [row for row in subject.rows("thread") if row["thread_id"] == f"thread-{request_id}"]
        assert (thread["state"], thread["holder"]) == ("idle", None)
        assert history(request_id) == UNDISTURBED

    def history(request_id: str) -> list[Any]:
        rows = [row for row in subject.rows("checkpoint") if row["thread_id"] == f"thread-{request_id}"]
        return [(row["source"], row["step"]) for row in sorted(rows, key=lambda row: row["seq"])]

    runs = at_each_point(subject, wire, act, check, manners=("before", "reply"), every=NEAR)
    assert len([name for name in runs if name.endswith("before-commit")]) > 20 // NEAR
    assert {row["state"] for row in subject.rows("operation")} == {"succeeded"}
    assert subject.cases() == []


UNDISTURBED = [("input", -1), ("loop", 0), ("loop", 1), ("loop", 2), ("loop", 3)]
