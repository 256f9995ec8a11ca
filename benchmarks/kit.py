"""Paired benchmarks: variants take turns in short shuffled rounds, and ratios are formed inside a round.

A shared machine drifts by factors within seconds, so absolute times mean little; a ratio of two things done in the same
breath means something. Each comparison carries a twin of its baseline: how far the twin is from 1 is the noise.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

TWIN = "the baseline once more"
FAIR = (0.85, 1.15)
"""A twin outside of this says that the machine was too restless; the comparison is repeated."""
TRIES = 3
RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant: microseconds per call (median), and cost as a multiple of the baseline (median and quartiles)."""

    us: float
    cost: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One question and its answer; without a verdict the machine was too restless to tell."""

    question: str
    clock: str
    baseline: str
    rounds: int
    calls: int
    verdict: bool
    variants: dict[str, Measured]


Work = Callable[[], object]


def cpu(work: Work, calls: int) -> float:
    """Return seconds of this thread's CPU per call."""
    start = time.thread_time()
    for _ in range(calls):
        work()
    return (time.thread_time() - start) / calls


def wall(work: Work, calls: int) -> float:
    """Return seconds per call, the quick fifth of the calls: what others' disk traffic spoils are the slow ones."""
    return sorted(_each(work, calls))[calls // 5]


def median(work: Work, calls: int) -> float:
    """Return seconds per call, the median of all calls: what is waited for most often, if the disk is left alone."""
    return statistics.median(_each(work, calls))


def _each(work: Work, calls: int) -> list[float]:
    taken = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return taken


def once(work: Work, calls: int) -> float:
    """Return what the work itself measured: seconds per whatever it did."""
    return statistics.median(float(work()) for _ in range(calls))  # type: ignore[arg-type]  # such work returns seconds


def compare(
    question: str,
    variants: Mapping[str, Work],
    *,
    rounds: int = 25,
    calls: int = 50,
    clock: Callable[[Work, int], float] = cpu,
) -> Comparison:
    """Compare variants with the first of them, which is the baseline; print and return the answer."""
    baseline = next(iter(variants))
    contest = {**variants, TWIN: variants[baseline]}
    for work in variants.values():
        clock(work, calls)
    measured, tries = _rounds(contest, baseline, rounds, calls, clock), 1
    while not _is_fair(measured) and tries < TRIES:
        measured, tries = _rounds(contest, baseline, rounds, calls, clock), tries + 1
    answer = Comparison(question, clock.__name__, baseline, rounds, calls, _is_fair(measured), measured)
    show(answer)
    return answer


def _is_fair(measured: Mapping[str, Measured]) -> bool:
    return FAIR[0] <= measured[TWIN].cost <= FAIR[1]


def _rounds(
    contest: Mapping[str, Work], baseline: str, rounds: int, calls: int, clock: Callable[[Work, int], float]
) -> dict[str, Measured]:
    taken: dict[str, list[float]] = {name: [] for name in contest}
    order = list(contest)
    for _ in range(rounds):
        random.shuffle(order)
        gc.collect()
        for name in order:
            taken[name].append(clock(contest[name], calls))
    return {name: _measured(each, taken[baseline]) for name, each in taken.items()}


def _measured(taken: list[float], base: list[float]) -> Measured:
    ratios = [one / other for one, other in zip(taken, base, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Measured(
        us=round(statistics.median(taken) * 1e6, 1),
        cost=round(statistics.median(ratios), 2),
        low=round(low, 2),
        high=round(high, 2),
    )


def show(answer: Comparison) -> None:
    """Print one answer."""
    print(
        f"\n{answer.question} ({answer.clock}{'' if answer.verdict else ', NO VERDICT: the machine is too restless'})"
    )
    for name, each in answer.variants.items():
        print(f"  {name:58} {each.us:>10.1f} us  {each.cost:>6.2f}x  [{each.low:.2f}, {each.high:.2f}]")


def save(name: str, machine: Mapping[str, object], answers: list[Comparison]) -> None:
    """Write one script's answers as JSON."""
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": machine, "answers": [asdict(answer) for answer in answers]}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
