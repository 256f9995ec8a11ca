"""Every state machine as one table of (state, event, next state, note).

From these tables come `machine.advance`, the CHECK lists of the first migration, the documentation's diagrams and the
test that every pair of state and event is either listed or refused. A state is compared to a literal nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Transition(Generic[S, E]):
    """One permitted move."""

    state: S
    event: E
    next: S
    note: str = ""


Table = tuple[Transition[S, E], ...]


# --- operations ------------------------------------------------------------------------------------------------------


class OperationState(StrEnum):
    """What is known of one business operation."""

    AWAITING_APPROVAL = "awaiting_approval"
    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    PARKED = "parked"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class OperationEvent(StrEnum):
    """What can happen to an operation."""

    APPROVED = "approved"
    REJECTED = "rejected"
    DECISION_EXPIRED = "decision_expired"
    INTENT_EXPIRED = "intent_expired"
    CANCELLED = "cancelled"
    CLAIMED = "claimed"
    RETURNED = "returned"
    REFUSED = "refused"
    NOT_SENT = "not_sent"
    TRIES_USED_UP = "tries_used_up"
    OUTCOME_LOST = "outcome_lost"
    EARLIER_PROVED = "earlier_proved"
    PROVED_HAPPENED = "proved_happened"
    PROVED_ABSENT = "proved_absent"
    RESEND_ALLOWED = "resend_allowed"
    RESEND_OVER = "resend_over"
    CLOSED = "closed"
    REQUEUED = "requeued"
    SKIPPED = "skipped"


_S, _E = OperationState, OperationEvent
_LATE = "late proof wins, and always opens a case"

OPERATION: Table[OperationState, OperationEvent] = (
    Transition(_S.AWAITING_APPROVAL, _E.APPROVED, _S.PENDING),
    Transition(_S.AWAITING_APPROVAL, _E.REJECTED, _S.REJECTED),
    Transition(_S.AWAITING_APPROVAL, _E.DECISION_EXPIRED, _S.EXPIRED),
    Transition(_S.AWAITING_APPROVAL, _E.CANCELLED, _S.CANCELLED, "by a person, or edited: another one follows it"),
    Transition(_S.AWAITING_APPROVAL, _E.PROVED_HAPPENED, _S.SUCCEEDED, _LATE),
    Transition(_S.PENDING, _E.CLAIMED, _S.IN_FLIGHT, "attempt n, fence f, deadline"),
    Transition(_S.PENDING, _E.CANCELLED, _S.CANCELLED),
    Transition(_S.PENDING, _E.INTENT_EXPIRED, _S.EXPIRED),
    Transition(_S.PENDING, _E.DECISION_EXPIRED, _S.AWAITING_APPROVAL, "a decision ran out before the send"),
    Transition(_S.PENDING, _E.RESEND_OVER, _S.UNKNOWN, "its key's lifetime ended before it was sent again"),
    Transition(
        _S.PENDING,
        _E.PROVED_HAPPENED,
        _S.SUCCEEDED,
        "late proof wins; a case, unless it waited for its key",
    ),
    Transition(_S.IN_FLIGHT, _E.RETURNED, _S.SUCCEEDED, "the provider's answer, stored as the receipt"),
    Transition(_S.IN_FLIGHT, _E.REFUSED, _S.FAILED, "it provably did not happen and will not be tried again"),
    Transition(_S.IN_FLIGHT, _E.NOT_SENT, _S.PENDING, "it provably did not happen; may be tried again"),
    Transition(_S.IN_FLIGHT, _E.TRIES_USED_UP, _S.PARKED, "dead letter; holds its stream"),
    Transition(_S.IN_FLIGHT, _E.EARLIER_PROVED, _S.SUCCEEDED, "an earlier attempt replied late, this one got nothing"),
    Transition(_S.IN_FLIGHT, _E.OUTCOME_LOST, _S.UNKNOWN, "time-out, lost reply, cancelled, crash, lease over"),
    Transition(_S.UNKNOWN, _E.PROVED_HAPPENED, _S.SUCCEEDED, "by look-up, late reply or verdict"),
    Transition(_S.UNKNOWN, _E.PROVED_ABSENT, _S.PENDING, "by look-up, late reply or verdict"),
    Transition(_S.UNKNOWN, _E.TRIES_USED_UP, _S.PARKED, "proved absent, and no try is left"),
    Transition(_S.UNKNOWN, _E.RESEND_ALLOWED, _S.PENDING, "keyed and inside the key's lifetime"),
    Transition(_S.UNKNOWN, _E.REFUSED, _S.FAILED, "a late refusal"),
    Transition(_S.UNKNOWN, _E.CLOSED, _S.FAILED, "did not happen and is not wanted any more"),
    Transition(_S.PARKED, _E.REQUEUED, _S.PENDING, "by a person, with a reason"),
    Transition(_S.PARKED, _E.SKIPPED, _S.FAILED, "by a person, with a reason"),
    Transition(_S.PARKED, _E.PROVED_HAPPENED, _S.SUCCEEDED, _LATE),
    Transition(_S.FAILED, _E.PROVED_HAPPENED, _S.SUCCEEDED, _LATE),
    Transition(_S.REJECTED, _E.PROVED_HAPPENED, _S.SUCCEEDED, _LATE),
    Transition(_S.CANCELLED, _E.PROVED_HAPPENED, _S.SUCCEEDED, _LATE),
    Transition(_S.EXPIRED, _E.PROVED_HAPPENED, _S.SUCCEEDED, _LATE),
)

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.REJECTED, _S.EXPIRED, _S.CANCELLED})
"""States that answer for good; only late proof leaves them."""

CLOSED_UNSENT = frozenset({_S.REJECTED, _S.EXPIRED, _S.CANCELLED})
"""Terminal states in which nothing was ever sent."""


class Sender(StrEnum):
    """Who sends the operation: the code that called `perform`, or the dispatcher."""

    CALLER = "caller"
    DISPATCHER = "dispatcher"


# --- attempts --------------------------------------------------------------------------------------------------------


class AttemptOutcome(StrEnum):
    """What is known of one try of the effect."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    NOT_SENT = "not_sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class AttemptEvent(StrEnum):
    """What can happen to an attempt."""

    RETURNED = "returned"
    NOT_SENT = "not_sent"
    REFUSED = "refused"
    LOST = "lost"


