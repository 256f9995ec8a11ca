"""What people do by hand and its audit entry commit together, or neither does, wherever their process dies."""

import pytest

from counterfoil.testing.crash import crash_on
from counterfoil.testing.grounds import Ground
from counterfoil.testing.scenario import Scenario
from tests.crash.conftest import POSTGRES, everywhere
from tests.crash.deeds import DEEDS
from tests.strides import EVERY, NEAR

FEWEST_POINTS = 10


def is_soak(scenario: Scenario, store: str) -> bool:
    """Say whether every change can do without it: both colours run the same scripts, and so do both stores."""
    return store == POSTGRES and scenario.name not in {"deeds-verdict", "deeds-tokens"}


@pytest.mark.parametrize(("scenario", "server"), everywhere(DEEDS, is_soak), indirect=["server"])
def test_a_deed_and_its_entry_are_there_together(scenario: Scenario, ground: Ground) -> None:
    every = EVERY if "tokens" in scenario.name else NEAR
    report = crash_on(ground, scenario, every=every)
    report.raise_if_violated()
    assert len(report.points) >= FEWEST_POINTS
