"""Branches: a named line of history with effects of its own, beside the line that it leaves."""

import asyncio
import json
import threading
from typing import Any

import pytest
from click.testing import CliRunner
from langgraph.types import Command, interrupt

from counterfoil import AsyncCounterfoil, Branch, Counterfoil, EffectCall, Policy, Provider, effect
from counterfoil.cli.main import cli
from counterfoil.errors import (
    BranchRequired,
    BranchTaken,
    CheckpointNotFound,
    FingerprintMismatch,
    InvalidArguments,
    InvalidId,
    MintedHere,
    NestedEffect,
    OperationNotFound,
    SyncOnEventLoop,
    ThreadBusy,
    TrustedFieldMismatch,
    UnmanagedThread,
)
from counterfoil.langgraph import enqueue, mint, perform
from counterfoil.testing.tally import TallyFile
from tests.langgraph.shop import WHO, Shop, State, accept, chain, charge, conf, find, invite
from tests.langgraph.test_claims import hold
from tests.langgraph.test_upkeep import before, big, history, inviting, minting, running

GOING_ON: dict[str, Any] = {"tenant": "team-A", "thread_id": "t-1"}
PLAIN, MARKED = "r-1/charge/1", "r-1/charge/1~branch-what-if"


def prepare(state: State) -> State:
    return {"amount": state.get("amount", 10)}


def pay(state: State) -> State:
    return {"number": perform(charge, order=state["order"], amount=state["amount"]).value["number"]}


def paying() -> Any:
    return chain(("prepare", prepare), ("pay", pay), ("end", big))


@pytest.fixture
def graph(shop: Shop) -> Any:
    """A graph whose thread `t-1` has paid 10 and ended."""
    made = shop.cf.compile(paying())
    shop.cf.run(made, {"order": "1"}, **WHO)
    return made


@pytest.fixture(params=["blocking", "awaiting"])
def fork(request: pytest.FixtureRequest, shop: Shop) -> Any:
    """Fork in one colour."""
    if request.param == "blocking":
        return shop.cf.fork
    return lambda *args, **options: asyncio.run(AsyncCounterfoil(shop.cf.desk).fork(*args, **options))


@pytest.fixture(params=["blocking", "awaiting"])
def decide(request: pytest.FixtureRequest, shop: Shop) -> Any:
    """Decide about an approval in one colour."""

    def made(ruling: str, approval_id: str, **given: Any) -> Any:
        who: dict[str, Any] = {"tenant": "team-A", "by": "mei", **given}
        if request.param == "blocking":
            return getattr(shop.cf.approvals, ruling)(approval_id, **who)
        return asyncio.run(getattr(AsyncCounterfoil(shop.cf.desk).approvals, ruling)(approval_id, **who))

    return made


def where(shop: Shop, graph: Any, node: str, thread_id: str = "t-1") -> Any:
    return before(graph, shop.cf.config(**{**WHO, "thread_id": thread_id}), node)


def run_of(branch: Branch) -> dict[str, Any]:
    return {"tenant": branch.tenant, "thread_id": branch.thread_id}


def ids(shop: Shop) -> list[str]:
    return sorted(row[0] for row in shop.select("select operation_id from counterfoil_operation"))


# --- what a branch is ------------------------------------------------------------------------------------------------


def test_what_is_performed_in_a_branch_is_sent_under_its_own_id(shop: Shop, graph: Any, fork: Any) -> None:
    branch = fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    assert branch == Branch(
        tenant="team-A",
        thread_id="t-1~branch-what-if",
        branch="what-if",
        branched_from="t-1",
        checkpoint_id=where(shop, graph, "pay")["configurable"]["checkpoint_id"],
    )
    config = shop.cf.config(**run_of(branch))
    graph.update_state(config, {"amount": 12})
    assert shop.cf.run(graph, None, **run_of(branch))["number"] == 2
    assert [one.body["amount"] for one in shop.tally.accepted()] == [10, 12]
    assert ids(shop) == [PLAIN, MARKED]
    for _ in range(2):  # in the branch, too, going on and going back are answered
        graph.invoke(None, where(shop, graph, "pay", branch.thread_id))
    assert shop.count == 2


