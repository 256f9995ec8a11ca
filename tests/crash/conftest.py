"""Where the worlds of crash tests live: each scenario survives on every store."""

from collections.abc import Callable, Iterable, Iterator

import pytest

from counterfoil.testing.grounds import Ground, ground_at
from counterfoil.testing.scenario import Scenario

SQLITE, POSTGRES = "sqlite", "postgres"


def everywhere(scenarios: Iterable[Scenario], is_soak: Callable[[Scenario, str], bool]) -> list[object]:
    """Return each scenario on each store, to be parameters named `scenario` and `server`."""
    return [
        pytest.param(
            scenario, store, id=f"{scenario.name}-{store}", marks=[pytest.mark.soak] * is_soak(scenario, store)
        )
        for store in (SQLITE, POSTGRES)
        for scenario in scenarios
    ]


@pytest.fixture(params=(SQLITE, POSTGRES), scope="module")
def server(request: pytest.FixtureRequest) -> str | None:
    """What the crash kit is given: nothing for SQLite files of its own, or a server."""
    if request.param == SQLITE:
        return None
    return str(request.getfixturevalue("postgres_server").root)


@pytest.fixture(scope="module")
def ground(server: str | None) -> Iterator[Ground]:
    """Where the worlds of one scenario after the other live."""
    with ground_at(server) as made:
        yield made
