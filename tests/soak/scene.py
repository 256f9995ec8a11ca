"""The scene of a soak run: one server, a wire before it, two providers and a crew of workers."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from counterfoil.testing.wire import Wire
from tests.postgres.servers import PrivateServer
from tests.soak.providers import HONOURED, IGNORED, Providers
from tests.soak.worker import Orders, arguments

ROOT = Path(__file__).parents[2]
WORKERS = 4
PATIENCE = 90.0
"""Seconds that a worker has for its last calls."""


@dataclass(slots=True)
class Crew:
    """The workers: two of each colour, one of which goes through the wire; the others reach the server directly."""

    direct: str
    wired: str
    folder: Path
    providers: Providers
    began: float = field(default_factory=time.time)
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    started: int = 0
    crashed: list[str] = field(default_factory=list)

    @property
    def stop(self) -> Path:
        return self.folder / "stop"

    def start(self) -> None:
        """Start the workers, and wait until each has had an answer."""
        self.workers = [self._start(number) for number in range(WORKERS)]
        until = time.monotonic() + PATIENCE
        while len(list(self.folder.glob("notes-*"))) < WORKERS:
            assert time.monotonic() < until, "the workers do not begin"
            time.sleep(0.05)

    def replace(self, number: int) -> None:
        """Kill a worker and start another in its place."""
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number] = self._start(number)

    def end(self) -> None:
        """Let all of them come to an end by themselves."""
        self.stop.touch()
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
        for worker in self.workers:
            code = worker.wait(PATIENCE)
            if code:
                self.crashed.append(f"a worker ended with {code}")

    def kill(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()

    def notes(self) -> Iterator[dict[str, Any]]:
        """Yield what the workers have noted; a line that a kill cut short is none."""
        for path in sorted(self.folder.glob("notes-*")):
            for line in path.read_text().splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    continue

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        self.started += 1
        orders = Orders(
            url=self.wired if number % 2 else self.direct,
            notes=str(self.folder / f"notes-{self.started}"),
            stop=str(self.stop),
            began=self.began,
            seed=self.started,
            awaiting=number >= WORKERS // 2,
        )
        urls = {HONOURED: self.providers.honouring.url, IGNORED: self.providers.ignoring.url}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return subprocess.Popen(arguments(orders), cwd=ROOT, env={**os.environ, **urls, "PYTHONPATH": path})


@contextmanager
def scene(server: PrivateServer, database: str, folder: Path) -> Iterator[tuple[Crew, Wire]]:
    """Set the scene and clear it away."""
    with ExitStack() as at_the_end:
        honouring = at_the_end.enter_context(CountingProvider(Settings(keys=True)))
        ignoring = at_the_end.enter_context(CountingProvider(Settings(keys=False)))
        wire = at_the_end.enter_context(Wire(server.host, server.port))
        url = server.url(database)
        wired = f"{wire.through(url)}?sslmode=disable&gssencmode=disable"
        crew = Crew(url, wired, folder, Providers(honouring, ignoring))
        at_the_end.callback(crew.kill)
        yield crew, wire
