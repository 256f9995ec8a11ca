"""A step of a graph writes to five people, an operation each; `python -m tests.cases.mass_letters URL FOLDER [DIE]`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from counterfoil import Counterfoil, EffectCall, NotSent, Provider, effect
from counterfoil.drivers.probes import Point
from counterfoil.langgraph import enqueue
from counterfoil.testing.tally import TallyFile

ADDRESSES = ("one", "two", "three", "four", "five")
GREYLISTED = "three"
WHO: dict[str, Any] = {"tenant": "t", "request_id": "issue-7", "thread_id": "t-1"}


@effect("cases.letter", key="{request_id}/{address}", provider=Provider(key_lifetime="24h"), time_limit="1s")
def letter(call: EffectCall, *, address: str) -> None:
    if address == GREYLISTED and call.attempt == 1:
        raise NotSent("450 4.2.1 greylisted")
    call.resource(TallyFile).accept(address, call.provider_key)


class Issue(TypedDict, total=False):
    written: list[str]


def write(state: Issue) -> Issue:
    return {"written": [enqueue(letter, address=address).operation_id for address in ADDRESSES]}


def builder() -> Any:
    made: Any = StateGraph(Issue)
    made.add_node("write", write)
    made.add_edge(START, "write")
    return made


def tally_in(folder: Path) -> TallyFile:
    return TallyFile(folder / "tally", honours_keys=True)


def main(url: str, folder: str, die: str = "") -> None:
    tally = tally_in(Path(folder))

    def dying(point: Point, _name: str) -> None:
        if die and point is Point.AFTER_COMMIT and tally.count("four"):
            os.kill(os.getpid(), signal.SIGKILL)

    with Counterfoil.open(url, probe=dying) as cf:
        cf.resources.provide(TallyFile, lambda: tally)
        graph = cf.compile(builder())
        if graph.get_state(cf.config(**WHO)).created_at is None:
            cf.run(graph, {}, **WHO)
        cf.drain(letter, batch=1, concurrency=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
