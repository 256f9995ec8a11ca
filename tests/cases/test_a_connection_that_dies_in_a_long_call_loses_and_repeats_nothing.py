"""B71: after minutes of silence the saver's one connection was closed, and the next write failed, after the effect.

Sources: https://github.com/langchain-ai/langgraph/issues/5675, https://github.com/langchain-ai/langgraph/issues/7304

On PostgreSQL: a file has no connection to lose. Each request of a run is cut in tests/faults/test_cut_graphs.py.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil
from counterfoil.drivers.probes import Point
from counterfoil.langgraph import aperform, perform
from counterfoil.testing.tally import TallyFile
from counterfoil.testing.wire import Wire
from tests.faults.subject import MANNERS, cut
from tests.langgraph.shop import WHO, State, acharge, chain, charge
from tests.postgres.databases import END_SESSIONS, Database

COLOURS = ("blocking", "awaiting")
SENT = (Point.BEFORE_STATEMENT, Point.BEFORE_COMMIT)


class Model:
    """A long call in a node: what happens meanwhile, and at which request afterwards the connection dies."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.meanwhile: Callable[[], None] = lambda: None
        self.then: tuple[str, int] | None = None
        self.over = False
        self.cut_at: str | None = None

    def arm(self, manner: str, number: int) -> None:
        """Let the connection die at one of the requests after the next call."""
        self.over, self.then, self.cut_at = False, (manner, number), None

    def think(self) -> dict[str, Any]:
        self.meanwhile()
        self.over = True
        return {"log": ["thought"]}

    def probe(self, point: Point, name: str) -> None:
        if not self.over or self.then is None or point not in SENT:
            return
        manner, left = self.then
        self.then = (manner, left - 1) if left else None
        if not left:
            self.cut_at = name
            cut(self.wire, manner)


class Runs:
    """A graph of one colour that pays, thinks for long, and pays again, over a wire that can be cut."""

    def __init__(self, colour: str, url: str, folder: Path, wire: Wire) -> None:
        self.model, self.blocking = Model(wire), colour == "blocking"
        self.tally, self.runner = TallyFile(folder / "tally"), asyncio.Runner()
        kind: Any = Counterfoil if self.blocking else AsyncCounterfoil
        self.cf = kind.open(url, probe=self.model.probe)
        self.cf.resources.provide(TallyFile, lambda: self.tally)
        nodes = (self.paying("1"), self.thinking(), self.paying("2"))
        self.graph = self.cf.compile(chain(*zip(("pay", "think", "pay again"), nodes, strict=True)))

    def paying(self, order: str) -> Any:
        def pay(_state: State) -> State:
            return {"numbers": [perform(charge, order=order).value["number"]]}

        async def apay(_state: State) -> State:
            return {"numbers": [(await aperform(acharge, order=order)).value["number"]]}

        return pay if self.blocking else apay

    def thinking(self) -> Any:
        async def athink(_state: State) -> Any:
            return await asyncio.to_thread(self.model.think)

        return (lambda _state: self.model.think()) if self.blocking else athink

    def go(self, given: Any) -> Any:
        answer = self.cf.run(self.graph, given, **WHO)
        return answer if self.blocking else self.runner.run(answer)

    def close(self) -> None:
        closing = self.cf.close()
        if not self.blocking:
            self.runner.run(closing)
        self.runner.close()


@pytest.fixture
def wire(postgres_database: Database) -> Iterator[Wire]:
    with Wire(postgres_database.server.host, postgres_database.server.port) as made:
        yield made


@pytest.fixture(params=COLOURS)
def runs(request: pytest.FixtureRequest, wire: Wire, postgres_database: Database, tmp_path: Path) -> Iterator[Runs]:
    url = f"{wire.through(postgres_database.url)}?sslmode=disable&gssencmode=disable"
    made = Runs(request.param, url, tmp_path, wire)
    yield made
    made.close()


def check(runs: Runs, database: Database) -> None:
    """See one effect each, one checkpoint for each step and one child of each, and a thread at rest."""
    assert [one.key for one in runs.tally.accepted()] == ["team-A|r-1/charge/1", "team-A|r-1/charge/2"]
    rows = database.execute("select checkpoint_id, parent_id, step from counterfoil_checkpoint order by seq")
    assert [step for _, _, step in rows] == [-1, 0, 1, 2, 3]
    assert max(Counter(parent for _, parent, _ in rows).values()) == 1
    assert database.execute("select state, holder from counterfoil_thread") == [("idle", None)]
    assert database.execute("select state, count(*) from counterfoil_operation group by state") == [("succeeded", 2)]
    assert database.execute("select count(*) from counterfoil_case") == [(0,)]


@pytest.mark.parametrize("how", ["ended by the server", "closed on the way"])
def test_one_that_died_while_nobody_used_it_is_replaced_unnoticed(
    runs: Runs, wire: Wire, postgres_database: Database, how: str
) -> None:
    def end() -> None:
        postgres_database.execute(END_SESSIONS)

    runs.model.meanwhile = end if how == "ended by the server" else wire.cut
    assert runs.go({})["numbers"] == [1, 2]
    check(runs, postgres_database)


@pytest.mark.slow
@pytest.mark.parametrize("manner", MANNERS)
def test_one_that_dies_at_any_write_after_the_call_is_replaced_and_the_write_looked_up(
    runs: Runs, postgres_database: Database, manner: str
) -> None:
    seen: list[str] = []
    for number in range(100):
        postgres_database.empty()
        runs.tally.path.unlink(missing_ok=True)
        runs.model.arm(manner, number)
        assert runs.go({})["numbers"] == [1, 2]
        check(runs, postgres_database)
        if runs.model.cut_at is None:
            break
        seen.append(runs.model.cut_at)
    assert len(seen) >= 5
    assert any("checkpoint" in name for name in seen)
