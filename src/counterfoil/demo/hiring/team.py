"""Three workers under an engine that spreads the work, of which one is killed while it has the workflow."""

import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Final

from counterfoil import Counterfoil
from counterfoil.demo.hiring.cuts import AtRandom
from counterfoil.demo.hiring.office import Office, open_office
from counterfoil.demo.hiring.person import settle
from counterfoil.demo.hiring.timeline import BEGINNING_MS, MOMENTS, WORKFLOW, Moment
from counterfoil.demo.hiring.trial import LIVING, SOON_MS, Trial
from counterfoil.demo.hiring.worker import Process, prepare
from counterfoil.demo.stage import PATIENCE_S, DemoBroken
from counterfoil.records import Workflow
from counterfoil.testing.clock import FakeClock

WORKERS: Final = 3
LOOK_S: Final = 0.02
"""How often the conductor looks at the workflow's row."""
LOST_S: Final = 2 * PATIENCE_S
"""How long a moment may take: a dead worker is noticed by its silence, after a quarter of a minute."""
LONGEST_DELAY_S: Final = 0.15
"""A step takes less."""
_PID: Final = re.compile(r"@[^:]*:(\d+):")
BUSY: Final = (0, 2, 3, 4, 5)
"""The moments in which there is something to do."""


class TickingClock(FakeClock):
    """A clock that is moved, and goes on by itself in between: workers are at work meanwhile."""

    def __init__(self, now_ms: int = BEGINNING_MS) -> None:
        super().__init__(now_ms)
        self._begun = time.monotonic()

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return super().now_ms() + int((time.monotonic() - self._begun) * 1000)


def at_random(kills: int) -> list[AtRandom]:
    """Return so many kills, the same ones in each run: their moments in turn, their delays by chance."""
    chance = random.Random(kills)  # noqa: S311 - no secret
    return [AtRandom(BUSY[n % len(BUSY)], n + 1, chance.uniform(0, LONGEST_DELAY_S)) for n in range(kills)]


def serve(office: Office, pipe: Connection) -> None:
    """Work until the pipe is closed, on a clock that is told what time it is."""
    prepare()
    with suppress(EOFError):
        now: int = pipe.recv()
        clock = TickingClock(now)
        with open_office(office, clock=clock) as cf, cf.working():
            while True:
                clock.advance(timedelta(milliseconds=max(0, now - clock.now_ms())))
                pipe.send(now)
                now = pipe.recv()


class Member(Process):
    """One of the workers."""

    def __init__(self, office: Office) -> None:
        super().__init__(serve, office)

    def set_clock(self, now_ms: int) -> None:
        """Say what time it is, and wait until it knows.

        Raises:
            DemoBroken: it does not answer.
        """
        self.pipe.send(now_ms)
        if not self.pipe.poll(PATIENCE_S):
            raise DemoBroken("a worker does not answer")
        self.pipe.recv()


@dataclass(slots=True)
class TeamTrial(Trial):
    """One run with three workers, which go on by themselves; the conductor moves their clocks."""

    clock: FakeClock = field(default_factory=TickingClock)
    members: list[Member] = field(default_factory=list)

    def _come_to(self, cf: Counterfoil, moment: Moment) -> None:
        """Tell what comes, to workers that are ready for it."""
        if not self.members:
            self.members = [Member(self.office) for _ in range(WORKERS)]
            self._set_clocks()
        Trial._come_to(self, cf, moment)  # noqa: SLF001 - slots leave super() without its class

    def _work(self, cf: Counterfoil, number: int) -> None:
        """Let the workers go on until the workflow waits for what is not there yet; kill one of them meanwhile."""
        self._set_clocks()
        if isinstance(self.cut, AtRandom) and self.cut.moment == number:
            self._kill_holder(cf, self.cut)
        until = time.monotonic() + LOST_S
        while not self._is_quiet(cf):
            if time.monotonic() > until:
                raise DemoBroken(f"the workflow did not go on in {MOMENTS[number].label!r} after {self.cut}")
            time.sleep(LOOK_S)
        if self.cut is None:
            self._note(cf, {})

    def _set_clocks(self) -> None:
        for member in self.members:
            member.set_clock(self.clock.now_ms())

    def _kill_holder(self, cf: Counterfoil, cut: AtRandom) -> None:
        """Kill the worker that has claimed the workflow, a random time after that."""
        holder = self._await(lambda: self._row(cf).holder)
        time.sleep(cut.delay_s)
        found = _PID.search(holder)
        victim = next((each for each in self.members if found and each.pid == int(found[1])), None)
        if victim is None:
            raise DemoBroken(f"none of the workers is {holder}")
        victim.kill()
        self.members.remove(victim)
        self.killed = True

    def _await(self, look: Callable[[], str | None]) -> str:
        until = time.monotonic() + PATIENCE_S
        while (seen := look()) is None:
            if time.monotonic() > until:
                raise DemoBroken("no worker claimed the workflow")
            time.sleep(LOOK_S / 10)
        return seen

    def _is_quiet(self, cf: Counterfoil) -> bool:
        """Say whether nothing is to be done before the next moment; settle what a person must."""
        if settle(cf, self.office, self.servers.mail, self.servers.gateway):
            return False
        row = self._row(cf)
        if row.status not in LIVING:
            return True
        if row.holder is not None or row.status != "waiting":
            return False
        return row.parked_on is None and (row.due_at is None or row.due_at > row.now + SOON_MS)

    def _row(self, cf: Counterfoil) -> Workflow:
        return cf.workflows.get(WORKFLOW, tenant=self.office.tenant)

    def _end(self, cf: Counterfoil) -> None:
        for member in self.members:
            member.close()
        Trial._end(self, cf)  # noqa: SLF001 - slots leave super() without its class
