"""What one operation and one superstep cost on PostgreSQL: round trips, flushes, bytes of the log, connections.

Round trips and connections are counted on the wire, flushes and bytes by the server. It is one of the test's own, so
that nobody else writes to its log, and does nothing in the background.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph

from counterfoil import Counterfoil, Provider, effect
from counterfoil.storage.script import Ddl, Script
from counterfoil.testing.wire import Wire
from tests.postgres import servers
from tests.postgres.fixtures import programs

TIMES = 20
NODES = 10
FLUSHES_COUNTED = 15
"""The first version whose sessions can be told to report their flushes at once."""
QUIET = ("autovacuum = off", "checkpoint_timeout = '1h'", "wal_writer_delay = '10s'", "bgwriter_lru_maxpages = 0")


@effect("counts.postgres-send", key="{request_id}/send")
def send(call: Any, *, title: str) -> dict[str, str]:
    return {"title": title}


@effect("counts.postgres-row", key="{request_id}/row", provider=Provider.transactional())
def row(tx: Any, *, title: str) -> dict[str, str]:
    tx.execute("insert into business (title) values (%s)", (title,))
    return {"title": title}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one piece of work took."""

    round_trips: float
    connections: int
    flushes: float
    log_bytes: float
    commits: float
    """transactions that wrote something"""


@dataclass(slots=True)
class Bench:
    """A quiet server, a wire to it, and a Counterfoil behind the wire that uses one connection."""

    server: servers.PrivateServer
    wire: Wire
    cf: Counterfoil
    ids: Iterator[int]

    def run(self, script: str) -> None:
        def one() -> Script[Any]:
            return (yield Ddl(script))

        self.cf.desk.store.write(one)

    def measure(self, work: Callable[[], object], *, times: int = TIMES) -> Cost:
        for _ in range(8):  # what is prepared is so after five
            work()
        before, wire = self._seen(), self.wire.counts
        for _ in range(times):
            work()
        used, after = self.wire.counts - wire, self._seen()
        flushes, log_bytes, commits = (late - early for late, early in zip(after, before, strict=True))
        return Cost(used.round_trips / times, used.connections, flushes / times, log_bytes / times, commits / times)

    def _seen(self) -> tuple[int, int, int]:
        if self.server.major >= FLUSHES_COUNTED:
            self.run("select pg_stat_force_next_flush()")
        flushes = "(select wal_sync from pg_stat_wal)" if self.server.major >= FLUSHES_COUNTED else "0"
        here = "cast(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') as bigint)"
        transactions = "cast(cast(pg_snapshot_xmax(pg_current_snapshot()) as text) as bigint)"
        ((one, two, three),) = self.server.execute(f"select {flushes}, {here}, {transactions}")
        return one, two, three


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    server = servers.PrivateServer(servers.new_plan(programs()))
    try:
        for setting in QUIET:
            server.execute(f"alter system set {setting}")
        server.restart()
        url = server.create_database("counts")
        with Wire(server.host, server.port) as wire, Counterfoil.open(wire.through(url), connections=1) as cf:
            made = Bench(server, wire, cf, count())
            made.run("create table business (title text)")
            yield made
    finally:
        server.close()


@pytest.fixture(scope="module")
def remote(bench: Bench) -> Cost:
    return bench.measure(lambda: bench.cf.perform(send, tenant="t", request_id=str(next(bench.ids)), title="a"))


def test_a_remote_effect_takes_two_round_trips_and_no_connection(remote: Cost) -> None:
    assert (remote.round_trips, remote.connections) == (2, 0)  # look and claim; settle


def test_a_remote_effect_flushes_exactly_twice(bench: Bench, remote: Cost) -> None:
    assert remote.commits == 2
    if bench.server.major >= FLUSHES_COUNTED:
        assert remote.flushes == 2


def test_a_remote_effect_writes_little_to_the_log(remote: Cost) -> None:
    assert remote.log_bytes < 2_000


def test_an_answer_from_a_receipt_takes_one_round_trip_and_writes_nothing(bench: Bench) -> None:
    seen = bench.measure(lambda: bench.cf.perform(send, tenant="t", request_id="same", title="a"))
    assert (seen.round_trips, seen.connections, seen.flushes, seen.commits) == (1, 0, 0, 0)


def test_a_local_effect_is_one_transaction_and_flushes_once(bench: Bench) -> None:
    seen = bench.measure(lambda: bench.cf.perform(row, tenant="t", request_id=str(next(bench.ids)), title="a"))
    assert (seen.connections, seen.commits) == (0, 1)
    assert seen.round_trips <= 6  # look; begin, claim, the business row, settle, commit
    if bench.server.major >= FLUSHES_COUNTED:
        assert seen.flushes == 1


def test_what_undoes_a_body_s_settings_takes_no_round_trip_and_no_connection(bench: Bench) -> None:
    """Neither of the local effect, with whose COMMIT it goes, nor of the remote one that comes next."""

    def local() -> None:
        bench.cf.perform(row, tenant="t", request_id=str(next(bench.ids)), title="a")

    def both() -> None:
        local()
        bench.cf.perform(send, tenant="t", request_id=str(next(bench.ids)), title="a")

    alone, followed = bench.measure(local), bench.measure(both)
    assert alone.round_trips == 6  # look; begin, claim, the business row, settle, commit
    assert (followed.round_trips, followed.connections) == (alone.round_trips + 2, 0)


# --- supersteps -------------------------------------------------------------------------------------------------------


class State(TypedDict, total=False):
    n: Annotated[int, add]


def graph() -> Any:
    builder: Any = StateGraph(State)
    names = [START, *(f"n{number}" for number in range(NODES)), END]
    for name in names[1:-1]:
        builder.add_node(name, lambda _state: {"n": 1})
    for one, other in pairwise(names):
        builder.add_edge(one, other)
    return builder


@contextmanager
def stock_saver(bench: Bench, database: str) -> Iterator[Any]:
    with PostgresSaver.from_conn_string(bench.wire.through(bench.server.create_database(database))) as saver:
        saver.setup()
        yield saver


@pytest.fixture(scope="module")
def stock(bench: Bench) -> Iterator[Cost]:
    with stock_saver(bench, "stock") as saver:
        compiled = graph().compile(checkpointer=saver)

        def work() -> None:
            config = {"configurable": {"thread_id": f"stock-{next(bench.ids):06}"}}
            compiled.invoke({"n": 0}, config, durability="sync")

        yield bench.measure(work, times=10)


def ours(bench: Bench, compiled: Any) -> Cost:
    def work() -> None:
        thread = f"ours--{next(bench.ids):06}"
        compiled.invoke({"n": 0}, bench.cf.config(tenant="t", thread_id=thread), durability="sync")

    return bench.measure(work, times=10)


def test_a_plain_run_costs_no_more_than_with_the_stock_saver(bench: Bench, stock: Cost) -> None:
    seen = ours(bench, graph().compile(checkpointer=bench.cf.saver()))
    assert seen.round_trips <= stock.round_trips
    assert seen.commits <= stock.commits
    assert seen.log_bytes <= stock.log_bytes


def test_a_claimed_run_costs_no_more_but_for_its_claim_and_its_release(bench: Bench, stock: Cost) -> None:
    seen = ours(bench, bench.cf.compile(graph()))
    assert seen.round_trips <= stock.round_trips + 2
    assert seen.commits <= stock.commits + 2
    assert seen.log_bytes <= stock.log_bytes
