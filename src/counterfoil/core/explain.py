"""Say in five lines why an operation ran, did not run, or waits: the answer first, the command to run last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from counterfoil.core.durations import duration_text, utc_text
from counterfoil.core.leases import is_over
from counterfoil.core.reconcile import case_without_value, open_case, permitted
from counterfoil.core.states import (
    CLOSED_UNSENT,
    PERMITTING,
    TERMINAL,
    ApprovalState,
    CaseKind,
    OperationState,
    Sender,
    Verdict,
)
from counterfoil.core.unknown import (
    UNPERMITTED,
    AskProvider,
    PersonDecides,
    Resend,
    Times,
    absence_counts_from,
    decide_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.core.unknown import UnknownPlan
    from counterfoil.shown import Approval, Case, Operation, OperationDetail

HAPPENED: Final = "It happened once."
DID_NOT: Final = "It did not happen."
UNKNOWN: Final = "We do not know."
RUNNING: Final = "It is running."

NO_VALUE: Final = (
    "Its receipt has no value yet, since the verdict gave none: whoever reads it is refused until a person gives it."
)

NO_DETAIL: Final = "Every later perform is refused with operation-expired, as its receipt was purged; nothing is sent."

ANSWERS: Final[Mapping[OperationState, str]] = {
    OperationState.AWAITING_APPROVAL: DID_NOT,
    OperationState.PENDING: DID_NOT,
    OperationState.IN_FLIGHT: RUNNING,
    OperationState.UNKNOWN: UNKNOWN,
    OperationState.PARKED: DID_NOT,
    OperationState.SUCCEEDED: HAPPENED,
    OperationState.FAILED: DID_NOT,
    OperationState.REJECTED: DID_NOT,
    OperationState.EXPIRED: DID_NOT,
    OperationState.CANCELLED: DID_NOT,
}
"""The answer to "did it happen?" in each state."""

_SETTLED_BY: Final = {
    "reply": "the provider's reply",
    "late_reply": "a late reply of the provider",
    "lookup": "a look-up at the provider",
    "verdict": "a person's verdict",
}
_MEANS: Final = {
    OperationState.SUCCEEDED: "it gets the receipt, and nothing is sent",
    OperationState.PENDING: "it sends the effect",
    OperationState.FAILED: "it is refused, and nothing is sent",
}
"""What asking again does after a verdict."""
_QUEUED: Final = {OperationState.PENDING: "A worker sends it at once, as soon as it is its turn"}
_SECOND: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Five lines: the answer with what it is, why, who holds it, what happens next, and the command to run."""

    answer: str
    what: str
    why: str
    holder: str
    next: str
    command: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the five lines."""
        return (f"{self.answer} {self.what}", self.why, self.holder, self.next, f"Run: {self.command}")


def explain(detail: OperationDetail, now: int) -> Explanation:
    """Explain an operation as it stands at `now`, by the database's clock."""
    operation, case = detail.operation, open_case(detail.cases)
    asked = detail.approvals[-1] if detail.approvals else None
    state = OperationState(operation.state)
    over = state is OperationState.IN_FLIGHT and is_over(operation.lease_until, now)
    told = Explanation(
        answer=UNKNOWN if over else _answer(state, case),
        what=_what(operation),
        why=_why(operation, state, asked, over=over),
        holder=_holder(operation, over=over),
        next=_next(operation, state, case, asked, now, over=over),
        command=command(operation, case, over=over, asked=asked),
    )
    if operation.is_purged and case is None:
        return replace(told, next=NO_DETAIL)
    if case is None and (lacking := case_without_value(detail)) is not None:
        return replace(told, next=NO_VALUE, command=value_command(lacking))
    return told


def answer(operation: Operation, cases: tuple[Case, ...], now: int) -> str:
    """Return the answer to "did it happen?" alone."""
    state = OperationState(operation.state)
    if state is OperationState.IN_FLIGHT and is_over(operation.lease_until, now):
        return UNKNOWN
    return _answer(state, open_case(cases))


def _answer(state: OperationState, case: Case | None) -> str:
    if case is not None and CaseKind(case.kind) is CaseKind.POSSIBLE_DOUBLE_EFFECT:
        return "It happened, perhaps twice." if state is OperationState.SUCCEEDED else "It may have happened twice."
    return ANSWERS[state]


def _what(operation: Operation) -> str:
    what = f"{operation.operation_id} is {operation.effect} v{operation.effect_version} of tenant {operation.tenant}"
    return f"{what}, in branch {operation.branch} of {operation.plain_id}." if operation.branch else f"{what}."


