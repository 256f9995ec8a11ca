"""Kill real processes on either side of each COMMIT of one graph, let a new process finish, and tell what is left.

`python -m tests.langgraph.killing FOLDER VARIANT WHERE` forks once for each kill and once for each recovery, from a
process that stays free of threads, and prints one JSON list: the undisturbed run first. WHERE is `around` each COMMIT,
only `after` each, or a number of random moments.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.types import Command, interrupt

from counterfoil import Counterfoil, EffectCall, Provider, effect
from counterfoil.drivers.probes import Point
from counterfoil.langgraph import aperform, perform
from counterfoil.testing.kills import in_child
from counterfoil.testing.tally import TallyFile
from tests.langgraph.shop import WHO, State, chain

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


def drive(folder: Path, variant: str, killer: Killer) -> dict[str, Any]:
    """Run the graph from wherever it is to its end, as a worker that knows only the thread would."""
    with Counterfoil.open(f"sqlite:///{folder}/agent.db", probe=killer) as cf:
        cf.resources.provide(TallyFile, lambda: TallyFile(folder / "tally", honours_keys=True))
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

RESULTS = "select group_concat(channel, ' ') from counterfoil_write where idx >= 0 group by checkpoint_id, task_id"
COMPLETE = (
    ["branch:to:prepare", "order"],
    ["branch:to:ticket", "log", "order"],
    ["branch:to:ask", "log", "number"],
    ["answer", "branch:to:mail", "log"],
    ["log"],
)
"""What the input and each node write, sorted."""


def torn(folder: Path) -> list[str]:
    """Say what a kill tore apart: checkpoint, step results and version appear together or not at all."""
    with closing(sqlite3.connect(folder / "agent.db")) as connection:
        if not connection.execute("select name from sqlite_master where name = 'counterfoil_thread'").fetchall():
            return []
        found = []
        attempts, version, state = connection.execute(
            "select coalesce(max(attempt), 0), coalesce(max(version), 0), max(state) from counterfoil_thread"
        ).fetchone()
        checkpoints = connection.execute("select count(*) from counterfoil_checkpoint").fetchone()[0]
        left = attempts - (state == "running")
        if attempts and version != attempts + left + checkpoints:
            found.append(f"version {version} for {attempts} claims, {left} ends and {checkpoints} checkpoints")
        found += [
            f"half of a task's result: {channels}"
            for (channels,) in connection.execute(RESULTS)
            if sorted(channels.split()) not in COMPLETE
        ]
        missing = connection.execute(
            "select count(*) from counterfoil_checkpoint c, json_each(c.stored_channels) j"
            " left join counterfoil_channel v on v.checkpoint_ns = c.checkpoint_ns"
            " and v.channel = j.key and v.version = j.value"
            " where v.channel is null"
        ).fetchone()[0]
        if missing:
            found.append(f"{missing} channel values are missing")
    return found


def judged(folder: Path, variant: str) -> dict[str, Any]:
    values = drive(folder, variant, Killer())
    tally = TallyFile(folder / "tally")
    with closing(sqlite3.connect(folder / "agent.db")) as connection:
        children = connection.execute(
            "select count(*) from counterfoil_checkpoint group by parent_id order by 1 desc limit 1"
        ).fetchone()[0]
        states = connection.execute("select state from counterfoil_operation").fetchall()
        threads = connection.execute("select state, holder from counterfoil_thread").fetchall()
    return {
        "values": values,
        "tickets": tally.count("ticket"),
        "mails": tally.count("mail"),
        "children": children,
        "operations": sorted(state for (state,) in states),
        "threads": threads,
    }


# --- killing ---------------------------------------------------------------------------------------------------------


def undisturbed(folder: Path, variant: str) -> tuple[list[list[str]], dict[str, Any]]:
    killer = Killer()
    drive(folder, variant, killer)
    return killer.commits, judged(folder, variant)


def killed(folder: Path, variant: str, dying: Callable[[Path], None]) -> dict[str, Any]:
    folder.mkdir()
    child = os.fork()
    if not child:
        try:
            dying(folder)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    found = torn(folder)
    return {"killed": was_killed, "torn": found, **in_child(lambda: judged(folder, variant))}


def at_each_commit(folder: Path, variant: str, sides: Sequence[Point]) -> list[dict[str, Any]]:
    first = folder / "undisturbed"
    first.mkdir()
    commits, run = in_child(lambda: undisturbed(first, variant))
    runs: list[dict[str, Any]] = [{"point": "undisturbed", "killed": False, "torn": [], **run}]
    for number, statements in enumerate(commits):
        for side in sides:
            point = f"{side.value} {number} ({' '.join(statements)})"
            dying = _dying_at(variant, number, side)
            runs.append({"point": point, **killed(folder / f"{number}-{side.value}", variant, dying)})
    return runs


def _dying_at(variant: str, number: int, side: Point) -> Callable[[Path], None]:
    def dying(folder: Path) -> None:
        drive(folder, variant, Killer(number, side))

    return dying


def at_random(folder: Path, variant: str, times: int) -> list[dict[str, Any]]:
    first = folder / "undisturbed"
    first.mkdir()
    began = time.monotonic()
    _, run = in_child(lambda: undisturbed(first, variant))
    took = time.monotonic() - began
    runs: list[dict[str, Any]] = [{"point": "undisturbed", "killed": False, "torn": [], **run}]
    for number in range(times):
        after = random.uniform(0.001, took)
        runs.append({"point": f"{after:.4f}s", **killed(folder / str(number), variant, _dying_after(variant, after))})
    return runs


def _dying_after(variant: str, seconds: float) -> Callable[[Path], None]:
    def dying(folder: Path) -> None:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, seconds)
        drive(folder, variant, Killer())

    return dying


def main(folder: str, variant: str, where: str) -> None:
    if where.isdigit():
        runs = at_random(Path(folder), variant, int(where))
    else:
        runs = at_each_commit(Path(folder), variant, SIDES if where == "around" else SIDES[1:])
    sys.stdout.write(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
