"""How long does a caller wait where 32 threads of each of four processes want the same 200 operations?

The processes start together, and every thread asks for a quarter of the ids in an order of its own. Beside a careful
program with a connection for each thread: it inserts an intent, and whoever comes second waits for the receipt.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.kit import Comparison, Work, compare, once
from benchmarks.postgres import server
from counterfoil import Counterfoil, effect

PROCESSES, THREADS, IDS, CALLS = 4, 32, 200, 50
INTENT = "insert into op (id, state) values ({mark}, 'in_flight') on conflict do nothing returning id"
RECEIPT = "update op set state = 'succeeded', receipt = 'ticket' where id = {mark} returning id"
LOOK = "select state from op where id = {mark}"
TABLE = "create table op (id text primary key, state text not null, receipt text)"
SESSIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""

Perform = Callable[[str], object]


@effect("bench.colliding-ticket", key="{request_id}/ticket", time_limit="30s")
def create_ticket(call: Any, *, title: str) -> dict[str, Any]:
    return {"id": 1}


# --- one process ------------------------------------------------------------------------------------------------------


class ByHand(threading.local):
    """One thread's own connection, and the protocol on it."""

    def __init__(self, url: str) -> None:
        self.mark = "%s" if url.startswith("postgresql") else "?"
        self.connection: Any = _connect(url)

    def run(self, statement: str, key: str) -> Any:
        rows = self.connection.execute(statement.format(mark=self.mark), (key,)).fetchall()
        return rows[0] if rows else None

    def perform(self, key: str) -> None:
        if self.run(INTENT, key):
            self.run(RECEIPT, key)
        while self.run(LOOK, key) != ("succeeded",):
            time.sleep(0.002)


def _connect(url: str) -> Any:
    if url.startswith("postgresql"):
        return psycopg.connect(url, autocommit=True)
    return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)


@contextmanager
def performing(how: str, url: str) -> Iterator[Perform]:
    if how == "hand":
        yield ByHand(url).perform
        return
    with Counterfoil.open(url, wait="60s") as cf:
        yield lambda key: cf.perform(create_ticket, tenant="t", request_id=key, title="Printer on fire")


def child(how: str, url: str, number: int) -> None:
    """Take part in one round, from the line that starts it; say how long each call took."""
    with performing(how, url) as perform, ThreadPoolExecutor(THREADS) as pool:
        for line in sys.stdin:
            keys = [[f"{line.strip()}-{(first + n) % IDS}" for n in range(CALLS)] for first in firsts(number)]
            begun = time.perf_counter()
            taken = [each for calls in pool.map(partial(called, perform), keys) for each in calls]
            print(json.dumps({"seconds": time.perf_counter() - begun, "taken": taken}), flush=True)


def firsts(number: int) -> list[int]:
    return [(number * 13 + thread * 7) % IDS for thread in range(THREADS)]


def called(perform: Perform, keys: list[str]) -> list[float]:
    taken = []
    for key in keys:
        start = time.perf_counter()
        perform(key)
        taken.append(time.perf_counter() - start)
    return taken


# --- all of them ------------------------------------------------------------------------------------------------------


class Crowd:
    """Four processes that do one round after the other."""

    def __init__(self, how: str, url: str) -> None:
        self.taken: list[float] = []
        self._rounds = count()
        self._children = [self._start(how, url, number) for number in range(PROCESSES)]

    def _start(self, how: str, url: str, number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.colliding", how, url, str(number)]
        path = os.pathsep.join(filter(None, sys.path))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes)  # type: ignore[call-overload,no-any-return]

    def round(self) -> float:
        """Let all collide; return seconds per call."""
        number = next(self._rounds)
        for each in self._children:
            assert each.stdin is not None
            print(number, file=each.stdin, flush=True)
        told = [json.loads(each.stdout.readline()) for each in self._children if each.stdout is not None]
        self.taken += [taken for one in told for taken in one["taken"]]
        return max(float(one["seconds"]) for one in told) / (PROCESSES * THREADS * CALLS)

    def close(self) -> None:
        for each in self._children:
            each.communicate(timeout=60)


def run(disk: Path, _memory: Path) -> list[Comparison]:
    with server() as running:
        postgres = {how: running.create_database(how) for how in ("hand", "ours")}
        sqlite = {how: f"sqlite:///{disk}/colliding-{how}.db" for how in ("hand", "ours")}
        return [collide("PostgreSQL", **postgres), collide("SQLite", **sqlite)]


def collide(store: str, hand: str, ours: str) -> Comparison:
    connection = _connect(hand)
    connection.execute("pragma journal_mode = wal" if store == "SQLite" else "select 1")
    connection.execute(TABLE)
    connection.close()
    Counterfoil.open(ours).close()
    crowds = {"by hand, a connection for each thread": Crowd("hand", hand), "perform": Crowd("ours", ours)}
    works: dict[str, Work] = {name: crowd.round for name, crowd in crowds.items()}
    with counted(ours) as sessions:
        answer = compare(
            f"{PROCESSES} processes of {THREADS} threads on {IDS} ids, seconds per call, {store}",
            works,
            rounds=5,
            calls=1,
            clock=once,
        )
    for name, crowd in crowds.items():
        crowd.close()
        slow = sorted(crowd.taken)[len(crowd.taken) * 99 // 100] * 1000
        print(f"  {name}: 99 of 100 calls within {slow:.0f} ms")
    if store == "PostgreSQL":
        print(f"  connections to the server: {PROCESSES * THREADS} by hand, {max(sessions)} with perform")
    return answer


@contextmanager
def counted(url: str) -> Iterator[list[int]]:
    """Count sessions on a PostgreSQL database while the block runs."""
    found, over = [0], threading.Event()

    def look() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.wait(0.05):
                found.extend(n for (n,) in connection.execute(SESSIONS).fetchall())

    thread = threading.Thread(target=look)
    if url.startswith("postgresql"):
        thread.start()
    try:
        yield found
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
