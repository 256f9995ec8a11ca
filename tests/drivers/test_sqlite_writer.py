"""One writer for all: units share commits, fail alone, hand on the lead, and outlive interrupts."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from counterfoil.drivers import sqlite_writer
from counterfoil.drivers.probes import Point
from counterfoil.drivers.sqlite import SqliteStore
from counterfoil.drivers.sqlite_run import Runner
from counterfoil.drivers.sqlite_unit import Unit
from counterfoil.drivers.sqlite_writer import BATCH, Writer
from counterfoil.drivers.turns import Turns
from counterfoil.errors import Busy, CommitUnknown, ConstraintViolated, StoreClosed, StoreUnavailable
from counterfoil.storage.catalog import Statement
from counterfoil.storage.script import Ddl, Maker, Row, Script, lone_row, peeked_row
from tests.drivers.scripts import SECONDS, Call, Commits, Gate, add, during, numbers, open_store, sql, watch_queue


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def store(tmp_path: Path, commits: Commits) -> Iterator[SqliteStore]:
    opened = open_store(tmp_path / "t.db", commits)
    commits.count = 0
    yield opened
    opened.close()


def lead(store: SqliteStore, gate: Gate, n: int = 0) -> Call:
    """Let a caller lead and stay inside its transaction until the gate opens."""
    leader = Call(lambda: store.write(during(gate, add(n))))
    assert gate.reached.wait(SECONDS)
    return leader


def test_a_script_commits_and_returns(store: SqliteStore, commits: Commits) -> None:
    assert store.write(sql("insert into t values (1) returning n")) == [{"n": 1}]
    assert numbers(store) == [1]
    assert commits.count == 1


def test_an_error_is_thrown_into_the_script_rolled_back_and_raised(store: SqliteStore) -> None:
    seen = []

    def script() -> Script[None]:
        yield Ddl("insert into t values (1)")
        try:
            yield Ddl("insert into t values (1)")
        except ConstraintViolated as error:
            seen.append(error)
            raise

    with pytest.raises(ConstraintViolated):
        store.write(script)
    assert len(seen) == 1
    assert numbers(store) == []


def test_callers_that_wait_share_one_commit(store: SqliteStore, commits: Commits) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    others = [Call(partial(store.write, add(n))) for n in range(1, 32)]
    queue.joined(31)
    gate.open()
    for call in (leader, *others):
        call.result()
    assert numbers(store) == list(range(32))
    assert commits.count == 2  # the leader's own, and one for the 31 that waited


def test_a_batch_has_a_size(store: SqliteStore, commits: Commits) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    others = [Call(partial(store.write, add(n))) for n in range(1, BATCH + 3)]
    queue.joined(BATCH + 2)
    gate.open()
    for call in (leader, *others):
        call.result()
    assert len(numbers(store)) == BATCH + 3
    assert commits.count == 3


def test_the_lead_is_handed_on_under_load(store: SqliteStore, commits: Commits) -> None:
    barrier = threading.Barrier(32)

    def work(first: int) -> None:
        barrier.wait(SECONDS)
        for n in range(first, first + 10):
            store.write(add(n))

    for call in [Call(partial(work, first)) for first in range(0, 320, 10)]:
        call.result()
    assert numbers(store) == list(range(320))
    assert commits.count < 320


def test_one_that_fails_takes_nothing_with_it(store: SqliteStore, commits: Commits) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    calls = []
    for n in (1, 1, 2):
        calls.append(Call(partial(store.write, add(n))))
        queue.joined(1)
    gate.open()
    leader.result()
    calls[0].result()
    with pytest.raises(ConstraintViolated):
        calls[1].result()
    calls[2].result()
    assert numbers(store) == [0, 1, 2]
    assert commits.count == 2


def test_a_full_disk_fails_the_whole_batch_with_our_error_and_the_writer_lives(store: SqliteStore) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    store.writer._transactions.connection.execute("create table if not exists big (x)")
    small = Call(lambda: store.write(add(1)))
    queue.joined(1)
    large = Call(lambda: store.write(sql("insert into big values (zeroblob(1000000))")))
    queue.joined(1)
    after = Call(lambda: store.write(add(2)))
    queue.joined(1)
    store.writer._transactions.connection.execute("pragma max_page_count=20")
    gate.open()
    leader.result()
    with pytest.raises(StoreUnavailable):
        large.result()
    outcomes = [_outcome(small), _outcome(after)]
    assert numbers(store) == [0, *(n for n, outcome in zip((1, 2), outcomes, strict=True) if outcome is None)]
    assert all(outcome is None or isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    store.write(add(3))


def _outcome(call: Call) -> BaseException | None:
    try:
        call.result()
    except Exception as error:  # noqa: BLE001 - compared by the test
        return error
    return None


def test_a_unit_that_must_be_alone_runs_on_its_callers_thread_in_a_commit_of_its_own(
    store: SqliteStore, commits: Commits
) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    threads: list[int] = []
    alone = Call(lambda: store.write_alone(during(lambda: threads.append(threading.get_ident()), add(1))))
    queue.joined(1)
    other = Call(lambda: store.write(add(2)))
    queue.joined(1)
    gate.open()
    for call in (leader, alone, other):
        call.result()
    assert threads == [alone.ident]
    assert commits.count == 3


def test_a_transaction_begins_by_taking_the_write_lock(store: SqliteStore) -> None:
    seen: list[str] = []
    store.writer._transactions.connection.set_trace_callback(seen.append)
    store.write(sql("select n from t"))
    assert seen == ["begin immediate", "select n from t", "commit"]


def test_reads_do_not_wait_for_a_write_and_see_what_was_committed(store: SqliteStore) -> None:
    gate = Gate()
    leader = lead(store, gate)
    assert numbers(store) == []
    gate.open()
    leader.result()
    assert numbers(store) == [0]


READ = sql("select n from t")


@pytest.fixture
def looked(store: SqliteStore) -> SqliteStore:
    """A store with two statements: one that peeks at a number and one that adds it."""
    store.runner.statements = {"seen": Statement("seen", "Find a number.", "select n from t where n = :n"), **ADD}
    return store


def peek_and_add(n: int, hook: Callable[[], object] = int) -> Maker[tuple[str, Row | None]]:
    """Return a script that looks whether a number is there and otherwise adds it."""

    def script() -> Script[tuple[str, Row | None]]:
        hook()
        if (row := (yield from peeked_row("seen", n=n))) is not None:
            return "there", row
        return "added", (yield from lone_row("add", n=n))

    return script


def test_a_look_peeks_and_claims_without_a_transaction_around_both(looked: SqliteStore, commits: Commits) -> None:
    seen: list[str] = []
    looked.writer._transactions.connection.set_trace_callback(seen.append)
    assert looked.look(READ, peek_and_add(7)) == ("added", {"n": 7})
    assert seen == ["select n from t where n = 7", "insert into t values (7) on conflict do nothing returning n"]
    assert (numbers(looked), commits.count) == ([7], 1)


def test_a_look_that_finds_what_it_looked_for_writes_nothing(looked: SqliteStore, commits: Commits) -> None:
    looked.write(add(7))
    seen: list[str] = []
    commits.count = 0
    looked.writer._transactions.connection.set_trace_callback(seen.append)
    assert looked.look(READ, peek_and_add(7)) == ("there", {"n": 7})
    assert (seen, commits.count) == (["select n from t where n = 7"], 0)


def test_what_appears_after_a_peek_is_not_claimed_twice(looked: SqliteStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:

        def script() -> Script[Row | None]:
            assert (yield from peeked_row("seen", n=7)) is None
            other.execute("insert into t values (7)")
            return (yield from lone_row("add", n=7))

        assert looked.look(READ, script) is None
    assert numbers(looked) == [7]


def test_a_look_does_not_wait_for_a_write_and_sees_what_was_committed(looked: SqliteStore) -> None:
    gate = Gate()
    leader = lead(looked, gate)
    assert looked.look(READ, peek_and_add(0)) == []
    gate.open()
    leader.result()
    assert looked.look(READ, peek_and_add(0)) == ("there", {"n": 0})


def test_a_look_does_not_see_what_an_interrupt_left_open(looked: SqliteStore) -> None:
    looked.writer._transactions.connection.execute("begin immediate")
    looked.writer._transactions.connection.execute("insert into t values (1)")
    assert looked.look(READ, peek_and_add(1)) == ("added", {"n": 1})


def test_an_error_of_a_peek_is_the_callers(looked: SqliteStore) -> None:
    looked.write(sql("drop table t"))
    with pytest.raises(StoreUnavailable, match="SQLITE_ERROR"):
        looked.look(READ, peek_and_add(1))


def test_a_look_hands_the_lead_on(looked: SqliteStore) -> None:
    gate = Gate()
    look = Call(lambda: looked.look(READ, peek_and_add(7, gate)))
    assert gate.reached.wait(SECONDS)
    queue = watch_queue(looked)
    other = Call(lambda: looked.write(add(1)))
    queue.joined(1)
    gate.open()
    assert look.result() == ("added", {"n": 7})
    other.result()
    assert numbers(looked) == [1, 7]


def test_a_reader_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(StoreUnavailable, match="SQLITE_READONLY"):
        store.read(add(1))


def test_memory_reads_go_through_the_writer_and_see_every_write() -> None:
    store = open_store(":memory:")
    calls = [Call(partial(store.write, add(n))) for n in range(8)]
    for call in calls:
        call.result()
    assert numbers(store) == list(range(8))
    store.close()


# --- interrupts ------------------------------------------------------------------------------------------------------


def test_an_interrupt_of_the_leader_does_not_hurt_the_others(store: SqliteStore) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)

    def interrupt() -> None:
        raise KeyboardInterrupt

    second = Call(lambda: store.write(during(interrupt, add(1))))  # leads the next batch
    queue.joined(1)
    third = Call(lambda: store.write(add(2)))
    queue.joined(1)
    gate.open()
    leader.result()
    with pytest.raises(KeyboardInterrupt):
        second.result()
    third.result()
    assert numbers(store) == [0, 2]


def test_an_interrupt_after_the_commit_leaves_the_others_their_results(tmp_path: Path) -> None:
    armed = threading.Event()

    def probe(point: Point, _name: str, /) -> None:
        if armed.is_set() and point is Point.AFTER_COMMIT:
            armed.clear()
            raise KeyboardInterrupt

    store = open_store(tmp_path / "t.db", probe)
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    second = Call(lambda: store.write(during(armed.set, add(1))))
    queue.joined(1)
    third = Call(lambda: store.write(add(2)))
    queue.joined(1)
    gate.open()
    leader.result()
    with pytest.raises(KeyboardInterrupt):
        second.result()
    third.result()
    assert numbers(store) == [0, 1, 2]
    store.close()


class InterruptedWait(threading.Event):
    """Is interrupted once, just after it was woken."""

    def __init__(self) -> None:
        super().__init__()
        self._again = False

    def wait(self, timeout: float | None = None) -> bool:
        woken = super().wait(timeout)
        if not self._again:
            self._again = True
            raise KeyboardInterrupt
        return woken


def test_an_interrupt_of_a_caller_that_was_just_given_the_lead_hands_it_on(store: SqliteStore) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    unit = Unit(add(1))
    unit.wake = InterruptedWait()
    heir = Call(lambda: store.writer.run(unit))
    queue.joined(1)
    other = Call(lambda: store.write(add(2)))
    queue.joined(1)
    gate.open()
    leader.result()
    with pytest.raises(KeyboardInterrupt):
        heir.result()
    other.result()
    store.write(add(3))
    assert numbers(store) == [0, 2, 3]


class InterruptedAtOnce(threading.Event):
    """Is interrupted before it is woken."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - an Event's signature
        raise KeyboardInterrupt