def test_a_branch_leaves_the_thread_that_it_left_as_it_was(shop: Shop, graph: Any, fork: Any) -> None:
    config = shop.cf.config(**WHO)
    past = history(graph, config)
    branch = fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(branch))
    assert history(graph, config) == past
    shop.cf.run(graph, {"order": "2"}, **{**WHO, "request_id": "r-2"})
    assert graph.get_state(shop.cf.config(**run_of(branch))).values["order"] == "1"


def test_without_a_branch_going_back_with_another_amount_stays_a_conflict(shop: Shop, graph: Any, fork: Any) -> None:
    fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    changed = graph.update_state(where(shop, graph, "pay"), {"amount": 12})
    with pytest.raises(FingerprintMismatch):
        graph.invoke(None, changed)
    assert shop.count == 1


def test_a_branch_begins_at_the_newest_checkpoint_unless_it_is_told_otherwise(
    shop: Shop, graph: Any, fork: Any
) -> None:
    newest = graph.get_state(shop.cf.config(**WHO))
    branch = fork("t-1", branch="after", tenant="team-A")
    assert branch.checkpoint_id == newest.config["configurable"]["checkpoint_id"]
    assert graph.get_state(shop.cf.config(**run_of(branch))).values == newest.values
    shop.cf.run(graph, {"order": "1"}, **run_of(branch), request_id="r-1")
    assert ids(shop) == [PLAIN, "r-1/charge/1~branch-after"]


@pytest.mark.parametrize("form", ["id", "config"])
def test_a_checkpoint_is_named_by_its_id_or_by_a_configuration(shop: Shop, graph: Any, fork: Any, form: str) -> None:
    place = where(shop, graph, "pay")
    named = place if form == "config" else place["configurable"]["checkpoint_id"]
    branch = fork("t-1", named, branch="what-if", tenant="team-A")
    assert graph.get_state(shop.cf.config(**run_of(branch))).next == ("pay",)


def test_every_node_that_a_branch_can_begin_before_runs_again_in_it_and_none_before(shop: Shop) -> None:
    ran: list[str] = []

    def noting(name: str) -> Any:
        def node(state: State) -> State:
            ran.append(name)
            return {"log": [name]}

        return name, node

    names = ["a", "b", "c"]
    made = shop.cf.compile(chain(*map(noting, names)))
    shop.cf.run(made, {}, **WHO)
    for number, name in enumerate(names):
        ran.clear()
        branch = shop.cf.fork("t-1", where(shop, made, name), branch=f"at-{name}", tenant="team-A")
        assert shop.cf.run(made, None, **run_of(branch))["log"] == names
        assert ran == names[number:]


# --- its name --------------------------------------------------------------------------------------------------------


def test_the_same_name_at_the_same_checkpoint_is_the_same_branch(shop: Shop, graph: Any, fork: Any) -> None:
    place = where(shop, graph, "pay")
    branch = fork("t-1", place, branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(branch))
    past = history(graph, shop.cf.config(**run_of(branch)))
    assert fork("t-1", place, branch="what-if", tenant="team-A") == branch
    assert history(graph, shop.cf.config(**run_of(branch))) == past
    shop.cf.saver(tenant="team-A").prune(["t-1"])
    assert fork("t-1", place["configurable"]["checkpoint_id"], branch="what-if", tenant="team-A") == branch


def test_the_same_name_at_another_checkpoint_is_a_conflict(shop: Shop, graph: Any, fork: Any) -> None:
    branch = fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    for other in (where(shop, graph, "end"), None):
        with pytest.raises(BranchTaken, match=branch.checkpoint_id) as caught:
            fork("t-1", other, branch="what-if", tenant="team-A")
        assert caught.value.facts["checkpoint_id"] == branch.checkpoint_id
    fork("t-1", where(shop, graph, "end"), branch="other", tenant="team-A")


@pytest.mark.parametrize("kind", ["managed", "plain", "empty"])
def test_a_thread_that_happens_to_have_the_branchs_id_is_not_taken_for_it(shop: Shop, graph: Any, kind: str) -> None:
    squatter = "t-1~branch-what-if"
    if kind == "managed":
        shop.cf.run(graph, {"order": "squatter"}, **{**WHO, "thread_id": squatter})
    elif kind == "plain":
        chain(("big", big)).compile(checkpointer=shop.cf.saver(tenant="team-A")).invoke({}, conf(squatter))
    else:
        hold_thread(shop, squatter)
    with pytest.raises(BranchTaken):
        shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    assert MARKED not in ids(shop)


