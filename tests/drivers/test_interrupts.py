"""A signal handler may raise anywhere in the main thread: the writer stays usable, for this process and for others."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from counterfoil import AsyncCounterfoil, Counterfoil, EffectCall, Provider, effect
from counterfoil.drivers import opened, sqlite_writer
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.sqlite_transaction import Transactions
from counterfoil.errors import CounterfoilError, NestedEffect, OutcomeNotStored, StoreUnavailable, ThreadBusy
from tests.drivers.scripts import Call, add, numbers, open_store, watch_queue


def writer_of(cf: Counterfoil) -> sqlite_writer.Writer:
    assert isinstance(cf.desk.store, SqliteStore)
    return cf.desk.store.writer


@effect("interrupts.note", key="{request_id}/note")
def note(call: EffectCall) -> str:
    return "noted"


def perform(cf: Counterfoil, request_id: str) -> str:
    return cf.perform(note, tenant="t", request_id=request_id).value


def can_write(database: Path) -> bool:
    """Say whether another connection gets the write lock at once."""
    other = sqlite3.connect(database, isolation_level=None, timeout=0)
    try:
        other.execute("begin immediate")
        other.execute("rollback")
    except sqlite3.OperationalError:
        return False
    finally:
        other.close()
    return True


def test_an_interrupt_right_behind_begin_gives_the_lock_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "a.db"
    with Counterfoil.open(f"sqlite:///{database}") as cf:
        writer, begin = writer_of(cf), Transactions._begin

        def interrupted(self: Transactions) -> None:
            begin(self)
            raise KeyboardInterrupt

        monkeypatch.setattr(Transactions, "_begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cf.saver(tenant="t").delete_thread("t-1")
        monkeypatch.undo()
        assert can_write(database)
        assert perform(cf, "r-1") == "noted"
        assert writer.usable


def test_a_transaction_that_was_left_open_is_undone_by_the_next(tmp_path: Path) -> None:
    with Counterfoil.open(f"sqlite:///{tmp_path}/a.db") as cf:
        writer_of(cf)._transactions.connection.execute("begin immediate")
        assert perform(cf, "r-1") == "noted"
        assert can_write(tmp_path / "a.db")


def test_a_thread_that_lost_hold_of_the_lead_takes_it_again() -> None:
    with Counterfoil.open("sqlite:///:memory:") as cf:
        writer = writer_of(cf)
        writer._leading, writer._leader = True, get_ident()
        assert perform(cf, "r-1") == "noted"


@pytest.mark.parametrize("leader", ["nobody", "a thread that does something else"])
def test_a_waiting_caller_takes_a_lost_lead_over(monkeypatch: pytest.MonkeyPatch, leader: str) -> None:
    monkeypatch.setattr(sqlite_writer, "SLICE_S", 0.01)
    noted: list[str] = []
    with Counterfoil.open("sqlite:///:memory:") as cf:
        writer = writer_of(cf)
        writer._leading, writer._leader = True, None if leader == "nobody" else get_ident()
        thread = threading.Thread(target=lambda: noted.append(perform(cf, "r-1")))
        thread.start()
        thread.join(20)
    assert noted == ["noted"]


class SoftLimit(BaseException):
    pass


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt may hit a clean-up
@pytest.mark.parametrize("seed", range(5))
def test_random_interrupts_leave_the_writer_usable(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def limit(*_: object) -> None:
        raise SoftLimit

    before = signal.signal(signal.SIGALRM, limit)
    cf = Counterfoil.open(f"sqlite:///{tmp_path}/a.db", wait="200ms")
    try:
        for number in range(3000):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.random() * 0.002 + 2e-5)
                try:
                    perform(cf, f"r-{number}")
                except CounterfoilError:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except SoftLimit:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert perform(cf, "after") == "noted"
    assert can_write(tmp_path / "a.db")
    cf.close()


FULL = """
import os, resource, sys
from counterfoil import Counterfoil, effect
from counterfoil.errors import CounterfoilError

@effect("interrupts.full", key="{request_id}/full")
def full(call):
    raise AssertionError("nothing may be sent")

@effect("interrupts.warm", key="{request_id}/warm")
def warm(call):
    return 1

folder = sys.argv[1]
cf = Counterfoil.open(f"sqlite:///{folder}/a.db")
cf.perform(warm, tenant="t", request_id="r")
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(folder + "/a.db-wal"),) * 2)
try:
    cf.perform(full, tenant="t", request_id="r")
except CounterfoilError as error:
    print(error.code, error.retry, flush=True)
os._exit(0)
"""


def test_a_full_disk_is_told_and_nothing_is_sent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "store-unavailable safe\n", done.stderr


def test_a_file_that_was_removed_is_noticed_before_anything_is_sent(tmp_path: Path) -> None:
    with Counterfoil.open(f"sqlite:///{tmp_path}/a.db") as cf:
        for file in tmp_path.iterdir():
            file.unlink()
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            perform(cf, "r-1")


@effect("interrupts.removing", key="{request_id}/removing")
def removing(call: EffectCall, *, folder: str) -> str:
    """Take the database away while its outcome is awaited."""
    for file in Path(folder).iterdir():
        file.unlink()
    return "letter RM-1"


def test_a_file_that_was_removed_while_an_effect_ran_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "FRESH_S", 0.0)  # the effect takes longer than that
    with Counterfoil.open(f"sqlite:///{tmp_path}/a.db") as cf, pytest.raises(OutcomeNotStored) as told:
        cf.perform(removing, tenant="t", request_id="r-1", folder=str(tmp_path))
    assert "removed or replaced" in str(told.value.__cause__)


@effect("interrupts.locking", key="{path}/locking")
def locking(call: EffectCall, *, path: str) -> str:
    """Take the database's lock away from the writer, as a backup or a long transaction might."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    LOCKS.append(other)
    return "letter RR-1"


