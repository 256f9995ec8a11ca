"""Random faults of a real server under load: nothing is lost, nothing is duplicated, everything is told."""

import json
import os
import random
import time
from pathlib import Path

import pytest

from counterfoil import Counterfoil
from tests.postgres import fixtures, servers
from tests.postgres.servers import PrivateServer
from tests.soak import judge
from tests.soak.chaos import Chaos
from tests.soak.providers import Providers
from tests.soak.scene import scene

SECONDS, SEED = "COUNTERFOIL_SOAK_SECONDS", "COUNTERFOIL_SOAK_SEED"
LONG, SHORT = 600.0, 20.0
SHORT_SEED = 7
"""In every change the same faults; which of them meets what is chance enough."""


@pytest.mark.parametrize("seconds", [
    pytest.param(SHORT, marks=pytest.mark.soak, id="short"),
    pytest.param(float(os.environ.get(SECONDS, LONG)), marks=pytest.mark.soak, id="long"),
])  # fmt: skip
def test_random_faults_lose_nothing_and_duplicate_nothing(
    seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get(SEED, time.time_ns() % 10**6 if seconds > SHORT else SHORT_SEED))
    server, found = PrivateServer(servers.new_plan(fixtures.programs())), judge.Verdicts()
    try:
        url = server.create_database("soak")
        Counterfoil.open(url).close()
        with scene(server, "soak", tmp_path) as (crew, wire):
            crew.start()
            chaos = Chaos(server, "soak", wire, crew, random.Random(seed))
            chaos.rage(seconds)
            crew.end()
            with Counterfoil.open(url, wait="1s") as cf:
                cf.resources.provide(Providers, lambda: crew.providers)
                judge.settle_all(cf, crew.providers, found)
                judge.judge(cf, crew, found)
            report = {"seed": seed, "seconds": seconds, "faults": dict(chaos.done), **found.report()}
    finally:
        server.close()
    with capsys.disabled():
        print("\n" + json.dumps(report, indent=2))  # noqa: T201 - the report
    assert found.violations == []
    assert found.operations > seconds
    assert sum(chaos.done.values()) > seconds / 10
