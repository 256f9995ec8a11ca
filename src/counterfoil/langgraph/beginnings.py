"""From where a run that brings no input goes on, and what it is told where there is nothing to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.errors import CheckpointNotFound
from counterfoil.langgraph.context import CONF, checkpoint_of, conf_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.types import StateSnapshot

    from counterfoil.langgraph.context import Run


def may_begin_branch(run: Run, run_input: Any, config: RunnableConfig) -> bool:
    """Say whether a run may be the first of a branch: one that goes on, from nowhere in particular."""
    return run.branched_at is not None and run_input is None and not conf_of(config).get("checkpoint_id")


def beginning(run: Run, config: RunnableConfig, newest: StateSnapshot) -> RunnableConfig:
    """Return the configuration of a branch's first run: it goes back to the checkpoint at which the branch begins.

    The runtime would otherwise take it for a run that was interrupted there, and a child that keeps its state for one
    that is to be resumed.
    """
    at = conf_of(newest.config).get("checkpoint_id")
    if at != run.branched_at and (newest.metadata or {}).get("source") != "update":
        return config
    whole: Any = {**config, CONF: {**conf_of(config), "checkpoint_id": at}}
    addressed: RunnableConfig = whole
    return addressed


def refuse_nothing(run: Run, run_input: Any, config: RunnableConfig, newest: StateSnapshot) -> None:
    """Say that a thread has nothing to go on from; a run that went astray otherwise passes.

    Raises:
        CheckpointNotFound: the run brings no input of its own, and its thread has no checkpoint, or not this one.
    """
    if newest.created_at is not None or run_input is not None:
        return
    wanted = checkpoint_of(config)
    raise CheckpointNotFound(
        f"Thread {run.key.thread_id} of tenant {run.key.tenant} has no checkpoint{f' {wanted}' if wanted else ''} to go"
        " on from, and None is no first input. No node ran. Begin the thread with an input, as in cf.run(graph,"
        " {...}, ...); if it was begun, check tenant, thread_id and the database.",
        tenant=run.key.tenant,
        operation_id="",
        thread_id=run.key.thread_id,
    ) from None
