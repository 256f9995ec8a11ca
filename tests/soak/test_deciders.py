"""Twenty people in four processes decide at once, and one process is killed meanwhile: one decision, and its effect."""

import json
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest

from counterfoil import Counterfoil
from counterfoil.errors import ApprovalRejected, OutcomeUnknown
from counterfoil.testing.provider_client import CountingProvider
from counterfoil.testing.provider_desk import Settings
from tests.soak import decided
from tests.soak.decided import EFFECTS, KINDS, PEOPLE, Answer, Question, arguments
from tests.soak.providers import TENANT, Providers

PROCESSES = 4
ROUNDS, SEED = "COUNTERFOIL_SOAK_ROUNDS", "COUNTERFOIL_SOAK_SEED"
MANY = 200

# Processes come from one that has imported all they need and has no threads: one is killed in each round.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload([decided.__name__])


@dataclass(slots=True)
class Crowd:
    """Processes of deciders; one that was killed is replaced."""

    places: tuple[str, str, str]
    """Of the database, and of the two providers."""
    chance: random.Random
    people: "list[tuple[ForkServerProcess, Connection[Any, Any]]]" = field(default_factory=list)
    started: int = 0
    took: float = 0.1
    """Seconds that the last round took: in the first half of them the next victim is hit."""

    def start(self) -> "tuple[ForkServerProcess, Connection[Any, Any]]":
        self.started += 1
        ours, theirs = FORKING.Pipe()
        process = FORKING.Process(target=decided.serve, args=(*self.places, f"p{self.started}", theirs), daemon=True)
        process.start()
        theirs.close()
        assert ours.recv() is None
        return process, ours

    def ask(self, question: Question) -> tuple[list[Answer], list[Answer]]:
        """Ask all of them and kill one meanwhile; return what the others were told, and what that one was."""
        began, victim = time.monotonic(), self.chance.randrange(PROCESSES)
        for _, told in self.people:
            told.send(question)
        time.sleep(self.chance.uniform(0, self.took / 2))
        self.people[victim][0].kill()
        answers = [list(_answers(told)) for _, told in self.people]
        self.took = time.monotonic() - began
        self._end(victim)
        self.people[victim] = self.start()
        dead = answers.pop(victim)
        return [one for each in answers for one in each], dead

    def end(self) -> None:
        for number in range(len(self.people)):
            self._end(number)

    def _end(self, number: int) -> None:
        process, told = self.people[number]
        process.kill()
        process.join()
        process.close()
        told.close()


def _answers(told: "Connection[Any, Any]") -> Iterator[Answer]:
    """Read what a process says until it is done, or dead."""
    with suppress(EOFError, ConnectionResetError):
        while (answer := told.recv()) is not None:
            yield answer


@contextmanager
def crowd(url: str, providers: Providers, chance: random.Random) -> Iterator[Crowd]:
    made = Crowd((url, providers.honouring.url, providers.ignoring.url), chance)
    try:
        made.people = [made.start() for _ in range(PROCESSES)]
        yield made
    finally:
        made.end()


@contextmanager
def two_providers() -> Iterator[Providers]:
    with CountingProvider(Settings(keys=True)) as honouring, CountingProvider(Settings(keys=False)) as ignoring:
        yield Providers(honouring, ignoring)


# --- the rounds ------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_approve_against_reject_while_deciders_die(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = int(os.environ.get(ROUNDS, MANY))
    seed = int(os.environ.get(SEED, time.time_ns() % 10**6))
    seen = Counter[str]()
    with two_providers() as providers, Counterfoil.open(url) as cf:
        cf.resources.provide(Providers, lambda: providers)
        with crowd(url, providers, random.Random(seed)) as deciders:
            for number in range(rounds):
                question = asked(cf, number, seed)
                seen += judged(cf, providers, question, *deciders.ask(question))
    with capsys.disabled():
        print("\n" + json.dumps({"seed": seed, "rounds": rounds, **dict(sorted(seen.items()))}, indent=2))  # noqa: T201 - the report
    assert seen["approved"] + seen["rejected"] == rounds
    assert min(seen["approved"], seen["rejected"]) > rounds / 10


def asked(cf: Counterfoil, number: int, seed: int) -> Question:
    kind, request_id = KINDS[number % len(KINDS)], f"r-{number}"
    approval = cf.approvals.request(EFFECTS[kind], **arguments(request_id))
    return Question(approval_id=approval.approval_id, request_id=request_id, kind=kind, seed=seed + number)


RULINGS = {"approved": "approve", "rejected": "reject"}
MAY_COUNT = {"receipt": {1}, "effect": {1}, "unknown": {0, 1}, "rejected": {0}}


def judged(
    cf: Counterfoil, providers: Providers, question: Question, heard: list[Answer], dead: list[Answer]
) -> Counter[str]:
    """Send what may be, and hold what everybody was told against the one decision, and the provider's books."""
    approval = cf.approvals.show(question.approval_id, tenant=TENANT).approval
    ruling, by, told = RULINGS[approval.state], approval.decided_by, [*heard, *dead]
    assert len(heard) == PEOPLE * (PROCESSES - 1)
    assert {(one.stands, one.decided_by) for one in told} <= {(True, by), (False, by)}
    assert [one for one in told if one.stands is not (one.ruling == ruling)] == []
    noted = cf.audit.list(tenant=TENANT, subject=question.approval_id).items
    assert [(one.act, one.who) for one in noted] == [(f"approval.{ruling}", by)]
    outcome = sent(cf, question)
    books = providers.of(question.kind).accepted()
    count = sum(one.body == {"title": question.request_id} for one in books)
    assert count in MAY_COUNT[outcome]
    assert (outcome == "rejected") is (ruling == "reject")
    return Counter(
        {
            str(approval.state): 1,
            f"{question.kind}, {outcome}, the provider has {count}": 1,
            "decided by one who was killed before hearing of it": int(by not in {one.by for one in told}),
            "killed before all of a process had their answers": int(len(dead) < PEOPLE),
            **{f"in which somebody was told {each}": 1 for each in {one.sent for one in told}},
        }
    )


def sent(cf: Counterfoil, question: Question) -> str:
    try:
        return str(cf.perform(EFFECTS[question.kind], **arguments(question.request_id)).answered_from)
    except ApprovalRejected:
        return "rejected"
    except OutcomeUnknown:
        return "unknown"  # whoever sent it was killed meanwhile, and its provider knows no keys
