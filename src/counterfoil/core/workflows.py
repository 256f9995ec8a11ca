"""Who may advance a thread: decisions over its row, and which place an id was minted at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.core.history import Ancestor, is_behind
from counterfoil.core.leases import is_over
from counterfoil.core.states import ENDED, ThreadState, WorkflowStatus

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot:
    """A thread's row as far as a claim needs it, with the database's time of reading."""

    state: ThreadState
    holder: str | None
    lease_until: int
    request_id: str | None
    workflow_id: str | None
    principal: str | None
    run_id: str | None
    run_attempt: int | None
    version: int
    status: WorkflowStatus | None
    now: int


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A run of LangGraph's own server, and which attempt at it this is."""

    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Free:
    """The thread may be claimed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another run owns the thread until `until`."""

    holder: str
    until: int


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """A run that goes on would change the trusted field `field` under the operations it already began."""

    field: str


@dataclass(frozen=True, slots=True)
class Moved:
    """The workflow went on, or was forgotten, since whoever wants to enter it read its row."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The workflow has come to its end, and goes on no more."""

    status: WorkflowStatus


@dataclass(frozen=True, slots=True)
class TakesNoInput:
    """The thread is a workflow: it was started with its input, and a worker enters it first."""


ThreadDecision = Free | Taken | OtherRequest | Moved | Ended | TakesNoInput

_KEPT = ("request_id", "workflow_id", "principal")


def in_a_row(tries: int) -> str:
    """Say how often something went wrong without anything between."""
    return "once" if tries == 1 else f"{tries} times in a row"


def decide_thread(
    row: ThreadSnapshot,
    *,
    known_dead: str | None,
    trusted: dict[str, str | None],
    goes_on: bool,
    served: ServedRun | None = None,
    expected_version: int | None = None,
) -> ThreadDecision:
    """Decide whether a run may claim a thread.

    Args:
        row: The thread.
        known_dead: A holder whose process is certainly gone.
        trusted: What the run gives for the trusted fields; None inherits.
        goes_on: Whether the run continues what is there, rather than bringing new input: then its trusted fields may
            not differ, or a re-entered node would perform its operations under other ids.
        served: The run of a server that wants the thread; when that starts another attempt, it holds the last for dead.
        expected_version: The version at which a worker found the workflow due; it would do what is right for that.
    """
    if row.status in ENDED:
        return Ended(row.status)
    if expected_version not in {None, row.version}:
        return Moved()
    held = row.state is ThreadState.RUNNING and not is_over(row.lease_until, row.now)
    if held and row.holder != known_dead and not _is_next_attempt(row, served):
        return Taken(row.holder or "", row.lease_until)
    by_hand = row.status is not None and expected_version is None
    if by_hand and (not goes_on or row.status is WorkflowStatus.ACCEPTED):
        return TakesNoInput()
    for name in _KEPT if goes_on else ():
        given, kept = trusted.get(name), getattr(row, name)
        if given is not None and kept is not None and given != kept:
            return OtherRequest(name)
    return Free()


def _is_next_attempt(row: ThreadSnapshot, served: ServedRun | None) -> bool:
    if served is None or row.run_attempt is None:
        return False
    return row.run_id == served.run_id and row.run_attempt < served.attempt


@dataclass(frozen=True, slots=True)
class Minted:
    """An id and where it was minted; `seq` is where that checkpoint stands in the order of commits, if it is there."""

    checkpoint_id: str
    task_id: str
    minted_id: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class SameId:
    """The very step minted it before it was interrupted: the id stays."""

    minted_id: str


@dataclass(frozen=True, slots=True)
class NewId:
    """Nothing was minted here: a new id is right."""


@dataclass(frozen=True, slots=True)
class NeedsBranch:
    """An id was minted in steps that this run has gone back behind."""


MintDecision = SameId | NewId | NeedsBranch


def oldest_needed(minted: Sequence[Minted], *, checkpoint_id: str) -> int | None:
    """Return how far back `decide_mint` looks at the line of a checkpoint; None if it only asks whether there is one.

    That is as far as the oldest mint elsewhere. One whose checkpoint is gone is on no line.
    """
    elsewhere = [mint.seq for mint in minted if mint.checkpoint_id != checkpoint_id]
    found = [seq for seq in elsewhere if seq is not None]
    return min(found) if found and len(found) == len(elsewhere) else None


def decide_mint(
    minted: Sequence[Minted], line: Sequence[Ancestor], *, checkpoint_id: str, task_id: str
) -> MintDecision:
    """Decide whether a step may mint an id of a name that may have been minted before.

    An earlier one is fine if its step was finished on the line that leads here (a loop, the next turn). Otherwise this
    run has gone back before it.
    """
    for mint in minted:
        if (mint.checkpoint_id, mint.task_id) == (checkpoint_id, task_id):
            return SameId(mint.minted_id)
    for mint in minted:
        if mint.checkpoint_id != checkpoint_id and not is_behind(line, mint.checkpoint_id):
            return NeedsBranch()
    return NewId()
