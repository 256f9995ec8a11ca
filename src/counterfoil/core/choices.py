"""What a person must know to give a verdict: what the provider can do, and what each verdict would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.core.durations import duration_text, utc_text
from counterfoil.core.explain import explain, run_again, value_command
from counterfoil.core.outbox import MAX_ATTEMPTS
from counterfoil.core.reconcile import case_without_value, permitted
from counterfoil.core.states import CaseKind, CaseState, OperationState, Sender, Verdict
from counterfoil.core.unknown import key_valid_until

if TYPE_CHECKING:
    from counterfoil.shown import Case, Operation, OperationDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A verdict that a case takes: what it would do, and the command that gives it."""

    verdict: Verdict
    does: str
    command: str


def provider_can(operation: Operation) -> str:
    """Say what the provider can do about an outcome that nobody knows."""
    facts, can = operation.facts, []
    if facts.transactional:
        return "nothing: the effect is a transaction of this database, which is there or is not"
    if facts.key_lifetime is not None:
        until = key_valid_until(facts, operation.first_attempt_at)
        over = ", which is over" if until is not None and operation.now >= until else ""
        can.append(f"makes a repeat under its key harmless for {duration_text(facts.key_lifetime)}{_by(until, over)}")
    if facts.queryable:
        lag = "no lag stated, so that a no proves nothing" if facts.lookup_lag is None else _lag(facts.lookup_lag)
        can.append(f"can be asked whether it happened ({lag})")
    return " and ".join(can) or "neither honours a key nor can be asked by this program: look there yourself"


def _by(until: int | None, over: str) -> str:
    return "" if until is None else f" (until {utc_text(until)}{over})"


def _lag(lag: int) -> str:
    return f"it shows what happened after {duration_text(lag)}" if lag else "it shows at once what happened"


def choices(case: Case, detail: OperationDetail) -> tuple[Choice, ...]:
    """Return the verdicts that a case takes now."""
    if case_without_value(detail) == case:
        does = "gives the receipt the value that the verdict did not"
        return (Choice(verdict=Verdict.HAPPENED, does=does, command=value_command(case)),)
    if CaseState(case.state) is not CaseState.OPEN:
        return ()
    state, base = OperationState(detail.operation.state), f"counterfoil review resolve {case.case_id}"
    return tuple(
        Choice(
            verdict=verdict,
            does=_does(verdict, detail.operation),
            command=f"{base} --expect-version {case.version} {_FLAGS[verdict]}",
        )
        for verdict in permitted(CaseKind(case.kind), state)
    )


def without_verdict(detail: OperationDetail) -> str:
    """Say what happens to an operation that nobody judges."""
    operation = detail.operation
    parked = OperationState(operation.state) is OperationState.PARKED
    told = "It is not sent, and stays as it is." if parked else explain(detail, operation.now).next
    waits = operation.stream is not None and operation.settled_at is None
    return f"{told} All later ones of stream {operation.stream} wait for it." if waits else told


_FLAGS = {
    Verdict.HAPPENED: "--happened --value JSON --evidence TEXT",
    Verdict.DID_NOT_HAPPEN_RETRY: "--did-not-happen --retry --reason TEXT",
    Verdict.DID_NOT_HAPPEN_CLOSE: "--did-not-happen --close --reason TEXT",
    Verdict.NOTED: "--noted --reason TEXT",
}


def _does(verdict: Verdict, operation: Operation) -> str:
    queued = operation.sender == Sender.DISPATCHER
    stream = "" if operation.stream is None else f"; the next one of stream {operation.stream} goes"
    match verdict:
        case Verdict.HAPPENED:
            return f"it counts as happened, the value becomes its receipt's, nothing is sent{stream}"
        case Verdict.DID_NOT_HAPPEN_RETRY if queued:
            return f"a worker sends it at once, with {MAX_ATTEMPTS} new tries"
        case Verdict.DID_NOT_HAPPEN_RETRY:
            return f"the next perform sends it. {run_again(operation)}"
        case Verdict.DID_NOT_HAPPEN_CLOSE:
            return f"it has failed for good, nothing is sent, later calls are refused{stream}"
        case Verdict.NOTED:
            return f"closes the case; the operation stays {operation.state}"
