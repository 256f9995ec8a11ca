"""B73: setup failed when the column was there already, when several replicas ran it at once, or in a transaction.

Sources: https://github.com/langchain-ai/langgraph/issues/6356, https://github.com/langchain-ai/langgraph/issues/7630

Every crash point of making and upgrading it is in tests/storage/test_replicas.py.
"""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest

import counterfoil
from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.drivers.urls import parse_url
from counterfoil.errors import ForeignTransaction
from counterfoil.storage import migrator
from counterfoil.storage.migrator import migrations
from tests import children
from tests.storage.conftest import Place
from tests.storage.opener import newer
from tests.storage.test_replicas import ended, let_go, started

NOW = [one.number for one in migrations("sqlite")]
OPERATIONS = 5


@effect("cases.kept", key="{request_id}/kept")
def keep(call: Any) -> str:
    return "kept"


def fill(url: str) -> None:
    with Counterfoil.open(url) as cf:
        for number in range(OPERATIONS):
            cf.perform(keep, tenant="t", request_id=f"r-{number}")


def counts(place: Place) -> dict[str, int]:
    """Count the rows of each table that holds what users did."""
    tables = ("operation", "attempt", "evidence", "case", "thread", "checkpoint")
    return {name: int(place.execute(f"select count(*) from counterfoil_{name}")[0][0]) for name in tables}  # noqa: S608 - ours


def check_upgraded(place: Place, before: dict[str, int]) -> None:
    assert place.applied() == [*NOW, NOW[-1] + 1]
    assert counts(place) == before
    assert place.execute("select count(*) from counterfoil_added") == [(0,)]


@contextmanager
def transaction(place: Place) -> Iterator[Any]:
    if place.database is not None:
        with closing(psycopg.connect(place.url)) as connection:
            yield connection
    else:
        with closing(sqlite3.connect(parse_url(place.url).path)) as lite:
            yield lite


@pytest.mark.slow
def test_eight_processes_make_it_and_one_is_killed_in_the_middle(place: Place) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(started(place, "this", said="ready")) for _ in range(7)]
        first = stack.enter_context(started(place, "this", "pause", said="here"))
        let_go(others)
        first.kill()
        assert ended([first, *others]) == [(-signal.SIGKILL, "")] + [(0, "")] * 7
    assert place.applied() == NOW
    fill(place.url)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_eight_processes_upgrade_the_previous_version_and_no_row_is_lost(place: Place, killed: int) -> None:
    fill(place.url)
    before = counts(place)
    assert before["operation"] == OPERATIONS
    with ExitStack() as stack:
        others = [stack.enter_context(started(place, "newer", said="ready")) for _ in range(8 - killed)]
        dying = [stack.enter_context(started(place, "newer", "pause", said="here")) for _ in range(killed)]
        let_go(others)
        for process in dying:
            process.kill()
        assert ended([*dying, *others]) == [(-signal.SIGKILL, "")] * killed + [(0, "")] * len(others)
    check_upgraded(place, before)


def test_threads_and_tasks_of_one_process_open_it_at_once(place: Place) -> None:
    def blocking(_: int) -> None:
        Counterfoil.open(place.url).close()

    async def awaiting() -> None:
        opened = AsyncCounterfoil.open(place.url)
        await opened.perform(keep_async, tenant="t", request_id="r")
        await opened.close()

    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(blocking, number) for number in range(6)]
        made += [pool.submit(lambda: asyncio.run(awaiting())) for _ in range(2)]
        for one in made:
            one.result(60)
    assert place.applied() == NOW
    assert counts(place)["operation"] == 1


@effect("cases.kept-async", key="{request_id}/kept-async")
async def keep_async(call: Any) -> str:
    return "kept"


@pytest.mark.slow
def test_eight_command_lines_upgrade_at_once_and_each_says_it_is_done(place: Place) -> None:
    words = [sys.executable, "-m", "counterfoil", "db", "upgrade", "--url", place.url]
    running = [children.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    told = [process.communicate(timeout=60) for process in running]
    assert [(process.returncode, errors) for process, (_, errors) in zip(running, told, strict=True)] == [(0, "")] * 8
    assert place.applied() == NOW


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_in_a_transaction_of_the_callers_it_shares_its_fate(place: Place, ending: str) -> None:
    with transaction(place) as connection:
        connection.execute("create table mine (n integer)")
        counterfoil.migrate(connection)
        connection.execute("insert into mine values (1)")
        getattr(connection, ending)()
    assert bool(place.ours()) == (ending == "commit")
    Counterfoil.open(place.url).close()
    assert place.applied() == NOW


def test_an_upgrade_in_a_transaction_of_the_callers_keeps_all_rows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place.url)
    before = counts(place)
    for name, value in newer(place.dialect).items():
        monkeypatch.setattr(migrator, name, value)
    with transaction(place) as connection:
        connection.execute("begin") if place.database is None else None
        assert counterfoil.migrate(connection) == (f"{NOW[-1] + 1:04} added",)
        connection.commit()
    check_upgraded(place, before)


def test_opening_beside_a_transaction_that_made_it_waits_or_says_why(place: Place) -> None:
    with transaction(place) as connection:
        counterfoil.migrate(connection)
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(lambda: Counterfoil.open(place.url).close())
            connection.commit()
            beside.result(60)
    assert place.applied() == NOW


def test_where_no_transaction_is_open_the_line_to_write_is_told(place: Place) -> None:
    with transaction(place) as connection:
        if place.database is not None:
            connection.autocommit = True
        else:
            connection.isolation_level = None
        with pytest.raises(ForeignTransaction):
            counterfoil.migrate(connection)
    assert place.ours() == []
