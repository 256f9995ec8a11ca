"""Scripts that claim, renew and leave threads, and record minted ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.core.entries import Entries, is_poison
from counterfoil.core.history import Ancestor
from counterfoil.core.machine import advance
from counterfoil.core.states import THREAD, WORKFLOW, ThreadEvent, ThreadState, WorkflowEvent, WorkflowStatus
from counterfoil.core.workflows import (
    Ended,
    Free,
    Minted,
    Moved,
    NeedsBranch,
    NewId,
    OtherRequest,
    SameId,
    ServedRun,
    Taken,
    TakesNoInput,
    ThreadDecision,
    ThreadSnapshot,
    decide_mint,
    decide_thread,
    in_a_row,
    oldest_needed,
)
from counterfoil.storage.rows import NEWEST
from counterfoil.storage.script import Row, Script, all_rows, held_row, lone_row, one_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RUNNING = advance(THREAD, ThreadState.IDLE, ThreadEvent.CLAIMED)
DIED = "ProcessDied"
"""What a workflow failed of whose process died; in the place of the class of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadKey:
    """A thread's identity; the reserved empty tenant is for runs without one, where effects are refused."""

    tenant: str
    thread_id: str

    @property
    def params(self) -> dict[str, Any]:
        """Return the key as parameters."""
        return {"tenant": self.tenant, "thread_id": self.thread_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A worker's wish to enter a workflow that it found due at a version, and how often without getting any further."""

    version: int
    most_tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRequest:
    """What a run needs in order to claim a thread; milliseconds."""

    key: ThreadKey
    holder: str
    lease: int
    trusted: dict[str, str | None]
    goes_on: bool
    known_dead: str | None = None
    served: ServedRun | None = None
    entry: Entry | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Return what a claim stores beside what is trusted."""
        served = self.served
        return {
            "holder": self.holder,
            "lease": self.lease,
            "run_id": None if served is None else served.run_id,
            "run_attempt": None if served is None else served.attempt,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The run owns the thread under this attempt; the trusted fields are those that now hold for it.

    A thread that is a branch, or a copy of one, names it, where it begins, and the thread id that keys go on to use.
    """

    attempt: int
    was_parked_on: str | None
    trusted: dict[str, str | None]
    branch: str | None = None
    branched_at: str | None = None
    plain_thread_id: str | None = None
    is_workflow: bool = False
    before: Row | None = None


@dataclass(frozen=True, slots=True)
class Poisoned:
    """The workflow's process died again and again at the same place; it is left to a person now."""

    tries: int


ThreadClaim = Claimed | Taken | OtherRequest | Moved | Ended | TakesNoInput | Poisoned


def claim(request: ThreadRequest) -> Script[ThreadClaim]:
    """Claim a thread before its first node, or say who owns it."""
    if request.entry is None:
        new = yield from lone_row(
            "insert_claimed_thread",
            **request.key.params,
            state=_RUNNING,
            **request.columns,
            **request.trusted,
        )
        if new is not None:
            return _claimed(new, parked_on=None)
    row = yield from one_row("lock_thread", **request.key.params)  # waits for what its owner is just writing
    if row is None:
        return Moved()
    if row["holder"] == request.holder:  # of its own claim, whose COMMIT was on its way still when it was looked up
        return _claimed(row, parked_on=row["parked_on"])
    decision = _decided(request, row)
    match decision:
        case Free():
            return (yield from _take(request, row))
        case _:
            return decision


def at_rest(key: ThreadKey, *, known_dead: str | None) -> Script[Row | Taken | None]:
    """Return a thread's row, or who runs it, or None if it is not managed; nobody begins to while this is open."""
    row = yield from one_row("lock_thread", **key.params)
    if row is None:
        return None
    decision = decide_thread(_snapshot(row), known_dead=known_dead, trusted={}, goes_on=False)
    return decision if isinstance(decision, Taken) else row


def find_claim(request: ThreadRequest) -> Script[ThreadClaim | None]:
    """Look up whether a claim whose COMMIT nobody heard of took effect: then its holder is in the row.

    None says that nobody stands in the way, so the claim did not take effect and may be made again.
    """
    row = yield from one_row("get_thread", **request.key.params)
    if row is None:
        return None
    if row["holder"] == request.holder:
        return _claimed(row, parked_on=row["parked_on"])
    decision = _decided(request, row)
    return decision if isinstance(decision, Taken) else None


def _decided(request: ThreadRequest, row: Row) -> ThreadDecision:
    return decide_thread(
        _snapshot(row),
        known_dead=request.known_dead,
        trusted=request.trusted,
        goes_on=request.goes_on,
        served=request.served,
        expected_version=None if request.entry is None else request.entry.version,
    )


def _take(request: ThreadRequest, row: Row) -> Script[Claimed | Poisoned]:
    status = _status(row)
    entries = Entries(tries=row["tries"], mark=row["mark"])
    if status is not None:
        newest = yield from newest_seq(request.key)
        died = request.entry if status is WorkflowStatus.RUNNING else None
        if died is not None and is_poison(entries, newest, most=died.most_tries):
            return (yield from _leave_to_person(request.key, row))
        entries, status = entries.entered(newest), advance(WORKFLOW, status, WorkflowEvent.CLAIMED)
    kept = row if request.goes_on else {}
    trusted = {name: value if value is not None else kept.get(name) for name, value in request.trusted.items()}
    taken = yield from held_row(
        "take_thread_if_unmoved",
        **request.key.params,
        state=advance(THREAD, ThreadState(row["state"]), ThreadEvent.CLAIMED),
        **request.columns,
        version=row["version"],
        status=status,
        tries=entries.tries,
        mark=entries.mark,
        **trusted,
    )
    return replace(_claimed(taken, parked_on=row["parked_on"]), before=row)


def _leave_to_person(key: ThreadKey, row: Row) -> Script[Poisoned]:
    tries = row["tries"]
    yield from held_row(
        "park_workflow_if_unmoved",
        **key.params,
        version=row["version"],
        state=advance(THREAD, ThreadState.RUNNING, ThreadEvent.RELEASED),
        status=advance(WORKFLOW, WorkflowStatus.RUNNING, WorkflowEvent.TRIES_USED_UP),
        error_class=DIED,
        error_text=f"Its process died {in_a_row(tries)} without getting past the same checkpoint.",
    )
    return Poisoned(tries)


def newest_seq(key: ThreadKey) -> Script[int]:
    """Return where the newest checkpoint of a thread's root graph stands in the order of commits; 0 if it has none."""
    row = yield from one_row("get_newest_seq", **key.params)
    return 0 if row is None else int(row["seq"])


def _status(row: Row) -> WorkflowStatus | None:
    return None if row["status"] is None else WorkflowStatus(row["status"])


def _claimed(row: Row, *, parked_on: str | None) -> Claimed:
    trusted = {name: row[name] for name in ("request_id", "workflow_id", "principal")}
    marks = {name: row[name] for name in ("branch", "branched_at", "plain_thread_id")}
    is_workflow = row["status"] is not None
    return Claimed(attempt=row["attempt"], was_parked_on=parked_on, trusted=trusted, is_workflow=is_workflow, **marks)


def _snapshot(row: Row) -> ThreadSnapshot:
    names = (
        "holder",
        "lease_until",
        "request_id",
        "workflow_id",
        "principal",
        "run_id",
        "run_attempt",
        "version",
        "now",
    )
    known = {name: row[name] for name in names}
    return ThreadSnapshot(state=ThreadState(row["state"]), status=_status(row), **known)


def renew(key: ThreadKey, *, attempt: int, lease: int) -> Script[bool]:
    """Extend a run's claim; say whether it still owns the thread."""
    row = yield from lone_row(
        "renew_thread_if_claimed", **key.params, attempt=attempt, lease=lease, expected_state=_RUNNING
    )
    return row is not None


def leave(key: ThreadKey, *, attempt: int, parked_on: str | None) -> Script[bool]:
    """Give a thread back at the end of a run; False if another run owns it by now."""
    event = ThreadEvent.RELEASED if parked_on is None else ThreadEvent.PARKED
    row = yield from lone_row(
        "leave_thread_if_claimed",
        **key.params,
        attempt=attempt,
        state=advance(THREAD, ThreadState.RUNNING, event),
        parked_on=parked_on,
        expected_state=_RUNNING,
    )
    return row is not None


def advance_version(key: ThreadKey, *, attempt: int) -> Script[bool]:
    """Raise the thread's version inside a checkpoint's transaction; False if this run no longer owns it."""
    row = yield from one_row("advance_thread_if_claimed", **key.params, attempt=attempt, expected_state=_RUNNING)
    return row is not None


def owner_in(parts: Sequence[Row]) -> int | None:
    """Return the attempt that owns a managed thread (0 if none), or None; its row is among a checkpoint's parts."""
    for row in parts:
        if row["part"] == "thread":
            return int(row["seq"]) if row["name"] == _RUNNING else 0
    return None


def is_owned(key: ThreadKey, *, attempt: int) -> Script[bool]:
    """Say whether a run owns its thread still."""
    row = yield from one_row("get_thread", **key.params)
    return row is not None and row["state"] == _RUNNING and row["attempt"] == attempt


def keep_unmanaged(key: ThreadKey) -> Script[None]:
    """Keep others from beginning a thread that has no row until this transaction ends; one they began is seen next."""
    yield from lone_row("share_unmanaged_thread", **key.params)


def owner_kept(key: ThreadKey) -> Script[int | None]:
    """Return the attempt that owns a managed thread (0 if none), or None; it stays so until this transaction ends."""
    row = yield from one_row("share_thread", **key.params)
    if row is None:
        return None
    return int(row["attempt"]) if row["state"] == _RUNNING else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The running of one task: the graph it is in, the checkpoint that it runs on, and the root graph's one.

    Which way a run has come is read from the root graph: a child's own history begins anew whenever its parent goes
    back.
    """

    checkpoint_ns: str
    checkpoint_id: str
    root_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class NotStored:
    """The checkpoint on which a step runs is not stored, or not yet."""


def mint(key: ThreadKey, *, name: str, step: Step, make: Callable[[], str]) -> Script[str | NeedsBranch | NotStored]:
    """Mint an id for this step, or return the one that it minted before it was interrupted."""
    yield from alone(key)  # a run that lost its thread may mint beside the one that has it
    here = yield from one_row(
        "get_checkpoint_seq", **key.params, checkpoint_ns=step.checkpoint_ns, checkpoint_id=step.checkpoint_id
    )
    rows = yield from all_rows("list_mints", **key.params, name=name)
    minted = [Minted(row["checkpoint_id"], row["task_id"], row["minted_id"], row["seq"]) for row in rows]
    oldest = oldest_needed(minted, checkpoint_id=step.root_id)
    back = NEWEST if oldest is None else oldest
    line = yield from all_rows("list_lineage", **key.params, checkpoint_ns="", checkpoint_id=step.root_id, oldest=back)
    if here is None or not line:
        return NotStored()
    decision = decide_mint(
        minted,
        [Ancestor(checkpoint_id=row["checkpoint_id"], source=row["source"]) for row in line],
        checkpoint_id=step.root_id,
        task_id=step.task_id,
    )
    match decision:
        case SameId(minted_id):
            return minted_id
        case NeedsBranch():
            return decision
        case NewId():
            return (yield from _minted(key, name, step, make()))


def alone(key: ThreadKey) -> Script[None]:
    """Keep others from a thread until this transaction ends, be it managed or not."""
    if (yield from one_row("lock_thread", **key.params)) is None:
        yield from lone_row("lock_unmanaged_thread", **key.params)
        yield from one_row("lock_thread", **key.params)  # of a run that has claimed it since


def _minted(key: ThreadKey, name: str, step: Step, minted_id: str) -> Script[str]:
    place = {"checkpoint_ns": step.checkpoint_ns, "checkpoint_id": step.root_id, "task_id": step.task_id}
    yield from one_row("insert_mint", **key.params, **place, name=name, minted_id=minted_id)
    return minted_id


def is_minted_here(key: ThreadKey, *, minted_id: str, step: Step) -> Script[bool]:
    """Say whether an id was minted in this very step."""
    row = yield from one_row(
        "get_mint", **key.params, minted_id=minted_id, checkpoint_id=step.root_id, task_id=step.task_id
    )
    return row is not None
