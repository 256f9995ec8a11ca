"""Plain graphs on one thread, beside each other and beside the first run that claims it."""

from typing import Any

import psycopg
import pytest

from counterfoil.core.workflows import NeedsBranch
from counterfoil.drivers.postgres import run
from counterfoil.drivers.postgres_run import Progress
from counterfoil.drivers.probes import Point
from counterfoil.errors import UnmanagedThread
from counterfoil.storage.script import Script
from counterfoil.storage.scripts import checkpoints, threads
from counterfoil.storage.scripts.checkpoints import Place
from counterfoil.storage.scripts.threads import Step, ThreadKey, ThreadRequest
from tests.conformance.subject import Background
from tests.langgraph.shop import Shop
from tests.langgraph.test_saver import put, root
from tests.stores import POSTGRES, execute, on_each

WAITING = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
KEY = ThreadKey(tenant="", thread_id="t")


def minting(checkpoint_id: str, minted_id: str) -> Script[Any]:
    step = Step(checkpoint_ns="", checkpoint_id=checkpoint_id, root_id=checkpoint_id, task_id="task")
    return threads.mint(KEY, name="invitation", step=step, make=lambda: minted_id)


def claiming() -> Script[Any]:
    trusted: dict[str, str | None] = {"request_id": None, "workflow_id": None, "principal": None}
    return threads.claim(ThreadRequest(key=KEY, holder="h-1", lease=30_000, trusted=trusted, goes_on=False))


def test_two_inputs_at_once_do_not_mint_two_ids_for_one_name(shop: Shop) -> None:
    for identity in ("c-1", "c-2"):
        put(shop.cf.saver(), root(), identity)
    beside: list[Background] = []

    def mint_beside(point: Point, name: str) -> None:
        if point is Point.BEFORE_STATEMENT and name == "insert_mint" and not beside:
            beside.append(Background(lambda: second.desk.store.write(lambda: minting("c-2", "m-2"))))
            assert beside[0].is_under_way(0.3)

    second = shop.open()
    first = shop.open(probe=mint_beside)
    assert first.desk.store.write(lambda: minting("c-1", "m-1")) == "m-1"
    assert isinstance(beside[0].result(), NeedsBranch)
    assert shop.rows("mint") == 1


def beside_open(shop: Shop, script: Any, work: Any) -> Background:
    """Run a script, and before its COMMIT begin some work that waits for that."""
    protocol = shop.cf.desk.store.protocol  # type: ignore[attr-defined]
    with psycopg.connect(shop.url) as connection:
        run(connection, protocol.inside(script, Progress()))
        beside = Background(work)
        while beside.is_under_way() and not execute(shop.url, WAITING):
            pass
        assert beside.is_under_way()
    return beside


@on_each(POSTGRES)
def test_what_a_plain_graph_stores_while_its_thread_is_first_claimed_is_refused(shop: Shop) -> None:
    storing = beside_open(shop, claiming, lambda: put(shop.cf.saver(), root(), "c-1"))
    with pytest.raises(UnmanagedThread):
        storing.result()
    assert shop.rows("checkpoint") == 0


@on_each(POSTGRES)
def test_writes_of_a_plain_graph_while_its_thread_is_first_claimed_are_refused(shop: Shop) -> None:
    at = put(shop.cf.saver(), root(), "c-1")
    storing = beside_open(shop, claiming, lambda: shop.cf.saver().put_writes(at, [("a", 1)], "task"))
    with pytest.raises(UnmanagedThread):
        storing.result()
    assert shop.rows("write") == 0


@on_each(POSTGRES)
def test_a_first_claim_comes_behind_what_a_plain_graph_is_just_storing(shop: Shop) -> None:
    def writing() -> Script[Any]:
        place, task = Place(key=KEY, checkpoint_ns=""), {"task_id": "task", "task_path": ""}
        row = {"idx": 0, "channel": "a", "type": "null", "value": b""}
        return checkpoints.put_writes(place, attempt=None, checkpoint_id="c-1", task=task, writes=[row], replace=False)

    claimed = beside_open(shop, writing, lambda: shop.cf.desk.store.write(claiming)).result()
    assert claimed.attempt == 1
    assert shop.rows("write") == 1
