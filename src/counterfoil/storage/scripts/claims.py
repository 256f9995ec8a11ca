"""Scripts that look at an operation and claim it: the caller that holds the claim may run the effect once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.approvals import is_open, root_of, successor_of
from counterfoil.core.effects import (
    AlreadySettled,
    AwaitsApproval,
    ClaimDecision,
    Closed,
    MayClaim,
    NeedsApproval,
    Unsettled,
    Wanted,
    decide_claim,
)
from counterfoil.core.machine import advance
from counterfoil.core.states import (
    OPERATION,
    CaseKind,
    CaseState,
    OperationEvent,
    OperationState,
    Sender,
)
from counterfoil.core.unknown import (
    Resend,
    resend_plan,
)
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, held_row, lone_row, one_row, peeked_row
from counterfoil.storage.scripts import gates, grants
from counterfoil.storage.scripts.moves import (
    DIED,
    RAN_OUT,
    key_params,
    mark_lost,
    settle_case,
)

if TYPE_CHECKING:
    from counterfoil.core.approvals import Gate
    from counterfoil.model import OperationKey, Origin, ProviderFacts, Trusted


CLAIMED = advance(OPERATION, OperationState.PENDING, OperationEvent.CLAIMED)
_CLAIMED, _CALLER = CLAIMED.value, Sender.CALLER.value  # to read the value of a member takes a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything a claim needs to know of the operation that is asked for."""

    key: OperationKey
    effect: str
    effect_version: int
    facts: ProviderFacts
    digests: codec.Digests
    payload: bytes
    holder: str
    trusted: Trusted
    origin: Origin
    known_dead: str | None = None
    gate: Gate | None = None
    """Whether it may be sent only with a decision."""
    strict: bool = False
    """Whether it must have been granted beforehand."""
    asker: str = ""
    """Which step asks for it, where one does: who asks again from elsewhere asks anew what a person has edited."""

    @property
    def id(self) -> dict[str, Any]:
        """Return the key as parameters."""
        return {"tenant": self.key.tenant, "operation_id": self.key.operation_id}

    @property
    def wanted(self) -> Wanted:
        """Return what decisions compare the row with."""
        return Wanted(
            effect=self.effect,
            effect_version=self.effect_version,
            identity=self.digests.identity,
            known_dead=self.known_dead,
            gate=self.gate,
        )

    @property
    def is_free(self) -> bool:
        """Say whether it may be sent without that anybody permitted it."""
        return self.gate is None and not self.strict

    @property
    def asking(self) -> gates.Asking:
        """Return for whom a decision is asked."""
        return gates.Asking(asker=self.asker, requested_by=self.trusted.principal)

    def columns(self) -> dict[str, Any]:
        """Return the columns that every new operation starts with."""
        return {
            "tenant": self.key.tenant,
            "operation_id": self.key.operation_id,
            "effect": self.effect,
            "effect_version": self.effect_version,
            "sender": _CALLER,
            "identity_digest": self.digests.identity,
            "content_digest": self.digests.content,
            "field_digests": codec.pack_fields(self.digests),
            "provider": rows.facts_text(self.facts),
            "request_id": self.trusted.request_id,
            "workflow_id": self.trusted.workflow_id,
            "principal": self.trusted.principal,
            "thread_id": self.origin.thread_id,
            "checkpoint_ns": self.origin.checkpoint_ns,
            "checkpoint_id": self.origin.checkpoint_id,
            "node": self.origin.node,
            "task_id": self.origin.task_id,
            "run_id": self.origin.run_id,
            "trace_id": self.origin.trace_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The caller holds the claim and may run the effect once, with the stored payload."""

    attempt: int
    fence: int
    claimed_at: int
    deadline: int
    payload: bytes
    content: bytes
    was_asked: bool = False
    """Whether a person permitted it."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another caller moved the row first, or time did; read again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The claim was not granted: why, the row it was judged by, and its open case if the outcome is unknown."""

    decision: ClaimDecision
    row: Row
    case: Row | None = None
    approval: Row | None = None
    follower: Row | None = None
    """What was asked for this asker about the operation that follows it, where a person has edited it."""

    @property
    def was_edited(self) -> bool:
        """Say whether a person has written something else in its place."""
        return self.approval is not None and self.approval["followed_by"] is not None


@dataclass(frozen=True, slots=True)
class NoRow:
    """Nobody has asked for this operation yet."""


ClaimResult = Granted | LostRace | Seen


def look(request: Request) -> Script[Seen | NoRow]:
    """Read what is known, changing nothing."""
    row = yield from one_row("look_at_operation", **request.id)
    if row is None:
        return NoRow()
    return (yield from judge(request, row))


def look_or_claim(request: Request) -> Script[Granted | LostRace | Seen | NoRow]:
    """Claim an operation that nobody has asked for yet, or say what is known: both in one statement where there is one.

    A row that takes more than its receipt to answer from is left to be read again.
    """
    row = yield from lone_row("look_or_claim_operation", **_claimed_by(request))
    if row is None:
        return (yield from look(request))
    if row["claimed"]:
        return begun(request, row["now"])
    decision = decide_claim(rows.snapshot(row, request.facts), request.wanted)
    return Seen(decision, row) if isinstance(decision, AlreadySettled) else LostRace()


def look_then_claim(request: Request) -> Script[Granted | LostRace | Seen]:
    """Do the same in two statements: peek first, so that an answer from a receipt waits for nobody who writes.

    A row that takes more than itself to answer from is left to be read again.
    """
    row = yield from peeked_row("look_at_operation", **request.id)
    if row is None:
        new = yield from lone_row("insert_claimed_operation", **_claimed_by(request))
        return LostRace() if new is None else begun(request, new["now"])
    decision = decide_claim(rows.snapshot(row, request.facts), request.wanted)
    takes_more = isinstance(decision, AwaitsApproval | Closed) or row["state"] == OperationState.UNKNOWN
    return LostRace() if takes_more else Seen(decision, row)


def judge(request: Request, row: Row) -> Script[Seen]:
    """Say what a row means for the caller, with what is needed to answer from it."""
    decision = decide_claim(rows.snapshot(row, request.facts), request.wanted)
    if isinstance(decision, AlreadySettled):
        return Seen(decision, row)
    if isinstance(decision, AwaitsApproval | Closed):
        return (yield from _with_approval(request, decision, row))
    return Seen(decision, row, (yield from unknown_case(request.key, row)))


def _with_approval(request: Request, decision: ClaimDecision, row: Row) -> Script[Seen]:
    """Read what was asked last about an operation, and if it was edited, what follows it for this asker."""
    if row["approved_until"] is None:
        return Seen(decision, row)
    last = yield from gates.newest(request.key)
    if last is None or last["followed_by"] is None:
        return Seen(decision, row, approval=last)
    asked_by = {"tenant": request.key.tenant, "root_id": last["root_id"], "asker": request.asker}
    newest = yield from one_row("get_approval_of_asker", **asked_by)
    is_follower = newest is not None and newest["seq"] > last["seq"]
    return Seen(decision, row, approval=last, follower=newest if is_follower else None)


def ask_anew(request: Request) -> Script[Seen]:
    """Ask about an operation that a person has edited for somebody else: as one of its own, which follows it."""
    yield from gates.lock_intent(request.key)
    row = yield from held_row("lock_operation", **request.id)
    seen = yield from judge(request, row)
    if seen.follower is not None or seen.approval is None:
        return seen
    key, gate = request.key, request.gate or gates.stored_gate(seen.approval)
    number = yield from gates.next_number(key)
    following = replace(request, key=replace(key, operation_id=successor_of(root_of(key.operation_id), number)))
    yield from ask(replace(following, gate=gate), follows=key.operation_id)
    return (yield from judge(request, row))


def existing_operation(key: OperationKey) -> Script[Row]:
    """Read an operation that is known to be there."""
    return (yield from held_row("get_operation", **key_params(key)))


def unknown_case(key: OperationKey, row: Row) -> Script[Row | None]:
    """Read the open case of an operation whose outcome is unknown."""
    if row["state"] != OperationState.UNKNOWN:
        return None
    kind = CaseKind.UNKNOWN_OUTCOME
    return (yield from one_row("get_open_case", **key_params(key), kind=kind, expected_state=CaseState.OPEN))


def claim(request: Request) -> Script[ClaimResult]:
    """Take the claim, or say what stands in the way; a lease that ran out turns into an unknown outcome here."""
    if (refused := (yield from grants.refusal(request))) is not None:
        return Seen(refused, {})
    if request.gate is not None:
        return (yield from ask(request)) or (yield from _claim_again(request))
    new = yield from lone_row("insert_claimed_operation", **_claimed_by(request))
    if new is not None:
        return begun(request, new["now"])
    return (yield from _claim_again(request))


def ask(request: Request, *, follows: str | None = None) -> Script[Seen | None]:
    """Ask whether an operation may be sent that nobody has asked for yet; None if it is there."""
    if request.gate is None:
        raise LookupError(f"operation {request.key} needs no decision")
    new = yield from one_row("insert_intent", **awaiting_columns(request, request.gate))
    if new is None:
        return None
    row = yield from held_row("lock_operation", **request.id)
    asking = replace(request.asking, follows=follows)
    approval = yield from gates.ask(request.key, row, request.gate, asking)
    return Seen(AwaitsApproval(is_over=False), row, approval=approval)


def ask_or_hold(request: Request) -> Script[Seen]:
    """Ask for a decision that is needed, claiming nothing."""
    if request.gate is not None and (new := (yield from ask(request))) is not None:
        return new
    row = yield from held_row("lock_operation", **request.id)
    return (yield from hold(request, (yield from judge(request, row))))


def awaiting_columns(request: Request, gate: Gate) -> dict[str, Any]:
    """Return the columns of a caller's new operation that waits for a decision."""
    return {
        **request.columns(),
        **gates.held_columns(gate),
        "state": gates.AWAITING.value,
        "payload": request.payload,
        "stream": None,
        "due_at": 0,
        "delay": 0,
        "time_to_live": None,
        "max_attempts": None,
        "time_limit": request.facts.time_limit,
        "lease": request.facts.lease,
    }


def _claim_again(request: Request) -> Script[ClaimResult]:
    row = yield from one_row("lock_operation", **request.id)
    if row is None:
        return LostRace()
    if _is_held_by(request, row):
        return granted_by(row)
    seen = yield from judge(request, row)
    match seen:
        case Seen(MayClaim(), row):
            return (yield from take(request, row, OperationEvent.CLAIMED))
        case Seen(Unsettled(expired=True), row):
            return (yield from _expire(request, row))
        case Seen(Unsettled(plan=Resend()), row):
            return (yield from _resend(request, row))
        case _:
            return (yield from hold(request, seen))


def hold(request: Request, seen: Seen) -> Script[Seen]:
    """Ask for a decision that is needed, or end the waiting for one whose time is over; else change nothing."""
    match seen:
        case Seen(NeedsApproval(), row):
            gate = request.gate or gates.stored_gate((yield from held_row("get_newest_approval", **request.id)))
            return (yield from judge(request, (yield from gates.ask_again(request.key, row, gate, request.asking))))
        case Seen(AwaitsApproval(is_over=True), row):
            return (yield from judge(request, (yield from gates.expire(request.key, row))))
        case _:
            return seen


def _claimed_by(request: Request) -> dict[str, Any]:
    """Return the columns of a new operation that its caller claims at once."""
    columns = request.columns()
    columns["state"] = _CLAIMED
    columns["payload"] = request.payload
    columns["holder"] = request.holder
    columns["lease"] = request.facts.lease
    columns["time_limit"] = request.facts.time_limit
    return columns


def find_claim(request: Request) -> Script[Granted | Seen | NoRow]:
    """Look up whether a claim whose COMMIT nobody heard of took effect: then its holder is in the row."""
    row = yield from one_row("get_operation", **request.id)
    if row is None:
        return NoRow()
    if _is_held_by(request, row):
        return granted_by(row)
    return (yield from judge(request, row))


def _is_held_by(request: Request, row: Row) -> bool:
    """Say whether this entry's own claim is in the row: its COMMIT was on its way still when it was looked up."""
    return bool(row["holder"] == request.holder and row["state"] == OperationState.IN_FLIGHT)


def begun(request: Request, now: int) -> Granted:
    """Return the claim of an operation that began at this moment."""
    return Granted(
        attempt=1,
        fence=1,
        claimed_at=now,
        deadline=now + request.facts.time_limit,
        payload=request.payload,
        content=request.digests.content,
    )


def granted_by(row: Row) -> Granted:
    """Return the claim that a row stands for."""
    return Granted(
        attempt=row["attempt"],
        fence=row["fence"],
        claimed_at=row["claimed_at"],
        deadline=row["attempt_deadline"],
        payload=row["payload"],
        content=row["content_digest"],
        was_asked=row["approved_until"] is not None,
    )


def take(request: Request, row: Row, *events: OperationEvent) -> Script[Granted | LostRace]:
    """Claim an operation whose row is locked for its next attempt, unless its decision ran out meanwhile."""
    state = OperationState(row["state"])
    for event in events:
        state = advance(OPERATION, state, event)
    taken = yield from one_row(
        "take_operation_if_unmoved",
        **request.id,
        state=state,
        version=row["version"],
        holder=request.holder,
        lease=request.facts.lease,
        time_limit=request.facts.time_limit,
    )
    if taken is None:
        return LostRace()
    yield from gates.spend(request.key, taken)
    return granted_by({**taken, "content_digest": row["content_digest"]})


def _expire(request: Request, row: Row) -> Script[ClaimResult]:
    """Move a claim whose lease ran out to `unknown`, then go on by what may be done with it."""
    moved = yield from mark_lost(request.key, row, why=DIED if row["holder"] == request.known_dead else RAN_OUT)
    seen = yield from judge(request, moved)
    match seen:
        case Seen(Unsettled(plan=Resend()), _):
            return (yield from _resend(request, moved))
        case _:
            return seen


def claim_resend(request: Request, version: int) -> Script[Granted | LostRace]:
    """Claim another attempt under the provider's key, after a look-up that settled nothing."""
    row = yield from one_row("lock_operation", **request.id)
    if row is not None and _is_held_by(request, row):
        return granted_by(row)
    if row is None or row["version"] != version:
        return LostRace()
    seen = rows.snapshot(row, request.facts)
    permitted = is_open(seen.approved_until, now=seen.now, gated=request.gate is not None)
    if not permitted or resend_plan(seen.facts, seen.times) is None:
        return LostRace()
    return (yield from _resend(request, row))


def _resend(request: Request, row: Row) -> Script[Granted | LostRace]:
    taken = yield from take(request, row, OperationEvent.RESEND_ALLOWED, OperationEvent.CLAIMED)
    if isinstance(taken, Granted):
        yield from settle_case(request.key, CaseKind.UNKNOWN_OUTCOME)
    return taken