def hold_thread(shop: Shop, thread_id: str) -> None:
    shop.select(
        "insert into counterfoil_thread (tenant, thread_id, state, holder, created_at, updated_at)"
        " values ('team-A', ?, 'running', 'someone@elsewhere', 1, 1)",
        thread_id,
    )


def test_a_deleted_branch_can_be_opened_anew_and_remembers_its_receipts(shop: Shop, graph: Any, fork: Any) -> None:
    place = where(shop, graph, "pay")
    branch = fork("t-1", place, branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(branch))
    shop.cf.saver(tenant="team-A").delete_thread(branch.thread_id)
    assert fork("t-1", place, branch="what-if", tenant="team-A") == branch
    assert shop.cf.run(graph, None, **run_of(branch))["number"] == 2
    assert shop.count == 2


def test_two_tenants_may_have_branches_of_one_name(shop: Shop, graph: Any) -> None:
    shop.cf.run(graph, {"order": "1"}, **{**WHO, "tenant": "team-B"})
    places = {
        tenant: before(graph, shop.cf.config(**{**WHO, "tenant": tenant}), "pay") for tenant in ("team-A", "team-B")
    }
    for tenant, place in places.items():
        branch = shop.cf.fork("t-1", place, branch="what-if", tenant=tenant)
        shop.cf.run(graph, None, **run_of(branch))
    assert shop.count == 4
    with pytest.raises(CheckpointNotFound):
        shop.cf.fork("t-1", places["team-B"]["configurable"]["checkpoint_id"], branch="other", tenant="team-A")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "a~b", "x" * 41, None])
def test_a_name_that_is_none_is_refused(shop: Shop, graph: Any, fork: Any, name: Any) -> None:
    with pytest.raises(InvalidId):
        fork("t-1", branch=name, tenant="team-A")
    assert shop.rows("thread") == 1


def test_a_branch_whose_thread_could_not_be_run_is_refused(shop: Shop, graph: Any, fork: Any) -> None:
    long = "t" * 500
    shop.cf.run(graph, {"order": "1"}, **{**WHO, "thread_id": long, "request_id": "r-2"})
    with pytest.raises(InvalidId, match="the branch's thread id"):
        fork(long, branch="what-if", tenant="team-A")
    assert shop.rows("thread") == 2


def test_a_checkpoint_that_is_not_there_is_an_error_that_says_so(shop: Shop, graph: Any, fork: Any) -> None:
    for thread, checkpoint, tenant in (("t-1", "nowhere", "team-A"), ("t-1", None, "team-B"), ("t-9", None, "team-A")):
        with pytest.raises(CheckpointNotFound):
            fork(thread, checkpoint, branch="what-if", tenant=tenant)
    assert shop.rows("thread") == 1


def test_a_configuration_of_another_thread_or_of_a_child_is_refused(shop: Shop, graph: Any, fork: Any) -> None:
    place = where(shop, graph, "pay")
    child = {"configurable": {**place["configurable"], "checkpoint_ns": "child:1"}}
    for thread, checkpoint in (("t-2", place), ("t-1", child), ("t-1", {}), ("t-1", conf("t-1")), ("t-1", 7)):
        with pytest.raises(InvalidArguments):
            fork(thread, checkpoint, branch="what-if", tenant="team-A")


async def test_a_blocking_fork_on_a_loop_or_in_an_effect_is_refused(shop: Shop, graph: Any) -> None:
    with pytest.raises(SyncOnEventLoop):
        shop.cf.fork("t-1", branch="what-if", tenant="team-A")
    assert (await AsyncCounterfoil(shop.cf.desk).fork("t-1", branch="what-if", tenant="team-A")).branch == "what-if"


def test_a_branch_is_run_under_a_claim_only(shop: Shop, graph: Any) -> None:
    branch = shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    plain = paying().compile(checkpointer=shop.cf.saver())
    with pytest.raises(UnmanagedThread):
        plain.invoke(None, shop.cf.config(**run_of(branch)))
    with pytest.raises(TrustedFieldMismatch):
        shop.cf.run(graph, None, **run_of(branch), request_id="r-2")
    assert shop.count == 1


