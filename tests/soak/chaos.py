"""Faults for a running scene, at random: of the server, of the wire, of the workers."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from counterfoil.testing.wire import Wire
from tests.faults.subject import MANNERS, cut
from tests.postgres.databases import END_SESSIONS
from tests.postgres.servers import PrivateServer

if TYPE_CHECKING:
    from tests.soak.scene import Crew

END_ONE = END_SESSIONS.rstrip() + " order by random() limit 1"
PAUSE = (0.05, 0.8)
"""Seconds between two faults."""


@dataclass(slots=True)
class Chaos:
    """Chooses and does what goes wrong."""

    server: PrivateServer
    database: str
    wire: Wire
    crew: "Crew"
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def rage(self, seconds: float) -> None:
        """Let things go wrong for so long, then put all of them right."""
        until = time.monotonic() + seconds
        faults = self._faults()
        while time.monotonic() < until:
            time.sleep(self.chance.uniform(*PAUSE))
            (name,) = self.chance.choices(list(faults), [weight for weight, _ in faults.values()])
            faults[name][1]()
            self.done[name] += 1
        self.wire.restore()
        self.server.start()

    def _faults(self) -> dict[str, tuple[int, Callable[[], None]]]:
        return {
            "a process of the server is killed": (2, self._kill_child),
            "the server crashes and starts": (1, lambda: self.server.restart("immediate")),
            "the server restarts": (1, lambda: self.server.restart("fast")),
            "the server is away for seconds": (1, self._away),
            "a session is ended": (3, lambda: self._tell(END_ONE)),
            "all sessions are ended": (1, lambda: self._tell(END_SESSIONS)),
            "all connections break off": (3, self.wire.cut),
            "a request is lost": (4, lambda: cut(self.wire, self.chance.choice(MANNERS))),
            "the reply to a COMMIT is lost": (4, lambda: self.wire.cut_before_reply(b"COMMIT")),
            "the wire holds everything": (2, self._hold),
            "the wire swallows everything": (2, self._swallow),
            "connections are refused": (2, self._refuse),
            "a worker is killed": (4, self._kill_worker),
            "a worker is stopped": (3, self._stop_worker),
        }

    def _kill_child(self) -> None:
        with suppress(ProcessLookupError, IndexError, FileNotFoundError):
            children = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split()
            os.kill(int(self.chance.choice(children)), signal.SIGKILL)
        self.server.start()  # as an operator would: without the child that was recovering, it ended itself

    def _away(self) -> None:
        self.server.stop("immediate")
        time.sleep(self.chance.uniform(0.5, 4))
        self.server.start()

    def _tell(self, statement: str) -> None:
        with suppress(psycopg.Error):  # it may be away itself
            self.server.execute(statement, database=self.database)

    def _hold(self) -> None:
        self.wire.hold(self.chance.choice(["requests", "replies"]))
        time.sleep(self.chance.uniform(0.1, 3))
        self.wire.restore()

    def _swallow(self) -> None:
        self.wire.black_hole()
        time.sleep(self.chance.uniform(0.1, 4))
        self.wire.restore()

    def _refuse(self) -> None:
        self.wire.refuse()
        self.wire.cut()
        time.sleep(self.chance.uniform(0.1, 4))
        self.wire.restore()

    def _kill_worker(self) -> None:
        self.crew.replace(self.chance.randrange(len(self.crew.workers)))

    def _stop_worker(self) -> None:
        worker = self.chance.choice(self.crew.workers)
        with suppress(ProcessLookupError):
            worker.send_signal(signal.SIGSTOP)
            time.sleep(self.chance.uniform(0.5, 6))
            worker.send_signal(signal.SIGCONT)
