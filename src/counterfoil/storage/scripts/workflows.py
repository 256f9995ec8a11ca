"""Scripts by which workflows are started, found due, resumed and cancelled; their threads' scripts claim them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.entries import Readiness, readiness
from counterfoil.core.machine import advance, legal
from counterfoil.core.states import (
    ENDED,
    THREAD,
    WORKFLOW,
    ThreadEvent,
    ThreadState,
    WorkflowEvent,
    WorkflowStatus,
)
from counterfoil.storage.script import Row, Script, Wake, all_rows, held_row, one_row
from counterfoil.storage.scripts import audit, deciding, threads
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.access import Actor

_IDLE = advance(THREAD, ThreadState.RUNNING, ThreadEvent.RELEASED)
RESERVE_MS = 30_000
"""How long a worker that found a workflow due has to claim it before another one may: longer than a claim takes."""
LOOK_AGAIN_MS = 60_000
"""When a workflow is looked at again that no worker could enter as it is."""


# --- start -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A workflow that is to be accepted."""

    key: ThreadKey
    graph: str
    graph_version: int
    shape: str
    digests: codec.Digests
    payload: bytes
    request_id: str | None
    principal: str | None

    @property
    def columns(self) -> dict[str, Any]:
        """Return what is kept of its start."""
        return {
            "shape": self.shape,
            "input_digest": self.digests.content,
            "field_digests": codec.pack_fields(self.digests),
            "input": self.payload,
        }


@dataclass(frozen=True, slots=True)
class Accepted:
    """The workflow is there, from now or from before, with this very input."""

    row: Row
    is_new: bool


@dataclass(frozen=True, slots=True)
class OtherInput:
    """The id belongs to a workflow with another input, or of another graph; the row is that one's."""

    row: Row
    kept: Row


@dataclass(frozen=True, slots=True)
class ThreadThere:
    """The id is that of a thread which is no workflow."""


def start(wish: Start) -> Script[Accepted | OtherInput | ThreadThere]:
    """Accept a workflow, or find the one of its id; an event that is just being kept for it is waited for."""
    yield from threads.alone(wish.key)
    there = yield from one_row("get_workflow", **wish.key.params)
    if there is not None:
        kept = yield from held_row("get_workflow_input", **wish.key.params)
        same = kept["input_digest"] == wish.digests.content and there["graph"] == wish.graph
        return Accepted(there, is_new=False) if same else OtherInput(there, kept)
    if (yield from threads.newest_seq(wish.key)):
        return ThreadThere()
    put = yield from one_row(
        "put_accepted_thread",
        **wish.key.params,
        state=_IDLE,
        request_id=wish.request_id,
        principal=wish.principal,
        graph=wish.graph,
        graph_version=wish.graph_version,
        status=WorkflowStatus.ACCEPTED,
    )
    if put is None:
        return ThreadThere()
    yield from one_row("insert_workflow", **wish.key.params, **wish.columns)
    yield Wake(wish.key.tenant, wish.key.thread_id, wish.graph, wish.graph_version)
    return Accepted((yield from held_row("get_workflow", **wish.key.params)), is_new=True)


# --- what is due -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A workflow that a worker may enter at this version; `lost` names the holder whose lease is over."""

    key: ThreadKey
    graph: str
    graph_version: int
    version: int
    request_id: str | None
    principal: str | None
    lost: str | None = field(default=None, compare=False)


def find_due(graph: str, graph_version: int, *, limit: int) -> Script[list[Due]]:
    """Find workflows of one graph to enter: those whose time has come, and those whose run died.

    Whoever finds one enters it: one that is only found is not found again before its reservation is over.
    """
    named = {"graph": graph, "graph_version": graph_version}
    yield from all_rows("wake_settled_workflows", **named, later_than=LOOK_AGAIN_MS)
    lost = yield from all_rows("list_lost_workflows", **named, limit=limit)
    room = limit - len(lost)
    due = (yield from all_rows("reserve_due_workflows", **named, limit=room, reserve=RESERVE_MS)) if room else ()
    return [_due(row) for row in due] + [_due(row, row["holder"]) for row in lost]