def _why(operation: Operation, state: OperationState, asked: Approval | None, *, over: bool) -> str:
    if state in TERMINAL:
        return _why_settled(operation, state, asked)
    attempt, told = f"Attempt {operation.attempt}", _told(operation)
    match state:
        case OperationState.IN_FLIGHT:
            ran_out = " and its claim ran out without an outcome" if over else ""
            return f"{attempt} began at {_when(operation.claimed_at)}{ran_out}."
        case OperationState.UNKNOWN:
            return f"{attempt} may have reached the provider; its outcome was lost{told or ': no answer'}."
        case OperationState.PENDING if operation.attempt:
            return f"{attempt} provably did nothing{told}; it may be tried again."
        case OperationState.PENDING:
            return _why_permitted(asked)
        case OperationState.PARKED:
            return f"{attempt} was the last that was allowed; none of them did anything{told}."
        case _:
            return _why_waiting(asked)


def _why_permitted(asked: Approval | None) -> str:
    if asked is None or asked.state != ApprovalState.APPROVED:
        return "It was recorded and not tried yet."
    return f"{asked.decided_by} approved it at {_when(asked.decided_at)} ({asked.approval_id}); not sent yet."


def _why_waiting(asked: Approval | None) -> str:
    if asked is None:
        return "It needs a person's approval before it is sent; nothing was sent."
    who = "" if asked.requested_by is None else f" by {asked.requested_by}"
    return f"It needs a person's approval before it is sent: asked{who} at {_when(asked.requested_at)}."


def _why_settled(operation: Operation, state: OperationState, asked: Approval | None) -> str:
    attempt, at = f"Attempt {operation.attempt}", _when(operation.settled_at)
    match state:
        case OperationState.SUCCEEDED:
            by = _SETTLED_BY.get(operation.settled_by or "", "its receipt")
            return f"{attempt} succeeded; {by} was recorded at {at}."
        case OperationState.FAILED:
            why = "" if operation.is_purged else _told(operation) or ": refused"
            return f"{attempt} ended for good at {at}{why}."
        case _ if asked is not None and asked.state not in PERMITTING:
            why = f": {asked.reason}" if asked.reason else ""
            led = f"; {asked.followed_by} follows it" if asked.followed_by else ""
            if state is OperationState.EXPIRED:
                return f"It {state} at {at}, before anything was sent{why}{led}."
            return f"It was {state} at {at}, before anything was sent: {asked.state} by {asked.decided_by}{why}{led}."
        case _:
            return f"It was {state} at {at}, before anything was sent{_told(operation)}."


def _told(operation: Operation) -> str:
    told = operation.error_text or operation.error_class
    return f": {told}" if told else ""


def _holder(operation: Operation, *, over: bool) -> str:
    if operation.holder is None:
        return "Nobody holds it."
    until = _when(operation.lease_until)
    return f"{operation.holder} held it until {until}." if over else f"{operation.holder} holds it until {until}."


def _next(
    operation: Operation, state: OperationState, case: Case | None, asked: Approval | None, now: int, *, over: bool
) -> str:
    ran_out = asked is not None and asked.valid_until is not None and asked.valid_until <= now
    if over or state is OperationState.UNKNOWN:
        return _next_unknown(operation, now, permitted=not ran_out)
    match state:
        case OperationState.IN_FLIGHT:
            return f"It ends by {_when(operation.attempt_deadline)}; without a word by then its outcome is unknown."
        case _ if case is not None:
            return f"A person must look at {case.case_id}: {case.reason}."
        case OperationState.AWAITING_APPROVAL if asked is not None:
            return _next_decision(asked, now)
        case OperationState.PENDING:
            return _next_attempt(operation, ran_out=ran_out)
        case OperationState.SUCCEEDED:
            return "Every later perform with the same arguments gets this receipt; nothing is sent again."
        case OperationState.FAILED:
            return "Every later perform gets this refusal; a new try is a new operation with its own id."
        case _:
            return "Nothing is sent."


def _next_decision(asked: Approval, now: int) -> str:
    until = _when(asked.decide_by)
    if asked.decide_by <= now:
        return f"Nobody decided about {asked.approval_id} by {until}: nothing is sent any more."
    return f"A person decides about {asked.approval_id}, until {until}; after that it is over."


def _next_attempt(operation: Operation, *, ran_out: bool) -> str:
    if ran_out:
        return "The decision ran out before the send, so that it is asked about again first."
    if operation.sender == Sender.DISPATCHER:
        return f"A worker sends it; it is due at {_when(operation.due_at)}."
    return "The next perform with the same arguments sends it."


def _next_unknown(operation: Operation, now: int, *, permitted: bool) -> str:
    times = Times(first_attempt_at=operation.first_attempt_at, attempt_deadline=operation.attempt_deadline, now=now)
    plan = decide_unknown(operation.facts, times)
    return _plan(PersonDecides(UNPERMITTED) if isinstance(plan, Resend) and not permitted else plan, operation, times)


