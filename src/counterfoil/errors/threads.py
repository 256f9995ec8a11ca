"""One thread or workflow cannot go on."""

from __future__ import annotations

from counterfoil.errors.operations import OperationError
from counterfoil.exits import Exit, Retry


class ThreadBusy(OperationError):
    """Another run owns the thread; refused before any node ran."""

    code = "thread-busy"
    retry = Retry.SAFE
    exit = Exit.CONFLICT


class ThreadExists(OperationError):
    """A thread was to be copied onto one that has a history of its own."""

    code = "thread-exists"
    exit = Exit.CONFLICT


class BranchTaken(OperationError):
    """The name of a branch belongs to one that begins at another checkpoint."""

    code = "branch-taken"
    exit = Exit.CONFLICT


class CheckpointNotFound(OperationError):
    """The thread has no such checkpoint."""

    code = "checkpoint-not-found"
    exit = Exit.NOT_FOUND


class VersionConflict(OperationError):
    """The run no longer owns its thread; its write was refused."""

    code = "version-conflict"
    exit = Exit.CONFLICT


class ThreadParked(OperationError):
    """The thread waits for an unknown outcome; a resume value cannot answer that."""

    code = "thread-parked"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.OUTCOME_UNKNOWN


class WorkflowNotFound(OperationError):
    """No workflow with this id exists for this tenant."""

    code = "workflow-not-found"
    exit = Exit.NOT_FOUND
    workflow_id: str


class WorkflowConflict(OperationError):
    """The id belongs to a workflow with another input or of another graph; that one is left alone."""

    code = "workflow-conflict"
    exit = Exit.CONFLICT
    workflow_id: str


class WorkflowEnded(OperationError):
    """The workflow is done or cancelled, and goes on no more."""

    code = "workflow-ended"
    exit = Exit.CONFLICT
    workflow_id: str
    status: str


class WorkflowParked(OperationError):
    """The workflow was entered again and again and got no further; a person lets it go on."""

    code = "workflow-parked"
    exit = Exit.CONFLICT
    workflow_id: str


class WorkflowNotDone(OperationError):
    """The workflow has no result yet."""

    code = "workflow-not-done"
    retry = Retry.SAFE
    exit = Exit.TIMED_OUT
    workflow_id: str
    status: str


class WorkflowFailed(OperationError):
    """The workflow failed and has no result; `error_class` names what a node raised."""

    code = "workflow-failed"
    workflow_id: str
    error_class: str


class WorkflowHindered(OperationError):
    """What was asked for cannot be done with a workflow in its status, or it moved since it was seen."""

    code = "workflow-hindered"
    exit = Exit.CONFLICT
    workflow_id: str
    status: str


class EventConflict(OperationError):
    """An event of this id came before, with another content."""

    code = "event-conflict"
    exit = Exit.CONFLICT
    event_id: str
