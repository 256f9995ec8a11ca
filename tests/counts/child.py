"""Do a few things to a database, count what only this process sees, and mark for a tracer where each begins and ends.

`python child.py FOLDER` prints one JSON object: for each phase what one operation took. A mark is an fsync of no file.
"""

import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from counterfoil import Counterfoil, Provider, effect
from counterfoil.drivers.probes import Point
from counterfoil.storage.script import ddl

TIMES = 10
NODES = 10
BLOB = os.urandom(50_000).hex()
NO_FILE = 2**30
PIECES = [BLOB[at : at + 32].encode() for at in range(20_000, 80_000, 5_000)]
"""Pieces from inside: the first page of a large value lies among small ones and is written anew with them."""


@effect("counts.send", key="{request_id}/send")
def send(call: Any, *, title: str) -> dict[str, str]:
    return {"title": title}


@effect("counts.row", key="{request_id}/row", provider=Provider.transactional())
def row(tx: Any, *, title: str) -> dict[str, str]:
    tx.execute("insert into business (title) values (?)", (title,))
    return {"title": title}


class Counts:
    """Count statements and commits by a probe, connections by an audit hook, descriptors by the system's own list."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.phases: dict[str, dict[str, float]] = {}
        sys.addaudithook(self._audit)

    def probe(self, point: Point, _name: str) -> None:
        self.seen[point] += 1

    def phase(self, name: str, work: Callable[[], object], *, times: int = TIMES) -> None:
        """Work once to open what is opened once, then count."""
        work()
        self.seen.clear()
        before = descriptors()
        mark()
        for _ in range(times):
            work()
        mark()
        statements, commits = self.seen[Point.AFTER_STATEMENT], self.seen[Point.AFTER_COMMIT]
        self.phases[name] = {
            "times": times,
            "statements": statements / times,
            "commits": commits / times,
            "connects": self.seen["connects"],
            "descriptors": descriptors() - before,
        }

    def _audit(self, event: str, _args: Any) -> None:
        self.seen["connects"] += event == "sqlite3.connect"


def mark() -> None:
    with suppress(OSError):
        os.fsync(NO_FILE)


def descriptors() -> int:
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0


class Ids:
    def __init__(self) -> None:
        self._last = 0

    def next(self) -> str:
        self._last += 1
        return f"r-{self._last}"


def effects(folder: Path, counts: Counts) -> None:
    with Counterfoil.open(f"sqlite:///{folder}/effects.db", probe=counts.probe) as cf:
        ids = Ids()
        cf.desk.store.write_alone(lambda: ddl("create table business (title text)"))
        counts.phase("remote", lambda: cf.perform(send, tenant="t", request_id=ids.next(), title="a"))
        counts.phase("receipt", lambda: cf.perform(send, tenant="t", request_id="r-1", title="a"))
        counts.phase("local", lambda: cf.perform(row, tenant="t", request_id=ids.next(), title="a"))
        counts.phase("local-receipt", lambda: cf.perform(row, tenant="t", request_id="r-20", title="a"))
        joined(folder, counts, cf, ids)


def joined(folder: Path, counts: Counts, cf: Counterfoil, ids: Ids) -> None:
    own = sqlite3.connect(folder / "effects.db", isolation_level=None)
    own.execute("pragma synchronous=full")
    told: list[str] = []
    own.set_trace_callback(told.append)

    def bare() -> None:
        own.execute("begin immediate")
        own.execute("insert into business (title) values ('a')")
        own.execute("commit")

    def join() -> None:
        own.execute("begin immediate")
        cf.join(own).perform(row, tenant="t", request_id=ids.next(), title="a")
        own.execute("commit")

    counts.phase("own-transaction", bare)
    told.clear()
    counts.phase("joined", join)
    words = Counter(sql.split()[0].lower() for sql in told)
    counts.phases["joined"] |= {f"own-{word}": words[word] / (TIMES + 1) for word in ("begin", "commit", "rollback")}
    own.close()


class State(TypedDict, total=False):
    n: Annotated[int, add]
    blob: str


def graph(nodes: int) -> Any:
    builder: Any = StateGraph(State)
    names = [START, *(f"n{number}" for number in range(nodes)), END]
    for name in names[1:-1]:
        builder.add_node(name, lambda _state: {"n": 1})
    for one, other in pairwise(names):
        builder.add_edge(one, other)
    return builder


def checkpoints(folder: Path, counts: Counts) -> None:
    with Counterfoil.open(f"sqlite:///{folder}/graphs.db", probe=counts.probe) as cf:
        ids, plain = Ids(), graph(NODES).compile(checkpointer=cf.saver())
        managed = cf.compile(graph(NODES))

        def run(compiled: Any) -> None:
            compiled.invoke({"n": 0}, cf.config(tenant="t", thread_id=ids.next()), durability="sync")

        counts.phase("plain-graph", lambda: run(plain), times=1)
        counts.phase("managed-graph", lambda: run(managed), times=1)


def blobs(folder: Path) -> dict[str, int]:
    """Return how often an unchanged large value stands in the files after a short and after a long run."""
    found = {}
    for nodes in (1, NODES):
        path = folder / f"blob-{nodes}.db"
        with Counterfoil.open(f"sqlite:///{path}") as cf:
            compiled = cf.compile(graph(nodes))
            cf.run(compiled, {"n": 0, "blob": BLOB}, tenant="t", thread_id="one", durability="sync")
            files = [path, path.with_name(f"{path.name}-wal")]
            content = b"".join(file.read_bytes() for file in files if file.exists())
            found[str(nodes)] = max(content.count(piece) for piece in PIECES)
    return found


def main(folder: Path) -> None:
    counts = Counts()
    effects(folder, counts)
    checkpoints(folder, counts)
    json.dump({"phases": counts.phases, "blobs": blobs(folder), "nodes": NODES}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
