"""Scripts of the LangGraph checkpointer: checkpoints, channel values and pending writes, under a thread's claim."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.states import ThreadState
from counterfoil.storage.script import Row, Script, all_rows, one_row
from counterfoil.storage.scripts import threads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from counterfoil.storage.scripts.threads import ThreadKey

NEWEST = 2**63 - 1
"""Larger than every seq: where paging begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a checkpoint belongs: a thread and a namespace in it."""

    key: ThreadKey
    checkpoint_ns: str

    @property
    def params(self) -> dict[str, Any]:
        """Return the place as parameters."""
        return {**self.key.params, "checkpoint_ns": self.checkpoint_ns}


@dataclass(frozen=True, slots=True)
class NotOwner:
    """The run that writes does not own the thread: `owner` is the attempt that does, 0 if nobody does."""

    owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A checkpoint with its channel values and pending writes, all still encoded."""

    row: Row
    channels: Sequence[Row]
    writes: Sequence[Row]


Encoded = tuple[str, bytes]


def put(
    place: Place, *, attempt: int | None, columns: Mapping[str, Any], channels: Mapping[tuple[str, str], Encoded]
) -> Script[NotOwner | None]:
    """Store a checkpoint and the channel values that it brings, if its run owns the thread.

    Args:
        place: Its thread and namespace.
        attempt: The attempt under which the run claimed the thread, or None for a run without a claim.
        columns: The checkpoint's own columns.
        channels: Values by (channel, version).
    """
    refused = yield from _check_advancing(place.key, attempt)
    if refused is not None:
        return refused
    yield from one_row("insert_checkpoint", **place.params, **columns, attempt=attempt or 0)
    for (channel, version), (kind, value) in channels.items():
        yield from one_row("insert_channel", **place.params, channel=channel, version=version, type=kind, value=value)
    return None


def put_writes(
    place: Place,
    *,
    attempt: int | None,
    checkpoint_id: str,
    task: Mapping[str, Any],
    writes: Sequence[Row],
    replace: bool,
) -> Script[NotOwner | None]:
    """Store a task's writes, if its run owns the thread."""
    refused = yield from _check_owner(place.key, attempt)
    if refused is not None:
        return refused
    statement = "replace_write" if replace else "insert_write"
    for write in writes:
        yield from one_row(
            statement, **place.params, **task, **write, checkpoint_id=checkpoint_id, attempt=attempt or 0
        )
    return None


def get(place: Place, checkpoint_id: str | None) -> Script[Stored | None]:
    """Read one checkpoint, or the newest by order of commit."""
    if checkpoint_id is None:
        row = yield from one_row("get_newest_checkpoint", **place.params)
    else:
        row = yield from one_row("get_checkpoint", **place.params, checkpoint_id=checkpoint_id)
    return None if row is None else (yield from _whole(row))


def owner_and_get(place: Place, checkpoint_id: str | None) -> Script[tuple[int | None, Stored | None]]:
    """Read who owns the thread, and a checkpoint of it."""
    owner = yield from threads.owner(place.key)
    return owner, (yield from get(place, checkpoint_id))


def seq_of(place: Place, checkpoint_id: str) -> Script[int | None]:
    """Return a checkpoint's place in the order of commits."""
    row = yield from one_row("get_checkpoint", **place.params, checkpoint_id=checkpoint_id)
    return None if row is None else row["seq"]


def page(
    tenant: str, *, thread_id: str | None, checkpoint_ns: str | None, before: int, size: int
) -> Script[list[Stored]]:
    """Read a page of checkpoints with their values and writes, the newest first."""
    scope: dict[str, Any] = {"tenant": tenant, "before": before, "page": size}
    if thread_id is None:
        rows = yield from all_rows("page_tenant_checkpoints", **scope)
    elif checkpoint_ns is None:
        rows = yield from all_rows("page_thread_checkpoints", **scope, thread_id=thread_id)
    else:
        rows = yield from all_rows(
            "page_namespace_checkpoints", **scope, thread_id=thread_id, checkpoint_ns=checkpoint_ns
        )
    found = []
    for row in rows:
        stored = yield from _whole(row)
        found.append(stored)
    return found


def delete_thread(key: ThreadKey) -> Script[None]:
    """Delete a thread with all its checkpoints; receipts outlive it."""
    for statement in ("checkpoints", "channels", "writes", "mints"):
        yield from all_rows(f"delete_thread_{statement}", **key.params)
    yield from one_row("reset_thread", **key.params, state=ThreadState.IDLE)


def _whole(row: Row) -> Script[Stored]:
    place = {name: row[name] for name in ("tenant", "thread_id", "checkpoint_ns")}
    wanted = row["stored_channels"]
    channels: Sequence[Row] = []
    if wanted != "[]":
        channels = yield from all_rows("list_channels", **place, wanted=wanted)
    writes = yield from all_rows("list_writes", **place, checkpoint_id=row["checkpoint_id"])
    return Stored(row=row, channels=channels, writes=writes)


def wanted_channels(versions: Mapping[str, str]) -> str:
    """Return (channel, version) pairs as the JSON array by which values are read back."""
    return json.dumps(sorted(versions.items()), separators=(",", ":"))


def _check_advancing(key: ThreadKey, attempt: int | None) -> Script[NotOwner | None]:
    if attempt is not None and (yield from threads.advance_version(key, attempt=attempt)):
        return None
    return (yield from _check_owner(key, attempt))


def _check_owner(key: ThreadKey, attempt: int | None) -> Script[NotOwner | None]:
    owner = yield from threads.owner_kept(key)
    if owner == attempt:
        return None
    return NotOwner(owner or 0)