# --- branches of branches, copies, other threads ---------------------------------------------------------------------


def test_a_branch_of_a_branch_has_ids_of_its_own(shop: Shop, graph: Any, fork: Any) -> None:
    first = fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(first))
    place = where(shop, graph, "pay", first.thread_id)
    second = fork(first.thread_id, place, branch="deeper", tenant="team-A")
    assert (second.branch, second.branched_from) == ("what-if~deeper", first.thread_id)
    graph.update_state(shop.cf.config(**run_of(second)), {"amount": 13})
    assert shop.cf.run(graph, None, **run_of(second))["number"] == 3
    assert ids(shop) == [PLAIN, MARKED, f"{MARKED}~branch-deeper"]


def test_a_copy_of_a_branch_is_in_the_branch(shop: Shop, graph: Any) -> None:
    branch = shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(branch))
    shop.cf.saver(tenant="team-A").copy_thread(branch.thread_id, "t-copy")
    graph.invoke(None, where(shop, graph, "pay", "t-copy"))
    assert shop.count == 2
    assert ids(shop) == [PLAIN, MARKED]


def test_a_run_that_a_branch_starts_on_another_thread_is_in_the_branch_too(shop: Shop) -> None:
    inner = shop.cf.compile(paying())

    def around(state: State) -> State:
        shop.cf.run(inner, {"order": "1"}, **{**WHO, "thread_id": "t-inner"})
        return {}

    outer = shop.cf.compile(chain(("around", around)))
    shop.cf.run(outer, {}, **WHO)
    branch = shop.cf.fork("t-1", where(shop, outer, "around"), branch="what-if", tenant="team-A")
    shop.cf.run(outer, None, **run_of(branch))
    assert ids(shop) == [PLAIN, MARKED]


def test_a_key_of_the_thread_calls_it_as_it_was_called_before_the_branch(shop: Shop) -> None:
    @effect("test.thread-key", key="{thread_id}/letter/{order}")
    def letter(call: EffectCall, *, order: str) -> int:
        return call.resource(TallyFile).accept("letter", call.operation_id, {"thread": call.trusted.thread_id})

    made = shop.cf.compile(chain(("n", lambda state: {"number": perform(letter, order="1").value})))
    shop.cf.run(made, {}, **WHO)
    first = shop.cf.fork("t-1", where(shop, made, "n"), branch="a", tenant="team-A")
    second = shop.cf.fork(first.thread_id, branch="b", tenant="team-A")
    for branch in (first, second):
        shop.cf.run(made, None, **run_of(branch))
    assert ids(shop) == ["t-1/letter/1", "t-1/letter/1~branch-a", "t-1/letter/1~branch-a~branch-b"]


def test_what_is_asked_about_in_a_branch_is_edited_and_sent_as_the_branch_would(shop: Shop, decide: Any) -> None:
    @effect("test.thread-asked", key="{thread_id}/letter/{order}", approval=Policy())
    def letter(call: EffectCall, *, thread_id: str, order: str, text: str) -> int:
        body = {"of": thread_id, "trusted": call.trusted.thread_id, "text": text}
        return call.resource(TallyFile).accept("letter", call.operation_id, body)

    def write(_: State) -> State:
        return {"number": perform(letter, order="1", text="dear").value}

    made = shop.cf.compile(chain(("n", write)))
    shop.cf.run(made, {}, **WHO)
    branch = shop.cf.fork("t-1", where(shop, made, "n"), branch="a", tenant="team-A")
    deeper = shop.cf.fork(branch.thread_id, branch="b", tenant="team-A")
    shop.cf.saver(tenant="team-A").copy_thread(deeper.thread_id, "t-copy")
    copied = shop.cf.fork("t-copy", branch="c", tenant="team-A")
    expected = {
        branch.thread_id: "t-1/letter/1~branch-a",
        deeper.thread_id: "t-1/letter/1~branch-a~branch-b",
        "t-copy": "t-copy/letter/1~branch-a~branch-b",
        copied.thread_id: "t-copy/letter/1~branch-a~branch-b~branch-c",
    }
    for thread_id, operation_id in expected.items():
        run: dict[str, Any] = {"tenant": "team-A", "thread_id": thread_id}
        (asked,) = shop.cf.run(made, None, **run)["__interrupt__"]
        follower = decide("edit", asked.value["approval_id"], changes={"text": "cheap"})
        assert follower.operation_id == f"{operation_id}~edit-1"
        decide("approve", follower.approval_id)
        shop.cf.run(made, None, **run)
    threads = ["t-1", "t-1", "t-copy", "t-copy"]
    sent = [one.body for one in shop.tally.accepted()]
    assert sent == [{"of": thread, "trusted": thread, "text": "cheap"} for thread in threads]


