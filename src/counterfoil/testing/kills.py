"""Kill real processes at every COMMIT of a scenario, let a new process recover, and judge what is left.

Killing needs forks, and forking needs a process without threads, which a test runner is not. So one new Python process
is started for each scenario; it stays free of threads and forks once for each kill and once for each recovery.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from counterfoil.drivers.probes import Point
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.crash import Entry, Recorder, Workshop, enter, judge, prepare
from counterfoil.testing.crash_report import CrashPoint, Manner, Report, Run
from counterfoil.testing.grounds import ground_at
from counterfoil.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.testing.grounds import Ground
    from counterfoil.testing.scenario import Scenario

T = TypeVar("T")

_COMMITS = frozenset({Point.BEFORE_COMMIT.value, Point.AFTER_COMMIT.value})
_TIME_LIMIT_S = 300


class Killer(Recorder):
    """Kills its own process at one point, leaving only the time behind."""

    def __init__(self, target: CrashPoint) -> None:
        super().__init__()
        self.target = target
        self.world: World

    def reach(self, here: CrashPoint) -> None:
        """Die, or go on."""
        if here.number == self.target.number:
            (self.world.folder / "died-at").write_text(str(self.world.clock.now_ms()), "utf-8")
            os.kill(os.getpid(), signal.SIGKILL)


def kill_at_each_commit(scenario: Scenario, *, folder: Path | None = None, url: str | None = None) -> Report:
    """Run a scenario once for each side of each COMMIT in a process that kills itself there; recover in another one.

    The scenario travels to a new process, so its functions must be importable: module-level, no lambdas.

    Args:
        scenario: What happens.
        folder: Where worlds are made; by default the system's folder for temporary files, which should be a real disk.
        url: A PostgreSQL server on which a database may be created, and dropped afterwards, for the worlds to live in;
            by default they live in SQLite files.
    """
    with tempfile.TemporaryDirectory(prefix="counterfoil-kill-", dir=folder) as made, ground_at(url) as ground:
        done = subprocess.run(
            [sys.executable, "-m", "counterfoil.testing.kills"],
            input=pickle.dumps((scenario, Path(made), ground)),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            timeout=_TIME_LIMIT_S,
            check=True,
        )
    report: Report = pickle.loads(done.stdout)  # noqa: S301 - from our own child
    return report


def kill_here(scenario: Scenario, folder: Path, ground: Ground) -> Report:
    """Do it all from this process, which must have no threads."""
    shop = in_child(lambda: prepare(scenario, folder, ground))
    points, undisturbed = in_child(lambda: _undisturbed(shop))
    targets = tuple(point for point in points if point.kind in _COMMITS)
    runs = [undisturbed, *(_killed(shop, point) for point in targets)]
    return Report(scenario=scenario.name, points=targets, runs=tuple(runs))


def _undisturbed(shop: Workshop) -> tuple[tuple[CrashPoint, ...], Run]:
    recorder = Recorder()
    world = shop.world("undisturbed", recorder)
    entry = enter(shop.scenario.run, world)
    return tuple(recorder.points), judge(shop.scenario, world, entry, Manner.UNDISTURBED, None)


def _killed(shop: Workshop, point: CrashPoint) -> Run:
    name = f"kill-{point.number}"
    child = os.fork()
    if not child:
        _die(shop, point, name)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return in_child(lambda: _recovered(shop, point, shop.folder / name, killed=killed))


def _die(shop: Workshop, point: CrashPoint, name: str) -> None:
    try:
        killer = Killer(point)
        killer.world = shop.world(name, killer)
        enter(shop.scenario.run, killer.world)
    finally:
        os._exit(0)


def _recovered(shop: Workshop, point: CrashPoint, folder: Path, *, killed: bool) -> Run:
    if not killed:
        raise RuntimeError(f"the process did not reach {point}: the scenario takes another way each time")
    died_at = int((folder / "died-at").read_text("utf-8"))
    world = World(folder, FakeClock(died_at), shop.scenario.traits, ground=shop.ground)
    return judge(shop.scenario, world, Entry("killed"), Manner.KILL, point)


def in_child(function: Callable[[], T]) -> T:
    """Run a function in a forked child and return what it returns, so that its threads end with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _answer(writing, function)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        body = pipe.read()
    os.waitpid(child, 0)
    if not body:
        raise RuntimeError("a child process of the crash kit failed; its traceback is on standard error")
    result: T = pickle.loads(body)  # noqa: S301 - from our own child
    return result


def _answer(writing: int, function: Callable[[], T]) -> None:
    status = 1
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(function()))
        status = 0
    except BaseException:  # noqa: BLE001 - the parent must not go on in the child
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def main() -> None:
    """Serve one scenario: it comes in on standard input, the report goes out on standard output."""
    scenario, folder, ground = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    sys.stdout.buffer.write(pickle.dumps(kill_here(scenario, folder, ground)))


if __name__ == "__main__":
    main()
