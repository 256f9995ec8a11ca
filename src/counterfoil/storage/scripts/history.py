"""Scripts for the upkeep of threads: copy one, prune one, delete what a run made; none touches a thread that is run."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.history import ROOT, History, Outline, is_behind
from counterfoil.core.machine import advance
from counterfoil.core.states import THREAD, ThreadEvent, ThreadState
from counterfoil.core.workflows import Taken
from counterfoil.storage.script import Row, Script, all_rows, one_row
from counterfoil.storage.scripts import threads
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_COPIED = ("request_id", "workflow_id", "principal", "branch", "branched_from", "branched_at", "parked_on")


@dataclass(frozen=True, slots=True)
class Done:
    """It is done: this many checkpoints were copied or deleted."""

    checkpoints: int


@dataclass(frozen=True, slots=True)
class OtherHistory:
    """The target holds a history of its own."""


def outlines(key: ThreadKey) -> Script[History]:
    """Read a thread's checkpoints without their contents."""
    rows = yield from all_rows("list_outlines", **key.params)
    leaning: Mapping[int, set[str]] = defaultdict(set)
    for row in (yield from all_rows("list_unstored_channels", **key.params)):
        leaning[row["seq"]].add(row["channel"])
    return History(_outline(row, leaning[row["seq"]]) for row in rows)


def _outline(row: Row, unstored: set[str]) -> Outline:
    return Outline(**{**row, "leaning": frozenset(json.loads(row["leaning"])) | unstored})


# --- prune and delete ------------------------------------------------------------------------------------------------


def prune(key: ThreadKey, *, known_dead: str | None) -> Script[Done | Taken]:
    """Delete all checkpoints but those that the thread and its children go on from, and what these lean on."""
    row = yield from threads.at_rest(key, known_dead=known_dead)
    if isinstance(row, Taken):
        return row
    history = yield from outlines(key)
    return (yield from _keep(key, history, history.newest()))


def delete_run(key: ThreadKey, run_id: str, *, known_dead: str | None) -> Script[Done | Taken]:
    """Delete the checkpoints that a run made in a thread, but for those that others lean on.

    Where that very run of a server owns the thread still, it loses it: its server gives it up.
    """
    mine = yield from one_row("lock_thread", **key.params)
    if mine is not None and mine["holder"] is not None and mine["run_id"] == run_id:
        yield from one_row("fence_thread", **key.params, state=state_at_rest(None))
    row = yield from threads.at_rest(key, known_dead=known_dead)
    if isinstance(row, Taken):
        return row
    history = yield from outlines(key)
    return (yield from _keep(key, history, [one for one in history.outlines if one.run_id != run_id]))


def threads_of_run(tenant: str, run_id: str) -> Script[list[ThreadKey]]:
    """Name the threads in which a run made checkpoints, or that it claimed last."""
    rows = yield from all_rows("list_threads_of_run", tenant=tenant, run_id=run_id)
    return [ThreadKey(tenant=tenant, thread_id=row["thread_id"]) for row in rows]


def _keep(key: ThreadKey, history: History, heads: Collection[Outline]) -> Script[Done]:
    kept = {*heads, *history.leaned_on(heads)}
    yield from _forget_mints(key, history, kept)
    deleted = 0
    for after, before in history.gaps(kept):
        between = {**key.params, "after": after, "before": before}
        yield from all_rows("delete_writes_between", **between)
        deleted += len((yield from all_rows("delete_checkpoints_between", **between)))
    if deleted:
        yield from all_rows("delete_unnamed_channels", **key.params)
    return Done(deleted)


def _forget_mints(key: ThreadKey, history: History, kept: Collection[Outline]) -> Script[None]:
    """Forget ids that were minted on checkpoints that go, unless the thread could still come before their step.

    Otherwise a step that runs again could mint a second id for the same business action.
    """
    lines = [list(history.line(one)) for one in kept if one.checkpoint_ns == ROOT]
    stay = {one.checkpoint_id for one in kept}
    for row in (yield from all_rows("list_minted", **key.params)):
        if row["checkpoint_id"] not in stay and all(is_behind(line, row["checkpoint_id"]) for line in lines):
            yield from one_row("delete_mint", **key.params, **row)


# --- copy ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Copied:
    """A checkpoint that a try to copy a thread gave its target, for another one where nobody heard of its COMMIT."""

    place: tuple[str, str] | None = None

    def note(self, history: History, theirs: History) -> None:
        """Note what is to be copied: from one that the target does not have, a later try can tell."""
        new = {one.place for one in history.outlines} - {one.place for one in theirs.outlines}
        self.place = min(new, default=None)

    def is_in(self, theirs: History) -> bool:
        """Say whether it was copied."""
        return self.place in {one.place for one in theirs.outlines}


def copy_thread(
    source: ThreadKey, target: ThreadKey, *, known_dead: str | None, tried: Copied
) -> Script[Done | Taken | OtherHistory]:
    """Copy all that was committed of a thread; a run that is at work on it is not disturbed, and not copied."""
    rows: dict[str, Any] = {}
    for key in sorted((source, target), key=lambda key: key.thread_id):  # always the same one first: no dead-lock
        rows[key.thread_id] = yield from threads.at_rest(key, known_dead=known_dead)
    there = rows[target.thread_id]
    if isinstance(there, Taken) and tried.place is None:
        return there
    if there is not None and not isinstance(there, Taken) and there["status"] is not None:
        return OtherHistory()  # of a workflow, begun or not
    history, theirs = (yield from outlines(source)), (yield from outlines(target))
    if tried.is_in(theirs):
        return Done(len(history.outlines))
    if isinstance(there, Taken):
        return there
    if not {one.place for one in theirs.outlines} <= {one.place for one in history.outlines}:
        return OtherHistory()
    if not history.outlines:
        return Done(0)
    tried.note(history, theirs)
    if not (yield from _copy_row(source, target, there)):  # somebody began to run the target since
        tried.place = None
        return (yield from copy_thread(source, target, known_dead=known_dead, tried=tried))
    yield from all_rows("copy_mints", **source.params, target=target.thread_id)
    yield from copy_between(source, target, after=0, before=history.outlines[-1].seq + 1, with_writes=True)
    return Done(len(history.outlines))


def _copy_row(source: ThreadKey, target: ThreadKey, there: Row | None) -> Script[bool]:
    row = yield from one_row("get_thread", **source.params)
    if row is None:
        return True
    copied = {name: row[name] for name in _COPIED} | {"state": state_at_rest(row["parked_on"])}
    seen = -1 if there is None else there["attempt"]
    return (yield from one_row("put_thread_at_rest", **target.params, **copied, seen_attempt=seen)) is not None


def state_at_rest(parked_on: str | None) -> ThreadState:
    """Return the state of a thread that nobody runs."""
    event = ThreadEvent.RELEASED if parked_on is None else ThreadEvent.PARKED
    return advance(THREAD, ThreadState.RUNNING, event)


def copy_between(source: ThreadKey, target: ThreadKey, *, after: int, before: int, with_writes: bool) -> Script[None]:
    """Copy the checkpoints that were committed between two others; what they name goes first.

    So no moment shows one that lacks it, also where a plain graph writes to the source meanwhile.
    """
    between = {**source.params, "target": target.thread_id, "after": after, "before": before}
    yield from all_rows("copy_channels_between", **between)
    if with_writes:
        yield from all_rows("copy_writes_between", **between)
    yield from all_rows("copy_checkpoints_between", **between)
