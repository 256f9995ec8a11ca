"""The worker of the hiring demo: a process that does what is due whenever it is told to, and may be killed anywhere."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from counterfoil.demo.hiring.cuts import AtCommit, Cut, InReport, Knife, die
from counterfoil.demo.hiring.effects import Reports
from counterfoil.demo.hiring.office import Office, open_office
from counterfoil.demo.stage import ONE_AT_A_TIME, PATIENCE_S, DemoBroken
from counterfoil.testing.clock import FakeClock

# Each worker is forked from a process that has done the imports and nothing else: what it knows of the workflow it
# reads from the database.
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "counterfoil.demo.hiring.worker",
        "counterfoil.langgraph.registry",
        "counterfoil.workflows",
        "counterfoil.runtime.worker",
        "counterfoil.drivers.sqlite_async",
        "counterfoil.drivers.postgres_async",  # where psycopg is installed
        "detect_secrets.core.scan",
    ]
)


@dataclass(frozen=True, slots=True)
class Work:
    """Do what is due at this time, and die where it says."""

    now_ms: int
    cut: Cut | None = None


# --- in the worker's process ------------------------------------------------------------------------------------------


class CutReports(Reports):
    """Dies when a report is written, if it is told to."""

    is_armed = False

    def write(self, path: Path, text: str) -> None:
        """Write, and die."""
        super().write(path, text)
        if self.is_armed:
            die()


def prepare() -> None:
    """Let Ctrl-C end this process at once and without a traceback, and let nothing leave this machine."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ["LANGSMITH_TRACING_V2"] = "false"


def work(office: Office, pipe: Connection) -> None:
    """Do what is due whenever it is told to, and answer with what was committed; end with whoever tells it."""
    prepare()
    with suppress(EOFError):
        first: Work = pipe.recv()
        clock, knife, reports = FakeClock(first.now_ms), Knife(), CutReports(office.reports)
        with open_office(office, clock=clock, probe=knife) as cf:
            cf.resources.provide(Reports, lambda: reports)
            order = first
            while True:
                clock.advance(timedelta(milliseconds=order.now_ms - clock.now_ms()))
                reports.is_armed = isinstance(order.cut, InReport)
                knife.arm(order.cut if isinstance(order.cut, AtCommit) else None)
                cf.drain()
                pipe.send(dict(knife.committed))
                order = pipe.recv()


# --- in the demo's process --------------------------------------------------------------------------------------------


class Process:
    """A worker's process, with a pipe to it; a pipe that is closed ends it."""

    def __init__(self, target: Callable[[Office, Connection], None], office: Office) -> None:
        self.pipe, theirs = _PROCESSES.Pipe()
        self.process = _PROCESSES.Process(target=target, args=(office, theirs), daemon=True)
        with ONE_AT_A_TIME:
            self.process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        """Return its process id."""
        return self.process.pid

    def kill(self) -> None:
        """Kill it, wherever it is."""
        self.process.kill()
        self.reap()

    def close(self) -> None:
        """Let it end."""
        self.pipe.close()
        self.reap()

    def reap(self) -> None:
        """Wait for the end of the process, which is near."""
        with ONE_AT_A_TIME:
            self.process.join()


class Drainer(Process):
    """A worker that drains the database whenever it is told to."""

    def __init__(self, office: Office) -> None:
        super().__init__(work, office)

    def begin(self, order: Work) -> None:
        """Let it do what is due."""
        self.pipe.send(order)

    def end(self) -> dict[str, int] | None:
        """Return what it committed as soon as nothing is due any more, or None if it was killed.

        Raises:
            DemoBroken: it hangs, or ended otherwise.
        """
        try:
            if not self.pipe.poll(PATIENCE_S):
                self.kill()
                raise DemoBroken(f"a worker was not done within {PATIENCE_S:.0f} s")
            committed: dict[str, int] = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.reap()
            if self.process.exitcode != -signal.SIGKILL:
                raise DemoBroken(f"a worker ended with exit code {self.process.exitcode}") from None
            return None
        return committed
