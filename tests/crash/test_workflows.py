"""A workflow survives a crash at every point: one effect of each kind, the same end, and nothing left asleep."""

import pytest

from counterfoil.drivers import sqlite_writer
from counterfoil.testing.crash import crash_on
from counterfoil.testing.grounds import Ground
from counterfoil.testing.scenario import Scenario
from tests.crash.conftest import POSTGRES, everywhere
from tests.crash.workflows import WORKFLOWS
from tests.strides import EVERY

FEWEST_POINTS = 150
STRIDE = EVERY if EVERY == 1 else 4 * EVERY
"""A run takes long and has many points: every change meets some of them, `make crash` all."""


def is_soak(scenario: Scenario, store: str) -> bool:
    """Say whether every change can do without it: the awaiting colour meets its crashes on SQLite."""
    return (store == POSTGRES) is scenario.name.endswith("/async")


@pytest.mark.parametrize(("scenario", "server"), everywhere(WORKFLOWS, is_soak), indirect=["server"])
def test_a_crash_at_any_point_leaves_a_workflow_that_ends_the_same_with_one_effect_of_each_kind(
    scenario: Scenario, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "BATCH", 1)
    report = crash_on(ground, scenario, every=STRIDE)
    report.raise_if_violated()
    assert len(report.points) >= FEWEST_POINTS
