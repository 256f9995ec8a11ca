"""What the commands on workflows print, and how they exit."""

from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil import Counterfoil
from counterfoil.langgraph import wait_for
from tests.cli.conftest import Line


class State(TypedDict, total=False):
    answer: str


def ask(_: State) -> State:
    came = wait_for("answer", timeout="3d")
    return {"answer": "none" if came is None else came.payload}


def graph() -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    return builder


def drain(line: Line) -> None:
    with Counterfoil.open(line.url) as cf:
        cf.workflows.register(graph(), name="asking")
        cf.drain()


@pytest.fixture
def begun(empty: Line) -> Line:
    with Counterfoil.open(empty.url) as cf:
        cf.workflows.register(graph(), name="asking")
        cf.workflows.start("asking", {}, tenant="team-A", workflow_id="w-1")
        cf.drain()
        cf.workflows.start("asking", {}, tenant="team-A", workflow_id="w-2")
    return empty


def test_where_they_stand(begun: Line) -> None:
    told = begun("workflows list --tenant team-A").stdout
    assert "w-1" in told
    assert "answer" in told
    assert [each["status"] for each in begun.json("workflows list --tenant team-A")] == ["accepted", "waiting"]
    assert "No workflow." in begun("workflows list --tenant team-B").stdout
    assert "It waits for answer, until" in begun("workflows show w-1 --tenant team-A").stdout
    begun.error("workflows show w-9 --tenant team-A", exit_code=3)
    begun.error("workflows list", exit_code=2)
    begun.error("workflows history w-1 --tenant team-A --limit 0", exit_code=2)


def test_an_event_a_cancellation_and_a_deletion(begun: Line) -> None:
    assert begun.json("workflows deliver w-1 answer --tenant team-A --id e-1 --payload", '"yes"')["wakes"]
    assert "It came before" in begun("workflows deliver w-1 answer --tenant team-A --id e-1 --payload", '"yes"').stdout
    begun.error("workflows deliver w-1 answer --tenant team-A --id e-1 --payload 2", exit_code=5)
    assert "cancelled" in begun("workflows cancel w-2 --tenant team-A --reason so").stdout
    drain(begun)
    assert begun.json("workflows show w-1 --tenant team-A")["status"] == "done"
    assert begun.json("workflows history w-1 --tenant team-A")[0]["nodes"] == ["ask"]
    begun.error("workflows resume w-1 --tenant team-A --reason so", exit_code=5)
    begun.error("workflows delete w-1 --tenant team-A --expect-version 1", exit_code=5)
    assert begun("workflows delete w-1 --tenant team-A").stdout.startswith("Deleted.")
    assert begun.json("workflows delete w-1 --tenant team-A")["deleted"] is False
    begun.error("workflows show w-1 --tenant team-A", exit_code=3)


def test_a_plan_of_what_entering_it_again_would_do(
    begun: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "add --app MODULE:NAME" in begun("workflows plan-resume w-1 --tenant team-A").stdout
    (tmp_path / "planned_program.py").write_text(
        f"""
from counterfoil import Counterfoil
from tests.cli.test_workflows import graph

def opened():
    cf = Counterfoil.open({begun.url!r})
    cf.workflows.register(graph(), name="asking")
    return cf
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = begun.json("workflows plan-resume w-1 --tenant team-A --app planned_program:opened")
    assert (plan["graph_fits"], plan["next_nodes"], plan["answered"]) == (True, ["ask"], [])
    assert [each["name"] for each in plan["waits"]] == ["answer"]
    told = begun("workflows plan-resume w-2 --tenant team-A --app planned_program:opened").stdout
    assert "ask" in told
    begun.error("workflows plan-resume w-9 --tenant team-A", exit_code=3)
