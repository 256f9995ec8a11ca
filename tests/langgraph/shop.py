"""What most tests of LangGraph need: a Counterfoil, a provider outside of it that counts, effects, and small graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict  # the one that pydantic takes on Python 3.11

from counterfoil import Absent, CannotTell, Counterfoil, EffectCall, Found, NotSent, Provider, Refused, effect
from counterfoil.testing.tally import TallyFile
from tests import stores


class State(TypedDict, total=False):
    order: str
    number: int
    amount: int
    answer: Any
    minted: str
    log: Annotated[list[str], add]
    numbers: Annotated[list[int], add]


Node = Callable[..., Any]


def accept(call: EffectCall, **body: Any) -> int:
    """Let the provider accept one effect, whoever sends it."""
    return call.resource(TallyFile).accept("charge", f"{call.tenant}|{call.operation_id}", body)


@effect("test.charge", key="{request_id}/charge/{order}")
def charge(call: EffectCall, *, order: str, amount: int = 10) -> dict[str, int]:
    return {"number": accept(call, amount=amount)}


@effect("test.acharge", key="{request_id}/charge/{order}")
async def acharge(call: EffectCall, *, order: str, amount: int = 10) -> dict[str, int]:
    return {"number": accept(call, amount=amount)}


@effect("test.opaque", key="{request_id}/opaque/{order}")
def lose_reply(call: EffectCall, *, order: str) -> dict[str, int]:
    """Happen, and lose the reply; the provider cannot be asked."""
    accept(call)
    raise TimeoutError


@effect("test.aopaque", key="{request_id}/opaque/{order}")
async def alose_reply(call: EffectCall, *, order: str) -> dict[str, int]:
    accept(call)
    raise TimeoutError


class Desk:
    """The provider's information desk; tests close and open it."""

    def __init__(self) -> None:
        self.is_open = False


def find(call: EffectCall, **_arguments: Any) -> Found | Absent | CannotTell:
    if not call.resource(Desk).is_open:
        return CannotTell("closed")
    one = call.resource(TallyFile).find(f"{call.tenant}|{call.operation_id}")
    return Absent() if one is None else Found({"number": one.number})


@effect("test.findable", key="{request_id}/find/{order}", provider=Provider(lookup=find, lookup_lag="0s"))
def lose_findable(call: EffectCall, *, order: str) -> dict[str, int]:
    accept(call)
    raise TimeoutError


@effect("test.busy-once", key="{request_id}/busy/{order}")
def busy_once(call: EffectCall, *, order: str) -> dict[str, int]:
    """Be turned away once, with nothing done."""
    if call.attempt == 1:
        raise NotSent("busy")
    return {"number": accept(call)}


@effect("test.refused", key="{request_id}/refused/{order}")
def refused(call: EffectCall, *, order: str) -> dict[str, int]:
    raise Refused("no such card")


@effect("test.invite", key="invite/{invitation}")
def invite(call: EffectCall, *, invitation: str) -> dict[str, int]:
    """An effect whose id is minted."""
    return {"number": accept(call)}


WHO: dict[str, Any] = {"tenant": "team-A", "request_id": "r-1", "thread_id": "t-1"}


@dataclass
class Shop:
    """One Counterfoil, its provider, and what is needed to open another one over the same database."""

    url: str
    folder: Path
    """Where the provider counts, and the database is where it is a file."""
    tally: TallyFile = field(init=False)
    desk: Desk = field(default_factory=Desk)
    opened: list[Counterfoil] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tally = TallyFile(self.folder / "tally")

    def open(self, **options: Any) -> Counterfoil:
        cf = Counterfoil.open(self.url, **options)
        cf.resources.provide(TallyFile, lambda: self.tally)
        cf.resources.provide(Desk, lambda: self.desk)
        self.opened.append(cf)
        return cf

    @property
    def cf(self) -> Counterfoil:
        return self.opened[0] if self.opened else self.open()

    @property
    def count(self) -> int:
        """How many effects the provider accepted."""
        return self.tally.count()

    def close(self) -> None:
        for cf in self.opened:
            cf.close()

    def select(self, sql: str, *values: object) -> list[Any]:
        """Look into the database."""
        return stores.execute(self.url, sql, *values)

    def rows(self, table: str, where: str = "true") -> int:
        """Count the rows of one table."""
        return int(self.select(f"select count(*) from counterfoil_{table} where {where}")[0][0])  # noqa: S608 - ours

    def raw(self) -> bytes:
        """Read all that is stored, as bytes."""
        return stores.stored(self.url)


def chain(*nodes: tuple[str, Node], schema: Any = State, **options: Any) -> Any:
    """Build a graph that runs its nodes one after the other."""
    builder: Any = StateGraph(schema)
    names: Sequence[str] = [START, *(name for name, _ in nodes), END]
    for name, node in nodes:
        builder.add_node(name, node, **options)
    for earlier, later in pairwise(names):
        builder.add_edge(earlier, later)
    return builder


def conf(thread_id: str = "t-1", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread_id, **more}}
