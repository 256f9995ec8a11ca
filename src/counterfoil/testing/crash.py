"""Crash a scenario at every point where it can be cut short, let it recover, and judge what is left.

Points stand before and after every statement, before and after every COMMIT, and on either side of the provider's
acceptance. A scenario is run once undisturbed, which lists its points; then once for each point with a crash there, and
once for each COMMIT that takes effect without its caller hearing of it. A crash is a `BaseException` after which every
further point raises too: nothing that a dying process still does (closing, settling, clean-up) can reach the database.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
import threading
import zlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.drivers.probes import Point
from counterfoil.errors import CommitUnknown, CounterfoilError, StoreError
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.crash_report import CrashPoint, Manner, Report, Run
from counterfoil.testing.grounds import FILES, Ground, ground_at
from counterfoil.testing.scenario import Aftermath, Body, Scenario
from counterfoil.testing.world import Interference, World, no_interference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from enum import StrEnum

_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it; an fsync there costs nothing


class SimulatedCrash(BaseException):
    """The process is dead; nothing may catch this."""


class Recorder:
    """Lists the points that a run passes."""

    def __init__(self) -> None:
        self.points: list[CrashPoint] = []
        self._mutex = threading.Lock()
        self._statements: dict[tuple[int, int], str] = {}
        self._passed: Counter[tuple[str, str]] = Counter()

    def __call__(self, kind: StrEnum, name: str) -> None:
        """Note the point; a COMMIT goes by the statement before it in its thread or task."""
        whose = _thread_and_task()
        with self._mutex:
            if kind is Point.BEFORE_STATEMENT:
                self._statements[whose] = name
            what = kind.value, name or self._statements.get(whose, "")
            self._passed[what] += 1
            here = CrashPoint(len(self.points) + 1, *what, self._passed[what])
            self.points.append(here)
        self.reach(here)

    def reach(self, here: CrashPoint) -> None:
        """Go on."""


def _thread_and_task() -> tuple[int, int]:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return threading.get_ident(), id(task)


class Strike(Recorder):
    """Strikes at one point: a crash, after which every point is one, or a COMMIT that nobody hears of."""

    def __init__(self, target: CrashPoint, manner: Manner) -> None:
        super().__init__()
        self.target = target
        self.manner = manner
        self.struck = False

    def reach(self, here: CrashPoint) -> None:
        """Strike, or go on."""
        if self.struck and self.manner is Manner.CRASH:
            raise SimulatedCrash(f"the process died at {self.target}")
        if not here.is_same(self.target):
            return
        self.struck = True
        if self.manner is Manner.COMMIT_LOST:
            raise CommitUnknown(f"the connection was lost during COMMIT (simulated at {here})")
        raise SimulatedCrash(f"the process dies at {here}")


@dataclass(frozen=True, slots=True)
class Entry:
    """How one entry into a scenario's code ended."""

    outcome: str
    error: BaseException | None = None


def enter(body: Body, world: World) -> Entry:
    """Run a scenario's function or coroutine function, and close what it opened."""
    try:
        if inspect.iscoroutinefunction(body):
            world.ground.run(_awaited(body, world))
        else:
            _called(body, world)
    except SimulatedCrash as crash:
        return Entry("crashed", crash)
    except Exception as error:  # noqa: BLE001 - judged by `_leaks`
        return Entry(type(error).__name__, error)
    return Entry("returned")


def _called(body: Body, world: World) -> None:
    try:
        body(world)
    finally:
        world.close()


async def _awaited(body: Body, world: World) -> None:
    try:
        await body(world)
    finally:
        await world.aclose()


# --- one run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Workshop:
    """A folder and a database with the state in which every run of a scenario begins."""

    scenario: Scenario
    folder: Path
    ground: Ground
    start_ms: int

    def world(self, name: str, probe: Interference) -> World:
        """Make a world in the beginning state; on a ground that has room for one, no older one may be used again."""
        folder = self.folder / name
        shutil.copytree(self.folder / "start", folder)
        self.ground.renew()
        return World(folder, FakeClock(self.start_ms), self.scenario.traits, probe, self.ground)


def prepare(scenario: Scenario, folder: Path, ground: Ground = FILES) -> Workshop:
    """Make the beginning state once."""
    start = folder / "start"
    start.mkdir()
    ground.clear(fresh=scenario.fresh)
    world = World(start, FakeClock(), scenario.traits, ground=ground)
    if not scenario.fresh:
        enter_well(lambda w: w.open(), world)
    if scenario.prepare is not None:
        enter_well(scenario.prepare, world)
    ground.keep()
    return Workshop(scenario, folder, ground, world.clock.now_ms())


def enter_well(body: Body, world: World) -> None:
    """Run what must not fail."""
    if (error := enter(body, world).error) is not None:
        raise error


