"""B14: the same pause was resumed again with another answer, and the node ran again under the first one.

Sources: https://github.com/langchain-ai/langgraph/issues/6663
"""

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from counterfoil.errors import DecisionConflict
from tests.cases.counted import Counted
from tests.cases.deciding import ON, TENANT, WHO, State, asked, asking, graph, opened, refund
from tests.cases.stock import Stock


def test_without_counterfoil_the_node_runs_again_under_an_answer_that_says_no(stock: Stock) -> None:
    def node(_: State) -> State:
        answer = interrupt("refund 10?")
        if answer == "approve":
            stock.pay("1")
        return {"log": [answer]}

    builder: Any = StateGraph(State)
    builder.add_node("refund", node)
    builder.add_edge(START, "refund")
    builder.add_edge("refund", END)
    stocked = builder.compile(checkpointer=InMemorySaver())
    stocked.invoke({}, stock.config())
    pinned = stocked.get_state(stock.config()).config
    stocked.invoke(Command(resume="approve"), pinned)
    stocked.invoke(Command(resume="reject"), pinned)
    assert stock.count == 2


@pytest.mark.parametrize("again", ["None", "resume"])
def test_the_second_answer_is_told_who_was_first_and_nothing_runs_under_it(
    counted: Counted, url: str, again: str
) -> None:
    with opened(url, counted.provider) as cf:
        made = graph(cf, asking(refund, amount=10))
        cf.run(made, {}, **WHO)
        pinned = made.get_state(cf.config(**ON)).config["configurable"]["checkpoint_id"]
        question = asked(cf)
        first = cf.approvals.approve(question.approval_id, tenant=TENANT, by="ann")
        assert cf.run(made, None, **ON)["log"] == ["sent"]
        with pytest.raises(DecisionConflict, match="by ann") as told:
            cf.approvals.reject(question.approval_id, tenant=TENANT, by="bob", reason="no")
        assert (told.value.decided_by, told.value.decided_at) == ("ann", first.decided_at)
        given: Any = None if again == "None" else Command(resume="reject")
        cf.run(made, given, **ON, checkpoint_id=pinned)
        kept = cf.approvals.show(question.approval_id, tenant=TENANT).approval
    assert (kept.state, kept.decided_by, counted.provider.count()) == ("approved", "ann", 1)
