"""Frozen value objects of workflows (the workflow itself, its steps, waits and events) and of who may do what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A workflow as lists show it; times are milliseconds UTC by the database's clock, `now` is when it was read."""

    tenant: str
    workflow_id: str
    graph: str
    graph_version: int
    status: str
    version: int
    attempt: int
    holder: str | None
    lease_until: int
    due_at: int | None
    tries: int
    waits_for: str | None
    parked_on: str | None
    error_class: str | None
    error_text: str | None
    request_id: str | None
    principal: str | None
    created_at: int
    updated_at: int
    now: int
    seq: int
    is_new: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    """One superstep: which nodes ended, and which fields of the state they wrote; never what they wrote."""

    step: int
    at: int
    checkpoint_id: str
    source: str
    nodes: tuple[str, ...]
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a step waits for, or waited for: an event, or a time."""

    name: str
    node: str | None
    event: str | None
    subject: str | None
    state: str
    due_at: int | None
    created_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that a workflow waited for."""

    event_id: str
    name: str
    subject: str | None
    sequence: int | None
    payload: Any
    received_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What became of an event: `kept` for a wait, `taken` by one, `superseded` by a newer event, or `too_late`.

    `has_workflow` says whether a workflow of the id is there by now; an event may come before it.
    """

    event_id: str
    state: str
    received_at: int
    is_new: bool
    wakes: bool
    has_workflow: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What entering a workflow again would do; `graph_fits` is None where its graph is not known here.

    `answered` are the operations of its thread that are settled: a step that asks for one again gets what is recorded
    and sends nothing. `unsettled` are those that are not.
    """

    workflow: Workflow
    graph_fits: bool | None
    differences: tuple[str, ...]
    next_nodes: tuple[str, ...]
    answered: tuple[str, ...]
    unsettled: tuple[str, ...]
    waits: tuple[Wait, ...]


# --- who may do what -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as lists show it, never its secret; `tenant` None is all of them, `scopes` None all of the role.

    `replaced_by` is the token that takes its place. `now` is the database's time of reading.
    """

    seq: int
    token_id: str
    tenant: str | None
    name: str
    role: str
    scopes: tuple[str, ...] | None
    created_by: str
    created_at: int
    expires_at: int | None
    replaced_by: str | None
    revoked_by: str | None
    revoked_at: int | None
    now: int

    @property
    def status(self) -> str:
        """Say in a word whether it is honoured: live, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        return "live" if self.expires_at is None or self.now < self.expires_at else "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant that was created: `changed_by` and `reason` say who moved it to its status last, and why."""

    tenant: str
    name: str
    status: str
    changed_by: str
    reason: str
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to what, and why; `tenant` None is about all of them.

    `who` is the principal's name in its one form, `shown` as it was given. `before` and `after` are states or
    fingerprints, never content. `operation_id` is the operation that it is about, also where its subject is an approval
    or a grant.
    """

    seq: int
    tenant: str | None
    at: int
    who: str
    shown: str
    role: str | None
    token_id: str | None
    act: str
    kind: str
    subject: str
    before: str | None
    after: str | None
    reason: str
    request_id: str | None
    operation_id: str | None
