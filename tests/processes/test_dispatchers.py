"""Several dispatchers on one outbox: killed, stopped, told to end; what a provider in yet another process counts."""

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from counterfoil import OperationKey
from counterfoil.testing.provider_desk import Settings
from counterfoil.testing.provider_faults import Fault
from tests.processes.dispatching import EFFECTS, TENANT, Shift, opened, start
from tests.processes.scene import Scene

pytestmark = pytest.mark.slow

ROWS = int(os.environ.get("COUNTERFOIL_DISPATCH_ROWS", "200"))
LOST = 0.05
STOPPED_S = 4
"""Longer than a claim lasts: what the stopped one held is taken over by then."""
LIMIT_S = 60 + ROWS / 20


@contextmanager
def dispatchers(shift: Shift, count: int = 4) -> Iterator[list["subprocess.Popen[str]"]]:
    """Let dispatchers work inside the block, whatever becomes of them."""
    running = [start(shift) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def enqueued(scene: Scene, kind: str) -> list[str]:
    """Enqueue the messages, and let the provider lose every twentieth reply; return the keys that it is given."""
    made, keys = EFFECTS[kind], []
    with opened(scene.url, scene.provider.url) as cf:
        for first in range(0, ROWS, 500):
            numbers = [{"number": number} for number in range(first, min(first + 500, ROWS))]
            intents = cf.enqueue_all(made, numbers, tenant=TENANT, request_id="r")
            keys += [OperationKey(tenant=TENANT, operation_id=intent.operation_id) for intent in intents]
    names = [made.provider.key_for(key) for key in keys]
    lost = random.Random(kind).sample(names, round(ROWS * LOST))
    scene.provider.order(*(Fault(name="drop-reply", key=key) for key in lost))
    return lost


def until_settled(scene: Scene, open_states: set[str]) -> Counter[str]:
    until = time.monotonic() + LIMIT_S
    while (states := counted(scene)).keys() & open_states:
        assert time.monotonic() < until, f"not settled in {LIMIT_S} s: {states}"
        time.sleep(0.2)
    return states


def counted(scene: Scene) -> Counter[str]:
    return Counter(str(row["state"]) for row in scene.rows("operation"))


@pytest.mark.parametrize("kind", ["keyed", "opaque", pytest.param("queryable", marks=pytest.mark.soak)])
def test_four_dispatchers_send_each_once_although_one_is_killed_and_one_stopped(scene: Scene, kind: str) -> None:
    scene.provider.configure(Settings(keys=kind == "keyed"))
    lost = enqueued(scene, kind)
    with dispatchers(Shift(database=scene.url, provider=scene.provider.url, kind=kind)) as running:
        scene.provider.wait_accepted(ROWS // 8)
        running[0].kill()
        running[1].send_signal(signal.SIGSTOP)
        awake = threading.Timer(STOPPED_S, running[1].send_signal, [signal.SIGCONT])
        awake.start()  # it may hold locks, a SQLite file's one for writers too: those end with its transaction
        scene.provider.wait_accepted(ROWS // 2, timeout=LIMIT_S)
        still_open = {"pending", "in_flight"} | (set() if kind == "opaque" else {"unknown"})
        until_settled(scene, still_open)
        awake.join()
        for process in running[1:]:
            process.terminate()
        assert [process.wait(30) for process in running[1:]] == [0, 0, 0]
    accepted = Counter(one.key for one in scene.provider.accepted())
    states = counted(scene)  # the one that was stopped may have brought late replies
    if kind == "opaque":
        assert max(accepted.values()) == 1
        unknown = states["unknown"]
        assert len(lost) <= unknown <= len(lost) + 40  # two batches each of the one that was killed and the one stopped
        assert scene.cases() == ["unknown_outcome"] * unknown
        assert states == {"succeeded": ROWS - unknown, "unknown": unknown}
    else:
        assert states == {"succeeded": ROWS}
        assert set(accepted.values()) == {1}
        assert len(accepted) == ROWS
        # no look-up sees a sender that was stopped on the way: what it sends when it wakes proves the look-up wrong
        stalled = 20 if kind == "queryable" else 0
        assert scene.cases() in [["possible_double_effect"] * n for n in range(stalled + 1)]


def test_a_dispatcher_that_is_told_to_end_finishes_what_is_under_way(scene: Scene) -> None:
    scene.provider.configure(Settings(keys=False))
    with opened(scene.url, scene.provider.url) as cf:
        cf.enqueue_all(EFFECTS["opaque"], [{"number": n} for n in range(50)], tenant=TENANT, request_id="r")
    shift = Shift(database=scene.url, provider=scene.provider.url, kind="opaque")
    with dispatchers(shift, 1) as (process,):
        scene.provider.wait_accepted(5)
        process.terminate()
        assert process.wait(30) == 0
    states = counted(scene)
    assert states.keys() <= {"succeeded", "pending"}
    assert states["succeeded"] == scene.provider.count()
