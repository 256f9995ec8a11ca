"""Play one situation in one column: its processes, its server, and what the server counted."""

import multiprocessing
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from threading import Lock
from typing import Any, Final

from counterfoil.demo.steps import Answer, Column, Decide, Given, GoOn, Report, Start, Step
from counterfoil.testing.provider_client import ProviderClient

# Every step is a process of its own, forked from one that has done the imports and nothing else: it knows of the steps
# before it only what the database file holds.
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["counterfoil.demo.worker"])

ONE_AT_A_TIME: Final = Lock()
"""Held while a process is started or reaped: `start` reaps all that have ended, and of two threads that reap one
process one is told a wrong exit code."""
PATIENCE_S: Final = 30.0
"""Far more than a step takes; it only bounds a demo that has gone wrong."""
_POLL_S: Final = 0.1


class DemoBroken(RuntimeError):
    """A demo process did something that no situation provides for; its traceback is on standard error."""


@dataclass(frozen=True, slots=True)
class Running:
    """A step under way in its process."""

    process: ForkServerProcess
    pipe: Connection

    @property
    def has_ended(self) -> bool:
        """Say whether a report is there, or the process is gone."""
        return self.pipe.poll()

    def report(self) -> Report:
        """Wait for the end of the process and return its report.

        Raises:
            DemoBroken: it hangs or ended otherwise than by a report or SIGKILL.
        """
        try:
            if not self.pipe.poll(PATIENCE_S):
                self.process.kill()
                raise DemoBroken(f"a demo process did not end within {PATIENCE_S:.0f} s")
            told: Report = self.pipe.recv()
        except EOFError:
            told = Report(end="killed")
        with ONE_AT_A_TIME:
            self.process.join()
        if told.end == "killed" and self.process.exitcode != -signal.SIGKILL:
            raise DemoBroken(f"a demo process ended with exit code {self.process.exitcode}")
        return told


def launch(step: Step) -> Running:
    """Run a step in a process of its own."""
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_work, args=(step, theirs), daemon=True)
    with ONE_AT_A_TIME:
        process.start()
    theirs.close()
    return Running(process, ours)


def _work(step: Step, pipe: Connection) -> None:
    from counterfoil.demo.worker import work

    work(step, pipe)


@dataclass(slots=True)
class Stage:
    """One situation in one column; `reports` and `counts` grow with each step."""

    server: ProviderClient
    template: Step
    reports: list[Report] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @property
    def column(self) -> Column:
        """Return the column that is played."""
        return self.template.column

    def start(self, title: str = "Printer offline", *, review: bool = False, **changes: Any) -> None:
        """Send a new input to the thread."""
        self._run(Start({"title": title, "review": review}), changes)

    def go_on(self, back_to: str | None = None) -> None:
        """Resume the thread with None, in a new process."""
        self._run(GoOn(back_to), {})

    def answer(self, value: Any) -> None:
        """Resume the thread's interrupt, in a new process."""
        self._run(Answer(value), {})

    def ask(self, **more: Any) -> None:
        """Send a new input to the graph in which a person decides before the ticket is opened."""
        self._run(Start({"title": "Printer offline", **more}), {"reviewed": True})

    def decide(self, ruling: str) -> None:
        """Answer whoever asks for a permission, in a new process; where nobody does, there is nothing to answer."""
        if self.reports[-1].end == "waiting":
            self._run(Decide(ruling), {"reviewed": True})

    def go_on_twice_at_once(self) -> None:
        """Resume the thread in two processes, both alive until each has been accepted or has given up."""
        self.server.order("hold", "hold")
        workers = [launch(replace(self.template, given=GoOn())) for _ in range(2)]
        deadline = time.monotonic() + PATIENCE_S
        while self._held() + sum(worker.has_ended for worker in workers) < len(workers):
            if time.monotonic() > deadline:
                raise DemoBroken("a worker neither reached the ticket server nor gave up")
        self.server.release()
        self._note(*(worker.report() for worker in workers))

    def _held(self) -> int:
        with suppress(TimeoutError):
            self.server.wait_held(2, timeout=_POLL_S)
        return len(self.server.wait_held(0))

    def _run(self, given: Given, changes: dict[str, Any]) -> None:
        self._note(launch(replace(self.template, given=given, **changes)).report())

    def _note(self, *reports: Report) -> None:
        self.reports.extend(reports)
        self.counts.append(self.server.count())
