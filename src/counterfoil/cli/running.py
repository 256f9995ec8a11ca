"""Run a worker in this process: load its program, and stop in good order when a signal asks for it."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from counterfoil.aio.ledger import AsyncCounterfoil
from counterfoil.errors import InvalidCommand
from counterfoil.ledger import DEFAULT_BATCH, Counterfoil
from counterfoil.runtime.dispatcher import sendable
from counterfoil.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from counterfoil.desk import Desk
    from counterfoil.effects import Effect

STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a worker did, in numbers of intents, and of workflows `entered`; `stopped` says that a signal ended it."""

    claimed: int
    settled: int
    given_back: int
    late: int
    lost: int
    expired: int
    decisions: int
    asked: int
    resent: int
    looked_up: int
    entered: int
    stopped: bool

    @classmethod
    def of(cls, worker: Worker, *, stopped: bool) -> Told:
        """Return what this worker did until now."""
        sent, settled = asdict(worker.dispatcher.counts), asdict(worker.reconciler.counts)
        sent.pop("turns")
        entered = worker.workflows.counts.entered
        return cls(**sent, looked_up=settled.pop("settled"), **settled, entered=entered, stopped=stopped)

    @property
    def line(self) -> str:
        """Return it as one line, what happened at all."""
        done = {name.replace("_", " "): n for name, n in asdict(self).items() if n and name != "stopped"}
        told = ", ".join(f"{n} {name}" for name, n in done.items()) or "nothing was due"
        return f"{'Stopped by a signal' if self.stopped else 'Done'}: {told}."


def work(
    *,
    app: str,
    effects: Sequence[str],
    batch: int | None,
    concurrency: int | None,
    engine: str | None,
    drain: bool,
    tell: Callable[[str], None],
) -> Told:
    """Load a program and send for it until a signal comes, or with `drain` until nothing is due."""
    found = _load(app)
    running = Running(drain=drain, tell=tell, engine=engine)
    try:
        return asyncio.run(running.run(found, effects, DEFAULT_BATCH if batch is None else batch, concurrency))
    finally:
        if isinstance(running.opened, Counterfoil):
            running.opened.close()


@dataclass(slots=True)
class Running:
    """One run of a worker, which a first signal stops and a second one ends."""

    drain: bool
    tell: Callable[[str], None]
    engine: str | None = None
    opened: Counterfoil | AsyncCounterfoil | None = None
    stopped: bool = False
    before: dict[signal.Signals, Any] = field(default_factory=dict)

    async def run(self, found: Any, effects: Sequence[str], batch: int, concurrency: int | None) -> Told:
        """Open the database if the program has not, and work."""
        self.opened = opened = await _opened(found)
        try:
            chosen = _chosen(effects, opened.desk.graphs)
            worker = Worker(opened.desk, chosen, batch, concurrency, self.engine)
            self._listen(worker)
            for line in _begins(opened.desk, chosen, self.engine):
                self.tell(line)
            await (worker.drain() if self.drain else worker.run())
            return Told.of(worker, stopped=self.stopped)
        finally:
            for each, before in self.before.items():
                signal.signal(each, before)
            if isinstance(opened, AsyncCounterfoil):
                await opened.close()

    def _listen(self, worker: Worker) -> None:
        """Take signals where Python runs them, not in the loop: an effect may block that."""
        loop = asyncio.get_running_loop()

        def stop(*_signal: object) -> None:
            self.stopped = True
            for each in STOPS:
                signal.signal(each, signal.SIG_DFL)
            loop.call_soon_threadsafe(worker.stop)

        for each in STOPS:
            self.before[each] = signal.signal(each, stop)


# --- the program -----------------------------------------------------------------------------------------------------


def _load(app: str) -> Any:
    """Import what `--app` names.

    Raises:
        InvalidCommand: there is no such module or name, or the module cannot be imported.
    """
    module, colon, name = app.partition(":")
    if not (module and colon and name):
        raise InvalidCommand(f"--app is {app!r}; write MODULE:NAME, such as shop.agents:cf. Nothing was sent.")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as Python itself does for a script; a script's own folder is not it
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidCommand(
            f"--app {app} cannot be loaded: {type(error).__name__}: {error}. Nothing was sent."
        ) from error
    return found


@contextmanager
def desk_of(app: str) -> Iterator[Desk]:
    """Lend what knows the effects and graphs of the program that `--app` names."""
    opened = asyncio.run(_opened(_load(app)))
    try:
        yield opened.desk
    finally:
        if (closing := opened.close()) is not None:
            asyncio.run(closing)


async def _opened(found: Any) -> Counterfoil | AsyncCounterfoil:
    """Return the database of the program, opened.

    Raises:
        InvalidCommand: it is none, nor a function that returns one.
    """
    made = found if isinstance(found, Counterfoil | AsyncCounterfoil) or not callable(found) else found()
    opened = await made if isawaitable(made) else made
    if not isinstance(opened, Counterfoil | AsyncCounterfoil):
        raise InvalidCommand(
            f"--app names {type(opened).__name__!r}, not an opened Counterfoil or AsyncCounterfoil, nor a function that"
            " returns one. Nothing was sent."
        )
    return opened


def _begins(desk: Desk, chosen: Sequence[Effect[Any]], engine: str | None) -> Iterator[str]:
    """Say what a worker does from now on."""
    place = f"{desk.store.path}, process {os.getpid()}"
    names = ", ".join(sorted({one.name for one in chosen}))
    if names:
        yield f"Sending {names} of {place}."
    graphs = ", ".join(f"{name} version {version}" for name, version in sorted(desk.graphs))
    if graphs:
        yield f"Entering workflows of {graphs} of {place}, woken by the engine {engine or desk.engine}."


def _chosen(names: Sequence[str], graphs: Collection[object]) -> list[Effect[Any]]:
    """Return the effects of these names, or all that the program declares; one that only has graphs needs none.

    Raises:
        InvalidCommand: it declares none, or none of a name, or none that a worker sends.
    """
    wanted = [name for text in names for name in text.split(",") if name]
    known = sendable(())
    missing = sorted(set(wanted) - {one.name for one in known})
    if missing or not (known or graphs):
        declared = ", ".join(sorted({one.name for one in known})) or "none"
        what = f"no effect {', '.join(missing)}" if missing else "no effect"
        raise InvalidCommand(
            f"The program declares {what} that a worker sends. Nothing was sent. Declared: {declared}."
        )
    return [one for one in known if not wanted or one.name in wanted]
