"""Whoever asks, decides, claims or sends may die at any point: no decision is used without its effect being known."""

import pytest

from counterfoil.testing.crash import crash_on
from counterfoil.testing.grounds import Ground
from counterfoil.testing.kills import kill_at_each_commit
from counterfoil.testing.scenario import Scenario
from tests.crash.approvals import ALL
from tests.crash.conftest import POSTGRES, everywhere
from tests.strides import NEAR

FEWEST_POINTS = 14
ALWAYS = ("approved", "edited/async", "asked-again", "queued", "booked/async")


def is_soak(scenario: Scenario, store: str) -> bool:
    """Say whether every change can do without it: on a server those that differ most, in a file in one colour more."""
    if store == POSTGRES:
        return scenario.name not in ALWAYS
    return scenario.name.endswith("/async") and scenario.name not in ALWAYS


@pytest.mark.parametrize(("scenario", "server"), everywhere(ALL, is_soak), indirect=["server"])
def test_a_crash_at_any_point_leaves_every_decision_accounted_for(scenario: Scenario, ground: Ground) -> None:
    report = crash_on(ground, scenario, every=NEAR)
    report.raise_if_violated()
    assert len(report.points) >= FEWEST_POINTS
    assert set(report.states) <= {state.value for state in scenario.may_end}


@pytest.mark.soak
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_a_killed_process_leaves_the_same(scenario: Scenario, server: str | None) -> None:
    report = kill_at_each_commit(scenario, url=server)
    report.raise_if_violated()
    assert [run.outcome for run in report.runs[1:]] == ["killed"] * len(report.points)
