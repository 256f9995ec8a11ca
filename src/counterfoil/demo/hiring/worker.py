"""The worker of the hiring demo: a process that does what is due whenever it is told to, and may be killed anywhere."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
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


def work(office: Office, pipe: Connection) -> None:
    """Do what is due whenever it is told to, and answer with what was committed; end with whoever tells it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ["LANGSMITH_TRACING_V2"] = "false"  # nothing leaves this machine
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


class Embedded:
    """A worker process that drains the database; the loop that wakes workflows runs inside it."""

    def __init__(self, office: Office) -> None:
        self._pipe, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=work, args=(office, theirs), daemon=True)
        with ONE_AT_A_TIME:
            self._process.start()
        theirs.close()

    def begin(self, order: Work) -> None:
        """Let it do what is due."""
        self._pipe.send(order)

    def end(self) -> dict[str, int] | None:
        """Return what it committed as soon as nothing is due any more, or None if it was killed.

        Raises:
            DemoBroken: it hangs, or ended otherwise.
        """
        try:
            if not self._pipe.poll(PATIENCE_S):
                self.kill()
                raise DemoBroken(f"a worker was not done within {PATIENCE_S:.0f} s")
            committed: dict[str, int] = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._reap()
            if self._process.exitcode != -signal.SIGKILL:
                raise DemoBroken(f"a worker ended with exit code {self._process.exitcode}") from None
            return None
        return committed

    def kill(self) -> None:
        """Kill it, wherever it is."""
        self._process.kill()
        self._reap()

    def close(self) -> None:
        """Let it end."""
        self._pipe.close()
        self._reap()

    def _reap(self) -> None:
        """Wait for the end of the process, which is near."""
        with ONE_AT_A_TIME:
            self._process.join()


ENGINES: Final[Mapping[str, Callable[[Office], Embedded]]] = {"embedded": Embedded}
"""What wakes workflows, and the workers that it comes with."""
