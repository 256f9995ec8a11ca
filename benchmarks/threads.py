"""What do many callers in one process gain by sharing one writer, against connections of their own?"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.effects import GIVEN, create_ticket
from benchmarks.floor import Floor
from benchmarks.kit import Comparison, Work, compare, once
from counterfoil import Counterfoil

CALLERS = 32
SLICE_S = 0.6


def run(disk: Path, _memory: Path) -> list[Comparison]:
    with Counterfoil.open(f"sqlite:///{disk}/threads.db") as cf:
        floors, ids = [Floor(disk / "threads-floor.db") for _ in range(CALLERS)], itertools.count()
        waits: dict[str, list[float]] = {"own": [], "shared": []}

        def own(caller: int) -> None:
            floors[caller].perform(f"r-{next(ids)}")

        def shared(_caller: int) -> None:
            cf.perform(create_ticket, request_id=f"r-{next(ids)}", **GIVEN)

        many: dict[str, Work] = {
            "two commits by hand, a connection each": lambda: together(own, waits["own"]),
            "perform": lambda: together(shared, waits["shared"]),
        }
        answer = compare(f"{CALLERS} callers in one process, seconds per effect", many, rounds=8, calls=1, clock=once)
        slow = [percentile(waits[name], 0.99) * 1000 for name in ("own", "shared")]
        print(f"  99 of 100 calls were done within {slow[0]:.0f} ms by hand and {slow[1]:.0f} ms with perform")
        return [answer]


def together(work: Callable[[int], None], waits: list[float]) -> float:
    """Let all callers work for a while; return seconds per call."""
    done, until = [0] * CALLERS, time.perf_counter() + SLICE_S

    def caller(number: int) -> None:
        while (start := time.perf_counter()) < until:
            work(number)
            waits.append(time.perf_counter() - start)
            done[number] += 1

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(CALLERS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - begun) / sum(done)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]
