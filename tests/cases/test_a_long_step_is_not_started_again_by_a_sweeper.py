"""B24: a step of several minutes was started a second time although the first was healthy and finished.

Sources: https://github.com/langchain-ai/langgraph/issues/7213, https://github.com/langchain-ai/langgraph/issues/7417

The effect blocks its worker's event loop for three leases; the heartbeat has a thread of its own.
"""

import time

import pytest

from counterfoil.testing.provider_client import CountingProvider
from tests.processes.dispatching import EFFECTS, TENANT, Shift, opened, start
from tests.processes.scene import Scene


@pytest.fixture
def scene(url: str, counting: CountingProvider) -> Scene:
    counting.reset()
    return Scene(url, counting)


def test_a_healthy_worker_that_blocks_its_loop_keeps_its_claim(scene: Scene) -> None:
    with opened(scene.url, scene.provider.url) as cf:
        cf.enqueue(EFFECTS["blocking"], number=1, tenant=TENANT, request_id="r")
    shift = Shift(database=scene.url, provider=scene.provider.url, kind="blocking")
    workers = [start(shift) for _ in range(2)]
    try:
        until = time.monotonic() + 60
        while (state := scene.state) != "succeeded":
            assert state in {"pending", "in_flight"}
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    (row,) = scene.rows("operation")
    assert (row["attempt"], scene.provider.received(), scene.rows("case")) == (1, 1, [])
