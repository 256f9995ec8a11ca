"""On PostgreSQL a statement may outlive its client, and a claim waits for what the old owner is just writing."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from langgraph.runtime import RunControl

from counterfoil import Counterfoil
from counterfoil.errors import VersionConflict
from counterfoil.langgraph.claims import claim_now, owning, with_run
from counterfoil.langgraph.context import Run
from counterfoil.testing.clock import FakeClock
from tests.crash.threads import METADATA, WHO, made, place
from tests.processes.scene import Scene, told
from tests.stores import POSTGRES, await_quiet, on_each

pytestmark = pytest.mark.slow

WAITING = """
select count(distinct lock.pid) from pg_locks lock join pg_stat_activity session using (pid)
where not lock.granted and session.datname = current_database()
"""
LIMIT_S = 60


class Lock:
    """A session that holds a table, so that whoever writes to it waits in the middle of a statement.

    Another one looks who waits: in a transaction, PostgreSQL shows only the sessions that it showed at first.
    """

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._onlooker = psycopg.connect(url, autocommit=True)

    def take(self, table: str) -> None:
        self._connection.execute("begin")
        self._connection.execute(f"lock table counterfoil_{table} in share mode".encode())

    def take_checkpoint(self, checkpoint_id: str) -> None:
        """Be about to store a copy of the only checkpoint under another id: who stores that one must wait."""
        names = "select attname from pg_attribute where attrelid = 'counterfoil_checkpoint'::regclass"
        found = self._connection.execute(f"{names} and attnum > 0 and attidentity = ''".encode()).fetchall()
        columns = [name for (name,) in found]
        copied = ", ".join(f"'{checkpoint_id}'" if name == "checkpoint_id" else name for name in columns)
        into = f"insert into counterfoil_checkpoint ({', '.join(columns)})"
        self._connection.execute("begin")
        self._connection.execute(f"{into} select {copied} from counterfoil_checkpoint".encode())  # noqa: S608 - ours

    def wait_for(self, waiting: int, worker: "subprocess.Popen[str] | None" = None) -> None:
        """Return when as many sessions wait for a lock, among them the worker's."""
        until = time.monotonic() + LIMIT_S
        while (found := self._onlooker.execute(WAITING.encode()).fetchall()) != [(waiting,)]:
            if worker is not None:
                assert worker.poll() is None, f"it ended instead, and told {worker.communicate()[0]}"
            assert time.monotonic() < until, f"{found} wait"
            self._onlooker.execute("select pg_sleep(0.005)")

    def release(self) -> None:
        self._connection.execute("rollback")

    def close(self) -> None:
        self._connection.close()
        self._onlooker.close()


@pytest.fixture
def lock(url: str) -> Iterator[Lock]:
    made = Lock(url)
    yield made
    made.close()


# --- a statement outlives its client ----------------------------------------------------------------------------------


def killed(worker: "subprocess.Popen[str]") -> None:
    os.kill(worker.pid, signal.SIGKILL)
    with worker:
        assert worker.wait(LIMIT_S) == -signal.SIGKILL


@on_each(POSTGRES)
@pytest.mark.parametrize("kind", ["keyed", "opaque", "queryable"])
def test_a_claim_that_the_server_makes_for_a_dead_client_is_taken_over(scene: Scene, lock: Lock, kind: str) -> None:
    Counterfoil.open(scene.url).close()
    lock.take("operation")
    worker = scene.start(scene.order(kind))
    lock.wait_for(1, worker)
    killed(worker)
    lock.release()
    lock.close()
    await_quiet(scene.url)
    assert (scene.state, scene.provider.count()) == ("in_flight", 0)
    at_once, later = scene.later(kind, 0), scene.later(kind)
    if kind == "keyed":
        assert (at_once["id"], later["id"], scene.provider.count()) == (1, 1, 1)
    elif kind == "opaque":
        assert (at_once["error"], later["error"], scene.provider.count()) == ("outcome-unknown", "outcome-unknown", 0)
        assert scene.cases() == ["unknown_outcome"]
    else:  # at once it is too early for a no
        assert (at_once["error"], later["id"], scene.provider.count()) == ("outcome-unknown", 1, 1)


@on_each(POSTGRES)
@pytest.mark.parametrize("kind", ["keyed", "opaque"])
def test_an_outcome_that_the_server_records_for_a_dead_client_stands(scene: Scene, lock: Lock, kind: str) -> None:
    orders = scene.order(kind)
    scene.provider.order("hold")
    worker = scene.start(orders)
    scene.provider.wait_held()
    lock.take("operation")
    scene.provider.release()
    lock.wait_for(1, worker)
    killed(worker)
    lock.release()
    lock.close()
    await_quiet(scene.url)
    assert (scene.state, scene.provider.count(), scene.cases()) == ("succeeded", 1, [])
    assert scene.later(kind, 0) == {"request": "r-1", "id": 1, "from": "receipt"}


@on_each(POSTGRES)
def test_a_worker_that_waits_for_a_lock_goes_on_when_it_is_gone(scene: Scene, lock: Lock) -> None:
    Counterfoil.open(scene.url).close()
    lock.take("operation")
    worker = scene.start(scene.order("opaque"))
    lock.wait_for(1, worker)
    lock.release()
    assert told(worker) == [{"request": "r-1", "id": 1, "from": "effect"}]
    assert scene.provider.received() == 1


# --- a claim waits for an open write ----------------------------------------------------------------------------------


@contextmanager
def in_background(work: Any) -> Iterator[list[BaseException]]:
    """Run work beside the block, and wait for its end; yield what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def claimed(cf: Counterfoil) -> Run:
    run, _ = claim_now(cf.desk, cf.config(**WHO), None)
    return run


def put(cf: Counterfoil, run: Run, checkpoint_id: str, parent: str | None = None) -> None:
    checkpoint = made(checkpoint_id)
    config = place(with_run(cf.config(**WHO), run), parent)
    cf.saver().put(config, checkpoint, METADATA, checkpoint["channel_versions"])


def newest(cf: Counterfoil, run: Run) -> str:
    found = cf.saver().get_tuple(place(with_run(cf.config(**WHO), run)))
    assert found is not None
    return str(found.checkpoint["id"])


@on_each(POSTGRES)
def test_a_claim_waits_for_what_the_old_owner_is_just_writing(url: str, lock: Lock) -> None:
    clock = FakeClock()
    with Counterfoil.open(url, clock=clock) as old, Counterfoil.open(url, clock=clock) as new:
        owner = claimed(old)
        put(old, owner, "0001")
        clock.advance("2m")  # its claim is over, and nobody has noticed yet
        lock.take_checkpoint("0002")
        rescuers: list[Run] = []
        with in_background(lambda: put(old, owner, "0002", "0001")) as of_owner:
            lock.wait_for(1)
            with in_background(lambda: rescuers.append(claimed(new))) as of_rescuer:
                lock.wait_for(2)
                assert rescuers == []
                lock.release()
        assert (of_owner, of_rescuer) == ([], [])
        (rescuer,) = rescuers
        assert (owner.attempt, rescuer.attempt) == (1, 2)
        assert newest(new, rescuer) == "0002"
        with pytest.raises(VersionConflict):
            put(old, owner, "0003", "0002")
        with owning(rescuer, RunControl()):
            put(new, rescuer, "0003", "0002")
        assert newest(new, rescuer) == "0003"
