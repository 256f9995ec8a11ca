"""Copy, prune, delete for runs: what goes, what stays for whoever goes on, and that no run is disturbed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from counterfoil import Counterfoil
from counterfoil.drivers.probes import Point
from counterfoil.errors import BranchRequired, InvalidArguments, InvalidId, ThreadBusy, ThreadExists, ThreadParked
from counterfoil.langgraph import mint, perform
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.langgraph.shop import WHO, Shop, State, chain, charge, conf, invite, lose_reply
from tests.langgraph.test_claims import hold
from tests.langgraph.test_saver import put, root
from tests.stores import POSTGRES, on_each

GOING_ON: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1"}
TABLES = ("checkpoint", "channel", "write", "mint")
LIMIT_S = 30


class Hands:
    """Calls the upkeep of a saver in one colour."""

    def __init__(self, colour: str) -> None:
        self.colour = colour

    def __call__(self, saver: CounterfoilSaver, name: str, *args: Any, **options: Any) -> None:
        if self.colour == "blocking":
            getattr(saver, name)(*args, **options)
        else:
            asyncio.run(getattr(saver, f"a{name}")(*args, **options))


@pytest.fixture(params=["blocking", "awaiting"])
def do(request: pytest.FixtureRequest) -> Hands:
    return Hands(request.param)


@pytest.fixture
def saver(shop: Shop) -> CounterfoilSaver:
    return shop.cf.saver(tenant="team-A")


def big(state: State) -> State:
    return {"answer": "x" * 1000, "log": ["big"]}


def paying(state: State) -> State:
    return {"number": perform(charge, order=state["order"]).value["number"]}


def counts(shop: Shop, thread_id: str = "t-1") -> dict[str, int]:
    return {table: shop.rows(table, f"thread_id = '{thread_id}'") for table in TABLES}


def history(graph: Any, config: Any) -> list[Any]:
    return [(one.values, one.next) for one in graph.get_state_history(config)]


# --- prune -----------------------------------------------------------------------------------------------------------


def test_a_pruned_thread_has_its_newest_state_and_nothing_else(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    graph, config = shop.cf.compile(chain(("big", big), ("pay", paying))), shop.cf.config(**WHO)
    for turn in range(5):
        graph.invoke({"order": str(turn)}, config)
    other = shop.cf.config(**{**WHO, "thread_id": "t-2"})
    graph.invoke({"order": "other"}, other)
    before, others = graph.get_state(config), history(graph, other)
    assert counts(shop)["checkpoint"] == 20
    do(saver, "prune", ["t-1", "never-run"])
    assert counts(shop) == {"checkpoint": 1, "channel": 2, "write": 0, "mint": 0}
    after = graph.get_state(config)
    assert (after.values, after.next, after.config, after.metadata) == (
        before.values,
        before.next,
        before.config,
        before.metadata,
    )
    assert history(graph, other) == others
    graph.invoke({"order": "5"}, config)
    assert graph.get_state(config).values["log"] == ["big"] * 6
    assert shop.count == 7


def test_a_thread_that_waits_for_a_person_in_a_child_goes_on_after_a_pruning(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    def ask(state: State) -> State:
        number = perform(charge, order="in the child").value["number"]
        return {"answer": f"{number} {interrupt('well?')}"}

    child = chain(("first", big), ("ask", ask)).compile()
    graph, config = shop.cf.compile(chain(("big", big), ("child", child), ("end", big))), shop.cf.config(**WHO)
    graph.invoke({"order": "1"}, config)
    before = shop.rows("checkpoint")
    do(saver, "prune", ["t-1"])
    assert 2 == shop.rows("checkpoint") < before
    asked = graph.get_state(config, subgraphs=True)
    assert asked.next == ("child",)
    assert asked.tasks[0].state.next == ("ask",)
    assert asked.interrupts[0].value == "well?"
    assert shop.cf.run(graph, Command(resume="yes"), **GOING_ON)["log"] == ["big"] * 4  # the child's own comes twice
    assert shop.count == 1


def test_a_thread_that_waits_for_an_unknown_outcome_stays_parked(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    def node(state: State) -> State:
        return {"answer": perform(lose_reply, order="1").value}

    graph = shop.cf.compile(chain(("big", big), ("n", node)))
    shop.cf.run(graph, {}, **WHO)
    do(saver, "prune", ["t-1"])
    with pytest.raises(ThreadParked):
        shop.cf.run(graph, Command(resume="yes"), **GOING_ON)
    (case,) = shop.cf.review.list(tenant="team-A").items
    told: dict[str, Any] = {
        "verdict": "happened",
        "by": "ada",
        "value": "found",
        "evidence": "seen",
        "expect_version": case.version,
    }
    shop.cf.review.resolve(case.case_id, tenant="team-A", **told)
    assert shop.cf.run(graph, None, **GOING_ON)["answer"] == "found"
    assert shop.count == 1


def test_what_children_left_behind_goes_and_what_they_remember_stays(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    def counted(state: State) -> State:
        return {"numbers": [len(state.get("numbers", []))]}

    forgetful = chain(("count", counted)).compile()
    lasting = chain(("count", counted)).compile(checkpointer=True)

    def around(state: State) -> State:
        return {"log": [str(lasting.invoke({"order": "x"})["numbers"])]}

    builder = chain(("forgetful", forgetful), ("around", around))
    graph, config = shop.cf.compile(builder), shop.cf.config(**WHO)
    for _ in range(3):
        graph.invoke({"order": "1"}, config)
    do(saver, "prune", ["t-1"])
    spaces = shop.select("select checkpoint_ns, count(*) from counterfoil_checkpoint group by 1 order by 1")
    assert spaces == [("", 1), ("around", 1)]
    assert graph.invoke({"order": "1"}, config)["log"][-1] == "[0, 1, 2, 3]"


@pytest.mark.parametrize("strategy", ["delete", "delete_all"])
def test_pruning_can_delete_whole_threads(shop: Shop, saver: CounterfoilSaver, do: Hands, strategy: str) -> None:
    graph = shop.cf.compile(chain(("big", big)))
    for number in (1, 2, 3):
        shop.cf.run(graph, {}, **{**WHO, "thread_id": f"t-{number}"})
    do(saver, "prune", ["t-1", "t-3"], strategy=strategy)
    assert [counts(shop, f"t-{number}")["checkpoint"] for number in (1, 2, 3)] == [0, 3, 0]


@pytest.mark.parametrize("strategy", ["keep_last", "", None])
def test_a_strategy_that_is_none_changes_nothing(shop: Shop, saver: CounterfoilSaver, do: Hands, strategy: Any) -> None:
    shop.cf.run(shop.cf.compile(chain(("big", big))), {}, **WHO)
    before = counts(shop)
    with pytest.raises(InvalidArguments):
        do(saver, "prune", ["t-1"], strategy=strategy)
    assert counts(shop) == before


def test_another_tenants_thread_of_the_same_name_is_left_alone(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    graph = shop.cf.compile(chain(("big", big)))
    for tenant in ("team-A", "team-B"):
        shop.cf.run(graph, {}, **{**WHO, "tenant": tenant})
    do(saver, "prune", ["t-1"])
    do(saver, "copy_thread", "t-1", "t-2")
    assert shop.rows("checkpoint", "tenant = 'team-B'") == 3
    assert shop.rows("checkpoint", "tenant = 'team-A'") == 2


# --- delete for runs -------------------------------------------------------------------------------------------------


def in_run(cf: Counterfoil, run_id: str, **who: Any) -> Any:
    return cf.config(**{**WHO, **who}, config={"metadata": {"run_id": run_id}})


def test_deleting_a_run_takes_the_thread_back_to_before_it_and_leaves_its_receipts(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    graph = shop.cf.compile(chain(("big", big), ("pay", paying)))
    graph.invoke({"order": "1"}, in_run(shop.cf, "run-1"))
    first, rows = history(graph, shop.cf.config(**WHO)), counts(shop)
    graph.invoke({"order": "2"}, in_run(shop.cf, "run-2"))
    graph.invoke({"order": "elsewhere"}, in_run(shop.cf, "run-2", thread_id="t-2"))
    do(saver, "delete_for_runs", ["run-2", "never"])
    assert history(graph, shop.cf.config(**WHO)) == first
    assert counts(shop) == rows
    assert counts(shop, "t-2")["checkpoint"] == 0
    assert shop.cf.operations.get("r-1/charge/2", tenant="team-A").receipt is not None
    graph.invoke({"order": "2"}, in_run(shop.cf, "run-3"))
    assert shop.count == 3
    assert graph.get_state(shop.cf.config(**WHO)).values["log"] == ["big"] * 2


def test_an_unfinished_run_is_deleted_with_what_its_children_wrote(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    child = chain(("ask", lambda state: {"answer": interrupt("well?")})).compile()
    graph = shop.cf.compile(chain(("big", big), ("child", child)))
    graph.invoke({}, in_run(shop.cf, "run-1"))
    do(saver, "delete_for_runs", ["run-1"])
    assert counts(shop) == dict.fromkeys(TABLES, 0)
    graph.invoke({}, in_run(shop.cf, "run-2"))
    assert graph.invoke(Command(resume="yes"), in_run(shop.cf, "run-3"))["answer"] == "yes"


# --- copy ------------------------------------------------------------------------------------------------------------


def test_a_copy_has_the_whole_history_and_its_own_future(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    def ask(state: State) -> State:
        return {"answer": interrupt("well?")}

    graph = shop.cf.compile(chain(("big", big), ("pay", paying), ("child", chain(("ask", ask)).compile())))
    config, copied = shop.cf.config(**WHO), shop.cf.config(**{**WHO, "thread_id": "t-2", "request_id": None})
    graph.invoke({"order": "1"}, config)
    for _ in range(2):
        do(saver, "copy_thread", "t-1", "t-2")
    assert counts(shop, "t-2") == counts(shop)
    assert history(graph, copied) == history(graph, config)
    assert graph.get_state(copied, subgraphs=True).tasks[0].state.next == ("ask",)
    assert graph.invoke(Command(resume="copied"), copied)["answer"] == "copied"
    assert graph.get_state(config).next == ("child",)
    assert graph.invoke(Command(resume="original"), config)["answer"] == "original"
    ids = {row[0] for row in shop.select("select operation_id from counterfoil_operation")}
    assert ids == {"r-1/charge/1"}  # the request was inherited, so what is performed again is answered
    assert graph.invoke(None, before(graph, copied, "pay"))["__interrupt__"]
    assert shop.count == 1


def before(graph: Any, config: Any, node: str) -> Any:
    return next(one.config for one in graph.get_state_history(config) if one.next == (node,))


def test_a_copy_of_a_copy_that_went_on_is_refused_and_of_one_that_did_not_is_brought_up_to_date(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    graph, config = shop.cf.compile(chain(("big", big))), shop.cf.config(**WHO)
    graph.invoke({}, config)
    do(saver, "copy_thread", "t-1", "t-2")
    graph.invoke({}, config)
    do(saver, "copy_thread", "t-1", "t-2")
    copied = shop.cf.config(**{**WHO, "thread_id": "t-2"})
    assert history(graph, copied) == history(graph, config)
    graph.invoke({}, copied)
    rows = counts(shop, "t-2")
    with pytest.raises(ThreadExists):
        do(saver, "copy_thread", "t-1", "t-2")
    assert counts(shop, "t-2") == rows


def test_a_copy_of_nothing_is_nothing_and_of_a_thread_onto_itself_is_refused(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    do(saver, "copy_thread", "never", "t-2")
    assert shop.rows("checkpoint") == shop.rows("thread") == 0
    with pytest.raises(InvalidArguments):
        do(saver, "copy_thread", "t-1", "t-1")
    for name in ("", "nul\0", "lone\ud800"):
        with pytest.raises(InvalidId):
            do(saver, "copy_thread", "t-1", name)


def test_a_copy_of_a_parked_thread_is_parked(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    graph = shop.cf.compile(chain(("n", lambda state: {"answer": perform(lose_reply, order="1").value})))
    shop.cf.run(graph, {}, **WHO)
    do(saver, "copy_thread", "t-1", "t-2")
    with pytest.raises(ThreadParked):
        shop.cf.run(graph, Command(resume="yes"), tenant="team-A", thread_id="t-2")
    assert shop.select("select state, parked_on from counterfoil_thread") == [("parked", "r-1/opaque/1")] * 2


def test_a_copy_belongs_to_no_run(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    graph = shop.cf.compile(chain(("big", big)))
    graph.invoke({}, in_run(shop.cf, "run-1"))
    do(saver, "copy_thread", "t-1", "t-2")
    do(saver, "delete_for_runs", ["run-1"])
    assert counts(shop)["checkpoint"] == 0
    assert graph.get_state(shop.cf.config(**{**WHO, "thread_id": "t-2"})).values["log"] == ["big"]


def test_threads_of_plain_graphs_are_copied_and_pruned_too(shop: Shop, do: Hands) -> None:
    saver = shop.cf.saver()
    graph = chain(("big", big), ("ask", lambda state: {"answer": interrupt("well?")})).compile(checkpointer=saver)
    graph.invoke({}, conf())
    do(saver, "copy_thread", "t-1", "t-2")
    do(saver, "prune", ["t-1"])
    assert shop.rows("thread") == 0
    for thread in ("t-1", "t-2"):
        assert graph.invoke(Command(resume="yes"), conf(thread))["answer"] == "yes"


# --- runs that are under way -----------------------------------------------------------------------------------------

DISTURBING: dict[str, Callable[[Hands, CounterfoilSaver], None]] = {
    "prune": lambda do, saver: do(saver, "prune", ["t-1", "t-2"]),
    "delete_for_runs": lambda do, saver: do(saver, "delete_for_runs", ["run-1"]),
    "copy onto": lambda do, saver: do(saver, "copy_thread", "t-2", "t-1"),
}


@contextmanager
def running(shop: Shop, graph_of: Callable[[Any], Any]) -> Iterator[Any]:
    """Run a graph up to a node that waits until this ends."""
    entered, leave = threading.Event(), threading.Event()

    def slow(state: State) -> State:
        entered.set()
        assert leave.wait(LIMIT_S)
        return {"log": ["slow"]}

    graph = shop.cf.compile(graph_of(slow))
    run = threading.Thread(target=lambda: graph.invoke({}, in_run(shop.cf, "run-1")))
    run.start()
    try:
        assert entered.wait(LIMIT_S)
        yield graph
    finally:
        leave.set()
        run.join()


@pytest.mark.parametrize("what", DISTURBING)
def test_a_thread_that_is_run_is_left_alone(shop: Shop, saver: CounterfoilSaver, do: Hands, what: str) -> None:
    quiet = shop.cf.compile(chain(("big", big)))
    quiet.invoke({}, in_run(shop.cf, "run-1", thread_id="t-2"))
    with running(shop, lambda slow: chain(("big", big), ("slow", slow))) as graph:
        rows = counts(shop)
        with pytest.raises(ThreadBusy) as caught:
            DISTURBING[what](do, saver)
        assert caught.value.facts["thread_id"] == "t-1"
        assert counts(shop) == rows
    left = {"prune": 1, "delete_for_runs": 0, "copy onto": 3}
    assert counts(shop, "t-2")["checkpoint"] == left[what]  # the others are not held up by it
    assert graph.get_state(shop.cf.config(**WHO)).values["log"] == ["big", "slow"]


def test_a_thread_that_is_run_can_be_copied(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    with running(shop, lambda slow: chain(("big", big), ("slow", slow))) as graph:
        do(saver, "copy_thread", "t-1", "t-2")
    copied = shop.cf.config(**{**WHO, "thread_id": "t-2"})
    assert graph.get_state(copied).next == ("slow",)
    assert graph.get_state(shop.cf.config(**WHO)).values["log"] == ["big", "slow"]
    assert shop.select("select state, holder from counterfoil_thread") == [("idle", None)] * 2


def test_a_claim_of_another_host_holds_until_it_ends_and_one_of_a_dead_process_does_not(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    shop.cf.run(shop.cf.compile(chain(("big", big))), {}, **WHO)
    hold(shop, holder="someone@elsewhere")
    with pytest.raises(ThreadBusy):
        do(saver, "prune", ["t-1"])
    assert counts(shop)["checkpoint"] == 3
    shop.select("update counterfoil_thread set holder = ? where true", f"{shop.cf.desk.holder}/999999")
    do(saver, "prune", ["t-1"])
    assert counts(shop)["checkpoint"] == 1


class Claiming:
    """Lets somebody else claim a thread while a copy onto it is under way, after it was seen that nobody runs it."""

    def __init__(self, claim: Callable[[], None]) -> None:
        self.claim = claim
        self.looks = 0

    def __call__(self, point: Point, name: str) -> None:
        if point is Point.BEFORE_STATEMENT and name == "list_outlines":
            self.looks += 1
            if self.looks == 2:
                self.claim()


@on_each(POSTGRES)
def test_a_run_that_begins_beside_a_copy_onto_its_thread_keeps_it(shop: Shop, do: Hands) -> None:
    shop.cf.run(shop.cf.compile(chain(("big", big))), {}, **WHO)
    claiming = Claiming(lambda: hold(shop, holder="someone@elsewhere", thread_id="t-2"))
    copying = shop.open(probe=claiming).saver(tenant="team-A")
    with pytest.raises(ThreadBusy):
        do(copying, "copy_thread", "t-1", "t-2")
    assert claiming.looks == 2
    assert shop.select("select holder from counterfoil_thread where thread_id = 't-2'") == [("someone@elsewhere",)]
    assert counts(shop, "t-2")["checkpoint"] == 0


# --- minted ids ------------------------------------------------------------------------------------------------------


def minting(state: State) -> State:
    return {"minted": mint("invitation")}


def inviting(state: State) -> State:
    return {"number": perform(invite, invitation=state["minted"]).value["number"]}


def test_the_next_turn_after_a_pruning_mints_a_new_id(shop: Shop, saver: CounterfoilSaver, do: Hands) -> None:
    graph = shop.cf.compile(chain(("mint", minting), ("invite", inviting)))
    for turn in range(3):
        graph.invoke({}, in_run(shop.cf, f"run-{turn}"))
        do(saver, "prune", ["t-1"])
    assert shop.rows("mint") == 0
    assert shop.count == 3


def test_a_pruning_does_not_let_a_thread_that_went_back_mint_a_second_id(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    graph, config = shop.cf.compile(chain(("mint", minting), ("invite", inviting))), shop.cf.config(**WHO)
    graph.invoke({}, config)
    graph.update_state(before(graph, config, "mint"), {"order": "other"}, as_node="__start__")
    do(saver, "prune", ["t-1"])
    assert counts(shop)["checkpoint"] == 1
    with pytest.raises(BranchRequired):
        graph.invoke(None, config)
    assert shop.count == 1


def test_deleting_the_run_that_minted_does_not_let_its_step_mint_a_second_id(
    shop: Shop, saver: CounterfoilSaver, do: Hands
) -> None:
    builder = chain(("ask", lambda state: {"answer": interrupt("well?")}), ("mint", minting), ("invite", inviting))
    graph = shop.cf.compile(builder)
    graph.invoke({}, in_run(shop.cf, "run-1"))
    graph.invoke(Command(resume="yes"), in_run(shop.cf, "run-2"))
    do(saver, "delete_for_runs", ["run-2"])
    with pytest.raises(BranchRequired):
        graph.invoke(Command(resume="yes"), in_run(shop.cf, "run-3"))
    assert shop.count == 1
    do(saver, "delete_for_runs", ["run-1", "run-3"])
    assert counts(shop) == dict.fromkeys(TABLES, 0)  # nothing is left of the thread: it begins anew


# --- one transaction each --------------------------------------------------------------------------------------------


class Nth:
    """Fails at the nth statement."""

    def __init__(self) -> None:
        self.left = -1

    def __call__(self, point: Point, _name: str) -> None:
        if point is Point.BEFORE_STATEMENT:
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError


UPKEEP: dict[str, Callable[[CounterfoilSaver], None]] = {
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run-2"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
}


@pytest.mark.parametrize("what", UPKEEP)
def test_upkeep_that_fails_at_any_statement_changes_nothing(shop: Shop, what: str) -> None:
    nth = Nth()
    saver = shop.open(probe=nth).saver()
    for run in ("run-1", "run-2"):
        config: Any = root()
        config["metadata"] = {"run_id": run}
        for number in range(3):
            saver.put_writes(put(saver, config, f"{run}-{number}", number, text="x" * 1000), [("a", 1)], "task")
    everything = [shop.select(f"select * from counterfoil_{table} order by 1, 2, 3, 4, 5") for table in TABLES]  # noqa: S608 - ours
    failed = 0
    while True:
        nth.left = failed + 1
        try:
            UPKEEP[what](saver)
        except ZeroDivisionError:
            failed += 1
        else:
            break
        again = [shop.select(f"select * from counterfoil_{table} order by 1, 2, 3, 4, 5") for table in TABLES]  # noqa: S608 - ours
        assert again == everything
    assert failed >= {"prune": 7, "delete_for_runs": 8, "copy_thread": 8, "delete_thread": 5}[what]
