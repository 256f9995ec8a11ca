"""Whether an operation may be sent: what a decision permits, and what a person may decide."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from counterfoil.core.machine import legal
from counterfoil.core.states import (
    APPROVAL,
    OPERATION,
    ApprovalEvent,
    ApprovalState,
    OperationEvent,
    OperationState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_EDITED: Final = re.compile(r"~edit-[0-9]+\Z")
"""How an operation is marked that follows an edited one; no plain id can spell it, since templates escape the `~`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An operation is not sent without a decision; how long one is waited for, and how long it holds, in milliseconds.

    `needs_another` says that whoever edits an operation is not the one to approve it.
    """

    decide_within: int
    valid_for: int
    needs_another: bool = False


def is_open(approved_until: int | None, *, now: int, gated: bool) -> bool:
    """Say whether the gate lets an operation through; `approved_until` is None where nobody ever asked."""
    if approved_until is None:
        return not gated
    return now < approved_until


def root_of(operation_id: str) -> str:
    """Return the id of the operation that was asked for first, before anybody edited it."""
    return _EDITED.sub("", operation_id)


def successor_of(root: str, number: int) -> str:
    """Return the id of the operation that follows as the n-th."""
    return f"{root}~edit-{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Who wrote an operation, if a person did, and which one it follows."""

    by: str | None
    follows: str | None


def editors_of(operation_id: str, written: Mapping[str, Written]) -> frozenset[str]:
    """Return who wrote an operation, or one of those that lead to it."""
    editors: set[str] = set()
    last: str | None = operation_id
    while last is not None and (one := written.get(last)) is not None:
        if one.by is not None:
            editors.add(one.by)
        last = one.follows
    return frozenset(editors)


# --- what people decide ----------------------------------------------------------------------------------------------


class Ruling(StrEnum):
    """What a person decides about an approval."""

    APPROVE = "approve"
    REJECT = "reject"
    EDIT = "edit"
    CANCEL = "cancel"


EVENTS: Final = {
    Ruling.APPROVE: ApprovalEvent.APPROVED,
    Ruling.REJECT: ApprovalEvent.REJECTED,
    Ruling.EDIT: ApprovalEvent.EDITED,
    Ruling.CANCEL: ApprovalEvent.CANCELLED,
}
MOVES: Final = {
    Ruling.APPROVE: OperationEvent.APPROVED,
    Ruling.REJECT: OperationEvent.REJECTED,
    Ruling.EDIT: OperationEvent.CANCELLED,
    Ruling.CANCEL: OperationEvent.CANCELLED,
}
"""What a decision is to the operation that it is about."""
ENDS: Final = {
    Ruling.APPROVE: ApprovalState.APPROVED,
    Ruling.REJECT: ApprovalState.REJECTED,
    Ruling.EDIT: ApprovalState.EDITED,
    Ruling.CANCEL: ApprovalState.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An approval as a decision meets it, with its operation; `barred` are the canonical names that may not decide."""

    state: ApprovalState
    operation: OperationState
    decide_by: int
    is_spent: bool
    barred: frozenset[str]
    now: int


@dataclass(frozen=True, slots=True)
class MayDecide:
    """Nothing is in the way."""


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The same was decided before."""


@dataclass(frozen=True, slots=True)
class DecidedOtherwise:
    """Something else was decided before, or it is too late for this."""


@dataclass(frozen=True, slots=True)
class TimeOver:
    """Nobody decided in time, and that has yet to be recorded."""


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """Whoever asked for it, or wrote it, cannot be the one to permit it."""


DecisionAnswer = MayDecide | AlreadyApplied | DecidedOtherwise | TimeOver | OwnRequest


def decide_ruling(question: Question, ruling: Ruling, *, by: str) -> DecisionAnswer:
    """Decide whether a person may decide this; `by` is a canonical principal.

    Who may not decide learns nothing of what was decided: that comes first. An edit is never the same as another one.
    """
    if ruling is not Ruling.CANCEL and by in question.barred:
        return OwnRequest()
    if question.state is ENDS[ruling] and ruling is not Ruling.EDIT:
        return AlreadyApplied()
    if EVENTS[ruling] not in legal(APPROVAL, question.state) or question.is_spent:
        return DecidedOtherwise()
    if MOVES[ruling] not in legal(OPERATION, question.operation):
        return DecidedOtherwise()
    if question.state is ApprovalState.PENDING and question.decide_by <= question.now:
        return TimeOver()
    return MayDecide()