_A, _V = AttemptOutcome, AttemptEvent

ATTEMPT: Table[AttemptOutcome, AttemptEvent] = (
    Transition(_A.RUNNING, _V.RETURNED, _A.SUCCEEDED),
    Transition(_A.RUNNING, _V.NOT_SENT, _A.NOT_SENT),
    Transition(_A.RUNNING, _V.REFUSED, _A.REFUSED),
    Transition(_A.RUNNING, _V.LOST, _A.UNKNOWN),
    Transition(_A.UNKNOWN, _V.RETURNED, _A.SUCCEEDED, "late reply, look-up or verdict"),
    Transition(_A.UNKNOWN, _V.NOT_SENT, _A.NOT_SENT, "late reply, look-up or verdict"),
    Transition(_A.UNKNOWN, _V.REFUSED, _A.REFUSED, "late reply"),
    Transition(_A.NOT_SENT, _V.RETURNED, _A.SUCCEEDED, _LATE),
    Transition(_A.REFUSED, _V.RETURNED, _A.SUCCEEDED, _LATE),
)


# --- cases -----------------------------------------------------------------------------------------------------------


class CaseKind(StrEnum):
    """Why a person must look."""

    UNKNOWN_OUTCOME = "unknown_outcome"
    POSSIBLE_DOUBLE_EFFECT = "possible_double_effect"
    CONTRADICTING_RECEIPTS = "contradicting_receipts"
    DEAD_LETTER = "dead_letter"