def test_an_interrupt_of_a_caller_that_waits_takes_its_unit_back(store: SqliteStore) -> None:
    gate = Gate()
    leader = lead(store, gate)
    unit = Unit(add(1))
    unit.wake = InterruptedAtOnce()
    with pytest.raises(KeyboardInterrupt):
        store.writer.run(unit)
    gate.open()
    leader.result()
    store.write(add(2))
    assert numbers(store) == [0, 2]


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_caller_waits_for_the_writer_for_a_bounded_time(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.01)
    gate = Gate()
    leader = lead(store, gate)
    with pytest.raises(Busy, match="nothing was written"):
        store.write(add(1))
    gate.open()
    leader.result()
    assert numbers(store) == [0]


def test_a_lock_of_another_process_is_waited_for_and_then_told(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db", busy_timeout=20)
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(Busy, match="stayed locked by another connection"):
            store.write(add(1))
        other.execute("rollback")
    store.write(add(2))
    assert numbers(store) == [2]
    store.close()


# --- the end ---------------------------------------------------------------------------------------------------------


def test_closing_lets_those_who_wait_finish_and_refuses_those_who_come(store: SqliteStore) -> None:
    gate, queue = Gate(), watch_queue(store)
    leader = lead(store, gate)
    waiting = Call(lambda: store.write(add(1)))
    queue.joined(1)
    closing_call = Call(store.close)
    queue.joined(1)
    with pytest.raises(StoreClosed):
        store.write(add(2))
    gate.open()
    for call in (leader, waiting, closing_call):
        call.result()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("select n from t order by n").fetchall() == [(0,), (1,)]


def test_closing_twice_and_from_two_threads_is_harmless(store: SqliteStore) -> None:
    gate = Gate()
    leader = lead(store, gate)
    closers = [Call(store.close) for _ in range(4)]
    gate.open()
    for call in (leader, *closers):
        call.result()
    store.close()


@pytest.mark.parametrize("use", ["write", "write_alone", "read"])
def test_use_after_close_is_refused(store: SqliteStore, use: str) -> None:
    store.close()
    with pytest.raises(StoreClosed, match="Open a new one"):
        getattr(store, use)(add(1))


def test_closing_leaves_one_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    numbers(store)
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["t.db"]


# --- COMMIT ----------------------------------------------------------------------------------------------------------


class Lossy(sqlite3.Connection):
    """Reports an error for the next COMMIT; `takes_effect` says what became of it."""

    takes_effect = True
    armed = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "commit" and self.armed:
            self.armed = False
            if self.takes_effect:
                super().execute(sql, parameters)
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[tuple[Lossy, Writer]]:
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None, check_same_thread=False, factory=Lossy)
    connection.execute("create table t (n integer)")
    writer = Writer(lambda: connection, Runner(path="t.db"), Turns(None))
    yield connection, writer
    writer.close()


