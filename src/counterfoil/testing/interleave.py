"""Let two workers act on one database in every order of their steps, and judge what is left.

A step leads from one point to the next: one statement, one COMMIT, one acceptance by the provider. Each worker has a
thread and connections of its own; one of them moves at a time. Where it waits for what the other has locked, the
database says so and the other moves on; it catches up in the moment in which the lock is gone.

The orders are those with one or two changes: one worker goes some steps ahead, the other goes some or all of its own,
and each goes on to its end. In a third kind the first one dies in the meantime, with whatever it holds.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING

from counterfoil.core.states import OperationState
from counterfoil.drivers.probes import Point
from counterfoil.errors import CounterfoilError, StoreError
from counterfoil.testing.crash import Entry, SimulatedCrash, Workshop, enter, prepare, recover, temporary_folder
from counterfoil.testing.crash_report import ScenarioViolated
from counterfoil.testing.grounds import ground_at
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import ProviderPoint, World, no_interference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import StrEnum
    from pathlib import Path

    from counterfoil.testing.grounds import Ground
    from counterfoil.testing.scenario import Body

STOPS = frozenset({Point.BEFORE_STATEMENT, Point.BEFORE_COMMIT, ProviderPoint.BEFORE_ACCEPT})
"""Where a worker can be held. Nothing happens between what comes after one step and what comes before the next."""
LOOK_S = 0.004
"""How long a step takes at the most before the database is asked whether it waits for a lock."""
LIMIT_S = 60.0
"""Longer than every bounded wait of ours: beyond it, two workers wait for each other for ever."""


class Standing(Enum):
    """How a worker stands that does not move."""

    HELD = auto()
    WAITS = auto()
    ENDED = auto()


class Stuck(AssertionError):
    """A worker neither came to a point nor to its end."""


class Worker:
    """One of the two, in a thread of its own; it is held at each point until it is let go."""

    def __init__(self, body: Body, world: World, ground: Ground) -> None:
        """Make it; `world` is the one that both act in, `ground` holds the connections that are its own."""
        self.standing = Standing.HELD
        self.entry: Entry | None = None
        self.at = "the beginning"
        self.waited = False
        self._shared = world
        self._world = World(world.folder, world.clock, world.traits, self._reach, ground)
        self._dead = False
        self._arrived, self._let_go = threading.Event(), threading.Semaphore(0)
        threading.Thread(target=self._run, args=[body], daemon=True).start()

    def _run(self, body: Body) -> None:
        self._let_go.acquire()
        self.entry = enter(body, self._world)
        self._arrived.set()

    def _reach(self, kind: StrEnum, name: str) -> None:
        if not self._dead and kind in STOPS and self._world.opened:  # beside opening a database nothing can go wrong
            self.at = f"{kind} {name}".rstrip()
            self._arrived.set()
            self._let_go.acquire()
        if self._dead:
            raise SimulatedCrash(f"the process died at {self.at}")

    def step(self, twin: Worker) -> None:
        """Move on to the next point, or to the end, or up to where the other one's lock is in the way."""
        if self.standing is Standing.HELD:
            self._arrived.clear()
            self._let_go.release()
        self.catch_up(twin)

    def catch_up(self, twin: Worker) -> None:
        """Wait for a step to end, however it ends."""
        until = time.monotonic() + LIMIT_S
        while not self._arrived.wait(LOOK_S):
            if self._shared.ground.waiting(self._shared.folder) > twin.is_waiting:
                self.standing, self.waited = Standing.WAITS, True
                return
            if time.monotonic() > until:
                raise Stuck(f"a worker has been on its way from {self.at} for {LIMIT_S:.0f} seconds")
        self.standing = Standing.HELD if self.entry is None else Standing.ENDED

    @property
    def is_waiting(self) -> bool:
        """Say whether it waits still: it may have got the lock by now, and be held already."""
        return self.standing is Standing.WAITS and not self._arrived.is_set()

    def die(self) -> None:
        """Reach nothing any more; what was open is rolled back with the next step."""
        self._dead = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """In which order two workers move; numbers are steps, None stands for all."""

    leads: int
    ahead: int
    between: int | None = None
    dies: bool = False

    def __str__(self) -> str:
        names = ("first", "second") if self.leads == 0 else ("second", "first")
        meanwhile = "all" if self.between is None else self.between
        end = "dies" if self.dies else "goes on"
        return f"the {names[0]} goes {self.ahead} steps, the {names[1]} {meanwhile}; then the {names[0]} {end}"


