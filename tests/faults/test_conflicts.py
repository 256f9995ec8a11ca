"""Transactions that the server undoes for others' sake, and locks that others hold: the effect is not touched by it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from counterfoil import NotSent, Provider
from counterfoil.drivers.probes import Point
from counterfoil.errors import Busy, EffectNotSent, OutcomeNotStored, OutcomeUnknown, Retry
from tests.conformance.subject import ASYNC, Background, Gate
from tests.faults.subject import Wired, wired
from tests.postgres.databases import Database

WAITING = """
from pg_locks lock join pg_stat_activity session using (pid)
where not lock.granted and session.datname = current_database()
"""
FAILURES = {"serialization_failure": "40001", "deadlock_detected": "40P01"}
TRIGGER = """
create sequence failures;
create function fail() returns trigger language plpgsql as $$
begin
    if nextval('failures') <= {times} then
        raise exception 'undone for others'' sake' using errcode = '{state}';
    end if;
    return new;
end $$;
create {kind} trigger failing after insert or update on {table} {when} for each row execute function fail()
"""


def failing(database: Database, table: str, state: str, *, times: int, late: bool = False) -> None:
    """Let the server undo the next transactions that write a table: at the statement, or at their COMMIT."""
    kind, when = ("constraint", "deferrable initially deferred") if late else ("", "")
    database.execute(TRIGGER.format(table=table, state=state, times=times, kind=kind, when=when))


@pytest.fixture
def own(fresh_database: Database, colour: str, tmp_path: Path) -> Iterator[Wired]:
    made = wired(fresh_database.url, colour, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("state", FAILURES.values(), ids=FAILURES)
def test_the_database_s_part_is_done_again(own: Wired, fresh_database: Database, state: str, late: bool) -> None:  # noqa: FBT001 - a parameter of the test
    failing(fresh_database, "counterfoil_operation", state, times=3, late=late)
    create, refuse = own.ticket(), own.ticket(not_sent)
    assert own.perform(create, title="a").value["id"] == 1
    with pytest.raises(EffectNotSent):
        own.perform(refuse, request_id="r-2", title="b")
    assert len(own.sent) == 2
    assert fresh_database.execute("select last_value > 3 from failures") == [(True,)]


def not_sent() -> None:
    raise NotSent


@pytest.mark.parametrize("state", FAILURES.values(), ids=FAILURES)
def test_one_that_never_succeeds_is_busy_and_nothing_was_sent(own: Wired, fresh_database: Database, state: str) -> None:
    failing(fresh_database, "counterfoil_operation", state, times=10**6)
    with pytest.raises(Busy) as caught:
        own.perform(own.ticket(), title="a")
    assert (caught.value.retry, len(own.sent), own.rows("operation")) == (Retry.SAFE, 0, [])


def test_user_code_in_a_transaction_is_not_run_again(own: Wired, fresh_database: Database) -> None:
    failing(fresh_database, "counterfoil_operation", "40001", times=1, late=True)
    began: list[str] = []

    def blocking(tx: Any, *, title: str) -> str:
        began.append(title)
        return title

    async def awaiting(tx: Any, *, title: str) -> str:
        began.append(title)
        return title

    book = own.effect(awaiting if own.colour == ASYNC else blocking, provider=Provider.transactional())
    with pytest.raises(Busy):
        own.perform(book, title="a")
    assert (began, own.rows("operation")) == (["a"], [])
    assert own.perform(book, title="a").value == "a"


def test_a_database_whose_default_is_serializable(fresh_database: Database, colour: str, tmp_path: Path) -> None:
    fresh_database.execute(f"alter database {fresh_database.name} set default_transaction_isolation to 'serializable'")
    subject = wired(fresh_database.url, colour, tmp_path, wait="20s")
    create = subject.ticket()
    done = subject.at_once(lambda: subject.perform(create, title="a").value["id"], 12)
    assert done == [1] * 12
    assert (len(subject.sent), subject.attempts()) == (1, ["succeeded"])
    subject.close()


def test_a_real_deadlock(own: Wired, fresh_database: Database) -> None:
    """Another session locks a case and then its operation; we lock them the other way round, and are the victim."""
    # The server undoes who waits and looks for a circle: we do so at once, the other one never.
    fresh_database.execute(f"alter database {fresh_database.name} set deadlock_timeout to '20ms'")
    own.forget_connections()

    def end() -> None:
        raise OSError

    with pytest.raises(OutcomeUnknown):
        own.perform(own.ticket(end), title="a")
    (case,) = own.rows("case")
    given = {"verdict": "happened", "by": "ann", "evidence": "seen", "expect_version": case["version"]}
    runs: list[str] = []

    def meet(point: Point, name: str) -> None:
        if (point, name) == (Point.BEFORE_STATEMENT, "resolve_case_if_unmoved"):
            runs.append(name)
            if len(runs) == 1:
                other_asks.append(Background(lambda: other.execute("select * from counterfoil_operation for update")))
                wait_until(fresh_database, f"select count(*) = 1 {WAITING}")

    other_asks: list[Background] = []
    with psycopg.connect(fresh_database.url) as other, own.probe.during(meet):
        other.execute("set deadlock_timeout to '1h'")
        other.execute("select * from counterfoil_case for update")
        person = Background(lambda: own.settle(own.cf.review.resolve(f"case-{case['seq']}", tenant="team-a", **given)))
        until_true(lambda: other_asks)
        other_asks[0].result()  # it has both locks: ours was undone
        other.commit()
        assert person.result().state == "resolved"
    assert len(runs) >= 2
    assert (len(own.sent), own.state, own.evidence()) == (1, "succeeded", ["verdict"])


def until_true(question: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not question():
        assert time.monotonic() < until, "it never became true"


def wait_until(database: Database, question: str) -> None:
    until_true(lambda: database.execute(question) == [(True,)])


@contextmanager
def locked(database: Database) -> Iterator[None]:
    """Let another session hold the rows of all operations."""
    with psycopg.connect(database.url) as other:
        other.execute("select * from counterfoil_operation for update")
        yield


@pytest.mark.usefixtures("impatient")
def test_a_row_that_another_session_holds(subject: Wired, postgres_database: Database) -> None:
    refuse = subject.ticket(not_sent)
    with pytest.raises(EffectNotSent):
        subject.perform(refuse, title="a")
    before = subject.operation
    with locked(postgres_database), pytest.raises(Busy, match=r"cf\.join"):
        subject.perform(refuse, title="a")
    assert (len(subject.sent), subject.operation) == (1, before)
    with pytest.raises(EffectNotSent):
        subject.perform(refuse, title="a")
    assert subject.attempts() == ["not_sent", "not_sent"]


@pytest.mark.usefixtures("impatient")
def test_an_outcome_whose_row_another_session_holds(subject: Wired, postgres_database: Database) -> None:
    """It waits, three times; what it knows by then is handed out, and settled by whoever comes after the lease."""
    gate = Gate()
    create = subject.ticket(gate)
    worker = Background(lambda: subject.perform(create, title="a"))
    gate.wait()
    with locked(postgres_database):
        gate.open()
        with pytest.raises(OutcomeNotStored) as caught:
            worker.result()
    assert caught.value.facts["result"] == {"id": 1, "title": "a"}
    assert "could not be stored (store-busy: " in str(caught.value)
    assert "othing was written" not in str(caught.value), "the effect ended: that is no harmless failure"
    assert isinstance(caught.value.__cause__, Busy)
    assert (len(subject.sent), subject.state) == (1, "in_flight")


def test_a_shorter_limit_of_the_user_s_own_holds(postgres_database: Database, colour: str, tmp_path: Path) -> None:
    options = "options=-c%20statement_timeout%3D150%20-c%20lock_timeout%3D1h"
    subject = wired(f"{postgres_database.url}?{options}", colour, tmp_path)
    refuse = subject.ticket(not_sent)
    with pytest.raises(EffectNotSent):
        subject.perform(refuse, title="a")
    began = time.monotonic()
    with locked(postgres_database), pytest.raises(Busy):
        subject.perform(refuse, title="a")
    assert time.monotonic() - began < 5
    assert len(subject.sent) == 1
    subject.close()


def test_what_a_statement_is_cancelled_by_does_not_matter(subject: Wired, postgres_database: Database) -> None:
    """As by an administrator's pg_cancel_backend: nothing of it was written, and nothing is sent."""
    refuse = subject.ticket(not_sent)
    with pytest.raises(EffectNotSent):
        subject.perform(refuse, title="a")
    with locked(postgres_database):
        worker = Background(lambda: subject.perform(refuse, title="a"))
        wait_until(postgres_database, f"select count(*) > 0 {WAITING}")
        postgres_database.execute(f"select pg_cancel_backend(pid) {WAITING}")
        with pytest.raises(Busy):
            worker.result()
    assert len(subject.sent) == 1
