"""A managed run waits for an unknown outcome, or for a decision: it parks, and goes on when there is one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from langgraph.errors import GraphInterrupt
from langgraph.types import Command, Interrupt, StateSnapshot

from counterfoil.errors import ApprovalRequired, OutcomeUnknown, Retry, ThreadParked

if TYPE_CHECKING:
    from counterfoil.langgraph.context import Here, Run

MARK = "counterfoil"
OUTCOME_UNKNOWN = "outcome-unknown"
APPROVAL_REQUIRED = "approval-required"
WAIT = "wait"


ASK_AGAIN_MS = 10_000
"""When a workflow is entered again whose operation may be sent again under its key."""


def park(here: Here, error: OutcomeUnknown | ApprovalRequired) -> NoReturn:
    """Interrupt the run until the outcome is settled, or decided about; without a claim raise the error itself.

    The interrupt is raised as such and not asked for through `interrupt()`: it takes no resume value, so it cannot
    use up an answer that a person gave to the node's own question.
    """
    if here.run is None:
        raise error
    here.run.parked.append(error.operation_id)
    if isinstance(error, ApprovalRequired):
        here.run.awaits.add(error.operation_id)
    if error.retry is Retry.SAFE:
        here.run.wake_in = ASK_AGAIN_MS
    raise GraphInterrupt((Interrupt(value=_told(error), id=_interrupt_id(error)),)) from error


def _told(error: OutcomeUnknown | ApprovalRequired) -> dict[str, Any]:
    if isinstance(error, ApprovalRequired):
        return {
            MARK: APPROVAL_REQUIRED,
            "operation_id": error.operation_id,
            "approval_id": error.approval_id,
            "effect": error.effect,
            "fingerprint": error.fingerprint,
            "decide_by": error.decide_by,
            "message": error.message,
            "next": "When it is decided, run the thread again with None as input.",
        }
    return {
        MARK: OUTCOME_UNKNOWN,
        "operation_id": error.operation_id,
        "case_id": error.case_id,
        "ask_again_at": error.facts.get("ask_again_at"),
        "message": error.message,
        "next": _next(error),
    }


def _next(error: OutcomeUnknown) -> str:
    if error.retry is Retry.SAFE:
        return "Run the thread again with None as input: the provider honours the operation's key."
    return "When it is settled, run the thread again with None as input."


def _interrupt_id(error: OutcomeUnknown | ApprovalRequired) -> str:
    return hashlib.sha256(f"{error.tenant}\0{error.operation_id}".encode()).hexdigest()[:32]


def is_answer_to(run_input: Any, run: Run, parked: str | None) -> TypeGuard[Command[Any]]:
    """Say whether a run brings a resume value to a thread that may wait for something that no such value settles."""
    may = parked is not None or run.is_workflow
    return may and isinstance(run_input, Command) and run_input.resume is not None


def refuse_answer(run: Run, answer: Command[Any], parked: str | None, state: StateSnapshot) -> None:
    """Refuse a resume value for a thread that waits for nothing but an outcome or a decision; it stays parked.

    Raises:
        ThreadParked: the value could only be taken for the answer to a question that nobody asked.
    """
    ours = {found.id for found in state.interrupts if is_ours(found)}
    if not ours:
        return  # it went on or ended since; only the run that did so did not live to say it
    named = set(answer.resume) if isinstance(answer.resume, dict) else set()
    if len(ours) < len(state.interrupts) and not named & ours:
        return
    if parked is None:
        raise ThreadParked(
            f"Workflow {run.key.thread_id} waits for an event or a time, and a resume value is neither. Nothing ran."
            " Deliver the event: cf.workflows.deliver(name, workflow_id=..., event_id=..., payload=...).",
            tenant=run.key.tenant,
            operation_id="",
        )
    run.parked.append(parked)
    raise ThreadParked(
        f"This thread waits for operation {parked}: for its outcome, which is unknown, or for an approval. A resume"
        " value is neither. Settle it (counterfoil review list) or decide (counterfoil approvals list), and run the"
        " thread again with None as input.",
        tenant=run.key.tenant,
        operation_id=parked,
    )


def is_ours(found: Interrupt) -> bool:
    """Say whether an interrupt waits for an unknown outcome, a decision, an event or a time."""
    return isinstance(found.value, dict) and found.value.get(MARK) in {OUTCOME_UNKNOWN, APPROVAL_REQUIRED, WAIT}
