"""B03: a user expects "replay" from an old checkpoint to be a read; every step after that point really runs again.

Sources: https://github.com/langchain-ai/langchain-academy/issues/40, https://github.com/langchain-ai/langgraph/pull/7038
"""

from typing import Any

import pytest

from counterfoil.errors import FingerprintMismatch
from tests.cases.stock import Ours, Pay, Stock
from tests.langgraph.shop import State, chain


def build(pay: Pay) -> Any:
    def prepare(state: State) -> State:
        return {"amount": state.get("amount", 10)}

    def charge(state: State) -> State:
        return {"number": pay(state["order"], state["amount"])}

    def notify(state: State) -> State:
        pay(f"notice of {state['number']}")
        return {"log": ["done"]}

    return chain(("prepare", prepare), ("charge", charge), ("notify", notify))


def places(graph: Any, config: Any) -> list[Any]:
    """Return every checkpoint of the thread, the newest first."""
    return [one.config for one in graph.get_state_history(config)]


def before_charge(graph: Any, config: Any) -> Any:
    return next(one.config for one in graph.get_state_history(config) if one.next == ("charge",))


def test_without_counterfoil_the_steps_after_it_run_again(stock: Stock) -> None:
    graph = stock.compile(build)
    graph.invoke({"order": "1"}, stock.config())
    graph.invoke(None, before_charge(graph, stock.config()))
    assert stock.count == 4


@pytest.mark.parametrize("times", [1, 3])
def test_going_on_from_any_earlier_checkpoint_charges_nothing(ours: Ours, times: int) -> None:
    graph, config = ours.compile(build), ours.config()
    first = graph.invoke({"order": "1"}, config)
    for place in places(graph, config) * times:
        assert graph.invoke(None, place) == first
    assert ours.count == 2


def test_going_back_by_hand_and_by_a_copied_state_charges_nothing(ours: Ours) -> None:
    graph, config = ours.compile(build), ours.config()
    first = graph.invoke({"order": "1"}, config)
    copied = graph.update_state(before_charge(graph, config), {"order": "1"}, as_node="prepare")
    assert graph.invoke(None, copied) == first
    assert ours.count == 2


def test_another_amount_under_the_same_operation_is_a_conflict_and_charges_nothing(ours: Ours) -> None:
    graph, config = ours.compile(build), ours.config()
    graph.invoke({"order": "1"}, config)
    forked = graph.update_state(before_charge(graph, config), {"amount": 12})
    with pytest.raises(FingerprintMismatch):
        graph.invoke(None, forked)
    assert ours.count == 2


def test_a_named_branch_charges_the_other_amount_and_both_receipts_show_under_one_lineage(ours: Ours) -> None:
    graph, cf = ours.compile(build), ours.shop.cf
    graph.invoke({"order": "1"}, ours.config())
    branch = cf.fork("t-1", before_charge(graph, ours.config()), branch="twelve", tenant="team-A")
    config = cf.config(tenant="team-A", thread_id=branch.thread_id)
    graph.update_state(config, {"amount": 12})
    graph.invoke(None, config)
    assert ours.count == 4  # the charge and the notice, once on each line
    main = cf.operations.get("r-1/charge/1", tenant="team-A")
    (other,) = main.lineage
    assert (other.operation_id, other.branch, other.plain_id) == (
        "r-1/charge/1~branch-twelve",
        "twelve",
        "r-1/charge/1",
    )
    details = [main, cf.operations.get(other.operation_id, tenant="team-A")]
    assert [detail.receipt is not None for detail in details] == [True, True]
    assert len({detail.operation.fingerprint for detail in details}) == 2
    for place in [one.config for one in graph.get_state_history(config) if one.values["amount"] == 12]:
        assert graph.invoke(None, place)["amount"] == 12
    assert ours.count == 4
