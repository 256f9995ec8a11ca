"""What the audit trail records: the acts of people by name, and what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Deed(StrEnum):
    """What somebody did, by the name under which the audit trail keeps it."""

    VERDICT = "verdict"
    REQUEUE = "requeue"
    SKIP = "skip"
    CANCEL = "cancel"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL_WORKFLOW = "workflow.cancel"
    RESUME_WORKFLOW = "workflow.resume"
    DELETE_WORKFLOW = "workflow.delete"
    GRANT = "grant.issue"
    REVOKE_GRANT = "grant.revoke"
    REFUSE = "grant.refuse"
    APPROVE = "approval.approve"
    REJECT = "approval.reject"
    EDIT = "approval.edit"
    WITHDRAW = "approval.cancel"
    TRY_REJECTED = "approval.refuse"
    ISSUE_TOKEN = "token.issue"  # noqa: S105 - the name of an act
    ROTATE_TOKEN = "token.rotate"  # noqa: S105
    REVOKE_TOKEN = "token.revoke"  # noqa: S105
    CREATE_TENANT = "tenant.create"
    SUSPEND_TENANT = "tenant.suspend"
    RESUME_TENANT = "tenant.resume"


class Kind(StrEnum):
    """What a deed is about."""

    OPERATION = "operation"
    PAUSE = "pause"
    WORKFLOW = "workflow"
    APPROVAL = "approval"
    GRANT = "grant"
    TOKEN = "token"  # noqa: S105 - the name of a kind
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Subject:
    """The one thing that a deed is about, by its kind and its id; an approval and a grant are about an operation."""

    kind: Kind
    id: str
    operation_id: str | None = None
