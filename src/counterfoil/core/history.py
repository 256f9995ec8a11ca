"""What of a thread's history is still needed: the checkpoints that it goes on from, and what their values lean on.

A delta channel is stored as what each step wrote to it and, now and then, as a snapshot. A checkpoint between two
snapshots leans on its ancestors: without them, and without what was written on them, its value would silently be empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

ROOT: Final = ""
"""The namespace of a thread's root graph."""
LOOP: Final = "loop"
"""The source of checkpoints that a run made by finishing a step; forks and updates stay at their parent's place."""
_TASK_MARK: Final = ":"
"""Stands in a namespace before the id of the task that a child graph runs in; one without keeps its state for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A checkpoint of the line that leads to another one, itself included."""

    checkpoint_id: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline(Ancestor):
    """A checkpoint without its contents; `root_id` is the root graph's checkpoint on which a child's was made."""

    seq: int
    checkpoint_ns: str
    parent_id: str | None
    root_id: str | None
    run_id: str | None
    leaning: frozenset[str]

    @property
    def place(self) -> tuple[str, str]:
        """Return what tells it from the thread's other checkpoints."""
        return self.checkpoint_ns, self.checkpoint_id


class History:
    """A thread's checkpoints in the order of their commits."""

    def __init__(self, outlines: Iterable[Outline]) -> None:
        self.outlines = sorted(outlines, key=lambda outline: outline.seq)
        self._by_place = {outline.place: outline for outline in self.outlines}

    def find(self, checkpoint_id: str | None) -> Outline | None:
        """Return one checkpoint of the root graph, or its newest."""
        for outline in reversed(self.outlines):
            if outline.checkpoint_ns == ROOT and checkpoint_id in {None, outline.checkpoint_id}:
                return outline
        return None

    def line(self, outline: Outline) -> Iterator[Outline]:
        """Yield a checkpoint and its ancestors, as far as they are stored."""
        found: Outline | None = outline
        while found is not None:
            yield found
            found = self._by_place.get((found.checkpoint_ns, found.parent_id or ""))

    def newest(self) -> list[Outline]:
        """Return where the thread and its children go on: the newest checkpoint of each namespace.

        A child that ran inside one task can go on only while the root graph stands where that task ran.
        """
        heads = {outline.checkpoint_ns: outline for outline in self.outlines}
        newest = heads.get(ROOT)
        passed = {outline.checkpoint_id for outline in self.outlines if outline.checkpoint_ns == ROOT}
        passed -= {newest.checkpoint_id} if newest is not None else set()
        return [head for head in heads.values() if not (_in_task(head) and head.root_id in passed)]

    def leaned_on(self, heads: Collection[Outline]) -> set[Outline]:
        """Return the ancestors that values of these checkpoints are made of; what was written on them is, too."""
        found: set[Outline] = set()
        for head in heads:
            sought = head.leaning
            for ancestor in islice(self.line(head), 1, None):
                if not sought:
                    break
                found.add(ancestor)
                sought &= ancestor.leaning
        return found

    def children_before(self, outline: Outline) -> list[Outline]:
        """Return where the children that keep their state stood when the root graph had come to this checkpoint."""
        before = {ancestor.checkpoint_id for ancestor in self.line(outline)} - {outline.checkpoint_id}
        heads: dict[str, Outline] = {}
        for child in self.outlines:
            if child.checkpoint_ns == ROOT or _in_task(child):
                continue
            if child.root_id in before if child.root_id is not None else child.seq < outline.seq:
                heads[child.checkpoint_ns] = child
        return list(heads.values())

    def gaps(self, kept: Collection[Outline]) -> Iterator[tuple[int, int]]:
        """Yield the ranges of seq, both ends excluded, in which everything may go."""
        kept_seqs = {outline.seq for outline in kept}
        after = 0
        for stays, run in groupby(self.outlines, key=lambda outline: outline.seq in kept_seqs):
            seqs = [outline.seq for outline in run]
            if not stays:
                yield after, seqs[-1] + 1
            after = seqs[-1]


def _in_task(outline: Outline) -> bool:
    return _TASK_MARK in outline.checkpoint_ns


def is_behind(line: Sequence[Ancestor], checkpoint_id: str) -> bool:
    """Say whether the step that ran on a checkpoint was finished on the line that leads here.

    Then some checkpoint that a run made stands between.
    """
    place = [ancestor.checkpoint_id for ancestor in line]
    if checkpoint_id not in place:
        return False
    return any(ancestor.source == LOOP for ancestor in line[: place.index(checkpoint_id)])
