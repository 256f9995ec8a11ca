"""Scripts of what workflows wait for: a step asks, an event comes; both lock the thread, so that neither is missed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.entries import is_waiting
from counterfoil.core.machine import advance
from counterfoil.core.schedules import Last, Missed, Schedule, decide_next
from counterfoil.core.states import (
    INBOX,
    WAIT,
    InboxEvent,
    InboxState,
    WaitEvent,
    WaitState,
    WorkflowStatus,
)
from counterfoil.core.waits import Answer, Asked, Offered, StillOpen, TimeOver, decide_arrival, decide_wait
from counterfoil.storage.script import Row, Script, Wake, all_rows, held_row, one_row
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.checkpoints import NotOwner
from counterfoil.storage.scripts.threads import NotStored, Step, ThreadKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a step waits for: which wait of it this is, and either an event, a time, or both."""

    key: ThreadKey
    attempt: int
    step: Step
    node: str | None
    name: str
    number: int
    event: str | None = None
    subject: str | None = None
    match: Mapping[str, Any] = field(default_factory=dict)
    timeout: int | None = None
    until: int | None = None
    schedule: Schedule | None = None
    missed: Missed = Missed.ONCE

    @property
    def id(self) -> dict[str, Any]:
        """Return which wait it is, as parameters."""
        return {**self.key.params, "task_id": self.step.task_id, "name": self.name, "number": self.number}


@dataclass(frozen=True, slots=True)
class Came:
    """The wait is answered by this event, now and whenever the step asks again."""

    row: Row


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Its time was over first; when it was due, and when that was seen."""

    due_at: int
    ended_at: int


@dataclass(frozen=True, slots=True)
class Open:
    """Nothing came yet; the step waits until `due_at`, or without end."""

    due_at: int | None


@dataclass(frozen=True, slots=True)
class NoInbox:
    """The thread is no workflow, so that nobody would wake it."""


def ask(question: Question) -> Script[Came | TimedOut | Open | NoInbox | NotStored | NotOwner]:
    """Answer a step that waits, or note that it does."""
    thread = yield from one_row("lock_thread", **question.key.params)
    if thread is None or thread["status"] is None:
        return NoInbox()
    if thread["attempt"] != question.attempt:
        return NotOwner(thread["attempt"])
    place = {"checkpoint_ns": question.step.checkpoint_ns, "checkpoint_id": question.step.checkpoint_id}
    if (yield from one_row("get_checkpoint_seq", **question.key.params, **place)) is None:
        return NotStored()
    wait = yield from _noted(question, thread["now"])
    match WaitState(wait["state"]):
        case WaitState.ANSWERED:
            return Came((yield from held_row("get_event_by_seq", **question.key.params, seq=wait["event_seq"])))
        case WaitState.TIMED_OUT:
            return TimedOut(wait["due_at"], wait["ended_at"])
        case WaitState.OPEN:
            return (yield from _judged(question, wait))


def _noted(question: Question, now: int) -> Script[Row]:
    """Return the wait's row, which holds from the first time on when its time is over."""
    asked = {"attempt": question.attempt, "event": question.event, "subject": question.subject}
    row = yield from one_row("ask_wait_again", **question.id, **asked)
    if row is not None:
        return row
    return (
        yield from held_row(
            "insert_wait",
            **question.id,
            checkpoint_ns=question.step.checkpoint_ns,
            node=question.node,
            state=WaitState.OPEN,
            **asked,
            until=question.until
            if question.schedule is None
            else (yield from _next_of(question, question.schedule, now)),
            timeout=question.timeout,
        )
    )


def _next_of(question: Question, schedule: Schedule, now: int) -> Script[int]:
    """Return when a recurring timer is due next, after the last time in this workflow."""
    named = {"name": question.name, "expected_state": WaitState.TIMED_OUT}
    row = yield from one_row("get_last_timer", **question.key.params, **named)
    last = None if row is None else Last(due_at=row["due_at"], ended_at=row["ended_at"])
    return decide_next(schedule, last, missed=question.missed, now=now)


