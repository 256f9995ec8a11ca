"""Scripts that look at an operation and claim it: the caller that holds the claim may run the effect once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil import codec
from counterfoil.core.effects import (
    AlreadySettled,
    ClaimDecision,
    MayClaim,
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
from counterfoil.storage.script import Row, Script, held_row, lone_row, one_row
from counterfoil.storage.scripts.moves import (
    DIED,
    RAN_OUT,
    key_params,
    mark_lost,
    settle_case,
)

if TYPE_CHECKING:
    from counterfoil.model import OperationKey, Origin, ProviderFacts, Trusted


CLAIMED = advance(OPERATION, OperationState.PENDING, OperationEvent.CLAIMED)


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
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns that every new operation starts with."""
        return {
            **self.id,
            "effect": self.effect,
            "effect_version": self.effect_version,
            "sender": Sender.CALLER.value,
            "identity_digest": self.digests.identity,
            "content_digest": self.digests.content,
            "field_digests": codec.pack_fields(self.digests),
            "provider": rows.facts_text(self.facts),
            **rows.trusted_columns(self.trusted),
            **rows.origin_columns(self.origin),
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


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another caller moved the row first; read again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The claim was not granted: why, the row it was judged by, and its open case if the outcome is unknown."""

    decision: ClaimDecision
    row: Row
    case: Row | None = None


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
        return granted_by(row)
    decision = decide_claim(rows.snapshot(row, request.facts), request.wanted)
    return Seen(decision, row) if isinstance(decision, AlreadySettled) else LostRace()


def judge(request: Request, row: Row) -> Script[Seen]:
    """Say what a row means for the caller, with what is needed to answer from it."""
    decision = decide_claim(rows.snapshot(row, request.facts), request.wanted)
    if isinstance(decision, AlreadySettled):
        return Seen(decision, row)
    return Seen(decision, row, (yield from unknown_case(request.key, row)))


def unknown_case(key: OperationKey, row: Row) -> Script[Row | None]:
    """Read the open case of an operation whose outcome is unknown."""
    if row["state"] != OperationState.UNKNOWN:
        return None
    kind = CaseKind.UNKNOWN_OUTCOME
    return (yield from one_row("get_open_case", **key_params(key), kind=kind, expected_state=CaseState.OPEN))


def claim(request: Request) -> Script[ClaimResult]:
    """Take the claim, or say what stands in the way; a lease that ran out turns into an unknown outcome here."""
    new = yield from lone_row("insert_claimed_operation", **_claimed_by(request))
    if new is not None:
        return begun(request, new["now"])
    row = yield from one_row("lock_operation", **request.id)
    if row is None:
        return LostRace()
    if _is_held_by(request, row):
        return granted_by(row)
    seen = yield from judge(request, row)
    match seen:
        case Seen(MayClaim(), row):
            return (yield from _take(request, row, OperationEvent.CLAIMED))
        case Seen(Unsettled(expired=True), row):
            return (yield from _expire(request, row))
        case Seen(Unsettled(plan=Resend()), row):
            return (yield from _resend(request, row))
        case _:
            return seen


def _claimed_by(request: Request) -> dict[str, Any]:
    """Return the columns of a new operation that its caller claims at once."""
    return {
        **request.columns(),
        "state": CLAIMED.value,
        "payload": request.payload,
        "holder": request.holder,
        "lease": request.facts.lease,
        "time_limit": request.facts.time_limit,
    }


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
    )


def _take(request: Request, row: Row, *events: OperationEvent) -> Script[Granted]:
    state = OperationState(row["state"])
    for event in events:
        state = advance(OPERATION, state, event)
    taken = yield from held_row(
        "take_operation_if_unmoved",
        **request.id,
        state=state,
        version=row["version"],
        holder=request.holder,
        lease=request.facts.lease,
        time_limit=request.facts.time_limit,
    )
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
    if resend_plan(seen.facts, seen.times) is None:
        return LostRace()
    return (yield from _resend(request, row))


def _resend(request: Request, row: Row) -> Script[Granted]:
    taken = yield from _take(request, row, OperationEvent.RESEND_ALLOWED, OperationEvent.CLAIMED)
    yield from settle_case(request.key, CaseKind.UNKNOWN_OUTCOME)
    return taken
