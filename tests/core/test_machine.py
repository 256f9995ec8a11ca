"""The state machines: every pair of state and event is listed or refused, and the database's CHECKs say the same."""

from enum import StrEnum
from importlib import resources
from itertools import product
from typing import Any

import pytest

from counterfoil.core import states
from counterfoil.core.machine import IllegalTransition, advance, diagram, legal, sources
from counterfoil.core.states import (
    ATTEMPT,
    CASE,
    CLOSED_UNSENT,
    INBOX,
    OPERATION,
    TENANT,
    TERMINAL,
    THREAD,
    WAIT,
    WORKFLOW,
    AttemptEvent,
    AttemptOutcome,
    CaseEvent,
    CaseState,
    InboxEvent,
    InboxState,
    OperationEvent,
    OperationState,
    TenantEvent,
    TenantStatus,
    ThreadEvent,
    ThreadState,
    WaitEvent,
    WaitState,
    WorkflowEvent,
    WorkflowStatus,
)

MACHINES: dict[str, tuple[Any, type[StrEnum], type[StrEnum]]] = {
    "operation": (OPERATION, OperationState, OperationEvent),
    "attempt": (ATTEMPT, AttemptOutcome, AttemptEvent),
    "case": (CASE, CaseState, CaseEvent),
    "thread": (THREAD, ThreadState, ThreadEvent),
    "workflow": (WORKFLOW, WorkflowStatus, WorkflowEvent),
    "wait": (WAIT, WaitState, WaitEvent),
    "inbox": (INBOX, InboxState, InboxEvent),
    "tenant": (TENANT, TenantStatus, TenantEvent),
}
PAIRS = [
    pytest.param(table, state, event, id=f"{name}-{state}-{event}")
    for name, (table, all_states, events) in MACHINES.items()
    for state, event in product(all_states, events)
]


@pytest.mark.parametrize(("table", "state", "event"), PAIRS)
def test_every_state_and_event_is_listed_or_refused(table: Any, state: Any, event: Any) -> None:
    listed = [row.next for row in table if (row.state, row.event) == (state, event)]
    assert len(listed) <= 1
    assert (event in legal(table, state)) == (state in sources(table, event)) == bool(listed)
    if listed:
        assert advance(table, state, event) == listed[0]
    else:
        with pytest.raises(IllegalTransition):
            advance(table, state, event)


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_can_be_reached_and_every_event_is_used(name: str) -> None:
    table, all_states, events = MACHINES[name]
    first = next(iter(all_states))
    reached, new = {first}, {first}
    if name == "operation":
        new = reached = {OperationState.AWAITING_APPROVAL, OperationState.PENDING}
    if name == "inbox":  # what comes is judged at once
        new = reached = {InboxState.KEPT, InboxState.SUPERSEDED, InboxState.TOO_LATE}
    while new:
        new = {row.next for row in table if row.state in reached} - reached
        reached = reached | new
    assert reached == set(all_states)
    assert {row.event for row in table} == set(events)


def test_only_late_proof_leaves_a_terminal_state() -> None:
    for state in TERMINAL:
        assert legal(OPERATION, state) <= {OperationEvent.PROVED_HAPPENED}
    assert legal(OPERATION, OperationState.SUCCEEDED) == frozenset()
    assert CLOSED_UNSENT < TERMINAL


def test_every_open_state_can_end() -> None:
    ends = set(TERMINAL)
    while more := {row.state for row in OPERATION if row.next in ends} - ends:
        ends |= more
    assert ends == set(OperationState)


def test_only_late_proof_changes_what_is_known_of_an_attempt() -> None:
    assert legal(ATTEMPT, AttemptOutcome.SUCCEEDED) == frozenset()
    for proved in (AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED):
        assert legal(ATTEMPT, proved) <= {AttemptEvent.RETURNED}


@pytest.mark.parametrize("name", MACHINES)
def test_the_diagram_shows_every_transition(name: str) -> None:
    table = MACHINES[name][0]
    lines = diagram(table).splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == 1 + len(table)


LISTS = {
    "state": (OperationState, "'awaiting_approval', 'pending'"),
    "outcome": (AttemptOutcome, "'running', 'succeeded'"),
    "case": (CaseState, "'open', 'resolved'"),
    "kind": (states.CaseKind, "'unknown_outcome', 'possible_double_effect'"),
    "thread": (ThreadState, "'idle', 'running'"),
    "verdict": (states.Verdict, "'happened', 'did_not_happen_retry'"),
    "evidence": (states.EvidenceKind, "'reply', 'late_reply'"),
    "sender": (states.Sender, "'caller', 'dispatcher'"),
}


@pytest.mark.parametrize("name", LISTS)
def test_the_databases_checks_list_the_same_states(name: str) -> None:
    members, start = LISTS[name]
    folder = resources.files("counterfoil.storage").joinpath("migrations", "postgres")
    text = " ".join(folder.joinpath("0001_initial.sql").read_text("utf-8").split())
    assert start in text
    listed = ", ".join(f"'{member}'" for member in members)
    assert f"({listed})" in text
