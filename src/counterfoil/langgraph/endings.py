"""What a workflow's run came to, and so what is done with it next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph.errors import GraphRecursionError

from counterfoil.errors import CheckpointNotFound, CounterfoilError, Retry, ThreadParked
from counterfoil.langgraph.parking import is_ours
from counterfoil.storage.scripts.leaving import Ending, Finished, Paused, Raised, Stopped

if TYPE_CHECKING:
    from langgraph.runtime import RunControl
    from langgraph.types import StateSnapshot

    from counterfoil.langgraph.context import Run

_ASTRAY = (CheckpointNotFound, ThreadParked)
"""Errors of a run by hand that did not reach any node: the workflow is as it was."""
TEXT_LENGTH = 500
"""What is kept of an error's text, in characters."""


def of_state(run: Run, state: StateSnapshot, control: RunControl) -> Ending:
    """Return what a run came to that ended without an error, from the state in which it left its thread."""
    if not state.next:
        return Finished()
    if run.parked:
        return Paused(f"the outcome of {run.parked[-1]}", due_in=run.wake_in)
    if any(not is_ours(found) for found in state.interrupts):
        return Paused("an answer to its question")
    if state.interrupts:
        return Paused(None)
    if control.drain_requested:
        return Paused("a worker", due_in=0)
    return Paused("a person, at a breakpoint")


def of_error(run: Run, error: BaseException) -> Ending:
    """Return what a run came to that an error ended; one that did not reach any node is due again at once."""
    if isinstance(error, _ASTRAY):
        return Paused("a worker", due_in=0)
    entry = run.context.entry
    most_tries = None if entry is None else entry.most_tries
    if not isinstance(error, Exception):
        return Stopped(most_tries)
    return Raised(
        error_class=type(error).__name__,
        error_text=_text(error),
        most_tries=most_tries,
        is_final=isinstance(error, GraphRecursionError)
        or (isinstance(error, CounterfoilError) and error.retry is Retry.NEVER),
    )


def _text(error: Exception) -> str:
    """Return an error's words where they are ours: those of others may hold what no database should."""
    if isinstance(error, CounterfoilError):
        return error.message[:TEXT_LENGTH]
    return "A node raised it; the worker's log has its words."
