"""Scripts of the LangGraph checkpointer: checkpoints, channel values and pending writes, under a thread's claim."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from counterfoil.core.states import ThreadState
from counterfoil.storage.script import Row, Script, all_rows, lone_row, one_row
from counterfoil.storage.scripts import deciding, threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from counterfoil.core.access import Actor
    from counterfoil.storage.scripts.threads import ThreadKey

NAMESPACE_END = "|"
"""Stands in a child graph's namespace behind that of the graph around it."""


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
    channels: list[Row]
    writes: list[Row]


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
    if (yield from _put_at_once(place, attempt, columns, channels)):
        return None
    return (yield from put_in_steps(place, attempt=attempt, columns=columns, channels=channels))


def put_in_steps(
    place: Place, *, attempt: int | None, columns: Mapping[str, Any], channels: Mapping[tuple[str, str], Encoded]
) -> Script[NotOwner | None]:
    """Store a checkpoint as `put` does, as a part of a transaction that has more to do."""
    refused = yield from _check_advancing(place.key, attempt)
    if refused is not None:
        return refused
    yield from one_row("insert_checkpoint", **place.params, **columns, attempt=attempt or 0)
    for (channel, version), (kind, value) in channels.items():
        yield from one_row("insert_channel", **place.params, channel=channel, version=version, type=kind, value=value)
    return None


def _put_at_once(
    place: Place, attempt: int | None, columns: Mapping[str, Any], channels: Mapping[tuple[str, str], Encoded]
) -> Script[bool]:
    """Store it all in one statement, if there is such a one here and the run owns the thread."""
    stored = yield from lone_row(
        _if_owner("put_checkpoint", attempt),
        **place.params,
        **columns,
        **_owning(attempt),
        channels=[channel for channel, _version in channels],
        versions=[version for _channel, version in channels],
        types=[kind for kind, _value in channels.values()],
        values=[value for _kind, value in channels.values()],
    )
    return stored is not None


def _if_owner(statement: str, attempt: int | None) -> str:
    return f"{statement}_if_{'unmanaged' if attempt is None else 'claimed'}"


def _owning(attempt: int | None) -> dict[str, Any]:
    return {"attempt": attempt or 0, "expected_state": ThreadState.RUNNING}


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
    named = {**task, "checkpoint_id": checkpoint_id}
    if (yield from _put_writes_at_once(place, attempt, named, writes, replace=replace)):
        return None
    refused = yield from check_owner(place.key, attempt)
    if refused is not None:
        return refused
    statement = "replace_write" if replace else "insert_write"
    for write in writes:
        yield from one_row(statement, **place.params, **named, **write, attempt=attempt or 0)
    return None


def _put_writes_at_once(
    place: Place, attempt: int | None, task: Mapping[str, Any], writes: Sequence[Row], *, replace: bool
) -> Script[bool]:
    """Store them in one statement, if there is such a one here and the run owns the thread."""
    rows = {write["idx"]: write for write in writes}.values() if replace else writes  # one replaces a row once
    stored = yield from lone_row(
        _if_owner("replace_writes" if replace else "put_writes", attempt),
        **place.params,
        **task,
        **_owning(attempt),
        indexes=[write["idx"] for write in rows],
        channels=[write["channel"] for write in rows],
        types=[write["type"] for write in rows],
        values=[write["value"] for write in rows],
    )
    return stored is not None


def read(place: Place, checkpoint_id: str | None) -> Script[tuple[int | None, Stored | None]]:
    """Read who owns the thread, and one checkpoint of it, or the newest by order of commit."""
    if checkpoint_id is None:
        parts = yield from all_rows("read_newest_checkpoint", **place.params)
    else:
        parts = yield from all_rows("read_checkpoint", **place.params, checkpoint_id=checkpoint_id)
    found = _gathered(parts)
    return threads.owner_in(parts), found[0] if found else None


