"""A worker process: runs a small graph on one thread and, in its first node, does what it is told.

`python -m tests.langgraph.worker URL FOLDER THREAD DOING` prints a line when it is in the node, and how it ended.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from counterfoil import Counterfoil, CounterfoilError
from counterfoil.langgraph import perform
from counterfoil.testing.tally import TallyFile
from tests.langgraph.shop import State, chain, charge


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait() -> None:
    sys.stdin.readline()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def nothing() -> None:
    pass


DOING = {"wait": wait, "stop": stop, "nothing": nothing}


def graph_of(doing: str, tally: TallyFile) -> Any:
    def work(state: State) -> State:
        tally.accept("node work")
        say("in work")
        DOING[doing]()
        return {"log": ["work"]}

    def pay(state: State) -> State:
        tally.accept("node pay")
        return {"number": perform(charge, order=state["order"]).value["number"], "log": ["pay"]}

    def mail(state: State) -> State:
        tally.accept("node mail")
        return {"log": ["mail"]}

    return chain(("work", work), ("pay", pay), ("mail", mail))


def open_with(url: str, tally: TallyFile, **options: Any) -> Counterfoil:
    cf = Counterfoil.open(url, **options)
    cf.resources.provide(TallyFile, lambda: tally)
    return cf


def main(url: str, folder: str, thread_id: str, doing: str) -> None:
    tally = TallyFile(Path(folder) / "tally")
    with open_with(url, tally) as cf:
        graph = cf.compile(graph_of(doing, tally))
        try:
            ended = cf.run(graph, {"order": "1"}, tenant="team-A", request_id="r-1", thread_id=thread_id)
            say(f"done {' '.join(ended['log'])}")
        except CounterfoilError as error:
            say(error.code)


if __name__ == "__main__":
    main(*sys.argv[1:])
