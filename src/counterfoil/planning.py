"""What entering a workflow again would do, told from its rows and the graph that is registered for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.core.states import ENDED, TERMINAL, OperationState, WaitState, WorkflowStatus
from counterfoil.records import Resumption
from counterfoil.standing import wait, workflow
from counterfoil.starting import not_found

if TYPE_CHECKING:
    from counterfoil.desk import Desk
    from counterfoil.storage.scripts.planning import Met
    from counterfoil.storage.scripts.threads import ThreadKey


def met(key: ThreadKey, found: Met | None) -> Met:
    """Return what was met.

    Raises:
        WorkflowNotFound: there is no such workflow.
    """
    return not_found(key) if found is None else found


def graph_for(desk: Desk, found: Met) -> Any | None:
    """Return the graph in which a workflow would go on, if it is registered and fits."""
    row = found.workflow
    registered = desk.graphs.get((row["graph"], row["graph_version"]))
    return None if registered is None or registered.differences(found.kept.shape) else registered


def planned(desk: Desk | None, found: Met, state: Any) -> Resumption:
    """Return what entering a workflow again would do.

    Args:
        desk: What knows the graphs, or None where none are known.
        found: What it has stored.
        state: Its state, as the graph reads it, if that fits.
    """
    settled = {row["operation_id"]: OperationState(row["state"]) in TERMINAL for row in found.operations}
    fits, differences = _fitting(desk, found)
    return Resumption(
        workflow=workflow(found.workflow),
        graph_fits=fits,
        differences=differences,
        next_nodes=_next(desk, found, state),
        answered=tuple(name for name, is_settled in settled.items() if is_settled),
        unsettled=tuple(name for name, is_settled in settled.items() if not is_settled),
        waits=() if _has_ended(found) else tuple(wait(row) for row in found.waits if row["state"] == WaitState.OPEN),
    )


def _fitting(desk: Desk | None, found: Met) -> tuple[bool | None, tuple[str, ...]]:
    """Say whether the registered graph is the one that a workflow began in, and how it differs."""
    name, version = found.workflow["graph"], found.workflow["graph_version"]
    versions = [] if desk is None else sorted(number for known, number in desk.graphs if known == name)
    if desk is None or not versions:
        return None, ()
    if version in versions:
        told = desk.graphs[name, version].differences(found.kept.shape)
        return not told, told
    newest = desk.graphs[name, versions[-1]].differences(found.kept.shape)
    return False, (f"version {version} is not registered, version {versions[-1]} is", *newest)


def _has_ended(found: Met) -> bool:
    return WorkflowStatus(found.workflow["status"]) in ENDED


def _next(desk: Desk | None, found: Met, state: Any) -> tuple[str, ...]:
    if desk is None or _has_ended(found):
        return ()
    graph = graph_for(desk, found)
    if graph is None:
        return ()
    return tuple(state.next) if found.kept.has_begun else graph.first