def _judged(question: Question, wait: Row) -> Script[Came | TimedOut | Open]:
    kept: Sequence[Row] = ()
    if question.event is not None:
        named = {"name": question.event, "expected_state": InboxState.KEPT}
        kept = yield from all_rows("list_kept_events", **question.key.params, **named)
    asked = Asked(event=question.event, subject=question.subject, match=question.match, due_at=wait["due_at"])
    match decide_wait(asked, [_offered(row, with_payload=bool(question.match)) for row in kept], now=wait["now"]):
        case Answer(seq):
            taken = advance(INBOX, InboxState.KEPT, InboxEvent.TAKEN)
            yield from held_row(
                "take_event_if_kept", **question.key.params, seq=seq, state=taken, expected_state=InboxState.KEPT
            )
            yield from _end(question, WaitEvent.ANSWERED, seq)
            return Came((yield from held_row("get_event_by_seq", **question.key.params, seq=seq)))
        case TimeOver():
            ended = yield from _end(question, WaitEvent.TIMED_OUT, None)
            return TimedOut(wait["due_at"], ended["ended_at"])
        case StillOpen():
            return Open(wait["due_at"])


def _end(question: Question, event: WaitEvent, seq: int | None) -> Script[Row]:
    ended = {"state": advance(WAIT, WaitState.OPEN, event), "event_seq": seq, "expected_state": WaitState.OPEN}
    return (yield from held_row("end_wait_if_open", **question.id, **ended))


def _offered(row: Row, *, with_payload: bool) -> Offered:
    payload = codec.decode(row["payload"]) if with_payload and row["payload"] is not None else None
    return Offered(seq=row["seq"], subject=row["subject"], payload=payload, received_at=row["received_at"])


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that came for a workflow."""

    key: ThreadKey
    event_id: str
    name: str
    subject: str | None
    sequence: int | None
    digest: bytes
    payload: bytes

    @property
    def columns(self) -> dict[str, Any]:
        """Return what is kept of it."""
        return {
            "event_id": self.event_id,
            "name": self.name,
            "subject": self.subject,
            "sequence": self.sequence,
            "content_digest": self.digest,
            "payload": self.payload,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The event is kept; what became of it, and whether it came for the first time."""

    state: str
    received_at: int
    is_new: bool
    wakes: bool = False
    has_workflow: bool = True


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """An event of this id came before, with another content."""

    row: Row


def deliver(delivery: Delivery) -> Script[Received | OtherEvent]:
    """Keep an event, and let its workflow be due if that waits for it; the same one again changes nothing."""
    key = delivery.key
    yield from threads.alone(key)
    there = yield from one_row("get_event", **key.params, event_id=delivery.event_id)
    if there is not None:
        if there["content_digest"] != delivery.digest or there["name"] != delivery.name:
            return OtherEvent(there)
        return Received(state=there["state"], received_at=there["received_at"], is_new=False)
    thread = yield from one_row("get_thread", **key.params)
    status = None if thread is None or thread["status"] is None else WorkflowStatus(thread["status"])
    state = decide_arrival(status, sequence=delivery.sequence, newest=(yield from _newest(delivery)))
    new = yield from held_row("insert_event", **key.params, **delivery.columns, state=state)
    wakes = state is InboxState.KEPT and (yield from _wake(delivery))
    known = status is not None
    return Received(state=state, received_at=new["received_at"], is_new=True, wakes=wakes, has_workflow=known)


def _newest(delivery: Delivery) -> Script[int | None]:
    if delivery.subject is None or delivery.sequence is None:
        return None
    row = yield from one_row("get_newest_sequence", **delivery.key.params, subject=delivery.subject)
    return None if row is None else row["sequence"]


def _wake(delivery: Delivery) -> Script[bool]:
    asked = {"name": delivery.name, "subject": delivery.subject, "expected_state": WaitState.OPEN}
    if (yield from one_row("is_waited_for", **delivery.key.params, **asked)) is None:
        return False
    row = yield from one_row("wake_workflow", **delivery.key.params)
    if row is not None and is_waiting(WorkflowStatus(row["status"])):  # a run that is under way tells when it ends
        yield Wake(delivery.key.tenant, delivery.key.thread_id, row["graph"], row["graph_version"])
    return row is not None


def inbox(key: ThreadKey, *, limit: int) -> Script[Sequence[Row]]:
    """Read a workflow's events."""
    return (yield from all_rows("list_events", **key.params, limit=limit))


def waits(key: ThreadKey) -> Script[Sequence[Row]]:
    """Read what the steps of a workflow wait for, or waited for."""
    return (yield from all_rows("list_waits", **key.params))
