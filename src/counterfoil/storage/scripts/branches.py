"""The script that opens a branch: a thread of its own that goes on from a checkpoint of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.branches import marked, within
from counterfoil.storage.script import Row, Script, one_row
from counterfoil.storage.scripts import history
from counterfoil.storage.scripts.history import copy_between, state_at_rest
from counterfoil.storage.scripts.threads import ThreadKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from counterfoil.core.history import History, Outline

_INHERITED = ("request_id", "workflow_id", "principal")


@dataclass(frozen=True, slots=True)
class Forked:
    """The branch is there, from now or from before: its thread, its path of names, and where it begins."""

    key: ThreadKey
    branch: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """The thread has no such checkpoint."""


@dataclass(frozen=True, slots=True)
class NameTaken:
    """The branch begins at another checkpoint, or its thread's id is that of a thread which is no branch."""

    key: ThreadKey
    checkpoint_id: str | None


@dataclass(slots=True)
class Begun:
    """Where a try to open a branch let it begin, for another one where nobody heard of its COMMIT."""

    checkpoint_id: str | None = None


def fork(
    source: ThreadKey, *, checkpoint_id: str | None, name: str, tried: Begun
) -> Script[Forked | NoCheckpoint | NameTaken]:
    """Open a branch at a checkpoint, or at the newest; where it is open already, say so.

    The source may be run meanwhile: what the branch begins with was committed before.
    """
    row = yield from one_row("lock_thread", **source.params)
    past = yield from history.outlines(source)
    place = past.find(checkpoint_id)
    branch = _Opening(source, row, name, checkpoint_id or (place.checkpoint_id if place else None))
    there = yield from one_row("get_thread", **branch.key.params)
    if there is not None and there["branched_from"] is not None:
        return branch.judged(there, tried)
    if place is None:
        return NoCheckpoint()
    if (yield from history.outlines(branch.key)).outlines:
        return NameTaken(branch.key, None)
    tried.checkpoint_id = branch.begins_at
    if (yield from one_row("put_branch", **branch.params)) is None:  # somebody was faster, or runs a thread of this id
        return branch.judged((yield from one_row("get_thread", **branch.key.params)), tried)
    yield from _copy_needed(source, branch.key, past, place)
    return branch.forked


@dataclass(frozen=True, slots=True)
class _Opening:
    """A branch that is about to be opened."""

    source: ThreadKey
    row: Row | None
    name: str
    begins_at: str | None

    @property
    def key(self) -> ThreadKey:
        """Return the thread of its own that the branch gets."""
        return ThreadKey(tenant=self.source.tenant, thread_id=marked(self.source.thread_id, self.name))

    @property
    def path(self) -> str:
        """Return the names of the branches that lead here."""
        return within(self.row["branch"] if self.row else None, self.name)

    @property
    def params(self) -> dict[str, Any]:
        """Return the columns of its thread."""
        inherited = {field: self.row[field] if self.row else None for field in _INHERITED}
        plain = (self.row["plain_thread_id"] if self.row else None) or self.source.thread_id
        begins = {"branch": self.path, "branched_from": self.source.thread_id, "branched_at": self.begins_at}
        return {**self.key.params, **inherited, **begins, "plain_thread_id": plain, "state": state_at_rest(None)}

    @property
    def forked(self) -> Forked:
        """Return the branch as it is open now."""
        return Forked(self.key, self.path, self.begins_at or "")

    def judged(self, there: Row | None, tried: Begun) -> Forked | NameTaken:
        """Say whether the thread that is there is this very branch, from here or from where an earlier try began it."""
        at = there["branched_at"] if there else None
        begins = {self.begins_at, tried.checkpoint_id or self.begins_at}
        same = there is not None and there["branched_from"] == self.source.thread_id and at in begins
        return Forked(self.key, self.path, at or "") if same else NameTaken(self.key, at)


def _copy_needed(source: ThreadKey, target: ThreadKey, past: History, place: Outline) -> Script[None]:
    """Copy a checkpoint, the children's state as of then, and what both lean on; not what was written on it later."""
    children = past.children_before(place)
    yield from _copy(source, target, past, past.leaned_on([place, *children]), with_writes=True)
    yield from _copy(source, target, past, children, with_writes=False)
    yield from _copy(source, target, past, [place], with_writes=False)


def _copy(
    source: ThreadKey, target: ThreadKey, past: History, chosen: Collection[Outline], *, with_writes: bool
) -> Script[None]:
    others = [one for one in past.outlines if one not in chosen]
    for after, before in past.gaps(others) if chosen else ():
        yield from copy_between(source, target, after=after, before=before, with_writes=with_writes)
