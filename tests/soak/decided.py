"""Effects that need a decision, and what a process does whose people all decide at once, and then send."""

import random
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from counterfoil import Counterfoil, CounterfoilError, Effect, EffectCall, NotSent, Policy, Provider, effect
from counterfoil.errors import DecisionConflict
from counterfoil.testing.provider_client import ProviderClient
from tests.soak.providers import TENANT, Providers

PEOPLE = 5
"""Deciders of one process."""
KINDS = ("opaque", "keyed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What everybody is asked about; the seed says who decides how."""

    approval_id: str
    request_id: str
    kind: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What somebody was told: whether the ruling stands, who decided, and how the sending ended."""

    by: str
    ruling: str
    stands: bool
    decided_by: str | None
    sent: str


def made(kind: str) -> Effect[Any]:
    def create(call: EffectCall, *, title: str) -> dict[str, int]:
        reply = call.resource(Providers).of(kind).post(kind, {"title": title}, key=call.provider_key)
        if reply.status == 409:
            raise NotSent("its twin is under way")
        assert reply.status == 201
        return {"id": reply.body["id"]}

    provider = Provider(key_lifetime="24h" if kind == "keyed" else None)
    return effect(f"soak.decided-{kind}", key="{request_id}", provider=provider, approval=Policy())(create)


EFFECTS: dict[str, Effect[Any]] = {kind: made(kind) for kind in KINDS}


def arguments(request_id: str) -> dict[str, Any]:
    return {"title": request_id, "tenant": TENANT, "request_id": request_id}


def decide_and_send(cf: Counterfoil, question: Question, by: str) -> Answer:
    """Say yes or no, whatever the others say, and try to send it."""
    ruling = random.Random(f"{question.seed} {by}").choice(["approve", "reject"])
    try:
        done = getattr(cf.approvals, ruling)(question.approval_id, tenant=TENANT, by=by, reason="so")
        stands, decided_by = True, done.decided_by
    except DecisionConflict as lost:
        stands, decided_by = False, lost.decided_by
    try:
        sent = cf.perform(EFFECTS[question.kind], **arguments(question.request_id)).answered_from
    except CounterfoilError as error:
        sent = error.code
    return Answer(by=by, ruling=ruling, stands=stands, decided_by=decided_by, sent=str(sent))


def serve(url: str, honouring: str, ignoring: str, name: str, told: "Connection[Any, Any]") -> None:
    """Answer questions until there are no more: the answers of all one has in this process, and None at their end."""
    mutex = threading.Lock()
    with Counterfoil.open(url) as cf:
        cf.resources.provide(Providers, lambda: Providers(ProviderClient(honouring), ProviderClient(ignoring)))

        def person(number: int, question: Question, start: threading.Barrier) -> None:
            start.wait()
            answer = decide_and_send(cf, question, f"{name}-{number}")
            with mutex:
                told.send(answer)

        while True:
            told.send(None)
            question, start = told.recv(), threading.Barrier(PEOPLE)
            people = [threading.Thread(target=person, args=(one, question, start)) for one in range(PEOPLE)]
            for each in people:
                each.start()
            for each in people:
                each.join()
