"""What must be true when it is all over: nothing that was answered is lost, nothing has happened twice unnoticed."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from counterfoil import Counterfoil, Effect, Receipt
from counterfoil.core.states import TERMINAL, CaseKind, OperationState, Verdict
from counterfoil.errors import CounterfoilError, OperationInProgress, OperationNotFound, OutcomeUnknown, Retry
from counterfoil.model import OperationKey
from counterfoil.shown import Operation
from counterfoil.storage.scripts import inspection
from counterfoil.testing.provider_desk import Accepted
from tests.soak.effects import EFFECTS, builder, first_of_graph, second_of_graph
from tests.soak.providers import TENANT, Providers
from tests.soak.scene import Crew

BY_NAME = {each.name: each for each in (*EFFECTS.values(), first_of_graph, second_of_graph)}
PATIENCE = 60.0
"""Seconds until every lease and deadline of the run is over, many times over."""


@dataclass(slots=True, kw_only=True)
class Verdicts:
    """What came of a run."""

    operations: int = 0
    answers: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    by_people: int = 0
    doubles: int = 0
    graphs: int = 0
    violations: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """Return what is printed at the end."""
        names = ("operations", "answers", "graphs", "by_people", "doubles", "violations")
        return {**{name: getattr(self, name) for name in names}, "errors": dict(self.errors)}


def settle_all(cf: Counterfoil, providers: Providers, found: Verdicts) -> None:
    """Bring every operation to its end, as recovery and people would: nobody is at work any more."""
    until = time.monotonic() + PATIENCE
    while (left := [each for each in _all(cf) if each.state not in TERMINAL]) and time.monotonic() < until:
        for operation in left:
            try:
                _settle(cf, providers, operation, found)
            except OperationInProgress:
                time.sleep(0.05)
            except CounterfoilError as error:
                if error.retry is Retry.NEVER:
                    found.violations.append(f"{operation.operation_id} cannot be settled: {error}")
                    raise
    for operation in _all(cf):
        if operation.state not in TERMINAL:
            found.violations.append(f"{operation.operation_id} is {operation.state} for ever")


def _settle(cf: Counterfoil, providers: Providers, operation: Operation, found: Verdicts) -> None:
    made = BY_NAME[operation.effect]
    request_id = request_of(operation.operation_id)
    try:
        cf.perform(made, tenant=TENANT, request_id=request_id, title=request_id)
    except OutcomeUnknown as unknown:
        if made.provider.lookup is not None or unknown.retry is Retry.SAFE:
            return  # asked again when that can prove more
        sent = _sent(providers, key_of(made, operation.operation_id))
        case = cf.review.open(operation.operation_id, tenant=TENANT)
        shown: dict[str, Any] = {"value": {"id": sent[0].id}, "evidence": "it is in the books"} if sent else {}
        cf.review.resolve(
            case.case_id,
            tenant=TENANT,
            verdict=Verdict.HAPPENED if sent else Verdict.DID_NOT_HAPPEN_CLOSE,
            by="the judge",
            reason="looked at the provider's books",
            expect_version=case.version,
            **shown,
        )
        found.by_people += 1


def request_of(operation_id: str) -> str:
    """Return the request that an operation belongs to; it is also the thread of one in a graph."""
    return operation_id.partition("/")[0]


def key_of(made: Effect[Any], operation_id: str) -> str:
    """Return the key that the provider was given."""
    return made.provider.key_for(OperationKey(tenant=TENANT, operation_id=operation_id))


def _all(cf: Counterfoil) -> list[Operation]:
    page = cf.operations.list(tenant=TENANT, limit=1000)
    every = list(page.items)
    while page.next is not None:
        page = cf.operations.list(tenant=TENANT, limit=1000, before=page.next)
        every += page.items
    return every


def _sent(providers: Providers, key: str) -> list[Accepted]:
    return [one for each in (providers.honouring, providers.ignoring) for one in each.accepted() if one.key == key]


def judge(cf: Counterfoil, crew: Crew, found: Verdicts) -> None:
    """Compare the ledger, the provider's books and what the workers were told."""
    contents = cf.desk.store.read(inspection.everything)
    rows = {row["operation_id"]: row for row in contents.operations}
    cases = defaultdict(set)
    for case in contents.cases:
        cases[case["operation_id"]].add(case["kind"])
    books = defaultdict(list)
    for provider in (crew.providers.honouring, crew.providers.ignoring):
        for one in provider.accepted():
            books[one.key].append(one)
    found.operations = len(rows)
    found.violations += crew.crashed
    for row in rows.values():
        key = key_of(BY_NAME[row["effect"]], row["operation_id"])
        found.violations += _judged(row, books.pop(key, []), cases[row["operation_id"]], found)
    found.violations += [f"the provider has {key}, which nobody asked for" for key in books]
    found.violations += _answers(cf, crew, rows, found)
    found.violations += _graphs(cf, crew, found)


