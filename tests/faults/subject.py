"""A Counterfoil on a real server, reached over a wire that tests disturb; times are the server's own."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from counterfoil.drivers.postgres_async import AsyncPostgresStore
from counterfoil.drivers.postgres_pool import Shelf
from counterfoil.drivers.probes import Point
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from counterfoil.testing.wire import Wire
from tests.conformance.subject import SYNC, Sent, Subject
from tests.strides import chosen

ANYTHING = re.compile(b".", re.DOTALL)
MANNERS = ("before", "after", "reply")
"""How a request is lost: before the server sees it, once it was passed on, or when the server has answered it."""
SENT = (Point.BEFORE_STATEMENT, Point.BEFORE_COMMIT)
"""Points behind which something is sent. One that stands alone is both: it is cut once for each."""


class Wired(Subject):
    """A subject without a clock of its own: the server's counts."""

    def open(self, url: str | None = None, **options: Any) -> Any:
        """Open another one, over another way to the server if one is given."""
        given, self.url = self.url, url or self.url
        try:
            return super().open(**{"clock": None, **options})
        finally:
            self.url = given

    # --- its connections ---------------------------------------------------------------------------------------------

    def shelf(self, cf: Any = None) -> Shelf[Any]:
        """Return the connections that calls of this colour use."""
        whose = cf or self.cf
        if self.colour == SYNC:
            found: Shelf[Any] = whose.desk.store.lender.shelf
        else:
            found = self.settle(shelf_of_loop(whose.store))
        return found

    def lent(self, cf: Any = None) -> int:
        """Return how many connections are in use."""
        return self.shelf(cf).lent

    @contextmanager
    def holding(self, cf: Any) -> Iterator[None]:
        """Leave no connection to anybody else."""
        shelf = self.shelf(cf)
        leases = [lease for _ in range(shelf.size) if (lease := shelf.take()) is not None]
        try:
            yield
        finally:
            for lease in leases:
                shelf.give_back(lease)

    def forget_connections(self) -> None:
        """Close what nobody uses, so that the next call opens a connection."""
        self.shelf().drop_idle()
        self.cf.desk.store.lender.shelf.drop_idle()


async def shelf_of_loop(store: AsyncPostgresStore) -> Shelf[Any]:
    return store.lender.shelf()


def wired(url: str, colour: str, folder: Path, **options: Any) -> Wired:
    return Wired(colour=colour, url=url, clock=FakeClock(), sent=Sent(TallyFile(folder / "tally")), **options)


def cut(wire: Wire, manner: str) -> None:
    """Lose the next request in a manner."""
    match manner:
        case "before":
            wire.cut_before_request(ANYTHING)
        case "after":
            wire.cut_after_request(ANYTHING)
        case _:
            wire.cut_before_reply(ANYTHING)


@dataclass(slots=True)
class Cutter:
    """Counts the points of a scenario, and cuts the wire at one of them."""

    wire: Wire
    manner: str = ""
    target: int = -1
    seen: list[str] = field(default_factory=list)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, point: Point, name: str) -> None:
        if point not in SENT:
            return
        with self.mutex:  # LangGraph writes from several threads
            if len(self.seen) == self.target:
                cut(self.wire, self.manner)
            self.seen.append(f"{point.value} {name}".strip())

    @property
    def has_cut(self) -> bool:
        return 0 <= self.target < len(self.seen)


def at_each_point(
    subject: Subject,
    wire: Wire,
    act: Callable[[str], None],
    check: Callable[[str], None],
    *,
    arrange: Callable[[str], None] = lambda request_id: None,
    manners: tuple[str, ...] = MANNERS,
    every: int = 1,
) -> list[str]:
    """Run a scenario once for each of its points and each manner of losing what is sent there, and check what is left.

    All are given the request id of this run, of which only `act` is disturbed. Returns the points that were cut.
    """
    whole = run(subject, wire, "undisturbed", arrange, act, Cutter(wire))
    check("undisturbed")
    cuts = []
    for target, manner in chosen(list(product(range(len(whole.seen)), manners)), subject.colour, every):
        request_id = f"{manner}-{target}"
        cutter = run(subject, wire, request_id, arrange, act, Cutter(wire, manner, target))
        assert cutter.has_cut, f"{request_id}: it took another way, {cutter.seen} and not {whole.seen}"
        check(request_id)
        cuts.append(f"{manner} {whole.seen[target]}")
    return cuts


def run(
    subject: Subject,
    wire: Wire,
    request_id: str,
    arrange: Callable[[str], None],
    act: Callable[[str], None],
    cutter: Cutter,
) -> Cutter:
    arrange(request_id)
    with subject.probe.during(cutter):
        act(request_id)
    wire.restore()
    return cutter