@pytest.mark.parametrize(("takes_effect", "error"), [(True, CommitUnknown), (False, StoreUnavailable)])
def test_an_error_of_commit_is_unknown_unless_the_transaction_is_still_open(
    lossy: tuple[Lossy, Writer], *, takes_effect: bool, error: type[Exception]
) -> None:
    connection, writer = lossy
    connection.takes_effect, connection.armed = takes_effect, True
    with pytest.raises(error):
        writer.run(Unit(add(1)))
    writer.run(Unit(add(2)))
    assert writer.run(Unit(sql("select n from t"))) == [{"n": n} for n in ((1, 2) if takes_effect else (2,))]


# --- a statement that stands alone -----------------------------------------------------------------------------------

INSERT = "insert into t values (:n) on conflict do nothing"
ADD = {
    "add": Statement("add", "Add a number.", f"{INSERT} returning n"),
    "tell": Statement("tell", "Add a number and tell when.", INSERT, tells=True),
}


def tell_alone(n: int) -> Maker[Row | None]:
    return lambda: lone_row("tell", n=n)


def add_alone(n: int) -> Maker[list[Row]]:
    """Return a script that adds a number by itself, or reads all of them if it was there."""

    def script() -> Script[list[Row]]:
        if (row := (yield from lone_row("add", n=n))) is not None:
            return [row]
        rows: list[Row] = yield Ddl("select n from t order by n")
        return rows

    return script