@dataclass(slots=True)
class Play:
    """Two workers, the one that leads first."""

    leader: Worker
    other: Worker
    deadlocked: bool = False
    where: str = ""

    def act(self, order: Order) -> tuple[bool, bool]:
        """Move both to their ends in an order, and say whether each had the steps for it."""
        enough = self._go(self.leader, order.ahead), self._go(self.other, order.between)
        self.where = f"at {self.leader.at} and {self.other.at}"
        if order.dies:
            self.leader.die()
        while not (self._go(self.leader) & self._go(self.other)):
            pass
        return enough

    def _go(self, worker: Worker, steps: int | None = None) -> bool:
        """Let one move; False if it did not get so far: it ended before, or waits for the other."""
        for done in count():
            if worker.standing is Standing.ENDED or done == steps:
                break
            self._step(worker)
            if worker.standing is Standing.WAITS:
                return False
        return steps is None or done == steps

    def _step(self, worker: Worker) -> None:
        twin = self.other if worker is self.leader else self.leader
        worker.step(twin)
        if twin.standing is Standing.WAITS:
            twin.catch_up(worker)
        self.deadlocked |= worker.is_waiting and twin.is_waiting


# --- what is left ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaving:
    """One order of steps, how both workers ended, and the judgement; `waited` says that one waited for the other."""

    order: Order
    where: str
    outcomes: tuple[str, str]
    waited: bool
    recovered: tuple[str, ...]
    states: tuple[str, ...]
    violations: tuple[str, ...]

    def __str__(self) -> str:
        ends = f"{' and '.join(self.outcomes)}, then {', '.join(self.recovered)}; ends {', '.join(self.states) or '-'}"
        return f"{self.order}, {self.where}: {ends}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleavings:
    """All orders of one scenario's steps and another's."""

    name: str
    runs: tuple[Interleaving, ...]

    @property
    def violating(self) -> tuple[Interleaving, ...]:
        """Return the orders after which something was wrong."""
        return tuple(run for run in self.runs if run.violations)

    @property
    def outcomes(self) -> Counter[tuple[str, str]]:
        """Count how the two ended, over all orders in which none died."""
        return Counter(run.outcomes for run in self.runs if not run.order.dies)

    @property
    def waited(self) -> int:
        """Count the orders in which one waited for a lock of the other."""
        return sum(run.waited for run in self.runs)

    def raise_if_violated(self) -> None:
        """Raise if anything was wrong in any order.

        Raises:
            ScenarioViolated: something was; the text says what and where.
        """
        if self.violating:
            raise ScenarioViolated(str(self))

    def __str__(self) -> str:
        ends = ", ".join(f"{' and '.join(pair)} {n}" for pair, n in sorted(self.outcomes.items()))
        head = f"{self.name}: {len(self.runs)} orders, {self.waited} with a wait, {len(self.violating)} violated"
        lines = [f"{head}; ends: {ends}"]
        for run in self.violating:
            lines += [f"  {run}", *(f"    {violation}" for violation in run.violations)]
        return "\n".join(lines)


# --- all orders ------------------------------------------------------------------------------------------------------


def interleave(
    scenario: Scenario, second: Body, *, changes: int = 1, folder: Path | None = None, url: str | None = None
) -> Interleavings:
    """Run a scenario and a second worker in every order of their steps; every run recovers and is judged.

    Args:
        scenario: What the first worker does, how both recover, and what must be true then.
        second: What the second worker does.
        changes: 1 lets one worker do all it does between two steps of the other; 2 holds it between its own, too.
        folder: Where worlds are made; by default in memory, where the system has such a place.
        url: A PostgreSQL server on which a database may be created, and dropped afterwards, for the worlds to live in;
            by default they live in SQLite files.
    """
    with ground_at(url) as ground:
        return interleave_on(ground, scenario, second, changes=changes, folder=folder)


