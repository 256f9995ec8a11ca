"""Workers in processes of their own, and waiting for what they do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from counterfoil import Counterfoil
from tests.engine.program import TENANT, Place

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0

T = TypeVar("T")


def until(ask: Callable[[], T | None], limit: float = LIMIT_S, every: float = 0.02) -> T:
    """Return what is asked for as soon as it is there."""
    end = time.monotonic() + limit
    while (found := ask()) is None:
        assert time.monotonic() < end, f"not so in {limit} s"
        time.sleep(every)
    return found


def status(cf: Counterfoil, workflow_id: str) -> str:
    return cf.workflows.get(workflow_id, tenant=TENANT).status


def until_status(cf: Counterfoil, workflow_id: str, wanted: str) -> None:
    until(lambda: True if status(cf, workflow_id) == wanted else None)


@dataclass
class Fleet:
    """The workers of a test."""

    place: Place
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, **changes: Any) -> "subprocess.Popen[str]":
        """Start a worker, and wait until it works."""
        return self._ready(self._begun(**changes))

    def start_two(self) -> list["subprocess.Popen[str]"]:
        """Start two workers at the same time."""
        return [self._ready(each) for each in [self._begun(), self._begun()]]

    def _begun(self, **changes: Any) -> "subprocess.Popen[str]":
        place = replace(self.place, **changes)
        environment = {**place.environment(), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        argv = [sys.executable, "-m", "counterfoil", "worker", "--app", "tests.engine.program:opened"]
        log = Path(place.folder) / f"worker-{len(self.processes)}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                argv, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.processes.append(process)
        return process

    def _ready(self, process: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines[1].startswith("Entering workflows of "), self.words()
        return process

    def forget_all(self) -> None:
        """Take from the engine all that it was told."""
        if self.place.engine == "procrastinate":
            with psycopg.connect(self.place.database, autocommit=True) as connection:
                connection.execute("delete from procrastinate_jobs where status = 'todo'")

    def words(self) -> str:
        """Return what the workers wrote to their logs."""
        return "\n".join(path.read_text() for path in sorted(Path(self.place.folder).glob("worker-*.log")))

    def holder(self, cf: Counterfoil, workflow_id: str) -> "subprocess.Popen[str]":
        """Return the worker that runs a workflow."""
        name = cf.workflows.get(workflow_id, tenant=TENANT).holder or ""
        return next(each for each in self.processes if f":{each.pid}:" in name)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