def list_due(graph: str, graph_version: int, *, limit: int) -> Script[list[Due]]:
    """Find the same workflows and reserve none: an engine is told of them once more, and may hand them to anybody."""
    named = {"graph": graph, "graph_version": graph_version}
    yield from all_rows("wake_settled_workflows", **named, later_than=LOOK_AGAIN_MS)
    due = yield from all_rows("list_due_workflows", **named, limit=limit)
    lost = yield from all_rows("list_lost_workflows", **named, limit=limit)
    return [_due(row) for row in due] + [_due(row, row["holder"]) for row in lost]


def look(key: ThreadKey) -> Script[Due | None]:
    """Look whether a workflow can be entered now."""
    row = yield from one_row("get_thread", **key.params)
    if row is None or row["status"] is None:
        return None
    times = {name: row[name] for name in ("due_at", "lease_until", "now")}
    match readiness(WorkflowStatus(row["status"]), **times):
        case Readiness.DUE:
            return _due(row)
        case Readiness.LOST:
            return _due(row, row["holder"])
        case Readiness.NO:
            return None


def give_back(due: Due) -> Script[bool]:
    """Let a workflow be due again that was reserved and not entered."""
    row = yield from one_row("give_back_workflow_if_unmoved", **due.key.params, version=due.version)
    return row is not None


def end_lease(due: Due) -> Script[bool]:
    """End the lease of a run whose process is known to be gone, so that any worker may enter its workflow."""
    held = {"version": due.version, "holder": due.lost}
    row = yield from one_row("end_lease_if_held", **due.key.params, **held)
    return row is not None


def find_running(graph: str, graph_version: int, *, limit: int) -> Script[list[Due]]:
    """Find the workflows of one graph that somebody runs, and who: one whose process is gone need not be waited for."""
    rows = yield from all_rows("list_running_workflows", graph=graph, graph_version=graph_version, limit=limit)
    return [_due(row, row["holder"]) for row in rows]


