"""What the cases of workflows share: a database, a clock that a test moves, and a provider that counts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import add
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import TypedDict

from counterfoil import Counterfoil, effect
from counterfoil.langgraph import perform, wait_for
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.tally import TallyFile
from tests.conformance.flows import beside, chain
from tests.stores import execute

__all__ = ["TENANT", "Journeys", "Log", "beside", "chain", "collecting", "noting", "paying", "ship"]

TENANT = "t"


class Log(TypedDict, total=False):
    number: int
    log: Annotated[list[str], add]


@effect("cases.ship", key="{workflow_id}/ship/{what}")
def ship(call: Any, *, what: str) -> str:
    call.resource(TallyFile).accept("ship", call.operation_id, {"what": what})
    return what


def noting(word: str) -> Callable[[Any], Any]:
    return lambda _: {"log": [word]}


def paying(what: str) -> Callable[[Any], Any]:
    return lambda _: {"log": [f"shipped {perform(ship, what=what).value}"]}


def collecting(event: str = "paid", **asked: Any) -> Callable[[Any], Any]:
    def wait(_: Any) -> Any:
        came = wait_for(event, **asked)
        return {"log": ["nothing" if came is None else came.event_id]}

    return wait


@dataclass
class Journeys:
    """Processes that share one database, one clock and one provider; each may register graphs of its own."""

    url: str
    folder: Path
    engine: str = "embedded"
    clock: Any = field(default_factory=FakeClock)
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.tally = TallyFile(self.folder / "tally")
        self.cf = self.open()

    def open(self, **options: Any) -> Counterfoil:
        given = {"clock": self.clock, "engine": self.engine, **options}
        cf = self.stack.enter_context(Counterfoil.open(self.url, **given))
        cf.resources.provide(TallyFile, lambda: self.tally)
        return cf

    @property
    def sent(self) -> list[str]:
        return [one.body["what"] for one in self.tally.accepted()]

    def freeze(self, duration: str) -> None:
        """Let time pass in which nobody who is at work gives a sign of life."""
        self.clock.advance(duration)
        self.be_silent()

    def be_silent(self) -> None:
        """Let the engine hold everybody who is at work for dead, but for whom a blocked loop keeps in a transaction."""
        if self.engine == "procrastinate":
            there = "select id from procrastinate_workers for update skip locked"
            aged = f"update procrastinate_workers set last_heartbeat = now() - interval '1 hour' where id in ({there})"  # noqa: S608
            execute(self.url, aged)

    def start(self, workflow_id: str = "w", graph: str = "g", **given: Any) -> Any:
        return self.cf.workflows.start(graph, given, tenant=TENANT, workflow_id=workflow_id)

    def deliver(self, event_id: str, workflow_id: str = "w", *, event: str = "paid", **given: Any) -> Any:
        return self.cf.workflows.deliver(event, tenant=TENANT, workflow_id=workflow_id, event_id=event_id, **given)

    def get(self, workflow_id: str = "w") -> Any:
        return self.cf.workflows.get(workflow_id, tenant=TENANT)

    def log(self, workflow_id: str = "w") -> list[str]:
        found: list[str] = self.cf.workflows.result(workflow_id, tenant=TENANT).get("log", [])
        return found


def journeys(url: str, folder: Path, engine: str = "embedded") -> Iterator[Journeys]:
    made = Journeys(url, folder, engine)
    with made.stack:
        yield made
