"""Scripts by which a run leaves its workflow: with what it came to, and so when it is entered next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.entries import Entries, pause_after
from counterfoil.core.machine import advance
from counterfoil.core.states import (
    THREAD,
    WORKFLOW,
    ThreadEvent,
    ThreadState,
    WaitState,
    WorkflowEvent,
    WorkflowStatus,
)
from counterfoil.core.workflows import in_a_row
from counterfoil.storage.script import Row, Script, Wake, all_rows, one_row
from counterfoil.storage.scripts import threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.storage.scripts.threads import ThreadKey


@dataclass(frozen=True, slots=True)
class Finished:
    """The graph came to its end."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The run waits; `due_in` says when it is entered at the latest, in milliseconds, None: when something comes."""

    waits_for: str | None
    due_in: int | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """A node raised; `is_final` says that to enter it again would be senseless."""

    error_class: str
    error_text: str
    most_tries: int | None
    is_final: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was ended in the middle of a step: its worker was told to end, or a node told it to."""

    most_tries: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    """A run by hand that entered no node; what the workflow was before it, where it goes on as if nothing had been."""

    status: WorkflowStatus
    due_at: int | None
    tries: int
    mark: int


Ending = Finished | Paused | Raised | Stopped | Untouched
BREAKPOINT = "a person, at a breakpoint"
"""What a run waits for that ended before a node which is not to be entered without a person."""
STOPPED = "Stopped"
"""What stands in the place of the class of an error, where whoever ends workers ended a step again and again."""


def leave(key: ThreadKey, *, attempt: int, parked_on: str | None, ending: Ending) -> Script[bool]:
    """Give a workflow's thread back with what its run came to; False if another run owns it by now."""
    row = yield from one_row("lock_thread", **key.params)
    if row is None or row["attempt"] != attempt or row["state"] != ThreadState.RUNNING or row["status"] is None:
        return False  # another run owns it, or this one has left it, and nobody heard of the COMMIT
    columns = yield from _ended(key, row, ending)
    event = ThreadEvent.RELEASED if parked_on is None else ThreadEvent.PARKED
    left = yield from one_row(
        "leave_workflow_if_claimed",
        **key.params,
        **columns,
        attempt=attempt,
        parked_on=parked_on,
        state=advance(THREAD, ThreadState.RUNNING, event),
        expected_state=ThreadState.RUNNING,
    )
    if left is not None and left["due_at"] is not None and left["due_at"] <= left["now"]:
        yield Wake(key.tenant, key.thread_id, left["graph"], left["graph_version"])
    return left is not None


def _ended(key: ThreadKey, row: Row, ending: Ending) -> Script[dict[str, Any]]:
    match ending:
        case Finished():
            return _columns(row, WorkflowEvent.FINISHED)
        case Paused(waits_for, due_in):
            waits = yield from all_rows(
                "list_asked_waits", **key.params, attempt=row["attempt"], expected_state=WaitState.OPEN
            )
            due_at = min((wait["due_at"] for wait in waits if wait["due_at"] is not None), default=None)
            told = _told(waits, waits_for)
            return _columns(row, WorkflowEvent.PAUSED) | {"due_at": due_at, "delay": due_in, "waits_for": told}
        case Untouched():
            return _as_before(row, ending)
        case Raised():
            return _after_error(row, ending, (yield from _failed(key, row)))
        case Stopped(most_tries):
            return _after_stop(row, most_tries, (yield from _failed(key, row)))


def _as_before(row: Row, before: Untouched) -> dict[str, Any]:
    """Return what a workflow was before a run that entered no node: it asks anew for what it waited for."""
    rests = before.status in {WorkflowStatus.PARKED, WorkflowStatus.FAILED}
    stays = rests or row["waits_for"] == BREAKPOINT
    return {
        "status": before.status if rests else WorkflowStatus.WAITING,
        "terminal": rests,
        "due_at": before.due_at,
        "delay": None if stays else 0,
        "tries": before.tries,
        "mark": before.mark,
        "waits_for": row["waits_for"],
        "error_class": row["error_class"],
        "error_text": row["error_text"],
    }


def _failed(key: ThreadKey, row: Row) -> Script[Entries]:
    newest = yield from threads.newest_seq(key)
    return Entries(tries=row["tries"], mark=row["mark"]).failed(newest)


def _after_error(row: Row, ending: Raised, entries: Entries) -> dict[str, Any]:
    counted = {"tries": entries.tries, "mark": entries.mark}
    told = {"error_class": ending.error_class, "error_text": ending.error_text, **counted}
    if ending.is_final:
        return _columns(row, WorkflowEvent.FAILED) | told
    if ending.most_tries is not None and entries.tries >= ending.most_tries:
        return _columns(row, WorkflowEvent.TRIES_USED_UP) | told
    again = {"delay": pause_after(entries.tries), "waits_for": "its next try"}
    return _columns(row, WorkflowEvent.PAUSED) | again | told


def _after_stop(row: Row, most_tries: int | None, entries: Entries) -> dict[str, Any]:
    tries, counted = entries.tries, {"tries": entries.tries, "mark": entries.mark}
    if most_tries is not None and tries >= most_tries:
        text = f"Its worker was ended {in_a_row(tries)} in the same step."
        return _columns(row, WorkflowEvent.TRIES_USED_UP) | {"error_class": STOPPED, "error_text": text, **counted}
    again = {"delay": 0 if tries <= 1 else pause_after(tries - 1), "waits_for": "a worker", **counted}
    return _columns(row, WorkflowEvent.PAUSED) | again


def _columns(row: Row, event: WorkflowEvent) -> dict[str, Any]:
    return {
        "status": advance(WORKFLOW, WorkflowStatus(row["status"]), event),
        "terminal": event is not WorkflowEvent.PAUSED,
        "due_at": None,
        "delay": None,
        "tries": 0,
        "mark": row["mark"],
        "waits_for": None,
        "error_class": None,
        "error_text": None,
    }


def _told(waits: Sequence[Row], more: str | None) -> str | None:
    """Return in words what a run waits for."""
    names = sorted({wait["event"] or wait["name"] for wait in waits})
    return ", ".join([*names, more] if more else names) or None
