"""Threads and whole runs of graphs survive a crash at every point and every COMMIT that nobody heard of."""

from itertools import count
from pathlib import Path

import pytest

from counterfoil.drivers import sqlite_writer
from counterfoil.testing.crash import Strike, crash_on, enter, is_commit, judge, prepare
from counterfoil.testing.crash_report import CrashPoint, Manner
from counterfoil.testing.grounds import FILES, Ground
from counterfoil.testing.scenario import Scenario
from tests.crash.conftest import POSTGRES, everywhere
from tests.crash.graphs import GRAPHS, POOLED
from tests.crash.threads import THREADS
from tests.strides import EVERY, NEAR, first_of

ALL = (*THREADS, *GRAPHS)

# How many points each must have at the least, so that no scenario passes by doing less than it says. On PostgreSQL a
# third will do: connections are open already, and most of what a graph stores is one statement that stands alone.
POINTS = {
    "run": 44,
    "taken-over": 48,
    "taken-over-the-dead": 54,
    "busy": 12,
    "park": 26,
    "read": 14,
    "delete": 30,
    "prune": 24,
    "copy": 34,
    "fork": 28,
    "renew": 26,
    "chain": 108,
    "interrupt": 138,
    "parallel": 132,
    "subgraph": 162,
    "functional": 78,
    "parked": 160,
    "update": 150,
    "time-travel": 166,
    "minted": 122,
    "enqueued": 110,
}

# What the others show of the awaiting runtime, and of threads that share a COMMIT, is enough for every change.
LONG = ("parked", "update", "time-travel", "subgraph", "minted", "enqueued")
SOAK = {f"{name}/{kind}" for name in LONG for kind in ("async", "pooled", "pooled-async")}


def base(scenario: Scenario) -> str:
    return scenario.name.partition("/")[0]


def is_soak(scenario: Scenario, store: str) -> bool:
    """Say whether every change can do without it: the awaiting colour meets its crashes on SQLite."""
    return scenario.name in SOAK or (store == POSTGRES and scenario.name.endswith("/async"))


def least_points(scenario: Scenario, ground: Ground) -> int:
    return POINTS[base(scenario)] // (1 if ground is FILES else 3)


@pytest.mark.parametrize(("scenario", "server"), everywhere(ALL, is_soak), indirect=["server"])
def test_a_crash_at_any_point_leaves_a_thread_that_is_finished_with_one_effect_of_each_kind(
    scenario: Scenario, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not scenario.ordered:  # threads that meet would share a transaction in some runs and not in others
        monkeypatch.setattr(sqlite_writer, "BATCH", 1)
    report = crash_on(ground, scenario, every=EVERY)
    report.raise_if_violated()
    assert len(report.points) >= least_points(scenario, ground)
    assert len(report.runs) > len(report.points) // EVERY


def test_every_scenario_states_its_points_and_comes_in_both_colours() -> None:
    assert {base(scenario) for scenario in ALL} == POINTS.keys()
    awaiting = {base(scenario) for scenario in ALL if scenario.name.endswith("/async")}
    assert POINTS.keys() - awaiting == {"renew"}  # heartbeats are blocking


class Nth(Strike):
    """Strikes at the n-th point, or at the n-th COMMIT, whatever that is this time."""

    def __init__(self, number: int, manner: Manner) -> None:
        super().__init__(CrashPoint(0, "", ""), manner)
        self._number = number
        self._met = count(1)

    def reach(self, here: CrashPoint) -> None:
        """Strike, or go on."""
        counts = self.manner is Manner.CRASH or is_commit(here)
        if not self.struck and counts and next(self._met) == self._number:
            self.target = here
        super().reach(here)


def strike_everywhere(scenario: Scenario, manner: Manner, folder: Path, ground: Ground) -> int:
    """Strike at one point after the other until a run ends before it gets there; return the number of the last."""
    shop = prepare(scenario, folder, ground)
    for number in count(1 + first_of(f"{scenario.name} {type(ground).__name__}", NEAR), NEAR):
        strike = Nth(number, manner)
        world = shop.world(str(number), strike)
        entry = enter(scenario.run, world)
        run = judge(scenario, world, entry, manner, strike.target)
        assert not run.violations, f"{run}: {run.violations}"
        if not strike.struck:
            return number - NEAR
    raise AssertionError


@pytest.mark.parametrize(("scenario", "server"), everywhere(POOLED, is_soak), indirect=["server"])
def test_a_lost_commit_of_threads_that_meet_reaches_no_caller(
    scenario: Scenario, ground: Ground, tmp_path: Path
) -> None:
    assert strike_everywhere(scenario, Manner.COMMIT_LOST, tmp_path, ground) > POINTS[base(scenario)] // 14 - NEAR


@pytest.mark.soak
@pytest.mark.parametrize(("scenario", "server"), everywhere(POOLED, is_soak), indirect=["server"])
def test_a_crash_among_the_runtimes_own_threads_leaves_the_same(
    scenario: Scenario, ground: Ground, tmp_path: Path
) -> None:
    least = least_points(scenario, ground) * 3 // 4
    assert strike_everywhere(scenario, Manner.CRASH, tmp_path, ground) > least - NEAR