def test_nobody_moves_what_a_branch_asks_about_to_another_thread(shop: Shop, decide: Any) -> None:
    @effect("test.thread-moved", key="{request_id}/{thread_id}/letter", approval=Policy())
    def letter(call: EffectCall, *, thread_id: str) -> int:
        return call.resource(TallyFile).accept("letter", call.operation_id, {"of": thread_id})

    made = shop.cf.compile(chain(("n", lambda _: {"number": perform(letter).value})))
    shop.cf.run(made, {}, **WHO)
    branch = shop.cf.fork("t-1", where(shop, made, "n"), branch="a", tenant="team-A")
    (asked,) = shop.cf.run(made, None, **run_of(branch))["__interrupt__"]
    for other in ("t-2", branch.thread_id):
        with pytest.raises(TrustedFieldMismatch):
            decide("edit", asked.value["approval_id"], changes={"thread_id": other})


def test_a_worker_sends_what_a_branch_enqueued_as_the_branch_would(shop: Shop) -> None:
    @effect("test.thread-queued", key="{request_id}/{thread_id}/letter")
    def letter(call: EffectCall, *, thread_id: str) -> int:
        body = {"of": thread_id, "trusted": call.trusted.thread_id}
        return call.resource(TallyFile).accept("letter", call.operation_id, body)

    def leave(_: State) -> State:
        enqueue(letter)
        return {}

    made = shop.cf.compile(chain(("n", leave)))
    shop.cf.run(made, {}, **WHO)
    branch = shop.cf.fork("t-1", where(shop, made, "n"), branch="a", tenant="team-A")
    shop.cf.run(made, None, **run_of(branch))
    shop.cf.drain(letter)
    assert [one.body for one in shop.tally.accepted()] == [{"of": "t-1", "trusted": "t-1"}] * 2


# --- ids that are minted ---------------------------------------------------------------------------------------------


def test_in_a_branch_a_step_may_mint_an_id_that_was_minted_on_the_line_it_left(shop: Shop, fork: Any) -> None:
    made, config = shop.cf.compile(chain(("mint", minting), ("invite", inviting))), shop.cf.config(**WHO)
    made.invoke({}, config)
    with pytest.raises(BranchRequired, match=r"cf\.fork"):
        made.invoke(None, before(made, config, "mint"))
    branch = fork("t-1", where(shop, made, "mint"), branch="what-if", tenant="team-A")
    shop.cf.run(made, None, **run_of(branch))
    keys = [str(one.key).removeprefix("team-A|invite/") for one in shop.tally.accepted()]
    assert len(set(keys)) == 2
    assert [key.endswith("~branch-what-if") for key in keys] == [False, True]
    with pytest.raises(BranchRequired):
        made.invoke(None, where(shop, made, "mint", branch.thread_id))
    after = fork("t-1", where(shop, made, "invite"), branch="after-mint", tenant="team-A")
    shop.cf.run(made, None, **run_of(after))
    assert shop.tally.accepted()[-1].key == f"team-A|invite/{keys[0]}~branch-after-mint"


def test_in_a_branch_an_id_may_not_be_used_in_the_step_that_minted_it(shop: Shop) -> None:
    def at_once(state: State) -> State:
        return {"number": perform(invite, invitation=mint("invitation")).value["number"]}

    made = shop.cf.compile(chain(("big", big), ("n", at_once)))
    with pytest.raises(MintedHere):
        shop.cf.run(made, {}, **WHO)
    branch = shop.cf.fork("t-1", where(shop, made, "n"), branch="what-if", tenant="team-A")
    with pytest.raises(MintedHere):
        shop.cf.run(made, None, **run_of(branch))
    assert shop.count == 0


# --- while others are at work ----------------------------------------------------------------------------------------


