"""An operation may not be sent without a grant or a decision, or that decision cannot be made."""

from __future__ import annotations

from counterfoil.errors.operations import OperationClosed, OperationError
from counterfoil.exits import Exit, Retry


class ApprovalRequired(OperationError):
    """The operation waits for a person's decision; `approval_id` names it, `decide_by` is when it is too late.

    `effect` and `fingerprint` say what is asked about, as the approval has them.
    """

    code = "approval-required"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.NOT_ALLOWED
    approval_id: str | None
    decide_by: int | None
    effect: str | None
    fingerprint: str | None


class ApprovalRejected(OperationClosed):
    """A person said no: nothing was sent and nothing will be; `decided_by`, `decided_at`, `reason` say who and why."""

    code = "approval-rejected"
    exit = Exit.NOT_ALLOWED
    decided_by: str
    decided_at: int
    reason: str


class ApprovalExpired(OperationClosed):
    """Nobody decided in time; nothing was sent and nothing will be."""

    code = "approval-expired"
    exit = Exit.NOT_ALLOWED


class ApprovalNotFound(OperationError):
    """No approval with this id exists for this tenant."""

    code = "approval-not-found"
    exit = Exit.NOT_FOUND


class DecisionConflict(OperationError):
    """Something else was decided before, or it is too late; `state`, `decided_by` and `decided_at` name the winner."""

    code = "decision-conflict"
    exit = Exit.CONFLICT
    state: str
    decided_by: str | None
    decided_at: int | None


class OwnRequest(OperationError):
    """Whoever asked for an operation, or wrote it, cannot be the one to permit it."""

    code = "own-request"
    exit = Exit.NOT_ALLOWED


class NotGranted(OperationError):
    """The program is strict, and no trusted code granted this very operation; nothing was sent, and it is noted."""

    code = "not-granted"
    exit = Exit.NOT_ALLOWED


class GrantNotFound(OperationError):
    """No grant with this id exists for this tenant."""

    code = "grant-not-found"
    exit = Exit.NOT_FOUND