def interleave_on(
    ground: Ground, scenario: Scenario, second: Body, *, changes: int = 1, every: int = 1, folder: Path | None = None
) -> Interleavings:
    """Do the same where the worlds of one scenario after the other may live.

    `every` holds both only where the steps that they have gone are together a multiple of it; which step of the one
    meets which of the other then moves on with each.
    """
    with temporary_folder(folder) as base, ground.beside() as one, ground.beside() as other:
        workshop = prepare(scenario, base, ground)
        stage = Stage(workshop, (scenario.run, second), (one, other), every)
        runs = tuple(run for leads in (0, 1) for run in stage.orders(leads, changes))
    return Interleavings(name=scenario.name, runs=runs)


@dataclass(slots=True)
class Stage:
    """Where the plays of one pair of workers take place."""

    workshop: Workshop
    bodies: tuple[Body, Body]
    grounds: tuple[Ground, Ground]
    every: int = 1
    played: int = 0

    def orders(self, leads: int, changes: int) -> Iterator[Interleaving]:
        """Play every order in which one of the two leads."""
        yield self.play(Order(leads=leads, ahead=0))[0]
        for ahead in count(1):
            run, (enough, _) = self.play(Order(leads=leads, ahead=ahead))
            if not enough:
                return
            yield run
            yield self.play(Order(leads=leads, ahead=ahead, dies=True))[0]
            if changes > 1:
                yield from self._held_between(leads, ahead)

    def _held_between(self, leads: int, ahead: int) -> Iterator[Interleaving]:
        for between in count(1 + -(ahead + 1) % self.every, self.every):
            run, enough = self.play(Order(leads=leads, ahead=ahead, between=between))
            if not all(enough):
                return
            yield run

    def play(self, order: Order) -> tuple[Interleaving, tuple[bool, bool]]:
        """Play one order, and judge it; say whether each had as many steps."""
        self.played += 1
        world = self.workshop.world(str(self.played), no_interference)
        world.ground.crowd(world.folder)
        workers = [Worker(self.bodies[which], world, self.grounds[which]) for which in (0, 1)]
        play = Play(workers[order.leads], workers[1 - order.leads])
        enough = play.act(order)
        judged = self._judged(order, play, workers, world)
        shutil.rmtree(world.folder)
        return judged, enough

    def _judged(self, order: Order, play: Play, workers: list[Worker], world: World) -> Interleaving:
        scenario = self.workshop.scenario
        entries = tuple(_ended(worker) for worker in workers)
        found = list(_wrong(play, entries))
        found += [] if order.dies else [f"before recovery: {each}" for each in _unsound(scenario, world)]
        if order.dies:
            world.ground.bury()
        again = recover(scenario, world)
        aftermath = Aftermath(world, scenario)
        found += [*_foreign(again), *(each for check in scenario.checks for each in check(aftermath))]
        return Interleaving(
            order=order,
            where=play.where,
            outcomes=(entries[0].outcome, entries[1].outcome),
            waited=any(worker.waited for worker in workers),
            recovered=tuple(each.outcome for each in again),
            states=tuple(row["state"] for row in aftermath.contents.operations),
            violations=tuple(found),
        )


def _ended(worker: Worker) -> Entry:
    if worker.entry is None:
        raise Stuck(f"a worker was left before {worker.at}")
    return worker.entry


def _wrong(play: Play, entries: tuple[Entry, ...]) -> Iterator[str]:
    """Find what two workers must not do to each other: wait in a circle, or let the database's troubles show."""
    if play.deadlocked:
        yield "the two waited for each other"
    yield from _foreign(entries)
    for each in entries:
        if isinstance(each.error, StoreError):
            yield f"{each.outcome} reached a worker: {each.error}"


def _foreign(entries: tuple[Entry, ...]) -> Iterator[str]:
    for each in entries:
        if each.error is not None and not isinstance(each.error, CounterfoilError | SimulatedCrash):
            yield f"{each.outcome} reached a worker: {each.error}"


def _unsound(scenario: Scenario, world: World) -> Iterator[str]:
    """Judge what two workers have left that both came to an end: it must fit, whatever state it is in."""
    anything = replace(scenario, may_end=frozenset(OperationState))
    return (each for check in scenario.checks for each in check(Aftermath(world, anything)))
