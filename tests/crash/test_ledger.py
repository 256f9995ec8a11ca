"""Every way through the ledger survives a crash at every point, in both colours and on every store."""

import pytest

from counterfoil.testing.crash import crash_on
from counterfoil.testing.grounds import FILES, Ground
from counterfoil.testing.kills import kill_at_each_commit
from counterfoil.testing.scenario import Scenario
from tests.crash.conftest import POSTGRES, everywhere
from tests.crash.scenarios import ALL, BY_NAME
from tests.strides import EVERY

# How many points each must have at the least, so that no scenario passes by doing less than it says. On PostgreSQL half
# as many will do: connections are open already, and a statement that stands alone is a transaction by itself.
POINTS = {
    "opaque": 18,
    "keyed": 18,
    "queryable": 18,
    "keyed-and-queryable": 18,
    "refused": 20,
    "not-sent": 20,
    "timed-out": 26,
    "cancelled": 22,
    "two-tenants": 44,
    "found": 22,
    "absent": 38,
    "absent-reviewed": 18,
    "cannot-tell": 18,
    "keyed-lost": 28,
    "keyed-cannot-tell": 32,
    "too-early": 18,
    "key-expired": 26,
    "key-expired-found": 34,
    "taken-over-opaque": 22,
    "taken-over-keyed": 32,
    "taken-over-queryable": 50,
    "late-opaque": 50,
    "late-keyed": 56,
    "late-queryable": 56,
    "late-time-out": 62,
    "verified": 14,
    "verified-unknown": 26,
    "judged-happened": 26,
    "judged-retry": 40,
    "judged-close": 26,
    "review-opened": 18,
    "transactional": 14,
    "statement": 8,
    "joined": 12,
    "joined-statement": 8,
    "opened": 54,
}


def base(scenario: Scenario) -> str:
    return scenario.name.partition("/")[0]


def least_points(scenario: Scenario, ground: Ground) -> int:
    return POINTS[base(scenario)] // (1 if ground is FILES else 2)


def is_soak(scenario: Scenario, store: str) -> bool:
    """Say whether every change can do without it: the awaiting colour meets its crashes on SQLite."""
    return store == POSTGRES and scenario.name.endswith("/async")


@pytest.mark.parametrize(("scenario", "server"), everywhere(ALL, is_soak), indirect=["server"])
def test_a_crash_at_any_point_leaves_one_effect_and_one_receipt_or_an_honest_unknown(
    scenario: Scenario, ground: Ground
) -> None:
    every = 1 if ground is FILES and not scenario.name.endswith("/async") else EVERY  # the other ones show the same
    report = crash_on(ground, scenario, every=every)
    report.raise_if_violated()
    assert len(report.points) >= least_points(scenario, ground)
    assert len(report.runs) > len(report.points) // every
    if every == 1:
        assert set(report.states) == {state.value for state in scenario.may_end} or not scenario.operations


def test_every_scenario_states_its_points_and_comes_in_both_colours() -> None:
    assert {base(scenario) for scenario in ALL} == POINTS.keys()
    blocking_only = {"joined", "joined-statement", "taken-over-opaque"}  # the caller's own connection is blocking
    awaiting = {base(scenario) for scenario in ALL if scenario.name.endswith("/async")}
    assert POINTS.keys() - awaiting == blocking_only


KILLED = ("opaque", "keyed/async", "queryable", "transactional/async", "late-keyed/async", "statement", "joined")


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_a_killed_process_leaves_the_same(name: str, server: str | None) -> None:
    _kill(BY_NAME[name], server)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_a_killed_process_leaves_the_same_everywhere(scenario: Scenario, server: str | None) -> None:
    _kill(scenario, server)


def _kill(scenario: Scenario, server: str | None) -> None:
    report = kill_at_each_commit(scenario, url=server)
    report.raise_if_violated()
    assert len(report.points) >= 1
    assert [run.outcome for run in report.runs[1:]] == ["killed"] * len(report.points)
