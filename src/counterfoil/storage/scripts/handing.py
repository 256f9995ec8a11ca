"""Scripts that hand intents over: into the outbox, in the transaction that stores the result of what asked for them.

A task's result reaches the database twice, with its writes and with the next checkpoint, in either order; each alone
makes the task done. So both bring its intents, and the second finds them there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.storage.script import Row, Script, one_row
from counterfoil.storage.scripts import checkpoints
from counterfoil.storage.scripts.threads import NotStored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from counterfoil.storage.scripts.checkpoints import Encoded, NotOwner, Place


def put(
    place: Place,
    *,
    attempt: int | None,
    columns: Mapping[str, Any],
    channels: Mapping[tuple[str, str], Encoded],
    record: Callable[[], Script[None]],
) -> Script[NotOwner | None]:
    """Store a checkpoint and record the intents of the step before it, if its run owns the thread."""
    refused = yield from checkpoints.put_in_steps(place, attempt=attempt, columns=columns, channels=channels)
    if refused is None:
        yield from record()
    return refused


def put_writes(
    place: Place,
    *,
    attempt: int | None,
    task: Mapping[str, Any],
    writes: Sequence[Row],
    record: Callable[[], Script[None]],
) -> Script[NotOwner | NotStored | None]:
    """Store a task's writes and record its intents, if its run owns the thread and the checkpoint below is stored.

    Without that checkpoint nobody would find the writes: the task would run again, and its intents be sent anyway.
    """
    refused = yield from checkpoints.check_owner(place.key, attempt)
    if refused is not None:
        return refused
    below = yield from one_row("get_checkpoint_seq", **place.params, checkpoint_id=task["checkpoint_id"])
    if below is None:
        return NotStored()
    for write in writes:
        yield from one_row("insert_write", **place.params, **task, **write, attempt=attempt or 0)
    yield from record()
    return None
