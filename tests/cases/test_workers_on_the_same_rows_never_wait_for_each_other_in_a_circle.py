"""B48: two workers updated the same rows in different orders, and the database ended one of them as a deadlock.

Sources: https://github.com/openobserve/openobserve/pull/13487, https://github.com/aikirun/aiki/pull/196,
https://github.com/zulip/zulip/issues/19054
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil import Counterfoil, Delivery, Effect, NotSent, effect
from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import VerdictConflict
from counterfoil.model import OperationKey
from counterfoil.storage.scripts import outbox, reconciling
from counterfoil.storage.scripts.claims import granted_by
from counterfoil.storage.scripts.moves import Outcome
from tests.stores import execute, is_postgres

ROWS, WORKERS, SECONDS = 500, 4, 4.0
IDS = [f"row/{number:03}" for number in range(ROWS)]
sent: Counter[str] = Counter()
guard = threading.Lock()


def post(call: Any, *, number: str) -> str:
    with guard:
        sent[call.operation_id] += 1
        tries = sent[call.operation_id]
    if tries % 3:
        raise NotSent("busy")
    return number


marked: Effect[str] = effect("cases.marked", key="row/{number}", delivery=Delivery(max_attempts=2))(post)


def deadlocks(url: str) -> int:
    if not is_postgres(url):
        return 0
    ((found,),) = execute(url, "select deadlocks from pg_stat_database where datname = current_database()")
    return int(found)


def enqueue(cf: Counterfoil, **terms: Any) -> None:
    rows = [{"number": f"{number:03}"} for number in range(ROWS)]
    cf.enqueue_all(marked, rows, tenant="t", delivery=Delivery(**terms) if terms else None)


def together(url: str, *works: Callable[[Counterfoil], None], seconds: float = SECONDS) -> list[BaseException]:
    """Do each work again and again, each with connections of its own, and return what was raised."""
    raised, until = list[BaseException](), time.monotonic() + seconds

    def go_on(work: Callable[[Counterfoil], None]) -> None:
        try:
            with Counterfoil.open(url) as cf:
                while time.monotonic() < until and not raised:
                    work(cf)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    threads = [threading.Thread(target=go_on, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def settle(cf: Counterfoil) -> None:
    cf.drain(marked, batch=100)


def requeue(cf: Counterfoil) -> None:
    parked = [one.operation_id for one in cf.outbox.list(tenant="t", state="parked", limit=ROWS).items]
    random.shuffle(parked)
    for operation_id in parked:
        try:
            cf.outbox.requeue(operation_id, tenant="t", by="ann", reason="again", attempts=2)
        except VerdictConflict:
            """Another worker was first."""


def expire(cf: Counterfoil) -> None:
    cf.desk.store.write(lambda: reconciling.expire(ROWS))


@pytest.mark.slow
def test_settling_requeueing_and_expiring_the_same_rows_meet_no_deadlock(url: str) -> None:
    sent.clear()
    with Counterfoil.open(url) as cf:
        enqueue(cf, max_attempts=2, time_to_live="3s")
    assert together(url, settle, settle, requeue, expire) == []
    assert deadlocks(url) == 0
    with Counterfoil.open(url) as cf:
        assert cf.operations.counts(tenant="t")["in_flight"] == cf.operations.counts(tenant="t")["unknown"] == 0
        for one in cf.outbox.list(tenant="t", state="succeeded", limit=ROWS).items:
            assert sent[one.operation_id] == 3
            assert cf.operations.get(one.operation_id, tenant="t").receipt is not None
    assert max(sent.values()) <= 3


@pytest.mark.slow
def test_batches_that_end_in_any_order_are_recorded_in_one_order(url: str) -> None:
    """Two workers hold claims on the same rows, one by one late, and record them from opposite ends."""
    with Counterfoil.open(url) as cf:
        enqueue(cf)
        lane = outbox.Lane(effect=marked.name, effect_version=1, limit=ROWS)
        turn = cf.desk.store.write(lambda: outbox.turn((), [lane], "elsewhere@0-0:1:1:aa/d1"))
        ended = [
            outbox.Finished(
                request=cf.desk.stored_job(marked, row).request,
                granted=granted_by(row),
                outcome=Outcome(outcome=AttemptOutcome.NOT_SENT),
            )
            for row in turn.claimed
        ]

    def record(some: Counterfoil) -> None:
        mine = random.sample(ended, 100)
        ordered = sorted(mine, key=lambda one: (one.request.key.tenant, one.request.key.operation_id))
        some.desk.store.write(lambda: outbox.turn(ordered, (), ""))

    assert together(url, *[record] * WORKERS, seconds=4.0) == []
    assert deadlocks(url) == 0


def test_rows_that_expire_are_taken_in_the_order_of_their_ids(url: str) -> None:
    with Counterfoil.open(url) as cf:
        for number in (3, 1, 2):
            cf.enqueue(marked, tenant="t", number=f"{number:03}", delivery=Delivery(time_to_live="1ms"))
        time.sleep(0.01)
        ended = cf.desk.store.write(lambda: reconciling.expire(10))
    assert [row["operation_id"] for row in ended] == IDS[1:4]


def test_a_deadlock_that_the_database_reports_is_done_again_without_another_effect(url: str) -> None:
    if not is_postgres(url):
        pytest.skip("SQLite has one writer")
    sent.clear()
    with Counterfoil.open(url) as cf:
        cf.enqueue(marked, tenant="t", number="001")
        cf.enqueue(marked, tenant="t", number="002")
        first, second = (OperationKey(tenant="t", operation_id=IDS[number]) for number in (1, 2))
        met = threading.Barrier(2)

        def lock(*keys: OperationKey) -> Any:
            from counterfoil.storage.scripts.moves import existing

            def script() -> Any:
                yield from existing(keys[0])
                if not met.broken:
                    try:
                        met.wait(5)
                    except threading.BrokenBarrierError:
                        """The second try needs no partner."""
                yield from existing(keys[1])

            cf.desk.store.write(script)
            met.abort()

        threads = [threading.Thread(target=lock, args=keys) for keys in ((first, second), (second, first))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        cf.drain(marked)
    assert sent == {IDS[1]: 1, IDS[2]: 1}
