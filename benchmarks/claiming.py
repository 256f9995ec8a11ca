"""What does a claim cost beside a million finished operations, and while something keeps the server from vacuuming?

A worker claims a batch of what is due and records it. Both databases get it from an index of what is pending alone, so
that finished rows should cost nothing; on PostgreSQL each claim leaves dead entries in that index, which only a vacuum
removes, and an old transaction anywhere in the server holds vacuum up.
"""

from __future__ import annotations

import itertools
import logging
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.draining import server
from benchmarks.kit import Comparison, Work, compare, once
from counterfoil import Counterfoil, effect

FINISHED = 1_000_000
MESSAGES = 2_000
PINNED = 5_000
"""Messages that were sent since the transaction began that holds vacuum up."""
ROUNDS = 5
_runs = itertools.count()

LIKE_IT = """
insert into counterfoil_operation (tenant, operation_id, effect, effect_version, sender, state, identity_digest,
  content_digest, field_digests, provider, attempt, fence, version, claimed_at, first_attempt_at, receipt, settled_by,
  request_id, created_at, updated_at, settled_at, due_at, max_attempts, time_limit, lease)
select tenant, 'old-' || n, effect, effect_version, sender, state, identity_digest, content_digest, field_digests,
  provider, attempt, fence, version, claimed_at, first_attempt_at, receipt, settled_by, 'r-old', created_at, updated_at,
  settled_at, due_at, max_attempts, time_limit, lease
from (select * from counterfoil_operation limit 1) one
cross join {numbers}
"""
NUMBERS = {
    "postgres": f"generate_series(1, {FINISHED}) n",
    "sqlite": f"(with recursive up(n) as (select 1 union all select n + 1 from up where n < {FINISHED}) select n from up)",  # noqa: E501, S608 - ours
}


@effect("bench.claimed", key="{request_id}/{number}")
async def claimed(call: Any, *, number: int) -> int:
    return number


class Box:
    """An outbox, and how long it takes to empty it of a few hundred messages."""

    def __init__(self, url: str) -> None:
        self.cf = Counterfoil.open(url)
        self.fill(1)
        self.drain()

    def fill(self, count: int = MESSAGES) -> None:
        numbers = [{"number": number} for number in range(count)]
        self.cf.enqueue_all(claimed, numbers, tenant="t", request_id=f"r-{next(_runs)}")

    def drain(self) -> None:
        self.cf.drain(claimed, batch=10)

    def measure(self) -> float:
        """Return the seconds of a message that is claimed, sent nowhere and recorded."""
        self.fill()
        start = time.perf_counter()
        self.drain()
        return (time.perf_counter() - start) / MESSAGES


def aged(url: str) -> None:
    """Put a million finished operations beside the first one, and let the database know how many there are."""
    if url.startswith("postgresql"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(LIKE_IT.format(numbers=NUMBERS["postgres"]).encode())
            connection.execute("vacuum analyze counterfoil_operation")
        return
    import sqlite3  # noqa: PLC0415 - the other half needs none

    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.execute(LIKE_IT.format(numbers=NUMBERS["sqlite"]))


def pinned(url: str) -> psycopg.Connection[Any]:
    """Open a transaction that keeps what is dead by now and later from being removed; then make a lot of it."""
    holder = psycopg.connect(url)
    holder.execute("set transaction isolation level repeatable read")
    holder.execute("select 1 from counterfoil_operation limit 1")
    return holder


def run(on_disk: Path, _in_memory: Path) -> list[Comparison]:
    logging.disable(logging.WARNING)
    answers = [_compared("SQLite", [f"sqlite:///{on_disk}/{name}.db" for name in ("young", "old")])]
    with server() as running:
        urls = [running.create_database(f"bench_{name}") for name in ("young", "old", "pinned")]
        answers.append(_compared("PostgreSQL", urls))
    return answers


def _compared(store: str, urls: list[str]) -> Comparison:
    boxes = [Box(url) for url in urls]
    aged(urls[1])
    works: dict[str, Work] = {"nothing else": boxes[0].measure, "beside a million finished": boxes[1].measure}
    holder = None
    if len(urls) > 2:
        holder = pinned(urls[2])
        boxes[2].fill(PINNED)
        boxes[2].drain()
        works[f"vacuum held up for {PINNED} messages"] = boxes[2].measure
    answer = compare(f"a message claimed and recorded, {store}", works, rounds=ROUNDS, calls=1, clock=once)
    with suppress(psycopg.Error):
        if holder is not None:
            holder.close()
        for box in boxes:
            box.cf.close()
    return answer
