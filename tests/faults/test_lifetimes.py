"""Forks, event loops that end, closing while calls are under way; and that nothing is held while user code runs."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from counterfoil import AsyncCounterfoil, EffectCall, effect
from counterfoil.errors import StoreClosed
from tests.conformance.subject import SYNC, Background, Gate
from tests.faults.subject import Wired
from tests.faults.test_conflicts import until_true
from tests.postgres.databases import Database

ROOT = Path(__file__).parents[2]

SESSIONS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
HELD = """select state, query from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'
  and backend_type = 'client backend'"""
ADVISORY = """select count(*) from pg_locks lock join pg_stat_activity session using (pid)
where lock.locktype = 'advisory' and session.datname = current_database()"""


@effect("faults.note", key="{request_id}/note")
def note(call: EffectCall) -> str:
    return "noted"


@effect("faults.anote", key="{request_id}/note")
async def anote(call: EffectCall) -> str:
    return "noted"


# --- what is held while user code runs -------------------------------------------------------------------------------


def test_nothing_is_held_while_an_effect_runs(subject: Wired, postgres_database: Database) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((postgres_database.execute(HELD), postgres_database.execute(ADVISORY), subject_lent()))

    def subject_lent() -> int:
        return int(subject.cf.desk.store.lender.shelf.lent)

    subject.perform(subject.ticket(look), title="a")
    assert seen == [([], [(0,)], 0)]


class State(TypedDict, total=False):
    said: str


def test_nothing_is_held_while_a_model_thinks_in_a_node(subject: Wired, postgres_database: Database) -> None:
    seen: list[Any] = []

    def think(state: State) -> Any:
        # LangGraph may still be writing what came in, beside the node
        until_true(lambda: postgres_database.execute(HELD) == [])
        seen.append(postgres_database.execute(ADVISORY))
        return {"said": "hello"}

    async def athink(state: State) -> Any:
        return await asyncio.to_thread(think, state)

    builder = StateGraph(State)
    builder.add_node("think", think if subject.colour == SYNC else athink)
    builder.add_edge(START, "think")
    builder.add_edge("think", END)
    graph = subject.cf.compile(builder)
    assert subject.settle(subject.cf.run(graph, {}, tenant="team-a", thread_id="t-1")) == {"said": "hello"}
    assert seen == [[(0,)]]


# --- closing ---------------------------------------------------------------------------------------------------------


def test_closing_waits_for_what_is_under_way_and_ends_all_sessions(subject: Wired, postgres_database: Database) -> None:
    gate = Gate()
    create, other = subject.ticket(gate), subject.open()
    worker = Background(lambda: subject.perform(create, cf=other, title="a"))
    gate.wait()
    closing = Background(lambda: subject.settle(other.close()))
    gate.open()
    assert worker.result().value["id"] == 1
    closing.result()
    with pytest.raises(StoreClosed):
        subject.perform(create, cf=other, title="a")
    subject.settle(other.close())  # twice is harmless
    assert (subject.state, subject.attempts()) == ("succeeded", ["succeeded"])


def test_whoever_waits_for_a_connection_when_it_is_closed_is_told(subject: Wired) -> None:
    narrow, create = subject.open(connections=1), subject.ticket()
    with subject.holding(narrow):
        waiting = Background(lambda: subject.perform(create, cf=narrow, title="a"))
        shelf = subject.shelf(narrow)
        while not shelf.waiting:
            pass
        shelf.close()
        with pytest.raises(StoreClosed):
            waiting.result()
    assert shelf.idle == 0  # what was lent is closed, too
    assert len(subject.sent) == 0


# --- event loops and threads -----------------------------------------------------------------------------------------


def test_loops_that_end_without_closing_leave_no_sessions(postgres_database: Database) -> None:
    cf = AsyncCounterfoil.open(postgres_database.url)
    before = postgres_database.execute(SESSIONS)[0][0]

    async def several(start: int) -> None:
        work = (cf.perform(anote, tenant="t", request_id=f"r-{start + n}") for n in range(4))
        await asyncio.gather(*work)

    for number in range(5):
        asyncio.run(several(number * 4))
    ((after,),) = postgres_database.execute(SESSIONS)
    assert after <= before + 4  # of the last loop; those before it were closed when it came
    asyncio.run(cf.close())


def test_many_threads_and_loops_at_once(postgres_database: Database) -> None:
    async_cf = AsyncCounterfoil.open(postgres_database.url, wait="30s")
    values: list[str] = []

    async def several() -> None:
        work = (async_cf.perform(anote, tenant="t", request_id=f"r-{n}") for n in range(6))
        values.extend(receipt.value for receipt in await asyncio.gather(*work))

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == ["noted"] * 36
    assert postgres_database.execute("select count(*), max(attempt) from counterfoil_operation") == [(6, 1)]
    asyncio.run(async_cf.close())


def script(text: str, url: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of its own, on which warnings are errors that are printed."""
    before = """
        import asyncio, os, sys
        from counterfoil import AsyncCounterfoil, Counterfoil, effect
        from counterfoil.errors import StoreClosed

        @effect("faults.note", key="{request_id}/note")
        def note(call):
            return "noted"

        @effect("faults.anote", key="{request_id}/anote")
        async def anote(call):
            return "noted"

        url = sys.argv[1]
    """
    program = textwrap.dedent(before) + textwrap.dedent(text)
    command = [sys.executable, "-W", "error", "-c", program, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        # two loops, one after the other, nothing closed
        """
        cf = AsyncCounterfoil.open(url)
        for number in range(2):
            asyncio.run(cf.perform(anote, tenant="t", request_id=f"r-{number}"))
        """,
        # a blocking one that is left to the end of the process
        """
        cf = Counterfoil.open(url)
        cf.perform(note, tenant="t", request_id="r")
        """,
        # one whose last reference goes
        """
        import gc
        for number in range(3):
            Counterfoil.open(url).perform(note, tenant="t", request_id=f"r-{number}")
            gc.collect()
        """,
        # a loop that is closed under a task that still waits
        """
        async def main():
            cf = AsyncCounterfoil.open(url, connections=1)
            tasks = [asyncio.ensure_future(cf.perform(anote, tenant="t", request_id=f"r-{n}")) for n in range(5)]
            await asyncio.sleep(0)
        asyncio.run(main())
        """,
    ],
    ids=["loops", "end", "garbage", "cancelled"],
)
def test_what_is_never_closed_is_no_reason_for_a_warning(postgres_database: Database, text: str) -> None:
    done = script(text, postgres_database.url)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_forked_child_is_refused_and_harms_nothing(postgres_database: Database) -> None:
    text = """
        import gc
        cf = Counterfoil.open(url)
        with cf.desk.store.lender.connection() as connection:
            before = connection.info.backend_pid
        child = os.fork()
        if not child:
            for refused in (lambda: cf.perform(note, tenant="t", request_id="r"),
                            lambda: cf.operations.counts(tenant="t")):
                try:
                    refused()
                except StoreClosed as error:
                    assert "fork" in str(error)
                else:
                    sys.exit(1)
            cf.close()
            del cf
            gc.collect()
            with Counterfoil.open(url) as own:
                own.perform(note, tenant="t", request_id="of-the-child")
            sys.exit(0)  # with all that an interpreter does at its end
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert cf.perform(note, tenant="t", request_id="of-the-parent").value == "noted"
        with cf.desk.store.lender.connection() as connection:
            assert connection.info.backend_pid == before  # the same session: the child has not ended it
        cf.close()
    """
    done = script(text, postgres_database.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert postgres_database.execute("select count(*) from counterfoil_operation") == [(2,)]
