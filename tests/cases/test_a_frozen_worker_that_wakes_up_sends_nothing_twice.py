"""B26: a stalled worker lost its lock, another one finished the job, then the first one finished it again.

Sources: https://github.com/taskforcesh/bullmq/issues/3183, https://github.com/OptimalBits/bull/issues/308
"""

import signal
import time
from dataclasses import replace

import pytest

from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.processes.dispatching import EFFECTS, TENANT, Shift, opened, start
from tests.processes.scene import Scene

LIMIT_S = 60
KINDS = {"keyed": True, "queryable": False}


@pytest.fixture
def scene(url: str, counting: CountingProvider) -> Scene:
    counting.reset()
    return Scene(url, counting)


def wait_for_state(scene: Scene, state: str) -> None:
    until = time.monotonic() + LIMIT_S
    while scene.state != state:
        assert time.monotonic() < until, scene.state
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("kind", "freezes"),
    [
        ("queryable", "before-send"),
        ("queryable", "after-send"),
        pytest.param("keyed", "before-send", marks=pytest.mark.soak),
        pytest.param("keyed", "after-send", marks=pytest.mark.soak),
    ],
)
def test_it_checks_its_claim_before_it_sends_and_when_it_records(scene: Scene, kind: str, freezes: str) -> None:
    scene.provider.configure(Settings(keys=KINDS[kind]))
    with opened(scene.url, scene.provider.url) as cf:
        cf.enqueue(EFFECTS[kind], number=1, tenant=TENANT, request_id="r")
    shift = Shift(database=scene.url, provider=scene.provider.url, kind=kind)
    first, other = start(replace(shift, freezes=freezes)), None
    try:
        wait_for_state(scene, "in_flight")
        if freezes == "after-send":
            scene.provider.wait_accepted(1, timeout=LIMIT_S)
        other = start(shift)
        wait_for_state(scene, "succeeded")
        first.send_signal(signal.SIGCONT)
        first.terminate()
        assert first.wait(30) == 0
    finally:
        for process in (first, other):
            if process is not None:
                process.kill()
                process.communicate()
    assert scene.provider.count() == 1
    (row,) = scene.rows("operation")
    assert (row["state"], row["attempt"]) == ("succeeded", 1 if (kind, freezes) == ("queryable", "after-send") else 2)
    assert scene.cases() == []
