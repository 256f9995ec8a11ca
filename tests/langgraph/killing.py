"""Kill real processes on either side of each COMMIT of one graph, let a new process finish, and tell what is left.

`python -m tests.langgraph.killing URL FOLDER VARIANT WHERE [EVERY]` forks once for each kill and for each recovery,
from a process that stays free of threads, and prints one JSON list: the undisturbed run first. URL is a PostgreSQL
database, which is emptied for each run, or a file, beside which each run gets its own. WHERE is `around` each COMMIT,
only `after` each, or a number of random moments; with EVERY each n-th COMMIT alone, from one that depends on the rest.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.types import Command, interrupt

from counterfoil import Counterfoil, EffectCall, Provider, effect
from counterfoil.drivers.probes import Point
from counterfoil.langgraph import aperform, perform
from counterfoil.testing.kills import in_child
from counterfoil.testing.tally import TallyFile
from tests import stores
from tests.langgraph.shop import WHO, State, chain
from tests.strides import chosen

KEYED = Provider(key_lifetime="24h")
SIDES = (Point.BEFORE_COMMIT, Point.AFTER_COMMIT)


@effect("kills.ticket", key="{request_id}/ticket", provider=KEYED)
def open_ticket(call: EffectCall, *, title: str) -> dict[str, Any]:
    return {"number": call.resource(TallyFile).accept("ticket", call.provider_key, {"title": title})}


@effect("kills.mail", key="{request_id}/mail", provider=KEYED)
def send_mail(call: EffectCall, *, number: int) -> dict[str, Any]:
    return {"number": call.resource(TallyFile).accept("mail", call.provider_key, {"about": number})}


def prepare(state: State) -> State:
    return {"order": f"Printer {state['order']}", "log": ["prepare"]}


def ticket(state: State) -> State:
    return {"number": perform(open_ticket, title=state["order"]).value["number"], "log": ["ticket"]}


def ask(state: State) -> State:
    return {"answer": interrupt({"ticket": state["number"]}), "log": ["ask"]}


def mail(state: State) -> State:
    perform(send_mail, number=state["number"])
    return {"log": ["mail"]}


async def aticket(state: State) -> State:
    return {"number": (await aperform(open_ticket, title=state["order"])).value["number"], "log": ["ticket"]}


async def amail(state: State) -> State:
    await aperform(send_mail, number=state["number"])
    return {"log": ["mail"]}


BUILDERS = {
    "blocking": chain(("prepare", prepare), ("ticket", ticket), ("ask", ask), ("mail", mail)),
    "awaiting": chain(("prepare", prepare), ("ticket", aticket), ("ask", ask), ("mail", amail)),
}


@dataclass(frozen=True)
class Variant:
    """How the graph is compiled and run."""

    colour: str = "blocking"
    compiled: str = "managed"
    durability: Any = None


VARIANTS = {
    "blocking": Variant(),
    "awaiting": Variant("awaiting"),
    "durability-async": Variant(durability="async"),
    "plain": Variant(compiled="plain"),
    "plain-awaiting": Variant("awaiting", "plain", "sync"),
}


class Killer:
    """A probe that counts commits and kills its own process at one side of one of them."""

    def __init__(self, number: int | None = None, side: Point = Point.BEFORE_COMMIT) -> None:
        self.commits: list[list[str]] = []
        self._statements: list[str] = []
        self._target = number, side

    def __call__(self, point: Point, name: str) -> None:
        if point is Point.AFTER_STATEMENT:
            self._statements.append(name)
        if point in SIDES and (len(self.commits), point) == self._target:
            os.kill(os.getpid(), signal.SIGKILL)
        if point is Point.AFTER_COMMIT:
            self.commits.append(self._statements)
            self._statements = []


@dataclass(frozen=True)
class Place:
    """Where one run keeps what it knows, and its provider what it accepted."""

    database: str
    folder: Path

    @property
    def url(self) -> str:
        return self.database if stores.is_postgres(self.database) else f"sqlite:///{self.folder}/agent.db"

    @property
    def tally(self) -> TallyFile:
        return TallyFile(self.folder / "tally", honours_keys=True)

    def select(self, sql: str) -> list[Any]:
        return stores.execute(self.url, sql)

    def within(self, name: str) -> "Place":
        """Return a place where nothing has happened yet."""
        made = Place(self.database, self.folder / name)
        made.folder.mkdir()
        stores.empty(made.url)
        return made


def drive(place: Place, variant: str, killer: Killer) -> dict[str, Any]:
    """Run the graph from wherever it is to its end, as a worker that knows only the thread would."""
    with Counterfoil.open(place.url, probe=killer) as cf:
        cf.resources.provide(TallyFile, lambda: place.tally)
        way = VARIANTS[variant]
        builder, config = BUILDERS[way.colour], cf.config(**WHO)
        graph = cf.compile(builder) if way.compiled == "managed" else builder.compile(checkpointer=cf.saver())
        begun = graph.get_state(config).created_at is not None
        ended = step(graph, way, None if begun else {"order": "offline"}, config)
        while "__interrupt__" in ended:
            ended = step(graph, way, Command(resume="yes"), config)
        return ended


def step(graph: Any, way: Variant, given: Any, config: Any) -> dict[str, Any]:
    with warnings.catch_warnings(action="ignore"):
        if way.colour == "awaiting":
            ended = asyncio.run(graph.ainvoke(given, config, durability=way.durability))
        else:
            ended = graph.invoke(given, config, durability=way.durability)
    known: dict[str, Any] = ended
    return known


# --- judging ---------------------------------------------------------------------------------------------------------

COMPLETE = (
    ["branch:to:prepare", "order"],
    ["branch:to:ticket", "log", "order"],
    ["branch:to:ask", "log", "number"],
    ["answer", "branch:to:mail", "log"],
    ["log"],
)
"""What the input and each node write, sorted."""


def torn(place: Place) -> list[str]:
    """Say what a kill tore apart: checkpoint, step results and version appear together or not at all."""
    stores.await_quiet(place.url)
    if "counterfoil_thread" not in stores.tables(place.url):
        return []
    return [*_wrong_version(place), *_half_results(place), *_missing_values(place)]


def _wrong_version(place: Place) -> list[str]:
    (checkpoints,) = place.select("select count(*) from counterfoil_checkpoint")[0]
    found = []
    for attempts, version, state in place.select("select attempt, version, state from counterfoil_thread"):
        left = attempts - (state == "running")
        if version != attempts + left + checkpoints:
            found.append(f"version {version} for {attempts} claims, {left} ends and {checkpoints} checkpoints")
    return found


def _half_results(place: Place) -> list[str]:
    written: dict[tuple[str, str], list[str]] = {}
    for *task, channel in place.select("select checkpoint_id, task_id, channel from counterfoil_write where idx >= 0"):
        written.setdefault((task[0], task[1]), []).append(channel)
    return [f"half of a task's result: {one}" for one in written.values() if sorted(one) not in COMPLETE]


def _missing_values(place: Place) -> list[str]:
    values = {tuple(row) for row in place.select("select checkpoint_ns, channel, version from counterfoil_channel")}
    kept = place.select("select checkpoint_ns, stored_channels from counterfoil_checkpoint")
    named = {(space, *one) for space, channels in kept for one in json.loads(channels).items()}
    return [f"the channel values {named - values} are missing"] if named - values else []


def judged(place: Place, variant: str) -> dict[str, Any]:
    values = drive(place, variant, Killer())
    children = "select count(*) from counterfoil_checkpoint group by parent_id order by 1 desc limit 1"
    return {
        "values": values,
        "tickets": place.tally.count("ticket"),
        "mails": place.tally.count("mail"),
        "children": place.select(children)[0][0],
        "operations": sorted(state for (state,) in place.select("select state from counterfoil_operation")),
        "threads": place.select("select state, holder from counterfoil_thread"),
    }


# --- killing ---------------------------------------------------------------------------------------------------------


def undisturbed(place: Place, variant: str) -> tuple[list[list[str]], dict[str, Any]]:
    killer = Killer()
    drive(place, variant, killer)
    return killer.commits, judged(place, variant)


def killed(place: Place, variant: str, dying: Callable[[], object]) -> dict[str, Any]:
    child = os.fork()
    if not child:
        try:
            dying()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    found = torn(place)
    return {"killed": was_killed, "torn": found, **in_child(lambda: judged(place, variant))}


def at_each_commit(base: Place, variant: str, sides: Sequence[Point], every: int) -> list[dict[str, Any]]:
    first = base.within("undisturbed")
    commits, run = in_child(lambda: undisturbed(first, variant))
    runs: list[dict[str, Any]] = [{"point": "undisturbed", "killed": False, "torn": [], **run}]
    database = "postgres" if stores.is_postgres(base.database) else "sqlite"
    for number, statements in chosen(list(enumerate(commits)), f"{variant} {database}", every):
        for side in sides:
            point, place = f"{side.value} {number} ({' '.join(statements)})", base.within(f"{number}-{side.value}")
            dying = partial(drive, place, variant, Killer(number, side))
            runs.append({"point": point, **killed(place, variant, dying)})
    return runs


def at_random(base: Place, variant: str, times: int) -> list[dict[str, Any]]:
    first = base.within("undisturbed")
    began = time.monotonic()
    _, run = in_child(lambda: undisturbed(first, variant))
    took = time.monotonic() - began
    runs: list[dict[str, Any]] = [{"point": "undisturbed", "killed": False, "torn": [], **run}]
    for number in range(times):
        after, place = random.uniform(0.001, took), base.within(str(number))
        runs.append({"point": f"{after:.4f}s", **killed(place, variant, partial(die_after, place, variant, after))})
    return runs


def die_after(place: Place, variant: str, seconds: float) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    drive(place, variant, Killer())


def main(url: str, folder: str, variant: str, where: str, every: str = "1") -> None:
    base = Place(url, Path(folder))
    if where.isdigit():
        runs = at_random(base, variant, int(where))
    else:
        runs = at_each_commit(base, variant, SIDES if where == "around" else SIDES[1:], int(every))
    sys.stdout.write(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
