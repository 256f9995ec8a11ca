"""What a workflow's run came to, and so what is done with it next."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langgraph.errors import GraphDrained, GraphRecursionError

from counterfoil.core.states import WorkflowStatus
from counterfoil.errors import CounterfoilError, Retry, ThreadParked
from counterfoil.langgraph.parking import is_ours
from counterfoil.storage.scripts.leaving import BREAKPOINT, Ending, Finished, Paused, Raised, Stopped, Untouched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.runtime import RunControl
    from langgraph.types import StateSnapshot

    from counterfoil.langgraph.context import Run

TEXT_LENGTH = 500
"""What is kept of an error's text, in characters."""


def of_state(run: Run, state: StateSnapshot, control: RunControl) -> Ending:
    """Return what a run came to that ended without an error, from the state in which it left its thread."""
    if not state.next:
        return Finished()
    if run.parked:
        last = run.parked[-1]
        what = "a decision about" if last in run.awaits else "the outcome of"
        return Paused(f"{what} {last}", due_in=run.wake_in)
    if any(not is_ours(found) for found in state.interrupts):
        return Paused("an answer to its question")
    if state.interrupts:
        return Paused(None)
    if control.drain_requested:
        return Paused("a worker", due_in=0)
    return Paused(BREAKPOINT)


def of_error(run: Run, error: BaseException) -> Ending:
    """Return what a run came to that an error ended; one that entered no node left the workflow as it was."""
    if isinstance(run.ending, Untouched):
        return run.ending
    entry = run.context.entry
    most_tries = None if entry is None else entry.most_tries
    if isinstance(error, GraphDrained):
        return Paused("a worker", due_in=0)
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


def untouched(run: Run) -> None:
    """Note that a run enters no node: its workflow is left as it was."""
    if run.before is not None:
        names = ("due_at", "tries", "mark")
        run.ending = Untouched(
            status=WorkflowStatus(run.before["status"]), **{name: run.before[name] for name in names}
        )


@contextmanager
def unless_accepted(run: Run) -> Iterator[None]:
    """Note that a run enters no node where an answer that it brings is refused."""
    try:
        yield
    except ThreadParked:
        untouched(run)
        raise