class Torn(sqlite3.Connection):
    """Reports an error when the rows of a statement are fetched, which is when one that stands alone commits."""

    armed: type[sqlite3.Cursor] | None = None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(self.armed or factory or sqlite3.Cursor)


class TornCursor(sqlite3.Cursor):
    def fetchall(self) -> list[Any]:
        super().fetchall()
        raise sqlite3.OperationalError("disk I/O error")


class TornAtOnce(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        super().execute(sql, parameters)
        raise sqlite3.OperationalError("disk I/O error")


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[tuple[Torn, Writer]]:
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None, check_same_thread=False, factory=Torn)
    connection.execute("create table t (n integer unique check (n > 0))")
    writer = Writer(lambda: connection, Runner(path="t.db", statements=ADD), Turns(None))
    yield connection, writer
    writer.close()


def test_a_statement_that_stands_alone_has_no_transaction_around_it(torn: tuple[Torn, Writer]) -> None:
    connection, writer = torn
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    assert writer.run(Unit(add_alone(1))) == [{"n": 1}]
    assert [text.split()[0] for text in seen] == ["insert"]
    assert not connection.in_transaction


def test_one_that_wrote_nothing_is_followed_by_a_transaction(torn: tuple[Torn, Writer]) -> None:
    connection, writer = torn
    writer.run(Unit(add_alone(1)))
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    assert writer.run(Unit(add_alone(1))) == [{"n": 1}]
    assert [text.split()[0] for text in seen] == ["insert", "begin", "select", "commit"]


