"""Scripts by which people hold intents back and let them go: pauses, dead letters that are tried again, cancelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.core.outbox import EVENTS, MAX_ATTEMPTS, Act, ActDecision, Permitted, decide_act
from counterfoil.core.states import (
    ApprovalEvent,
    CaseKind,
    EvidenceKind,
    OperationState,
    Verdict,
)
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts import gates
from counterfoil.storage.scripts.audit import note
from counterfoil.storage.scripts.moves import keep, key_params, standing
from counterfoil.storage.scripts.reviews import NoOperation, Resolved, Ruling, case_about, judge

if TYPE_CHECKING:
    from counterfoil.core.access import Actor
    from counterfoil.model import OperationKey
    from counterfoil.shown import Pause

VERDICTS = {Act.REQUEUE: Verdict.DID_NOT_HAPPEN_RETRY, Act.SKIP: Verdict.DID_NOT_HAPPEN_CLOSE}
"""The acts that are verdicts on a dead letter's case."""


# --- pauses ----------------------------------------------------------------------------------------------------------


def pause(tenant: str, effect: str, stream: str, *, by: Actor, reason: str) -> Script[Pause]:
    """Hold intents back: of a tenant, an effect, a stream; an empty name stands for any."""
    named = {"tenant": tenant, "effect": effect, "stream": stream}
    there = yield from one_row("get_pause", **named)
    row = yield from held_row("put_pause", **named, paused_by=by.shown, reason=reason)
    before = None if there is None else PAUSED
    yield from note(by, Deed.PAUSE, _held(effect, stream), tenant=tenant, reason=reason, before=before, after=PAUSED)
    return rows.pause(row)


def find_pause(tenant: str, effect: str, stream: str, *, by: Actor, reason: str) -> Script[Pause | None]:
    """Say whether this very pause is there: its COMMIT took effect although nobody heard of it."""
    row = yield from one_row("get_pause", tenant=tenant, effect=effect, stream=stream)
    same = row is not None and (row["paused_by"], row["reason"]) == (by.shown, reason)
    return rows.pause(row) if row is not None and same else None


@dataclass(slots=True)
class Lifting:
    """The pause that a try has lifted, whose COMMIT may not have been heard of."""

    pause: Pause | None = None


def resume(tenant: str, effect: str, stream: str, *, by: Actor, reason: str, tried: Lifting) -> Script[Pause | None]:
    """Let intents go again; None if nothing of this name was held back."""
    row = yield from one_row("delete_pause", tenant=tenant, effect=effect, stream=stream)
    if row is None:
        return None
    yield from note(by, Deed.RESUME, _held(effect, stream), tenant=tenant, reason=reason, before=PAUSED)
    tried.pause = rows.pause(row)
    return tried.pause


PAUSED = "paused"


def _held(effect: str, stream: str) -> Subject:
    """Name what is paused; its tenant stands beside it."""
    named = [f"{what} {name}" for what, name in (("effect", effect), ("stream", stream)) if name]
    return Subject(Kind.PAUSE, ", ".join(named) or "everything")


def pauses(tenant: str | None) -> Script[tuple[Pause, ...]]:
    """Read what is held back: of a tenant, or of all."""
    found = [rows.pause(row) for row in (yield from all_rows("list_pauses"))]
    return tuple(one for one in found if tenant is None or one.tenant in {None, tenant})


# --- acts on one intent ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person does with an intent, ready to be stored; `evidence` is encoded and differs from act to act."""

    act: Act
    by: Actor
    reason: str
    evidence: bytes
    more: int = MAX_ATTEMPTS
    expect_version: int | None = None

    @property
    def told(self) -> str:
        """Return what its evidence says in one line."""
        return f"{self.act}: {self.reason}" if self.reason else str(self.act)

    def ruling(self, version: int) -> Ruling:
        """Return it as the verdict that it is on a dead letter's case at this version."""
        return Ruling(
            verdict=VERDICTS[self.act],
            by=self.by,
            reason=self.reason,
            expect_version=version,
            evidence=self.evidence,
            more=self.more,
        )