def test_a_thread_that_is_run_can_be_branched_and_neither_disturbs_the_other(shop: Shop) -> None:
    with running(shop, lambda slow: chain(("big", big), ("slow", slow))) as made:
        branch = shop.cf.fork("t-1", where(shop, made, "big"), branch="what-if", tenant="team-A")
        hasty = shop.cf.compile(chain(("big", big), ("slow", lambda state: {"log": ["hasty"]})))
        assert shop.cf.run(hasty, None, **run_of(branch))["log"] == ["big", "hasty"]
    assert made.get_state(shop.cf.config(**WHO)).values["log"] == ["big", "slow"]


def test_a_branch_has_a_claim_of_its_own(shop: Shop, graph: Any) -> None:
    branch = shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    hold(shop)
    with pytest.raises(ThreadBusy):
        shop.cf.run(graph, None, **GOING_ON)
    shop.cf.run(graph, None, **run_of(branch))
    assert shop.count == 2


def test_of_many_who_open_one_branch_all_get_the_same(shop: Shop, graph: Any) -> None:
    places = [where(shop, graph, "pay"), where(shop, graph, "end")]
    opened: list[Any] = []
    together = threading.Barrier(8)

    def open_one(number: int) -> None:
        cf: Counterfoil = shop.cf
        together.wait()
        try:
            opened.append(cf.fork("t-1", places[number % 2], branch="what-if", tenant="team-A"))
        except BranchTaken as error:
            opened.append(error)

    threads = [threading.Thread(target=open_one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    branches = [one for one in opened if isinstance(one, Branch)]
    assert len(opened) == 8
    assert len(branches) == 4
    assert len(set(branches)) == 1
    assert shop.rows("checkpoint", "thread_id = 't-1~branch-what-if'") == 1


def test_an_interrupt_is_asked_anew_in_a_branch(shop: Shop) -> None:
    def ask(state: State) -> State:
        return {"answer": interrupt("well?")}

    made = shop.cf.compile(chain(("big", big), ("ask", ask), ("end", lambda state: {})))
    shop.cf.run(made, {}, **WHO)
    branch = shop.cf.fork("t-1", branch="what-if", tenant="team-A")
    assert shop.cf.run(made, None, **run_of(branch))["__interrupt__"]
    assert shop.cf.run(made, Command(resume="no"), **run_of(branch))["answer"] == "no"
    assert shop.cf.run(made, Command(resume="yes"), **GOING_ON)["answer"] == "yes"


def test_a_child_that_keeps_its_state_has_in_a_branch_what_it_had_there(shop: Shop) -> None:
    child = chain(("count", lambda state: {"numbers": [len(state.get("numbers", []))]})).compile(checkpointer=True)
    made = shop.cf.compile(chain(("n", lambda state: {"log": [str(child.invoke({"order": "x"})["numbers"])]})))
    for turn in range(3):
        shop.cf.run(made, {}, **{**WHO, "request_id": f"r-{turn}"})
    second = [one.config for one in made.get_state_history(shop.cf.config(**WHO)) if one.next == ("n",)][1]
    branch = shop.cf.fork("t-1", second, branch="what-if", tenant="team-A")
    assert shop.cf.run(made, None, **run_of(branch))["log"][-1] == "[0, 1]"
    assert shop.cf.run(made, {}, **run_of(branch), request_id="r-9")["log"][-1] == "[0, 1, 2]"
    assert shop.cf.run(made, {}, **{**WHO, "request_id": "r-4"})["log"][-1] == "[0, 1, 2, 3]"


# --- lineage ---------------------------------------------------------------------------------------------------------


def test_the_lineage_is_recorded_and_shown_from_each_end(shop: Shop, graph: Any) -> None:
    branch = shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(branch))
    details = {one: shop.cf.operations.get(one, tenant="team-A") for one in (PLAIN, MARKED)}
    assert [details[one].operation.branch for one in details] == [None, "what-if"]
    assert [details[one].operation.plain_id for one in details] == [PLAIN, PLAIN]
    assert [[other.operation_id for other in details[one].lineage] for one in details] == [[MARKED], [PLAIN]]
    assert [details[one].receipt.operation_id for one in details] == [PLAIN, MARKED]  # type: ignore[union-attr]
    assert details[MARKED].operation.origin.thread_id == branch.thread_id
    told = shop.cf.operations.explain(MARKED, tenant="team-A")
    assert "in branch what-if of r-1/charge/1." in told.what
    assert "branch" not in shop.cf.operations.explain(PLAIN, tenant="team-A").what
    found = [hit.operation.operation_id for hit in shop.cf.operations.find("r-1/charge", tenant="team-A")]
    assert found == [PLAIN, MARKED]
    columns = "branch, branched_from, branched_at, plain_thread_id"
    rows = shop.select(f"select {columns} from counterfoil_thread where branch is not null")  # noqa: S608 - ours
    assert rows == [("what-if", "t-1", branch.checkpoint_id, "t-1")]


def test_pruning_and_deleting_the_thread_that_was_left_takes_nothing_from_a_branch(shop: Shop, graph: Any) -> None:
    branch = shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    saver = shop.cf.saver(tenant="team-A")
    saver.prune(["t-1", branch.thread_id])
    assert graph.get_state(shop.cf.config(**run_of(branch))).next == ("pay",)
    saver.delete_thread("t-1")
    assert shop.cf.run(graph, None, **run_of(branch))["log"] == ["big"]
    assert shop.count == 2


def test_forking_inside_an_effect_is_refused(shop: Shop) -> None:
    @effect("test.forking-effect", key="{request_id}/forking")
    def forking(call: EffectCall) -> str:
        return shop.cf.fork("t-1", branch="what-if", tenant="team-A").thread_id

    with pytest.raises(NestedEffect):
        shop.cf.perform(forking, tenant="team-A", request_id="r-1")


# --- named from outside ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["blocking", "awaiting"])
def verify(request: pytest.FixtureRequest, shop: Shop) -> Any:
    """Verify in one colour."""
    if request.param == "blocking":
        return shop.cf.verify
    return lambda *args, **given: asyncio.run(AsyncCounterfoil(shop.cf.desk).verify(*args, **given))


@effect("test.shown", key="{thread_id}/{request_id}/{order}", provider=Provider(lookup=find, lookup_lag="0s"))
def shown(call: EffectCall, *, order: str) -> dict[str, int]:
    return {"number": accept(call)}


def test_an_operation_of_a_branch_is_verified_by_the_branchs_name(shop: Shop, verify: Any) -> None:
    made = shop.cf.compile(chain(("n", lambda state: perform(shown, order="1").value)))
    shop.cf.run(made, {}, **WHO)
    first = shop.cf.fork("t-1", where(shop, made, "n"), branch="a", tenant="team-A")
    second = shop.cf.fork(first.thread_id, branch="b", tenant="team-A")
    for branch in (first, second):
        shop.cf.run(made, None, **run_of(branch))
    shop.desk.is_open = True
    for name, plain in ((None, ""), (first.branch, "~branch-a"), (second.branch, "~branch-a~branch-b")):
        told = verify(shown, **WHO, order="1", in_branch=name)
        assert (told.operation_id, told.agrees) == (f"t-1/r-1/1{plain}", True)
    with pytest.raises(OperationNotFound, match="~branch-c"):
        verify(shown, **WHO, order="1", in_branch="c")
    for bad in ("", "a~", "~branch-a", 7):
        with pytest.raises(InvalidId):
            verify(shown, **WHO, order="1", in_branch=bad)


@pytest.mark.parametrize("verb", ["ops show", "receipts show", "explain"])
def test_the_command_line_names_an_operation_of_a_branch(shop: Shop, graph: Any, verb: str) -> None:
    branch = shop.cf.fork("t-1", where(shop, graph, "pay"), branch="what-if", tenant="team-A")
    shop.cf.run(graph, None, **run_of(branch))

    def told(*words: str) -> Any:
        given = [*verb.split(), *words, "--url", shop.url, "--json"]
        return CliRunner().invoke(cli, given)

    for words in ((PLAIN, "--branch", "what-if"), (MARKED,)):
        assert json.loads(told(*words).stdout)["operation_id"] == MARKED
    assert json.loads(told(PLAIN).stdout)["operation_id"] == PLAIN
    assert json.loads(told(PLAIN, "--branch", "other").stderr)["error"]["code"] == "operation-not-found"
    assert json.loads(told(PLAIN, "--branch", "not a name").stderr)["error"]["code"] == "invalid-id"