class CaseState(StrEnum):
    """Whether the case still waits."""

    OPEN = "open"
    RESOLVED = "resolved"
    SETTLED = "settled"


class CaseEvent(StrEnum):
    """What can happen to a case."""

    VERDICT = "verdict"
    EVIDENCE = "evidence"
    VALUE_GIVEN = "value_given"


CASE: Table[CaseState, CaseEvent] = (
    Transition(CaseState.OPEN, CaseEvent.VERDICT, CaseState.RESOLVED, "a person decided"),
    Transition(CaseState.OPEN, CaseEvent.EVIDENCE, CaseState.SETTLED, "look-up or a late reply answered it"),
    Transition(
        CaseState.RESOLVED, CaseEvent.VALUE_GIVEN, CaseState.RESOLVED, "the value that the verdict did not give"
    ),
)


class Verdict(StrEnum):
    """What a person found out about an unknown outcome."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN_RETRY = "did_not_happen_retry"
    DID_NOT_HAPPEN_CLOSE = "did_not_happen_close"
    NOTED = "noted"


class EvidenceKind(StrEnum):
    """Where a piece of evidence comes from."""

    REPLY = "reply"
    LATE_REPLY = "late_reply"
    LOOKUP = "lookup"
    VERDICT = "verdict"


# --- approvals -------------------------------------------------------------------------------------------------------


class ApprovalState(StrEnum):
    """What became of the question whether an operation may be sent."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EDITED = "edited"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class ApprovalEvent(StrEnum):
    """What can happen to an approval."""

    APPROVED = "approved"
    REJECTED = "rejected"
    EDITED = "edited"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


_P, _Q = ApprovalState, ApprovalEvent

APPROVAL: Table[ApprovalState, ApprovalEvent] = (
    Transition(_P.PENDING, _Q.APPROVED, _P.APPROVED, "for exactly this content, and for as long as it says"),
    Transition(_P.PENDING, _Q.REJECTED, _P.REJECTED),
    Transition(_P.PENDING, _Q.EDITED, _P.EDITED, "another operation follows it, and is asked about anew"),
    Transition(_P.PENDING, _Q.EXPIRED, _P.EXPIRED, "nobody decided in time"),
    Transition(_P.PENDING, _Q.CANCELLED, _P.CANCELLED),
    Transition(_P.APPROVED, _Q.EDITED, _P.EDITED, "only while nothing was sent under it"),
    Transition(_P.APPROVED, _Q.EXPIRED, _P.EXPIRED, "it ran out before the send, and is asked for again"),
    Transition(_P.APPROVED, _Q.CANCELLED, _P.CANCELLED, "only while nothing was sent under it"),
)


PERMITTING = frozenset({_P.PENDING, _P.APPROVED})
"""States in which an approval has ended no operation."""


# --- threads ---------------------------------------------------------------------------------------------------------


class ThreadState(StrEnum):
    """Who may advance a LangGraph thread."""

    IDLE = "idle"
    RUNNING = "running"
    PARKED = "parked"


class ThreadEvent(StrEnum):
    """What can happen to a thread."""

    CLAIMED = "claimed"
    RELEASED = "released"
    PARKED = "parked"


THREAD: Table[ThreadState, ThreadEvent] = (
    Transition(ThreadState.IDLE, ThreadEvent.CLAIMED, ThreadState.RUNNING),
    Transition(ThreadState.PARKED, ThreadEvent.CLAIMED, ThreadState.RUNNING),
    Transition(ThreadState.RUNNING, ThreadEvent.CLAIMED, ThreadState.RUNNING, "only once the lease is over"),
    Transition(ThreadState.RUNNING, ThreadEvent.RELEASED, ThreadState.IDLE),
    Transition(ThreadState.RUNNING, ThreadEvent.PARKED, ThreadState.PARKED, "waits for an unknown outcome"),
)


# --- workflows -------------------------------------------------------------------------------------------------------


