"""The writer for callers on event loops: cancelled callers, closed loops and second loops do not hurt it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil.drivers.sqlite_async import AsyncSqliteStore, LeasedConnection, on_loop
from counterfoil.errors import ConstraintViolated, GuardedTransaction, StoreClosed
from counterfoil.storage.script import Script, user_code
from tests.drivers.scripts import SECONDS, Commits, Gate, add, during, numbers, open_store, sql, watch_queue


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
async def store(tmp_path: Path, commits: Commits) -> AsyncIterator[AsyncSqliteStore]:
    opened = AsyncSqliteStore(open_store(tmp_path / "t.db", commits))
    commits.count = 0
    yield opened
    await opened.close()


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, SECONDS)


async def read(store: AsyncSqliteStore) -> list[int]:
    return [row["n"] for row in await store.read(sql("select n from t order by n"))]


async def test_a_script_commits_and_returns(store: AsyncSqliteStore, commits: Commits) -> None:
    assert await store.write(sql("insert into t values (1) returning n")) == [{"n": 1}]
    assert await read(store) == [1]
    assert commits.count == 1


async def test_an_error_reaches_its_caller_alone(store: AsyncSqliteStore) -> None:
    results = await asyncio.gather(*(store.write(add(n)) for n in (1, 1, 2)), return_exceptions=True)
    assert [type(result) for result in results] == [list, ConstraintViolated, list]
    assert await read(store) == [1, 2]


async def test_callers_of_one_loop_share_commits(store: AsyncSqliteStore, commits: Commits) -> None:
    gate, queue = Gate(), watch_queue(store.store)
    first = asyncio.create_task(store.write(during(gate, add(0))))
    await reached(gate)
    others = [asyncio.create_task(store.write(add(n))) for n in range(1, 32)]
    await asyncio.to_thread(queue.joined, 32)
    gate.open()
    await asyncio.gather(first, *others)
    assert await read(store) == list(range(32))
    assert commits.count == 2


async def test_both_colours_share_the_writer(store: AsyncSqliteStore, commits: Commits) -> None:
    gate, queue = Gate(), watch_queue(store.store)
    first = asyncio.create_task(store.write(during(gate, add(0))))
    await reached(gate)
    blocking = [asyncio.create_task(asyncio.to_thread(store.store.write, add(n))) for n in (1, 2)]
    awaiting = asyncio.create_task(store.write(add(3)))
    await asyncio.to_thread(queue.joined, 4)
    gate.open()
    await asyncio.gather(first, awaiting, *blocking)
    assert await read(store) == [0, 1, 2, 3]
    assert commits.count == 2


async def test_a_caller_cancelled_before_its_turn_takes_its_unit_back(store: AsyncSqliteStore) -> None:
    gate = Gate()
    first = asyncio.create_task(store.write(during(gate, add(0))))
    await reached(gate)
    second = asyncio.create_task(store.write(add(1)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.open()
    await first
    await store.write(add(2))
    assert await read(store) == [0, 2]


async def test_a_caller_cancelled_in_its_transaction_waits_for_its_end(store: AsyncSqliteStore) -> None:
    gate = Gate()
    task = asyncio.create_task(store.write(during(gate, add(0))))
    await reached(gate)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.write(add(1))
    assert await read(store) == [0, 1]


def test_a_loop_that_closes_meanwhile_does_not_hurt_the_writer(tmp_path: Path) -> None:
    blocking = open_store(tmp_path / "t.db")
    store = AsyncSqliteStore(blocking)
    gate = Gate()
    loop = asyncio.new_event_loop()
    task = loop.create_task(store.write(during(gate, add(0))))
    loop.run_until_complete(reached(gate))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    gate.open()
    blocking.write(add(1))
    assert numbers(blocking) == [0, 1]
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task.get_coro().close()
    asyncio.run(store.close())


def test_a_second_loop_may_use_it_and_so_may_two_at_once(tmp_path: Path) -> None:
    store = AsyncSqliteStore(open_store(tmp_path / "t.db"))

    async def work(first: int) -> None:
        await asyncio.gather(*(store.write(add(n)) for n in range(first, first + 20)))

    asyncio.run(work(0))
    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in (20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert asyncio.run(read(store)) == list(range(60))
    asyncio.run(store.close())


async def test_memory_reads_go_through_the_writer() -> None:
    store = AsyncSqliteStore(open_store(":memory:"))
    await asyncio.gather(*(store.write(add(n)) for n in range(8)))
    assert await read(store) == list(range(8))
    await store.close()


async def test_closing_twice_is_harmless_and_use_after_close_refused(store: AsyncSqliteStore) -> None:
    await store.close()
    await store.close()
    for use in (store.read, store.write, store.write_alone):
        with pytest.raises(StoreClosed):
            await use(add(1))


# --- the transaction as a loan ---------------------------------------------------------------------------------------


def lent(loop: asyncio.AbstractEventLoop, effect: Any) -> Any:
    function = on_loop(loop, effect)

    def script() -> Script[Any]:
        return (yield from user_code(function))

    return script


async def test_an_async_body_works_in_the_transaction_and_stays_on_its_loop(store: AsyncSqliteStore) -> None:
    threads = []

    async def effect(tx: LeasedConnection) -> list[Any]:
        threads.append(threading.current_thread())
        assert await tx.executemany("insert into t values (?)", [(1,), (2,)]) == 2
        return await tx.execute("select sum(n) from t")

    done = await store.write_alone(lent(asyncio.get_running_loop(), effect))
    assert done == [(3,)]
    assert threads == [threading.current_thread()]
    assert await read(store) == [1, 2]


async def test_an_async_body_that_fails_undoes_its_rows(store: AsyncSqliteStore) -> None:
    async def effect(tx: LeasedConnection) -> None:
        await tx.execute("insert into t values (1)")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.write_alone(lent(asyncio.get_running_loop(), effect))
    assert await read(store) == []


@pytest.mark.parametrize("statement", ["commit", "rollback", "begin"])
async def test_an_async_body_cannot_end_its_transaction(store: AsyncSqliteStore, statement: str) -> None:
    async def effect(tx: LeasedConnection) -> None:
        await tx.execute(statement)

    with pytest.raises(GuardedTransaction):
        await store.write_alone(lent(asyncio.get_running_loop(), effect))


async def test_the_loan_ends_with_the_body(store: AsyncSqliteStore) -> None:
    kept = []

    async def effect(tx: LeasedConnection) -> None:
        kept.append(tx)

    await store.write_alone(lent(asyncio.get_running_loop(), effect))
    with pytest.raises(GuardedTransaction, match="after it had returned"):
        await asyncio.wait_for(kept[0].execute("select 1"), SECONDS)


async def test_a_body_may_refuse_everything_else_in_the_guards_words(store: AsyncSqliteStore) -> None:
    async def effect(tx: LeasedConnection) -> None:
        tx.commit()

    with pytest.raises(GuardedTransaction, match="'commit'"):
        await store.write_alone(lent(asyncio.get_running_loop(), effect))


def test_a_loop_that_closes_under_an_async_body_gives_the_writer_back(tmp_path: Path) -> None:
    blocking = open_store(tmp_path / "t.db")
    store = AsyncSqliteStore(blocking)
    loop = asyncio.new_event_loop()
    begun = asyncio.Event()

    async def effect(tx: LeasedConnection) -> None:
        await tx.execute("insert into t values (1)")
        begun.set()
        await asyncio.Event().wait()

    task = loop.create_task(store.write_alone(lent(loop, effect)))
    loop.run_until_complete(asyncio.wait_for(begun.wait(), SECONDS))
    pending = asyncio.all_tasks(loop)
    loop.close()
    blocking.write(add(2))
    assert numbers(blocking) == [2]
    for left in {task, *pending}:
        left._log_destroy_pending = False  # type: ignore[attr-defined]
        left.get_coro().close()
    asyncio.run(store.close())
