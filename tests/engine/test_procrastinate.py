"""What is said to Procrastinate, and in which transaction; what it loses is said again, and what is dead taken back."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row

from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.cli.main import cli
from counterfoil.engine import procrastinate
from counterfoil.engine.choosing import chosen, made_for
from counterfoil.errors import InvalidArguments, MissingExtra, SchemaOutdated
from counterfoil.langgraph import perform, sleep_for, wait_for
from counterfoil.storage import rights
from counterfoil.storage.script import Wake
from tests.engine.fleet import until
from tests.engine.program import TENANT, Place, State, chain, opened_at
from tests.postgres.databases import Database
from tests.postgres.servers import PrivateServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(jobs_url: str, tmp_path: Path) -> Place:
    return Place(database=jobs_url, folder=str(tmp_path), engine="procrastinate")


@pytest.fixture
def cf(place: Place) -> Iterator[Counterfoil]:
    with opened_at(place) as opened:
        yield opened


def engine_of(cf: Counterfoil) -> procrastinate.Procrastinate:
    made = chosen(cf.desk, "procrastinate")
    assert isinstance(made, procrastinate.Procrastinate)
    return made


def asked(place: Place, statement: str) -> list[dict[str, Any]]:
    with psycopg.connect(place.database, autocommit=True, row_factory=dict_row) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def jobs(place: Place) -> list[tuple[str, str]]:
    found = asked(place, "select args, status from procrastinate_jobs order by id")
    return [(row["args"].get("thread_id", ""), row["status"]) for row in found]


def start(cf: Counterfoil, workflow_id: str, graph: str = "quick") -> None:
    cf.workflows.start(graph, {"order": workflow_id}, tenant=TENANT, workflow_id=workflow_id)


def say(cf: Counterfoil, workflow_id: str, event_id: str) -> None:
    cf.workflows.deliver("word", tenant=TENANT, workflow_id=workflow_id, event_id=event_id)


# --- wake-ups ---------------------------------------------------------------------------------------------------------


def test_what_is_accepted_woken_or_resumed_is_told_of_in_the_same_transaction(cf: Counterfoil, place: Place) -> None:
    start(cf, "w-1", "changing")
    start(cf, "w-1", "changing")  # the same again tells nobody
    assert jobs(place) == [("w-1", "todo")]
    (job,) = asked(place, "select queue_name, lock, queueing_lock, scheduled_at from procrastinate_jobs")
    lock = 'counterfoil:["team-a","w-1"]'
    assert job == {"queue_name": "counterfoil:changing@1", "lock": lock, "queueing_lock": lock, "scheduled_at": None}
    cf.drain()
    asked(place, "delete from procrastinate_jobs")
    say(cf, "w-1", "1")
    assert jobs(place) == [("w-1", "todo")]


@effect("engine.lost", key="{workflow_id}/lost")
def lost(call: Any) -> str:
    raise TimeoutError


@pytest.mark.parametrize("verdict", ["happened", "did_not_happen_close"])
def test_a_verdict_tells_of_the_workflow_that_waits_for_it(cf: Counterfoil, place: Place, verdict: str) -> None:
    def pay(state: State) -> State:
        return {"paid": str(perform(lost).value)}

    cf.workflows.register(chain(pay=pay), name="losing")
    start(cf, "w-1", "losing")
    cf.drain(lost)
    assert cf.workflows.get("w-1", tenant=TENANT).parked_on == "w-1/lost"
    asked(place, "delete from procrastinate_jobs")
    case = cf.review.open("w-1/lost", tenant=TENANT)
    given = {"verdict": verdict, "by": "ann", "reason": "asked", "evidence": "slip"}
    cf.review.resolve(case.case_id, tenant=TENANT, expect_version=case.version, **given)
    assert jobs(place) == [("w-1", "todo")]
    found = cf.workflows.get("w-1", tenant=TENANT)
    assert (found.status, found.due_at is not None and found.due_at <= found.now) == ("waiting", True)


def test_wake_ups_of_one_workflow_become_one_and_the_transactions_go_on(cf: Counterfoil, place: Place) -> None:
    start(cf, "w-1", "changing")
    cf.drain()
    for number in range(5):
        say(cf, "w-1", str(number))
    assert jobs(place) == [("w-1", "todo")]
    assert len(asked(place, "select 1 from counterfoil_event")) == 5


def test_async_callers_tell_too(place: Place, cf: Counterfoil) -> None:
    async def told() -> None:
        async with AsyncCounterfoil.open(place.database, engine="procrastinate") as other:
            other.desk.graphs.update(cf.desk.graphs)
            for _ in range(2):
                await other.workflows.start("quick", {"order": "w-1"}, tenant=TENANT, workflow_id="w-1")
            await other.workflows.start("changing", {"order": "w-2"}, tenant=TENANT, workflow_id="w-2")
            await asyncio.to_thread(cf.drain)
            await other.workflows.deliver("word", tenant=TENANT, workflow_id="w-2", event_id="1")
            await other.workflows.deliver("word", tenant=TENANT, workflow_id="w-2", event_id="2")

    asyncio.run(told())
    assert jobs(place) == [("w-1", "todo"), ("w-2", "todo")]


def test_a_wake_up_that_is_rolled_back_is_none(cf: Counterfoil, place: Place) -> None:
    engine, wake = engine_of(cf), Wake(TENANT, "w-1", "quick", 1)
    with psycopg.connect(place.database) as connection:
        engine.wake(connection, wake)
        connection.rollback()
        assert jobs(place) == []
        engine.wake(connection, wake)
        engine.wake(connection, wake)
        engine.wake(connection, Wake(TENANT, "w-2", "quick", 1), not_before=2**50)  # for later: the row says when
        connection.commit()
    assert jobs(place) == [("w-1", "todo")]


def test_ids_of_any_kind_are_told_of(cf: Counterfoil, place: Place) -> None:
    names = ['a")=("b', "c'; --", "gruß 日本", "x" * 200]
    for name in names:
        start(cf, name, "changing")
    cf.drain()
    for name in names:
        for event in "12":
            say(cf, name, event)
    assert sorted({name for name, _ in jobs(place)}) == sorted(names)


def test_a_graph_with_a_long_name_has_a_queue_that_can_be_notified(cf: Counterfoil, place: Place) -> None:
    name = "a graph whose name is longer than that of a channel of notifications may be"
    assert len(procrastinate.queue_of(name, 1)) <= procrastinate.LONGEST_QUEUE
    assert procrastinate.queue_of(name, 1) != procrastinate.queue_of(name, 2)
    with psycopg.connect(place.database, autocommit=True) as connection, connection.transaction():
        engine_of(cf).wake(connection, Wake(TENANT, "w-1", name, 1))


# --- what is lost, and what is dead -----------------------------------------------------------------------------------


def test_what_has_no_job_is_said_again_be_it_lost_or_never_told_or_due_by_its_time(
    cf: Counterfoil, place: Place
) -> None:
    start(cf, "kept")
    start(cf, "lost")
    asked(place, "delete from procrastinate_jobs where args ->> 'thread_id' = 'lost'")
    with opened_at(replace(place, engine="embedded")) as other:  # tells nobody
        start(other, "untold")
    engine = engine_of(cf)
    assert asyncio.run(engine.sweep()) == 2
    assert jobs(place) == [("kept", "todo"), ("lost", "todo"), ("untold", "todo")]
    assert asyncio.run(engine.sweep()) == 0
    assert asyncio.run(engine_of(cf).sweep()) == 0


def test_one_that_cannot_be_told_of_keeps_no_other_asleep(
    cf: Counterfoil, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with opened_at(replace(place, engine="embedded")) as other:  # tells nobody
        for name in ("bad", "good"):
            start(other, name)
    asked(place, "alter table procrastinate_jobs add check (args ->> 'thread_id' <> 'bad')")
    engine = engine_of(cf)
    assert asyncio.run(engine.sweep()) == 1
    assert jobs(place) == [("good", "todo")]
    assert "nobody could be told of workflow bad of tenant team-a" in caplog.text
    assert asyncio.run(engine.sweep()) == 0


def test_a_timer_has_no_job_until_its_time(cf: Counterfoil, place: Place) -> None:
    cf.workflows.register(napping(), name="napping")
    start(cf, "w-1", "napping")
    cf.drain()
    asked(place, "delete from procrastinate_jobs")
    assert asyncio.run(engine_of(cf).sweep()) == 0
    until(lambda: asyncio.run(engine_of(cf).sweep()) or None)
    assert jobs(place) == [("w-1", "todo")]


def napping() -> Any:
    def nap(state: State) -> State:
        sleep_for("2s")
        return {"said": "awake"}

    builder = StateGraph(State)
    builder.add_node("nap", nap)
    builder.add_edge(START, "nap")
    builder.add_edge("nap", END)
    return builder


def test_the_job_of_a_silent_worker_is_given_to_others(cf: Counterfoil, place: Place) -> None:
    start(cf, "w-1")
    start(cf, "w-2")
    asked(place, "insert into procrastinate_workers (last_heartbeat) values (now() - interval '1 minute')")
    asked(place, "update procrastinate_jobs set status = 'doing', worker_id = 1")
    cf.workflows.cancel("w-2", tenant=TENANT, by="ann", reason="another job of it waits")
    with psycopg.connect(place.database) as connection:
        engine_of(cf).wake(connection, Wake(TENANT, "w-2", "quick", 1))
    assert sorted(jobs(place)) == [("w-1", "doing"), ("w-2", "doing"), ("w-2", "todo")]
    assert asyncio.run(engine_of(cf).reap()) == 2
    assert sorted(jobs(place)) == [("w-1", "todo"), ("w-2", "todo")]
    assert asyncio.run(engine_of(cf).reap()) == 0


def test_jobs_of_one_workflow_that_are_at_work_together_run_it_once(cf: Counterfoil, place: Place) -> None:
    start(cf, "w-1")
    columns = "insert into procrastinate_jobs (queue_name, task_name, args) select queue_name, task_name, args"
    asked(place, f"{columns} from procrastinate_jobs, generate_series(1, 20)")
    with opened_at(place) as other, cf.working(), other.working():
        until_no_jobs(place)
    assert place.noted() == ["w-1"]
    row = cf.workflows.get("w-1", tenant=TENANT)
    assert (row.status, row.attempt) == ("done", 1)


def test_a_job_for_what_is_not_due_does_nothing(cf: Counterfoil, place: Place) -> None:
    start(cf, "w-1")
    cf.drain()
    version = cf.workflows.get("w-1", tenant=TENANT).version
    with psycopg.connect(place.database) as connection:
        for name in ("w-1", "never"):
            engine_of(cf).wake(connection, Wake(TENANT, name, "quick", 1))
    with cf.working():
        until_no_jobs(place)
    assert cf.workflows.get("w-1", tenant=TENANT).version == version


def until_no_jobs(place: Place) -> None:
    until(lambda: None if [job for job in jobs(place) if job[0]] else True)


def test_it_says_how_it_is(cf: Counterfoil) -> None:
    start(cf, "w-1")
    health = asyncio.run(engine_of(cf).health())
    assert (health.engine, health.is_well, health.problem) == ("procrastinate", True, None)
    assert health.details == {"todo": 1, "doing": 0, "failed": 0}


def test_an_event_that_comes_while_a_step_beside_its_wait_runs_wakes_at_the_end_of_the_run(
    cf: Counterfoil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procrastinate, "SWEEP_S", 600)  # nothing but its wake-up wakes it
    goes_on = threading.Event()

    def hear(state: State) -> State:
        wait_for("word")
        return {"said": "heard"}

    def work(state: State) -> State:
        goes_on.wait(30)
        return {"paid": "worked"}

    builder = StateGraph(State)
    builder.add_node("hear", hear)
    builder.add_node("work", work)
    for name in ("hear", "work"):
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    cf.workflows.register(builder, name="beside")
    with cf.working():
        start(cf, "w-1", "beside")
        until(lambda: cf.workflows.waits("w-1", tenant=TENANT) or None)
        say(cf, "w-1", "1")
        goes_on.set()
        until_done(cf, "w-1")
    assert cf.workflows.result("w-1", tenant=TENANT) == {"order": "w-1", "said": "heard", "paid": "worked"}


def test_both_engines_may_work_on_one_database(cf: Counterfoil, place: Place) -> None:
    names = [f"w-{number}" for number in range(30)]
    with opened_at(replace(place, engine="embedded")) as other, cf.working(), other.working():
        for name in names:
            start(other if name.endswith("1") else cf, name)
        for name in names:
            until_done(cf, name)
    assert sorted(place.noted()) == sorted(names)


@pytest.mark.slow
def test_it_goes_on_when_its_server_was_away(
    private_server: PrivateServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procrastinate, "CONNECT_S", 2)
    url = private_server.create_database("engine")
    with Counterfoil.open(url) as made:
        made_for(made.desk.store)
    with opened_at(Place(database=url, folder=str(tmp_path), engine="procrastinate")) as cf, cf.working():
        start(cf, "w-1")
        until_done(cf, "w-1")
        private_server.stop("immediate")
        until(lambda: True if "Procrastinate could not go on" in caplog.text else None)
        private_server.start()
        start(cf, "w-2")
        until_done(cf, "w-2")
    assert Place(database=url, folder=str(tmp_path)).noted() == ["w-1", "w-2"]


def until_done(cf: Counterfoil, workflow_id: str) -> None:
    until(lambda: True if cf.workflows.get(workflow_id, tenant=TENANT).status == "done" else None)


# --- the command line, and roles --------------------------------------------------------------------------------------


def test_the_commands_make_its_tables_and_refuse_sqlite(fresh_database: Database, tmp_path: Path) -> None:
    url = fresh_database.url
    made = CliRunner().invoke(cli, ["db", "upgrade", "--engine", "procrastinate", "--url", url])
    assert (made.exit_code, "the tables of procrastinate" in made.output) == (0, True)
    again = CliRunner().invoke(cli, ["db", "upgrade", "--engine", "procrastinate", "--url", url, "--json"])
    assert json.loads(again.output)["applied"] == []
    here = Place(database=f"sqlite:///{tmp_path}/agent.db", folder=str(tmp_path))
    worker = [sys.executable, "-m", "counterfoil", "worker", "--app", "tests.engine.program:opened"]
    ran = subprocess.run(
        [*worker, "--engine", "procrastinate"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**here.environment(), "PYTHONPATH": str(ROOT / "src")},
    )
    assert (ran.returncode, "Procrastinate keeps its jobs in PostgreSQL" in ran.stderr) == (2, True)


def test_a_role_with_the_rights_of_the_page_may_work(jobs_url: str, place: Place) -> None:
    page = (ROOT / "docs" / "how-to" / "engines.md").read_text("utf-8")
    (shown,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    role = "counterfoil_engine_role"
    lets = shown.replace(" to app;", f" to {role};") + rights.grants(role, "public", read_only=False)
    asked(place, f"create role {role} login password 'secret'")
    try:
        asked(place, lets)
        parts = urlsplit(jobs_url)
        as_role = parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl()
        with opened_at(replace(place, database=as_role)) as cf, cf.working():
            start(cf, "w-1")
            until_done(cf, "w-1")
    finally:
        asked(place, f"drop owned by {role}; drop role {role}")


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_database_without_its_tables_is_refused_with_the_command_that_makes_them(fresh_database: Database) -> None:
    with pytest.raises(SchemaOutdated, match="counterfoil db upgrade --engine procrastinate"):
        Counterfoil.open(fresh_database.url, engine="procrastinate")
    with Counterfoil.open(fresh_database.url) as cf:
        engine = procrastinate.Procrastinate(cf.desk)
        assert asyncio.run(engine.health()).problem == "its tables are missing"
        assert made_for(cf.desk.store)
        assert not made_for(cf.desk.store)
    Counterfoil.open(fresh_database.url, engine="procrastinate").close()


def test_sqlite_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments, match="embedded one, or open a PostgreSQL database"):
        Counterfoil.open(f"sqlite:///{tmp_path}/agent.db", engine="procrastinate")


def test_an_engine_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArguments, match="There is no engine 'celery'; there are embedded and procrastinate"):
        Counterfoil.open(f"sqlite:///{tmp_path}/agent.db", engine="celery")


def test_without_its_package_the_line_that_installs_it_is_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    monkeypatch.delitem(sys.modules, "counterfoil.engine.procrastinate")
    monkeypatch.delattr("counterfoil.engine.procrastinate")
    with pytest.raises(MissingExtra, match=r"needs procrastinate, .*pip install 'counterfoil\[procrastinate\]'"):
        Counterfoil.open(place.database, engine="procrastinate")


def test_the_longest_ids_have_locks_that_an_index_can_hold() -> None:
    longest = "\U00010348" * 512
    assert len(procrastinate.lock_of(longest, longest)) < 2_000
    assert procrastinate.lock_of(longest, longest) != procrastinate.lock_of(longest, longest[:-1])
    assert procrastinate.lock_of("t", "w") == 'counterfoil:["t","w"]'