def test_an_error_of_its_commit_is_unknown_and_any_other_wrote_nothing(torn: tuple[Torn, Writer]) -> None:
    connection, writer = torn
    with pytest.raises(ConstraintViolated):
        writer.run(Unit(add_alone(-1)))
    connection.armed = TornCursor
    with pytest.raises(CommitUnknown):
        writer.run(Unit(add_alone(1)))
    connection.armed = None
    assert writer.run(Unit(sql("select n from t"))) == [{"n": 1}]


def test_one_that_returns_no_rows_tells_the_time_if_it_wrote(torn: tuple[Torn, Writer]) -> None:
    told = torn[1].run(Unit(tell_alone(1)))
    assert list(told) == ["now"]
    assert torn[1].run(Unit(tell_alone(1))) is None


def test_an_error_of_one_that_returns_no_rows_is_unknown_unless_it_says_that_nothing_was_written(
    torn: tuple[Torn, Writer],
) -> None:
    connection, writer = torn
    with pytest.raises(ConstraintViolated):
        writer.run(Unit(tell_alone(-1)))
    connection.armed = TornAtOnce
    with pytest.raises(CommitUnknown):
        writer.run(Unit(tell_alone(1)))
    connection.armed = None
    assert writer.run(Unit(sql("select n from t"))) == [{"n": 1}]


def test_a_lock_that_stays_is_told_as_such_to_one_that_stands_alone(torn: tuple[Torn, Writer], tmp_path: Path) -> None:
    torn[0].execute("pragma busy_timeout=10")
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        for alone in (add_alone, tell_alone):
            with pytest.raises(Busy):
                torn[1].run(Unit(alone(1)))


def test_it_does_not_join_a_transaction_that_was_left_open(torn: tuple[Torn, Writer]) -> None:
    connection, writer = torn
    connection.execute("begin immediate")
    connection.execute("insert into t values (7)")
    writer.run(Unit(add_alone(1)))
    assert not connection.in_transaction
    assert writer.run(Unit(sql("select n from t"))) == [{"n": 1}]


def test_several_share_a_transaction(tmp_path: Path) -> None:
    commits, gate = Commits(), Gate()
    store = open_store(tmp_path / "t.db", commits)
    store.writer = Writer(store._connect, Runner(path="t.db", statements=ADD, probe=commits), Turns(None))
    queue = watch_queue(store)
    commits.count = 0
    leader = lead(store, gate)
    calls = [Call(partial(store.write, add_alone(n))) for n in (1, 2)]
    queue.joined(2)
    gate.open()
    assert [call.result() for call in (leader, *calls)] == [[], [{"n": 1}], [{"n": 2}]]
    assert commits.count == 2
    store.close()


def test_a_script_may_not_go_on_after_its_row(torn: tuple[Torn, Writer]) -> None:
    def script() -> Script[None]:
        yield from lone_row("add", n=1)
        yield Ddl("delete from t")

    with pytest.raises(AssertionError, match="went on"):
        torn[1].run(Unit(script))