def _due(row: Row, lost: str | None = None) -> Due:
    return Due(
        key=ThreadKey(tenant=row["tenant"], thread_id=row["thread_id"]),
        graph=row["graph"],
        graph_version=row["graph_version"],
        version=row["version"],
        request_id=row["request_id"],
        principal=row["principal"],
        lost=lost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a workflow is entered with: its input, whether it has a checkpoint, and the graph that it began in."""

    payload: bytes | None
    has_begun: bool
    shape: str


def entry(key: ThreadKey) -> Script[Kept | None]:
    """Read what a workflow is entered with."""
    row = yield from one_row("get_entry", **key.params)
    if row is None:
        return None
    return Kept(payload=row["input"], has_begun=bool(row["has_begun"]), shape=row["shape"])


def find_stranded(graph: str, *, error_class: str, limit: int) -> Script[list[Due]]:
    """Find the workflows of a graph that are due in whatever version, unless they say already what they miss."""
    rows = yield from all_rows("list_stranded_workflows", graph=graph, error_class=error_class, limit=limit)
    return [_due(row) for row in rows]


def note(due: Due, *, error_class: str, error_text: str) -> Script[bool]:
    """Say why a workflow that is due is not entered here; a worker that can enters it all the same."""
    told = {"error_class": error_class, "error_text": error_text}
    row = yield from one_row("note_workflow_if_unmoved", **due.key.params, version=due.version, **told)
    return row is not None


def hold(due: Due, *, error_class: str, error_text: str) -> Script[bool]:
    """Say why a workflow that is due is not entered; it is looked at again in a while."""
    row = yield from one_row(
        "hold_workflow_if_unmoved",
        **due.key.params,
        version=due.version,
        delay=LOOK_AGAIN_MS,
        error_class=error_class,
        error_text=error_text,
    )
    return row is not None


# --- people ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoWorkflow:
    """No workflow with this id exists for this tenant."""


@dataclass(frozen=True, slots=True)
class Hindered:
    """It cannot be done with a workflow in this status, or it moved since it was seen."""

    row: Row


@dataclass(frozen=True, slots=True)
class Done:
    """It is done; the workflow after it."""

    row: Row


Answer = Done | NoWorkflow | Hindered


def resume(key: ThreadKey, *, by: Actor, reason: str, expected_version: int | None) -> Script[Answer]:
    """Let a workflow go on that was left to a person."""
    row = yield from _locked(key)
    if row is None:
        return NoWorkflow()
    status = WorkflowStatus(row["status"])
    if WorkflowEvent.RESUMED not in legal(WORKFLOW, status) or expected_version not in {None, row["version"]}:
        return Hindered((yield from held_row("get_workflow", **key.params)))
    yield from held_row(
        "resume_workflow_if_unmoved",
        **key.params,
        version=row["version"],
        status=advance(WORKFLOW, status, WorkflowEvent.RESUMED),
        error_class=RESUMED_BY,
        error_text=f"resumed by {by.shown}: {reason}",
    )
    yield Wake(key.tenant, key.thread_id, row["graph"], row["graph_version"])
    return Done((yield from _noted(key, row, by, Deed.RESUME_WORKFLOW, reason)))


def cancel(key: ThreadKey, *, by: Actor, reason: str, expected_version: int | None) -> Script[Answer]:
    """End a workflow for good; a run that is at work on it can store nothing more. Cancelled again, it stays so."""
    row = yield from _locked(key)
    if row is None:
        return NoWorkflow()
    status = WorkflowStatus(row["status"])
    if status is WorkflowStatus.CANCELLED:
        return Done((yield from held_row("get_workflow", **key.params)))
    if status in ENDED or expected_version not in {None, row["version"]}:
        return Hindered((yield from held_row("get_workflow", **key.params)))
    yield from held_row(
        "cancel_workflow_if_unmoved",
        **key.params,
        version=row["version"],
        state=_IDLE,
        status=advance(WORKFLOW, status, WorkflowEvent.CANCELLED),
        error_class=CANCELLED_BY,
        error_text=f"cancelled by {by.shown}: {reason}",
    )
    yield from deciding.cancel_all(key.tenant, key.thread_id, by=by, reason=reason, enqueued=True)
    return Done((yield from _noted(key, row, by, Deed.CANCEL_WORKFLOW, reason)))


CANCELLED_BY, RESUMED_BY = "Cancelled", "Resumed"
"""What stands in the place of the class of an error, for what a person did."""


def _noted(key: ThreadKey, row: Row, by: Actor, deed: Deed, reason: str) -> Script[Row]:
    """Note what was done to a workflow, and return it as it is after that."""
    after = yield from held_row("get_workflow", **key.params)
    yield from audit.note(
        by,
        deed,
        Subject(Kind.WORKFLOW, key.thread_id),
        tenant=key.tenant,
        reason=reason,
        before=row["status"],
        after=after["status"],
        request_id=row["request_id"],
    )
    return after


def _locked(key: ThreadKey) -> Script[Row | None]:
    row = yield from one_row("lock_thread", **key.params)
    return None if row is None or row["status"] is None else row


# --- reads -----------------------------------------------------------------------------------------------------------


def get(key: ThreadKey) -> Script[Row | None]:
    """Read one workflow."""
    return (yield from one_row("get_workflow", **key.params))


def page(tenant: str, *, status: str | None, graph: str | None, before: int, limit: int) -> Script[Sequence[Row]]:
    """Read a page of a tenant's workflows, the newest first."""
    asked = {"tenant": tenant, "status": status, "graph": graph, "before": before, "limit": limit}
    return (yield from all_rows("list_workflows", **asked))


@dataclass(frozen=True, slots=True)
class Steps:
    """A page of a workflow's steps: its checkpoints, the newest first, and what was written on the parent of each."""

    places: Sequence[Row]
    writes: dict[str, Sequence[Row]]


def steps(key: ThreadKey, *, before: int, limit: int) -> Script[Steps]:
    """Read a page of a workflow's steps."""
    places = yield from all_rows("list_steps", **key.params, before=before, limit=limit)
    writes: dict[str, Sequence[Row]] = {}
    for parent in {row["parent_id"] for row in places if row["parent_id"]} | {
        row["checkpoint_id"] for row in places[:1]
    }:
        writes[parent] = yield from all_rows("list_step_writes", **key.params, checkpoint_id=parent)
    return Steps(places, writes)