def recover(scenario: Scenario, world: World) -> tuple[Entry, ...]:
    """Enter again as often as the scenario says, each time after everything that has a time has run out."""
    entries = []
    for _ in range(scenario.entries):
        world.clock.advance(scenario.patience)
        entries.append(enter(scenario.recovering, world))
    return tuple(entries)


def judge(
    scenario: Scenario, world: World, entry: Entry, manner: Manner, point: CrashPoint | None, found: Sequence[str] = ()
) -> Run:
    """Recover a world that a run has left, and judge it; `found` is what is known to be wrong already."""
    if isinstance(entry.error, SimulatedCrash):
        world.ground.bury()
    after = world.entered_again(no_interference)
    entries = recover(scenario, after)
    aftermath = Aftermath(after, scenario)
    violations = [*found, *_leaks(manner, entry, entries)]
    violations += [violation for check in scenario.checks for violation in check(aftermath)]
    return Run(
        manner=manner,
        point=point,
        outcome=entry.outcome,
        recovered=tuple(each.outcome for each in entries),
        states=_states(aftermath),
        violations=tuple(violations),
    )


def _leaks(manner: Manner, entry: Entry, entries: Sequence[Entry]) -> Iterator[str]:
    """Find what should never reach a caller: errors that are not ours, and a lost COMMIT that could be looked up."""
    for each in (entry, *entries):
        if each.error is not None and not isinstance(each.error, CounterfoilError | SimulatedCrash):
            yield f"{each.outcome} reached the caller: {each.error}"
    if manner is Manner.COMMIT_LOST and isinstance(entry.error, StoreError):
        yield f"{entry.outcome} reached the caller, although the COMMIT could be looked up"


def _states(aftermath: Aftermath) -> tuple[str, ...]:
    try:
        return tuple(row["state"] for row in aftermath.contents.operations)
    except StoreError:
        return ()  # a protocol without a ledger of ours


# --- all runs --------------------------------------------------------------------------------------------------------


def crash_at_each_point(scenario: Scenario, *, folder: Path | None = None, url: str | None = None) -> Report:
    """Run a scenario undisturbed and then once for each crash point; every run recovers and is judged.

    Blocks, and runs coroutine functions on event loops of its own: call it where no loop runs.

    Args:
        scenario: What happens.
        folder: Where worlds are made; by default in memory, where the system has such a place.
        url: A PostgreSQL server on which a database may be created, and dropped afterwards, for the worlds to live in;
            by default they live in SQLite files.
    """
    with ground_at(url) as ground:
        return crash_on(ground, scenario, folder=folder)


def crash_on(ground: Ground, scenario: Scenario, *, folder: Path | None = None, every: int = 1) -> Report:
    """Do the same where the worlds of one scenario after the other may live; `every` strikes at each n-th point alone.

    Which of them is a matter of the scenario's name and the database: several of one kind strike at different ones.
    """
    with temporary_folder(folder) as base:
        shop = prepare(scenario, base, ground)
        recorder = Recorder()
        undisturbed = shop.world("undisturbed", recorder)
        entry = enter(scenario.run, undisturbed)
        points = tuple(recorder.points)
        place = f"{scenario.name} {type(ground).__name__}"
        commits = [point for point in points if is_commit(point)]
        runs = [judge(scenario, undisturbed, entry, Manner.UNDISTURBED, None)]
        runs += [_struck(shop, points, point, Manner.CRASH) for point in _each(points, place, every)]
        runs += [_struck(shop, points, point, Manner.COMMIT_LOST) for point in _each(commits, place, every)]
    return Report(scenario=scenario.name, points=points, runs=tuple(runs))


def _each(points: Sequence[CrashPoint], place: str, every: int) -> Sequence[CrashPoint]:
    first = zlib.crc32(place.encode()) % max(1, min(every, len(points)))
    return points[first::every]


def is_commit(point: CrashPoint) -> bool:
    """Say whether a COMMIT has just taken effect there."""
    return point.kind == Point.AFTER_COMMIT


def _struck(shop: Workshop, points: Sequence[CrashPoint], point: CrashPoint, manner: Manner) -> Run:
    strike = Strike(point, manner)
    world = shop.world(f"{manner}-{point.number}", strike)
    entry = enter(shop.scenario.run, world)
    known = strike.struck and (not shop.scenario.ordered or _same_way(strike, points, point))
    found = [] if known else ["it took another way there than undisturbed"]
    run = judge(shop.scenario, world, entry, manner, point, found)
    shutil.rmtree(world.folder)
    return run


def _same_way(strike: Strike, points: Sequence[CrashPoint], point: CrashPoint) -> bool:
    return strike.points[: point.number] == list(points[: point.number])


@contextmanager
def temporary_folder(given: Path | None) -> Iterator[Path]:
    """Make a folder for worlds, in memory unless another place is given."""
    where = given or (_MEMORY if _MEMORY.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="counterfoil-crash-", dir=where) as made:
        yield Path(made)
