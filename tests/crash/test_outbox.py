"""Every way through the outbox survives a crash at every point, in both colours and on every store."""

import pytest

from counterfoil.testing.crash import crash_on
from counterfoil.testing.grounds import Ground
from counterfoil.testing.kills import kill_at_each_commit
from counterfoil.testing.scenario import Scenario
from tests.crash.conftest import POSTGRES, SQLITE, everywhere
from tests.crash.outbox import ALL
from tests.strides import NEAR

FEWEST_POINTS = 14


IN_EVERY_CHANGE = {
    SQLITE: {"outbox-keyed-lost"},
    POSTGRES: {"outbox-queryable-lost"},
}


def is_soak(scenario: Scenario, store: str) -> bool:
    """Say whether every change can do without it: both colours run the same dispatcher."""
    return scenario.name not in IN_EVERY_CHANGE[store]


@pytest.mark.parametrize(("scenario", "server"), everywhere(ALL, is_soak), indirect=["server"])
def test_a_crash_at_any_point_leaves_one_effect_or_an_honest_unknown(scenario: Scenario, ground: Ground) -> None:
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