@dataclass(frozen=True, slots=True)
class Done:
    """The act is recorded; the operation after it."""

    row: Row


@dataclass(frozen=True, slots=True)
class Hindered:
    """The act cannot be done; why (None: the operation moved since it was seen), and the last word of a person."""

    why: ActDecision | None
    row: Row
    last: Row | None


Answer = Done | NoOperation | Hindered


def act(key: OperationKey, wish: Wish) -> Script[Answer]:
    """Do with an intent what a person wants, if its state allows it; its row is locked before all others of it."""
    row = yield from one_row("lock_operation", **key_params(key))
    if row is None:
        return NoOperation()
    decision = decide_act(wish.act, (yield from standing(key, row)))
    if wish.expect_version not in {None, row["version"]}:
        return Hindered(None, row, (yield from _last_word(key)))
    if not isinstance(decision, Permitted):
        return Hindered(decision, row, (yield from _last_word(key)))
    after = yield from _do(key, row, wish)
    yield from note(
        wish.by,
        Deed(wish.act),
        Subject(Kind.OPERATION, key.operation_id),
        tenant=key.tenant,
        reason=wish.reason,
        before=row["state"],
        after=after["state"],
        request_id=row["request_id"],
    )
    return Done(after)


def find_act(key: OperationKey, wish: Wish) -> Script[Done | None]:
    """Say whether this very act is recorded: its COMMIT took effect although nobody heard of it."""
    kept = yield from all_rows("list_evidence", **key_params(key))
    row = yield from one_row("get_operation", **key_params(key))
    return Done(row) if row is not None and any(one["body"] == wish.evidence for one in kept) else None


def _do(key: OperationKey, row: Row, wish: Wish) -> Script[Row]:
    match wish.act:
        case Act.REQUEUE | Act.SKIP:
            return (yield from _judge_dead_letter(key, row, wish))
        case Act.CANCEL:
            return (yield from _cancel(key, row, wish))
        case Act.RETRY:
            return (yield from _hasten(key, row, wish))
        case _:
            assert_never(wish.act)


def _judge_dead_letter(key: OperationKey, row: Row, wish: Wish) -> Script[Row]:
    case = yield from case_about(key, row, CaseKind.DEAD_LETTER)
    answer = yield from judge(key, case, row, wish.ruling(case["version"]), EVENTS[wish.act], lost_first=False)
    if not isinstance(answer, Resolved):
        raise LookupError(f"the case of operation {key} moved inside one transaction")  # noqa: TRY004 - of no caller
    return answer.operation


def _cancel(key: OperationKey, row: Row, wish: Wish) -> Script[Row]:
    yield from _keep(key, row, wish)
    yield from gates.end_unused(key, ApprovalEvent.CANCELLED, by=wish.by.shown, reason=wish.reason)
    why = f"cancelled by {wish.by.shown}: {wish.reason}"
    return (yield from gates.close(key, row, EVENTS[wish.act], why=why))


def _hasten(key: OperationKey, row: Row, wish: Wish) -> Script[Row]:
    yield from _keep(key, row, wish)
    guard = {"version": row["version"], "expected_state": OperationState.PENDING}
    return (yield from held_row("hasten_intent_if_unmoved", **key_params(key), **guard))


def _keep(key: OperationKey, row: Row, wish: Wish) -> Script[None]:
    yield from keep(key, row["attempt"], EvidenceKind.VERDICT, wish.told, body=wish.evidence, by=wish.by.shown)


def _last_word(key: OperationKey) -> Script[Row | None]:
    """Read what a person said last of an operation."""
    kept = yield from all_rows("list_evidence", **key_params(key))
    return next((one for one in reversed(kept) if one["kind"] == EvidenceKind.VERDICT), None)
