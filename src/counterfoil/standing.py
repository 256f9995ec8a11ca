"""Where workflows stand, as their rows say it: one, a page of them, their steps, and what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.arguments import CALLED
from counterfoil.core.durations import utc_text
from counterfoil.core.states import WorkflowStatus
from counterfoil.errors import InvalidArguments
from counterfoil.operations import LONGEST_PAGE
from counterfoil.records import Wait, Workflow, WorkflowStep
from counterfoil.storage import rows
from counterfoil.storage.rows import NEWEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.model import Page
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.workflows import Steps

_NODE: Final = "~__pregel_pull, "
"""With what the path of a task begins that is a node; one that was sent, or called, has numbers in its place."""
_NAMES: Final = (
    *("tenant", "workflow_id", "graph", "graph_version", "status", "version", "attempt", "holder", "lease_until"),
    *(
        "due_at",
        "tries",
        "waits_for",
        "parked_on",
        "error_class",
        "error_text",
        "request_id",
        "principal",
        "created_at",
    ),
    *("updated_at", "now", "seq"),
)


def workflow(row: Row) -> Workflow:
    """Return a workflow's rows as one."""
    return Workflow(**{name: row[name] for name in _NAMES})


def fate_of(found: Workflow) -> str:
    """Say in words what becomes of a workflow whose step raised."""
    match found.status:
        case WorkflowStatus.PARKED | WorkflowStatus.FAILED:
            named = f"{found.workflow_id} --tenant {found.tenant}"
            return f"and is {found.status}; when its cause is mended: counterfoil workflows resume {named} --reason ..."
        case WorkflowStatus.WAITING if found.due_at is not None:
            return f"and is tried again at {utc_text(found.due_at)}"
        case status:
            return f"and is {status}"


def asked_page(status: str | None, graph: str | None, before: int | None, limit: int) -> dict[str, Any]:
    """Check what a list is narrowed to.

    Raises:
        InvalidArguments: there is no such status, or the limit is out of range.
    """
    if status is not None and status not in set(WorkflowStatus):
        known = ", ".join(WorkflowStatus)
        raise InvalidArguments(f"There is no status {status!r}. There are: {known}.")
    return {
        "status": status,
        "graph": CALLED.optional_text("graph", graph),
        "before": NEWEST if before is None else CALLED.number("before", before),
        "limit": CALLED.number("limit", limit, least=1, most=LONGEST_PAGE) + 1,
    }


def asked_steps(before: int | None, limit: int) -> dict[str, int]:
    """Check which steps are asked for.

    Raises:
        InvalidArguments: the limit is out of range.
    """
    return {
        "before": NEWEST if before is None else CALLED.number("before", before),
        "limit": CALLED.number("limit", limit, least=1, most=LONGEST_PAGE),
    }


def paged(found: Sequence[Row], limit: int) -> Page[Workflow]:
    """Return a page of workflows."""
    return rows.paged(found, limit, workflow)


def stepped(found: Steps) -> tuple[WorkflowStep, ...]:
    """Return a workflow's steps, the newest first."""
    return tuple(_step(row, found.writes.get(row["parent_id"], ())) for row in found.places)


def _step(row: Row, writes: Sequence[Row]) -> WorkflowStep:
    nodes = dict.fromkeys(_node(write["task_path"]) for write in writes)
    fields = dict.fromkeys(write["channel"] for write in writes if _is_field(write["channel"]))
    return WorkflowStep(
        step=row["step"],
        at=row["created_at"],
        checkpoint_id=row["checkpoint_id"],
        source=row["source"],
        nodes=tuple(name for name in nodes if name and not name.startswith("__")),
        fields=tuple(fields),
    )


def _is_field(channel: str) -> bool:
    return not channel.startswith(("__", "branch:", "join:", "counterfoil"))


def _node(path: str) -> str:
    """Return the name of the node that a task is, if it is one."""
    return path.removeprefix(_NODE) if path.startswith(_NODE) else ""


def wait(row: Row) -> Wait:
    """Return a row of the table of waits."""
    names = ("name", "node", "event", "subject", "state", "due_at", "created_at", "ended_at")
    return Wait(**{name: row[name] for name in names})