def _judged(row: Any, sent: list[Accepted], cases: set[str], found: Verdicts) -> Iterator[str]:
    name = f"{row['operation_id']} ({row['effect']}, {row['state']}, attempt {row['attempt']})"
    if len(sent) > 1:
        found.doubles += 1
        if "queryable" not in row["effect"] or CaseKind.POSSIBLE_DOUBLE_EFFECT not in cases:
            yield f"{name} happened {len(sent)} times, and no case says so: {cases}"
    if row["state"] == OperationState.SUCCEEDED and not sent:
        yield f"{name} has a receipt, and the provider has nothing"
    if row["state"] != OperationState.SUCCEEDED and sent:
        yield f"{name} counts as not happened, and the provider has it"
    if row["state"] not in TERMINAL or row["payload"] is not None:
        yield f"{name} is not settled whole"


def _answers(cf: Counterfoil, crew: Crew, rows: dict[str, Any], found: Verdicts) -> Iterator[str]:
    """Hold every receipt that a worker was given against the ledger."""
    receipts: dict[str, Any] = {}
    for note in crew.notes():
        if "crash" in note:
            yield f"a worker met with something that is no error of ours: {note['crash']}"
        elif "error" in note:
            found.errors[note["error"]] += 1
        elif "id" in note:
            found.answers += 1
            request = note["request"]
            if request not in rows:
                yield f"{request} was answered with a receipt, and is lost"
                continue
            if request not in receipts:
                receipts[request] = _receipt(cf, request)
            stored = receipts[request]
            if stored is None or stored.value["id"] != note["id"]:
                yield f"{request} was answered with {note['id']}, and the ledger has {stored}"


def _receipt(cf: Counterfoil, operation_id: str) -> Receipt[Any] | None:
    try:
        return cf.operations.get(operation_id, tenant=TENANT).receipt
    except OperationNotFound:
        return None


def _graphs(cf: Counterfoil, crew: Crew, found: Verdicts) -> Iterator[str]:
    """Run every thread to its end: its state is what its receipts say, whatever came between."""
    graph = cf.compile(builder(awaiting=False))
    ended = {note["request"]: note for note in crew.notes() if "first" in note}
    asked = {request_of(each.operation_id) for each in _all(cf)}
    threads = {each for each in asked if each.startswith("graph-")} | set(ended)
    found.graphs = len(threads)
    for thread_id in sorted(threads):
        config = cf.config(tenant=TENANT, request_id=thread_id, thread_id=thread_id)
        state = graph.get_state(config)
        if not state.values:
            yield f"{thread_id} performed an effect and has no checkpoint"
            continue
        values = state.values
        if state.tasks:  # `next` leaves out what has run while its checkpoint was lost
            values = cf.run(graph, None, tenant=TENANT, request_id=thread_id, thread_id=thread_id)
        for name, kind in (("first", "keyed"), ("second", "queryable")):
            receipt = _receipt(cf, f"{thread_id}/{kind}")
            if receipt is None or values.get(name) != receipt.value["id"]:
                yield f"{thread_id} ended with {values}, and the ledger has {receipt} of its {name}; it was {state}"
        told = ended.get(thread_id, {}).get("second")
        if told is not None and told != values.get("second"):
            yield f"{thread_id} was answered with {told}, and its state is {values}"