def seq_before(place: Place, checkpoint_id: str) -> Script[int | None]:
    """Return where a checkpoint stands in the order of commits, be it of this graph or of one around it.

    A child graph that its parent takes back in time is asked for its newest checkpoint before the *parent's*.
    """
    for checkpoint_ns in _outwards(place.checkpoint_ns):
        params = {**place.key.params, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
        row = yield from one_row("get_checkpoint_seq", **params)
        if row is not None:
            return int(row["seq"])
    return None


def _outwards(checkpoint_ns: str) -> Iterator[str]:
    """Yield a graph's namespace, that of the graph around it, and so on to the root's."""
    yield checkpoint_ns
    while checkpoint_ns:
        checkpoint_ns = checkpoint_ns.rpartition(NAMESPACE_END)[0]
        yield checkpoint_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which checkpoints a listing asks for, as far as columns say it."""

    tenant: str
    thread_id: str | None = None
    checkpoint_ns: str | None = None
    checkpoint_id: str | None = None
    source: str | None = None
    step: int | None = None
    run_id: str | None = None

    def params(self, before: int, size: int) -> dict[str, Any]:
        """Return the parameters of one page."""
        names = ("tenant", "checkpoint_id", "source", "step", "run_id")
        return {**{name: getattr(self, name) for name in names}, "before": before, "page": size}


def page(wanted: Wanted, *, before: int, size: int) -> Script[list[Stored]]:
    """Read a page of checkpoints with their values and writes, the newest first."""
    params = wanted.params(before, size)
    if wanted.thread_id is None:
        parts = yield from all_rows("page_tenant_checkpoints", **params)
    elif wanted.checkpoint_ns is None:
        parts = yield from all_rows("page_thread_checkpoints", **params, thread_id=wanted.thread_id)
    else:
        place = {"thread_id": wanted.thread_id, "checkpoint_ns": wanted.checkpoint_ns}
        parts = yield from all_rows("page_namespace_checkpoints", **params, **place)
    return _gathered(parts)


def ancestors(place: Place, checkpoint_id: str | None, channels: Sequence[str], size: int) -> Script[list[Stored]]:
    """Read some of a checkpoint's line, itself first; of its values and writes only those of some channels."""
    if checkpoint_id is None:
        newest = _gathered((yield from all_rows("read_newest_checkpoint", **place.params)))
        if not newest:
            return []
        checkpoint_id = newest[0].row["checkpoint_id"]
    asked = named_channels(dict.fromkeys(channels, ""))
    return _gathered(
        (yield from all_rows("page_ancestors", **place.params, checkpoint_id=checkpoint_id, asked=asked, page=size))
    )


@dataclass(slots=True)
class Deleted:
    """What a try to delete a thread found there, for another one where nobody heard of its COMMIT."""

    attempt: int | None = None
    place: Row | None = None
    is_tried: bool = False

    def note(self, row: Row | None, checkpoints: Sequence[Row]) -> None:
        """Note the thread's row, and the checkpoints that are to go."""
        self.is_tried = True
        self.attempt = None if row is None else row["attempt"]
        self.place = next(iter(checkpoints), None)


ENDED_WITH = "its workflow was deleted"
"""Why nobody is asked any more, where whoever deleted it gave no reason."""


def delete_thread(key: ThreadKey, *, tried: Deleted, by: Actor, reason: str = "") -> Script[None]:
    """Delete a thread with all its checkpoints; receipts outlive it.

    What the steps of a workflow have asked people about, or were permitted and did not send yet, ends with it.
    A thread without a row cannot be locked: a run that begins on it meanwhile keeps whatever it stores. So does one
    that began when the thread had been deleted, and nobody had heard of it.
    """
    row = yield from one_row("lock_thread", **key.params)  # waits for what its owner is just writing
    if tried.is_tried and not (yield from _is_left(key, row, tried)):
        return
    tried.note(row, (yield from all_rows("delete_thread_checkpoints", **key.params)))
    for what in ("writes", "mints"):
        yield from all_rows(f"delete_thread_{what}", **key.params)
    yield from all_rows("delete_unnamed_channels", **key.params)
    if row is not None and row["status"] is not None:
        yield from deciding.cancel_all(key.tenant, key.thread_id, by=by, reason=reason or ENDED_WITH, enqueued=False)
        yield from _forget_workflow(key)
    if row is not None:
        yield from one_row("reset_thread", **key.params, state=ThreadState.IDLE)


def _forget_workflow(key: ThreadKey) -> Script[None]:
    """Delete what a workflow was started with, waited for and was told."""
    yield from all_rows("delete_waits", **key.params)
    for what in ("delete_events", "delete_workflow"):
        yield from all_rows(what, **key.params)


def _is_left(key: ThreadKey, row: Row | None, tried: Deleted) -> Script[bool]:
    """Say whether what was to be deleted is there still: its row was not reset, or one of its checkpoints stands."""
    if row is not None and row["attempt"] == tried.attempt:
        return True
    if tried.place is None:
        return False
    return (yield from one_row("get_checkpoint_seq", **key.params, **tried.place)) is not None


def _gathered(parts: Sequence[Row]) -> list[Stored]:
    """Put checkpoints together from their parts, the newest first, their writes as live execution applies them.

    A value that is named and not stored is left out: it belongs to a delta channel that was declared as another one
    since, and the runtime makes it from what earlier checkpoints store.
    """
    rows = sorted((row for row in parts if row["part"] == "checkpoint"), key=itemgetter("seq"), reverse=True)
    found = {row["seq"]: Stored(row=row, channels=[], writes=[]) for row in rows}
    for row in parts:
        if row["part"] == "channel" and row["value"] is not None:
            found[row["seq"]].channels.append(row)
        elif row["part"] == "write":
            found[row["seq"]].writes.append(row)
    for stored in found.values():
        stored.writes.sort(key=itemgetter("task_path", "task_id", "idx"))
    return list(found.values())


def named_channels(versions: Mapping[str, str]) -> str:
    """Return the versions of channels as the JSON object by which their values are read back."""
    return json.dumps(versions, separators=(",", ":"), sort_keys=True)


def leaning_channels(names: Sequence[str]) -> str:
    """Return the names of delta channels as they are stored."""
    return json.dumps(names, separators=(",", ":"))


def _check_advancing(key: ThreadKey, attempt: int | None) -> Script[NotOwner | None]:
    if attempt is not None and (yield from threads.advance_version(key, attempt=attempt)):
        return None
    return (yield from check_owner(key, attempt))


def check_owner(key: ThreadKey, attempt: int | None) -> Script[NotOwner | None]:
    """Say who else owns a thread, if this run does not; it stays so until the transaction ends."""
    if attempt is None:
        yield from threads.keep_unmanaged(key)
    owner = yield from threads.owner_kept(key)
    if owner == attempt:
        return None
    return NotOwner(owner or 0)
