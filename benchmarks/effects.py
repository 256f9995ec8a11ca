"""What does one effect cost beside the least that could protect it, and an answer beside a bare read?"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from benchmarks.floor import Floor, connect
from benchmarks.kit import Comparison, Work, compare, cpu, median, wall
from counterfoil import Counterfoil, Provider, effect

GIVEN: dict[str, Any] = {"tenant": "t", "title": "Printer on fire", "priority": 2}


@effect("bench.ticket", key="{request_id}/create-ticket")
def create_ticket(call: Any, *, title: str, priority: int = 3) -> dict[str, Any]:
    return {"id": 1, "title": title}


@effect("bench.row", key="{request_id}/row", provider=Provider.transactional())
def add_row(tx: Any, *, title: str, priority: int = 3) -> dict[str, Any]:
    tx.execute("insert into business (title) values (?)", (title,))
    return {"id": 1}


def run(disk: Path, memory: Path) -> list[Comparison]:
    answers = []
    for where, folder, clock, calls in (("on disk", disk, wall, 25), ("in memory, CPU alone", memory, cpu, 50)):
        with Counterfoil.open(f"sqlite:///{folder}/effects.db") as cf:
            answers.append(compare(f"A remote effect, {where}", remote(cf, folder), clock=clock, calls=calls))
            answers.append(compare(f"Beside a bare commit, {where}", bare(cf, folder), clock=clock, calls=calls))
            answers.append(compare(f"A local effect, {where}", local(cf, folder), clock=clock, calls=calls))
            if clock is wall:
                typical = bare(cf, folder, "m")
                answers.append(compare("Beside a bare commit, the median", typical, clock=median, calls=25))
            if clock is cpu:
                answers.append(compare("An answer from a receipt", receipts(cf, folder), calls=200))
    return answers


def remote(cf: Counterfoil, folder: Path, prefix: str = "r") -> dict[str, Work]:
    floor, ids = Floor(folder / "floor.db"), itertools.count()
    return {
        "two commits by hand": lambda: floor.perform(f"{prefix}-{next(ids)}"),
        "perform": lambda: cf.perform(create_ticket, request_id=f"{prefix}-{next(ids)}", **GIVEN),
    }


def bare(cf: Counterfoil, folder: Path, prefix: str = "b") -> dict[str, Work]:
    """One row in a transaction of its own on a connection that stays open: the least that reaches the disk at all."""
    own = connect(folder / f"bare-{prefix}.db")
    own.execute("create table business (title text)")

    def commit() -> None:
        own.execute("begin immediate")
        own.execute("insert into business (title) values ('Printer on fire')")
        own.execute("commit")

    return {"one row, one commit": commit, **remote(cf, folder, prefix)}


def receipts(cf: Counterfoil, folder: Path) -> dict[str, Work]:
    floor = Floor(folder / "floor.db")
    floor.perform("once")
    return {
        "a bare read by key": lambda: floor.read("once"),
        "perform, answered from the receipt": lambda: cf.perform(create_ticket, request_id="once", **GIVEN),
    }


def local(cf: Counterfoil, folder: Path) -> dict[str, Work]:
    own, ids = Floor(folder / "effects.db").connection, itertools.count()
    own.execute("create table business (title text)")

    def bare() -> None:
        own.execute("begin immediate")
        own.execute("insert into business (title) values ('Printer on fire')")
        own.execute("commit")

    def joined() -> None:
        own.execute("begin immediate")
        cf.join(own).perform(add_row, request_id=f"j-{next(ids)}", **GIVEN)
        own.execute("commit")

    return {
        "the caller's own transaction without us": bare,
        "joined in the caller's own transaction": joined,
        "in a transaction of ours": lambda: cf.perform(add_row, request_id=f"l-{next(ids)}", **GIVEN),
    }
