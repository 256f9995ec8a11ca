"""Frozen value objects of workflows: the workflow itself, its steps, waits and events."""

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
    """What became of an event: `kept` for a wait, `taken` by one, `superseded` by a newer event, or `too_late`."""

    event_id: str
    state: str
    received_at: int
    is_new: bool
    wakes: bool


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