class WorkflowStatus(StrEnum):
    """Where a workflow stands."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WorkflowEvent(StrEnum):
    """What can happen to a workflow."""

    CLAIMED = "claimed"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    TRIES_USED_UP = "tries_used_up"
    RESUMED = "resumed"
    CANCELLED = "cancelled"


_W, _F = WorkflowStatus, WorkflowEvent

WORKFLOW: Table[WorkflowStatus, WorkflowEvent] = (
    Transition(_W.ACCEPTED, _F.CLAIMED, _W.RUNNING),
    Transition(_W.ACCEPTED, _F.CANCELLED, _W.CANCELLED),
    Transition(_W.RUNNING, _F.CLAIMED, _W.RUNNING, "recovery: only once the lease is over, or its process is gone"),
    Transition(_W.RUNNING, _F.PAUSED, _W.WAITING, "for an event, a time, a person, an outcome, or its next try"),
    Transition(_W.RUNNING, _F.FINISHED, _W.DONE),
    Transition(_W.RUNNING, _F.FAILED, _W.FAILED, "an error after which trying again is senseless"),
    Transition(_W.RUNNING, _F.TRIES_USED_UP, _W.PARKED, "it was entered again and again and got no further"),
    Transition(_W.RUNNING, _F.CANCELLED, _W.CANCELLED, "its run can store nothing more"),
    Transition(_W.WAITING, _F.CLAIMED, _W.RUNNING),
    Transition(_W.WAITING, _F.CANCELLED, _W.CANCELLED),
    Transition(_W.PARKED, _F.CLAIMED, _W.RUNNING, "by a person's own run alone"),
    Transition(_W.PARKED, _F.RESUMED, _W.WAITING, "by a person, with a reason"),
    Transition(_W.PARKED, _F.CANCELLED, _W.CANCELLED),
    Transition(_W.FAILED, _F.CLAIMED, _W.RUNNING, "by a person's own run alone"),
    Transition(_W.FAILED, _F.RESUMED, _W.WAITING, "by a person, with a reason"),
    Transition(_W.FAILED, _F.CANCELLED, _W.CANCELLED),
)

ENDED = frozenset({_W.DONE, _W.CANCELLED})
"""Statuses in which a workflow goes on no more, and takes no events."""


class WaitState(StrEnum):
    """What became of a wait."""

    OPEN = "open"
    ANSWERED = "answered"
    TIMED_OUT = "timed_out"


class WaitEvent(StrEnum):
    """What can happen to a wait."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"


WAIT: Table[WaitState, WaitEvent] = (
    Transition(WaitState.OPEN, WaitEvent.ANSWERED, WaitState.ANSWERED, "an event came, and belongs to this wait alone"),
    Transition(WaitState.OPEN, WaitEvent.TIMED_OUT, WaitState.TIMED_OUT, "its time was over; a timer has come due"),
)


class InboxState(StrEnum):
    """What became of an event."""

    KEPT = "kept"
    TAKEN = "taken"
    SUPERSEDED = "superseded"
    TOO_LATE = "too_late"


class InboxEvent(StrEnum):
    """What can happen to an event that came."""

    TAKEN = "taken"


INBOX: Table[InboxState, InboxEvent] = (
    Transition(InboxState.KEPT, InboxEvent.TAKEN, InboxState.TAKEN, "by one wait, which it answers for good"),
)


# --- tenants ---------------------------------------------------------------------------------------------------------


class TenantStatus(StrEnum):
    """Whether a tenant's tokens are honoured, and what it enqueued is sent."""

    ACTIVE = "active"
    SUSPENDED = "suspended"


class TenantEvent(StrEnum):
    """What can happen to a tenant."""

    SUSPENDED = "suspended"
    RESUMED = "resumed"


TENANT: Table[TenantStatus, TenantEvent] = (
    Transition(TenantStatus.ACTIVE, TenantEvent.SUSPENDED, TenantStatus.SUSPENDED, "its tokens are refused"),
    Transition(TenantStatus.SUSPENDED, TenantEvent.RESUMED, TenantStatus.ACTIVE),
)
