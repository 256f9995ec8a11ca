"""Work on threads whose COMMIT nobody heard of is done again only where it was not done, and refused only truly."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.errors import CommitUnknown, ThreadBusy, ThreadExists
from counterfoil.langgraph.branching import Fork, afork
from counterfoil.langgraph.saver import CounterfoilSaver
from tests.langgraph.shop import WHO, Shop, chain, conf
from tests.langgraph.test_claims import hold
from tests.langgraph.test_saver import put, root
from tests.langgraph.test_upkeep import Hands, big, counts

Meanwhile = Callable[[], Any]


def losing(cf: Any, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile, *, took_effect: bool = True) -> None:
    """Lose the answer of the next transaction; before anybody hears of that, something else happens."""
    lost: list[bool] = []

    def lose() -> None:
        lost.append(True)
        meanwhile()
        raise CommitUnknown("the connection was lost during COMMIT")

    def write(maker: Any, **more: Any) -> Any:
        if lost:
            return blocking(maker, **more)
        if took_effect:
            blocking(maker, **more)
        return lose()

    async def awrite(maker: Any, **more: Any) -> Any:
        if lost:
            return await awaiting(maker, **more)
        if took_effect:
            await awaiting(maker, **more)
        return await asyncio.to_thread(lose)

    blocking, awaiting = cf.desk.store.write, cf.desk.async_store.write
    monkeypatch.setattr(cf.desk.store, "write", write)
    monkeypatch.setattr(cf.desk.async_store, "write", awrite)


@pytest.fixture(params=["blocking", "awaiting"])
def do(request: pytest.FixtureRequest) -> Hands:
    return Hands(request.param)


@pytest.fixture
def begin(shop: Shop) -> Callable[..., None]:
    """Run a graph on a thread, managed or plain, with a Counterfoil of its own."""
    cf = shop.open()

    def run(thread_id: str = "t-1", *, plain: bool = False) -> None:
        if plain:
            chain(("big", big)).compile(checkpointer=cf.saver(tenant="team-A")).invoke({}, conf(thread_id))
        else:
            cf.run(cf.compile(chain(("big", big))), {}, **{**WHO, "thread_id": thread_id})

    return run


@pytest.fixture
def saver(shop: Shop, begin: Any) -> CounterfoilSaver:
    return shop.open().saver(tenant="team-A")


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("took_effect", [True, False])
def test_what_a_run_stores_behind_a_deletion_stays(
    shop: Shop, begin: Any, saver: Any, do: Hands, monkeypatch: pytest.MonkeyPatch, *, plain: bool, took_effect: bool
) -> None:
    begin(plain=plain)
    once = counts(shop)
    losing(saver, monkeypatch, lambda: begin(plain=plain), took_effect=took_effect)
    do(saver, "delete_thread", "t-1")
    assert counts(shop) == (once if took_effect else dict.fromkeys(once, 0))


def test_a_copy_that_was_made_and_went_on_is_not_refused(
    shop: Shop, begin: Any, saver: Any, do: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin()
    losing(saver, monkeypatch, lambda: begin("t-2"))
    do(saver, "copy_thread", "t-1", "t-2")
    assert counts(shop, "t-2")["checkpoint"] == 2 * counts(shop)["checkpoint"]


def test_a_copy_that_was_made_and_is_run_is_not_refused(
    shop: Shop, begin: Any, saver: Any, do: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin()
    losing(saver, monkeypatch, lambda: hold(shop, thread_id="t-2"))
    do(saver, "copy_thread", "t-1", "t-2")
    assert counts(shop, "t-2") == counts(shop)


def test_a_copy_that_was_not_made_is_not_said_to_be_refused(
    shop: Shop, begin: Any, saver: Any, do: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin()
    losing(saver, monkeypatch, lambda: begin("t-2"), took_effect=False)
    with pytest.raises(CommitUnknown):
        do(saver, "copy_thread", "t-1", "t-2")
    with pytest.raises(ThreadExists):
        do(saver, "copy_thread", "t-1", "t-2")


def test_a_pruning_that_was_done_is_not_said_to_be_refused(
    shop: Shop, begin: Any, saver: Any, do: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin()
    losing(saver, monkeypatch, lambda: hold(shop))
    with pytest.raises(CommitUnknown):
        do(saver, "prune", ["t-1"])
    assert counts(shop)["checkpoint"] == 1
    with pytest.raises(ThreadBusy):
        do(saver, "prune", ["t-1"])


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
@pytest.mark.parametrize("took_effect", [True, False])
def test_a_branch_from_the_newest_checkpoint_is_opened_once(
    shop: Shop, begin: Any, monkeypatch: pytest.MonkeyPatch, *, colour: str, took_effect: bool
) -> None:
    begin()
    (newest,) = shop.select("select checkpoint_id from counterfoil_checkpoint order by seq desc limit 1")
    cf: Any = shop.open()
    losing(cf, monkeypatch, begin, took_effect=took_effect)
    if colour == "blocking":
        opened = cf.fork("t-1", tenant="team-A", branch="what-if")
    else:
        opened = asyncio.run(afork(cf.desk, Fork.of("team-A", "t-1", None, "what-if")))
    assert (opened.checkpoint_id == newest[0]) is took_effect


def test_a_checkpoint_that_was_stored_is_not_said_to_be_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    cf = shop.open()
    losing(cf, monkeypatch, lambda: hold(shop))
    with pytest.raises(CommitUnknown):
        put(cf.saver(tenant="team-A"), root("t-1"), "c-1")
    assert counts(shop)["checkpoint"] == 1
