"""`counterfoil worker` as a process: it stops in good order, and when it is killed another one goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil import Counterfoil
from tests.processes.scene import Scene
from tests.processes.worker import TENANT, tickets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
from tests.processes.worker import opened, tickets

effect = tickets({kind!r}, lease={lease!r})


def program():
    return opened({database!r}, {provider!r})
"""


class Workers:
    """A program in a module of its own, and worker processes for it."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.folder = scene, folder
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, kind: str) -> None:
        self.scene.order(kind)
        facts = {"kind": kind, "lease": "1s", "database": self.scene.url, "provider": self.scene.provider.url}
        (self.folder / "program.py").write_text(PROGRAM.format(**facts), "utf-8")

    def enqueue(self, kind: str, *requests: str) -> None:
        made = tickets(kind, lease="1s")
        with Counterfoil.open(self.scene.url) as cf:
            for request_id in requests:
                cf.enqueue(made, tenant=TENANT, request_id=request_id, title=f"ticket of {request_id}")

    def start(self, *more: str) -> "subprocess.Popen[str]":
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        argv = [sys.executable, "-m", "counterfoil", "worker", "--app", "program:program", *more]
        started = subprocess.Popen(
            argv,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(started)
        return started

    def states(self) -> dict[str, str]:
        return {row["operation_id"].removeprefix("ticket:"): row["state"] for row in self.scene.rows("operation")}

    def close(self) -> None:
        for each in self.processes:
            each.kill()
            each.communicate()


@pytest.fixture
def workers(scene: Scene, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(scene, tmp_path)
    yield made
    made.close()


def ended(worker: "subprocess.Popen[str]") -> tuple[int, Any]:
    out, _ = worker.communicate(timeout=60)
    return worker.returncode, json.loads(out) if out else None


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_an_effect_lets_it_be_settled_and_nothing_more_be_claimed(
    workers: Workers, how: signal.Signals
) -> None:
    workers.write("opaque")
    workers.scene.provider.order("hold")
    workers.enqueue("opaque", "r-1")
    worker = workers.start("--json", "--batch", "1", "--concurrency", "1")
    workers.scene.provider.wait_held()
    worker.send_signal(how)
    workers.enqueue("opaque", "r-2")
    with pytest.raises(subprocess.TimeoutExpired):  # it waits for the effect
        worker.wait(1.5)
    workers.scene.provider.release()
    code, told = ended(worker)
    assert code == 0
    assert (told["claimed"], told["settled"], told["stopped"]) == (1, 1, True)
    assert workers.states() == {"r-1": "succeeded", "r-2": "pending"}
    assert workers.scene.provider.received() == 1


def test_an_idle_worker_says_that_it_began_and_ends_at_a_signal(workers: Workers) -> None:
    workers.write("opaque")
    worker = workers.start()
    assert worker.stdout is not None
    first = worker.stdout.readline()
    assert first.startswith("Sending processes.opaque of ")
    assert str(worker.pid) in first
    workers.enqueue("opaque", "r-1")
    workers.scene.provider.wait_accepted(1)
    worker.terminate()
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, err) == (0, "")
    assert out == "Stopped by a signal: 1 claimed, 1 settled.\n"


def test_a_second_signal_ends_it_at_once(workers: Workers) -> None:
    workers.write("opaque")
    workers.scene.provider.order("hold")
    workers.enqueue("opaque", "r-1")
    worker = workers.start()
    workers.scene.provider.wait_held()
    worker.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.5)
    worker.terminate()
    assert worker.wait(5) == -signal.SIGTERM
    workers.scene.provider.release()
    assert workers.states() == {"r-1": "in_flight"}


@pytest.mark.parametrize(
    ("kind", "state", "received"), [("keyed", "succeeded", 2), ("queryable", "succeeded", 1), ("opaque", "unknown", 1)]
)
def test_another_worker_goes_on_where_one_was_killed(workers: Workers, kind: str, state: str, received: int) -> None:
    workers.write(kind)
    workers.scene.provider.order("hold")
    workers.enqueue(kind, "r-1")
    worker = workers.start()
    workers.scene.provider.wait_held()
    worker.kill()
    worker.wait()
    workers.scene.provider.release()
    workers.enqueue(kind, "r-2")
    other = workers.start("--json")
    until = time.monotonic() + 60
    while workers.states() != {"r-1": state, "r-2": "succeeded"} and time.monotonic() < until:
        time.sleep(0.2)
    other.terminate()
    code, told = ended(other)
    assert (code, told["lost"]) == (0, 1)
    assert workers.states() == {"r-1": state, "r-2": "succeeded"}
    assert (workers.scene.provider.received(), workers.scene.provider.count()) == (received + 1, 2)


def test_it_drains_and_ends(workers: Workers) -> None:
    workers.write("keyed")
    workers.enqueue("keyed", *(f"r-{number}" for number in range(25)))
    code, told = ended(workers.start("--drain", "--json", "--effects", "processes.keyed"))
    assert (code, told["claimed"], told["settled"], told["stopped"]) == (0, 25, 25, False)
    assert workers.scene.provider.count() == 25