def _plan(plan: UnknownPlan, operation: Operation, times: Times) -> str:
    queued = operation.sender == Sender.DISPATCHER
    who = "A worker" if queued else "The next perform"
    match plan:
        case AskProvider():
            counts_from = absence_counts_from(operation.facts, times)
            if counts_from is None:
                return f"{who} asks the provider; its no proves nothing, as its look-up states no lag."
            early = f" A no counts from {_when(counts_from + 1)} on." if times.now <= counts_from else ""
            return f"{who} asks the provider.{early}"
        case Resend(until) if queued:
            return f"A worker sends it again under the key that the provider honours, until {_when(until)}."
        case Resend(until):
            return (
                f"Running it again is safe until {_when(until)}: that sends it again under the key that the provider"
                f" honours. {run_again(operation)}."
            )
        case PersonDecides(why):
            return f"It is not sent again: {why}. A person decides."
        case _:
            return "It is not sent again before its outcome is settled."


def command(operation: Operation, case: Case | None, *, over: bool, asked: Approval | None = None) -> str:
    """Return the command that goes on from here."""
    if case is not None:
        return resolve_command(case, OperationState(operation.state))
    if asked is not None and OperationState(operation.state) in {OperationState.AWAITING_APPROVAL, *CLOSED_UNSENT}:
        return f"counterfoil approvals show {asked.approval_id} --tenant {quoted(operation.tenant)}"
    scope = named(operation.operation_id, operation.tenant)
    if over:
        return f"counterfoil review open {scope}"
    if OperationState(operation.state) is OperationState.SUCCEEDED and not operation.is_purged:
        return f"counterfoil receipts show {scope}"
    return f"counterfoil ops show {scope}"


def resolve_command(case: Case, state: OperationState) -> str:
    """Return the command that gives a verdict on a case, with the verdicts that it takes."""
    base = f"counterfoil review resolve {case.case_id} --expect-version {case.version}"
    if permitted(CaseKind(case.kind), state) == (Verdict.NOTED,):
        return f"{base} --noted --reason TEXT"
    return f"{base} (--happened --value JSON --evidence TEXT | --did-not-happen (--retry | --close) --reason TEXT)"


def value_command(case: Case) -> str:
    """Return the command that gives a receipt the value which the verdict on this case did not."""
    return f"counterfoil review resolve {case.case_id} --expect-version {case.version} --happened --value JSON"


def run_again(operation: Operation) -> str:
    """Say how the code that asked for an operation asks again: by its thread, or by the same call."""
    thread = operation.origin.thread_id
    if thread is None:
        return "Call perform again with the same arguments"
    call = f"cf.run(graph, None, tenant={operation.tenant!r}, thread_id={thread!r})"
    if operation.trusted.workflow_id == thread:
        return f"A worker enters workflow {thread} by itself; where none is, run it again with None as input: {call}"
    return f"Run thread {thread} again with None as input: {call}"


def goes_on(operation: Operation) -> str | None:
    """Say what comes next for whoever asked for an operation that a verdict settled or freed, if anything does."""
    state = OperationState(operation.state)
    if operation.sender == Sender.DISPATCHER and state in _MEANS:
        return f"{_QUEUED.get(state, 'Nothing is sent any more')}{stream_goes_on(operation)}."
    means = _MEANS.get(state)
    return None if means is None else f"{run_again(operation)}; {means}."


def stream_goes_on(operation: Operation) -> str:
    """Say that the next intent of its stream may go, if it has one and is settled."""
    is_over = operation.stream is not None and OperationState(operation.state) in TERMINAL
    return f"; the next one of stream {operation.stream} goes" if is_over else ""


def named(operation_id: str, tenant: str) -> str:
    """Return the words that name an operation on the command line; an id that looks like an option comes last."""
    if operation_id.startswith("-"):
        return f"--tenant {quoted(tenant)} -- {quoted(operation_id)}"
    return f"{quoted(operation_id)} --tenant {quoted(tenant)}"


def quoted(text: str) -> str:
    """Return an argument as a POSIX shell takes it."""
    plain = text and all(char.isalnum() or char in "-_./:@%+=," for char in text)
    return text if plain else "'" + text.replace("'", "'\"'\"'") + "'"


def _when(ms: int | None) -> str:
    return "an unknown time" if ms is None else utc_text(ms)


def age_text(ms: int) -> str:
    """Return an age in its largest unit, or its two largest below a day: `3d`, `2h5m`, `40s`."""
    seconds = max(0, ms) // _SECOND
    for unit in (86_400, 3_600, 60):
        if seconds >= unit:
            smaller = {86_400: 86_400, 3_600: 60, 60: 60}[unit]
            return duration_text(seconds // smaller * smaller * _SECOND)
    return duration_text(seconds * _SECOND)