LOCKS: list[sqlite3.Connection] = []


def test_what_an_effect_returned_is_handed_out_where_it_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.drivers.sqlite.BUSY_TIMEOUT_MS", 10)
    database = tmp_path / "a.db"
    with Counterfoil.open(f"sqlite:///{database}") as cf:
        writer_of(cf)._transactions.connection.execute("pragma busy_timeout=10")
        with pytest.raises(OutcomeNotStored) as caught:
            cf.perform(locking, tenant="t", path=str(database))
        LOCKS.pop().close()
    assert caught.value.result == "letter RR-1"
    assert str(caught.value.retry) == "after_reconcile"


def test_close_waits_for_what_is_being_performed(tmp_path: Path) -> None:
    begun, go_on, told = threading.Event(), threading.Event(), list[str]()

    @effect("interrupts.slow", key="{request_id}/slow")
    def slow(call: EffectCall) -> str:
        begun.set()
        assert go_on.wait(20)
        return "done"

    cf = Counterfoil.open(f"sqlite:///{tmp_path}/a.db")
    thread = threading.Thread(target=lambda: told.append(cf.perform(slow, tenant="t", request_id="r").value))
    closing = threading.Thread(target=cf.close)
    thread.start()
    assert begun.wait(20)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go_on.set()
    thread.join(20)
    closing.join(20)
    assert told == ["done"]


class State(TypedDict, total=False):
    x: int


async def step(state: State) -> State:
    await asyncio.sleep(0)
    return {"x": 1}


def test_a_run_that_is_cancelled_at_any_moment_gives_its_thread_back(tmp_path: Path) -> None:
    async def main() -> list[str]:
        chance, leaked = random.Random(1), []
        async with AsyncCounterfoil.open(f"sqlite:///{tmp_path}/a.db") as cf:
            graph = cf.compile(StateGraph(State).add_node("step", step).add_edge(START, "step"))
            for number in range(60):
                config = cf.config(tenant="t", request_id="r", thread_id=f"t-{number}")
                try:
                    async with asyncio.timeout(chance.random() * 0.02):
                        await graph.ainvoke({}, config)
                except TimeoutError:
                    pass
                try:
                    await graph.ainvoke({}, config)
                except ThreadBusy as error:
                    leaked.append(error.message)
        return leaked

    assert asyncio.run(main()) == []


# --- one's own transaction --------------------------------------------------------------------------------------------


def test_a_transactional_effect_that_uses_the_database_otherwise_is_refused_whole(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with sqlite3.connect(database) as seats:
        seats.execute("create table seat (n)")
    with Counterfoil.open(f"sqlite:///{database}") as cf:

        @effect("interrupts.book", key="{request_id}/book", provider=Provider.transactional())
        def book(transaction: Any) -> None:
            transaction.execute("insert into seat values (1)")
            cf.saver(tenant="t").delete_thread("t-1")

        with pytest.raises(NestedEffect):
            cf.perform(book, tenant="t", request_id="r")
        assert cf.operations.list(tenant="t").items == ()
    assert seats.execute("select count(*) from seat").fetchone() == (0,)
    seats.close()


def test_a_caller_that_led_once_does_not_lead_again_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """More callers than fit into one transaction: each leads its own batch, and never two at once."""
    monkeypatch.setattr(sqlite_writer, "BATCH", 2)
    inside, most = 0, 0
    take_turn = Transactions._take_turn

    def counted(self: Transactions, body: Callable[[], Any]) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return take_turn(self, body)
        finally:
            inside -= 1

    monkeypatch.setattr(Transactions, "_take_turn", counted)
    with Counterfoil.open("sqlite:///:memory:") as cf:
        threads = [threading.Thread(target=perform, args=(cf, f"r-{number}")) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert cf.operations.counts(tenant="t")["succeeded"] == 24
    assert most == 1


def test_an_interrupt_after_the_commit_keeps_what_others_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader is interrupted between COMMIT and its return; whoever shared the transaction gets the answer."""
    store, commit = open_store(":memory:"), Transactions._commit

    def interrupted(self: Transactions) -> None:
        commit(self)
        monkeypatch.undo()
        raise KeyboardInterrupt

    queue = watch_queue(store)
    store.writer._leading, store.writer._leader = True, None  # so that both wait in the queue
    other = Call(lambda: store.write(add(1)))
    queue.joined(1)
    monkeypatch.setattr(Transactions, "_commit", interrupted)
    store.writer._leader = get_ident()
    with pytest.raises(KeyboardInterrupt):
        store.write(add(2))
    other.result()
    assert numbers(store) == [1, 2]
    store.close()
