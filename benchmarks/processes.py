"""What do eight processes on one file get, beside eight that leave it to SQLite's own waiting? Shares and waits."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.effects import GIVEN, create_ticket
from benchmarks.floor import Floor
from counterfoil import Counterfoil

PROCESSES = 8
ROUNDS = 3
SLICE_S = 3.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """One way of writing: effects each second of all, the slowest's part of an equal share, the longest wait."""

    way: str
    rounds: int
    per_second: float
    slowest_share: float
    longest_wait_ms: float


@dataclass(frozen=True, slots=True)
class Shares:
    """The question, both ways, and how ours compares with the other."""

    question: str
    slice_s: float
    ways: list[Crowd]
    rate: float
    wait: float


def run(disk: Path, _memory: Path) -> list[Shares]:
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in WAYS}
    for number in range(ROUNDS):
        for name in list(WAYS)[:: 1 if number % 2 else -1]:
            seen[name].append(together(name, disk / f"{number}-{name.split()[0]}.db"))
    ways = [crowd(name, seen[name]) for name in WAYS]
    hand, ours = ways
    answer = Shares(
        question=f"{PROCESSES} processes that write one file as fast as they can",
        slice_s=SLICE_S,
        ways=ways,
        rate=round(ours.per_second / hand.per_second, 2),
        wait=round(ours.longest_wait_ms / hand.longest_wait_ms, 3),
    )
    show(answer)
    return [answer]


def crowd(way: str, seen: list[tuple[float, float, float]]) -> Crowd:
    return Crowd(way, ROUNDS, *(round(statistics.median(each), 3) for each in zip(*seen, strict=True)))


def together(way: str, path: Path) -> tuple[float, float, float]:
    """Let all processes work for a while; return effects a second, the slowest's share and the longest wait in ms."""
    WAYS[way](path)("warm")
    spawn = multiprocessing.get_context("spawn")
    start, told = spawn.Barrier(PROCESSES), spawn.SimpleQueue()
    crowd = [spawn.Process(target=work, args=(way, path, number, start, told)) for number in range(PROCESSES)]
    for each in crowd:
        each.start()
    answers = [told.get() for _ in crowd]
    for each in crowd:
        each.join()
    done = [count for count, _ in answers]
    return sum(done) / SLICE_S, min(done) / statistics.mean(done), max(wait for _, wait in answers) * 1000


def work(way: str, path: Path, number: int, start: Barrier, told: Any) -> None:
    """Be one process: perform effects for a while, then tell how many and the longest that one took."""
    perform, done, longest = WAYS[way](path), 0, 0.0
    start.wait()
    begun = last = time.perf_counter()
    while last - begun < SLICE_S:
        perform(f"p-{number}-{done}")
        now = time.perf_counter()
        done, longest, last = done + 1, max(longest, now - last), now
    told.put((done, longest))


def by_hand(path: Path) -> Callable[[str], object]:
    return Floor(path).perform


def with_perform(path: Path) -> Callable[[str], object]:
    cf = Counterfoil.open(f"sqlite:///{path}")
    return lambda key: cf.perform(create_ticket, request_id=key, **GIVEN)


WAYS: dict[str, Callable[[Path], Callable[[str], object]]] = {
    "two commits by hand, SQLite's own waiting": by_hand,
    "perform, in turns": with_perform,
}


def show(answer: Shares) -> None:
    """Print the answer."""
    print(f"\n{answer.question} (median of {ROUNDS} rounds of {SLICE_S:.0f} s)")
    for each in answer.ways:
        print(
            f"  {each.way:44} {each.per_second:>8.0f} a second, the slowest gets {each.slowest_share:.2f} of an equal"
            f" share, longest wait {each.longest_wait_ms:.0f} ms"
        )
