"""Scripts of the outbox: intents that commit with what caused them, and a dispatcher's turns."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from counterfoil.core.effects import AwaitsApproval, ClaimDecision, MayClaim, NeedsApproval, decide_claim
from counterfoil.core.outbox import PATIENCE_MS
from counterfoil.core.states import AttemptOutcome, OperationState, Sender
from counterfoil.model import OperationKey
from counterfoil.storage import rows
from counterfoil.storage.script import Row, Script, all_rows, held_row, lone_row, one_row, several_rows
from counterfoil.storage.scripts import gates, grants, settling
from counterfoil.storage.scripts.claims import CLAIMED, Granted, Request
from counterfoil.storage.scripts.moves import Outcome, has_lost_attempt, key_params, unknown_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.core.approvals import Gate
    from counterfoil.core.outbox import Terms

FEWEST = 2
"""From so many on, outcomes are recorded all at once."""


# --- enqueue ---------------------------------------------------------------------------------------------------------


_DIFFERING = {
    "operation_id": "operation_ids",
    "identity_digest": "identities",
    "content_digest": "contents",
    "field_digests": "all_fields",
    "payload": "payloads",
    "stream": "streams",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """An operation that a dispatcher is to send, and on which terms."""

    request: Request
    terms: Terms


@dataclass(frozen=True, slots=True)
class Queued:
    """The intent is recorded, by this transaction."""


@dataclass(frozen=True, slots=True)
class Known:
    """The operation was asked for before: what its row means for who asks again."""

    decision: ClaimDecision
    row: Row


def enqueue(wish: Wish) -> Script[Queued | Known]:
    """Record an intent, or say what is known of its operation."""
    if (refused := (yield from grants.refusal(wish.request))) is not None:
        return Known(refused, {})
    insert = lone_row if wish.request.gate is None else one_row
    if (yield from insert("insert_intent", **_columns(wish))) is None:
        return (yield from _known(wish))
    yield from _ask(wish.request)
    return Queued()


def refusal(wishes: Sequence[Wish]) -> Script[tuple[Queued | Known, ...] | None]:
    """Say which of several operations a strict program must refuse first, and note it; none is recorded then."""
    for number, wish in enumerate(wishes):
        if (refused := (yield from grants.refusal(wish.request))) is not None:
            return (*(Queued() for _ in wishes[:number]), Known(refused, {}), *(Queued() for _ in wishes[number + 1 :]))
    return None


def find(wish: Wish) -> Script[Queued | Known]:
    """Say what is known of an operation, or that nothing is in the way of recording it."""
    if (refused := (yield from grants.refusal(wish.request))) is not None:
        return Known(refused, {})
    row = yield from one_row("look_at_operation", **wish.request.id)
    return Queued() if row is None else _seen(wish.request, row)


def enqueue_all(wishes: Sequence[Wish]) -> Script[tuple[Queued | Known, ...]]:
    """Record several intents in one transaction; those of one stream stay in order.

    All others are recorded in the order of their ids, so that two who ask for the same ones never wait for each other.
    """
    in_turn = sorted(range(len(wishes)), key=lambda number: _turn_of(wishes[number]))
    new = yield from _insert([wishes[number] for number in in_turn])
    results: dict[int, Queued | Known] = {}
    for number in in_turn:
        request = wishes[number].request
        is_new = request.key in new
        new.discard(request.key)  # asked for twice in one call, it is new once
        if is_new:
            yield from _ask(request)
        results[number] = Queued() if is_new else (yield from _known(wishes[number]))
    return tuple(results[number] for number in range(len(wishes)))


def _insert(wishes: Sequence[Wish]) -> Script[set[OperationKey]]:
    """Record the intents that are not there yet, and return their keys."""
    new: set[OperationKey] = set()
    for _, alike in groupby(wishes, key=_shared_columns):
        new |= yield from _insert_alike(list(alike))
    return new


def _insert_alike(wishes: Sequence[Wish]) -> Script[set[OperationKey]]:
    if (done := (yield from several_rows("insert_intents", **_all_columns(wishes)))) is not None:
        tenant = wishes[0].request.key.tenant
        return {OperationKey(tenant=tenant, operation_id=row["operation_id"]) for row in done}
    new: set[OperationKey] = set()
    for wish in wishes:
        if (yield from one_row("insert_intent", **_columns(wish))) is not None:
            new.add(wish.request.key)
    return new


def _all_columns(wishes: Sequence[Wish]) -> dict[str, Any]:
    """Return the columns of operations that share all others; those that differ are arrays."""
    each = [_columns(wish) for wish in wishes]
    return _shared_columns(wishes[0]) | {name: [row[one] for row in each] for one, name in _DIFFERING.items()}


def _shared_columns(wish: Wish) -> dict[str, Any]:
    """Return what the operations of one call have in common; those of several tasks of a graph may not."""
    return {name: value for name, value in _columns(wish).items() if name not in _DIFFERING}


def _turn_of(wish: Wish) -> tuple[str, str, str]:
    key, stream = wish.request.key, wish.terms.stream
    return (key.tenant, stream or "", "" if stream else key.operation_id)


def _ask(request: Request) -> Script[None]:
    """Ask for the decision that a new intent waits for, if it does."""
    if request.gate is not None:
        row = yield from held_row("lock_operation", **request.id)
        yield from gates.ask(request.key, row, request.gate, request.asking)


def _known(wish: Wish) -> Script[Known]:
    request = wish.request
    row = yield from held_row("look_at_operation", **request.id)
    known = _seen(request, row)
    return (yield from _handed_over(wish)) if _may_be_handed_over(known) else known


def _may_be_handed_over(known: Known) -> bool:
    """Say whether its caller asked about an operation and has not tried to send it."""
    is_callers = known.row["sender"] == Sender.CALLER and not known.row["attempt"]
    was_asked = known.row["approved_until"] is not None
    return is_callers and was_asked and isinstance(known.decision, AwaitsApproval | NeedsApproval | MayClaim)


def _handed_over(wish: Wish) -> Script[Known]:
    """Let a dispatcher send what its caller asked approval for, and now leaves to it."""
    row = yield from held_row("lock_operation", **wish.request.id)
    if not _may_be_handed_over(known := _seen(wish.request, row)):
        return known
    terms = {name: _columns(wish)[name] for name in _TERMS}
    handed = yield from held_row(
        "hand_to_dispatcher_if_unsent",
        **wish.request.id,
        **terms,
        version=row["version"],
        sender=Sender.DISPATCHER.value,
    )
    return _seen(wish.request, handed)


_TERMS = ("stream", "due_at", "delay", "time_to_live", "max_attempts", "time_limit", "lease")


def _seen(request: Request, row: Row) -> Known:
    return Known(decide_claim(rows.snapshot(row, request.facts), request.wanted), row)


def _columns(wish: Wish) -> dict[str, Any]:
    request, terms = wish.request, wish.terms
    return {
        **request.columns(),
        "sender": Sender.DISPATCHER.value,
        **gates.held_columns(request.gate, time_to_live=terms.time_to_live),
        "state": (OperationState.PENDING if request.gate is None else gates.AWAITING).value,
        "payload": request.payload,
        "stream": terms.stream,
        "due_at": terms.due_at,
        "delay": terms.delay,
        "time_to_live": terms.time_to_live,
        "max_attempts": terms.max_attempts,
        "time_limit": request.facts.time_limit,
        "lease": request.facts.lease,
    }


# --- a dispatcher's turn ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One effect of which so many intents may be claimed; `since` is where the search begins."""

    effect: str
    effect_version: int
    limit: int
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An attempt that ended: what is to be recorded, and how long its provider asked to wait."""

    request: Request
    granted: Granted
    outcome: Outcome
    wait: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbegun:
    """A claim that is given back, since its effect did not begin; it is due again after `delay` milliseconds."""

    key: OperationKey
    fence: int
    delay: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unapproved:
    """A claim that is given back, since its effect may not be sent without a decision, which nobody was asked for."""

    key: OperationKey
    fence: int
    gate: Gate
    requested_by: str | None


Ended = Finished | Unbegun | Unapproved


@dataclass(frozen=True, slots=True)
class Turn:
    """What one transaction of a dispatcher did: it settled the last batch and claimed the next one."""

    settled: tuple[settling.Settled | settling.Late | None, ...]
    claimed: tuple[Row, ...]


def turn(ended: Sequence[Ended], lanes: Sequence[Lane], holder: str) -> Script[Turn]:
    """Record how attempts ended and claim what is due, in one transaction.

    Rows are taken in the order of their ids, so that no two workers wait for each other.
    """
    happened = yield from _settle_happened([one for one in ended if _happened(one)])
    settled: list[settling.Settled | settling.Late | None] = []
    for one in ended:
        result = happened.get(_key_of(one)) or (yield from _end(one))
        settled.append(result)
    claimed: list[Row] = []
    for lane in lanes:
        claimed.extend((yield from claim_due(lane, holder)))
    for row in claimed:
        yield from gates.spend(OperationKey(tenant=row["tenant"], operation_id=row["operation_id"]), row)
    return Turn(tuple(settled), tuple(claimed))


def due_effects(names: Sequence[tuple[str, int]]) -> Script[set[tuple[str, int]]]:
    """Say of which effects intents may be due, asked for all at once; one that has two versions here always may."""
    versions, twice = dict(names), Counter(name for name, _ in names)
    found = yield from all_rows("list_due_effects", asked=json.dumps(versions))
    due = {row["effect"] for row in found}
    return {(name, version) for name, version in names if name in due or twice[name] > 1}


def _settle_happened(ended: Sequence[Ended]) -> Script[dict[OperationKey, settling.Settled]]:
    """Record the effects that happened all at once, where the database gains by that; a lost claim is left out."""
    finished = [one for one in ended if isinstance(one, Finished)]
    if len(finished) < FEWEST:
        return {}
    return (yield from settling.settle_all([(one.request, one.granted, one.outcome) for one in finished]))


def _happened(one: Ended) -> bool:
    return isinstance(one, Finished) and one.outcome.outcome is AttemptOutcome.SUCCEEDED


def _key_of(one: Ended) -> OperationKey:
    return one.request.key if isinstance(one, Finished) else one.key


def claim_due(lane: Lane, holder: str) -> Script[Sequence[Row]]:
    """Claim the intents of one effect that are due; each is its holder's for its lease."""
    found = yield from all_rows(
        "claim_due",
        effect=lane.effect,
        effect_version=lane.effect_version,
        since=lane.since,
        limit=lane.limit,
        state=CLAIMED,
        holder=holder,
        patience=PATIENCE_MS,
    )
    return sorted(found, key=lambda row: (row["due_at"], row["seq"]))


def find_held(holder: str) -> Script[Sequence[Row]]:
    """Look up which intents a claim holds whose COMMIT nobody heard of."""
    return (yield from all_rows("list_held", holder=holder))


def _end(one: Ended) -> Script[settling.Settled | settling.Late | None]:
    match one:
        case Finished():
            return (yield from settling.settle_among_others(one.request, one.granted, one.outcome, wait=one.wait))
        case Unbegun():
            yield from _release(one.key, one.fence, one.delay)
            return None
        case Unapproved():
            if (yield from _release(one.key, one.fence, 0)):
                yield from _hold(one)
            return None


def _hold(one: Unapproved) -> Script[None]:
    """Ask for a decision before an intent is sent, unless it may have been sent before: then a person must look."""
    row = yield from held_row("lock_operation", **key_params(one.key))
    if (yield from has_lost_attempt(one.key, row)):
        yield from unknown_again(one.key, row, "it may not be sent again without an approval, which nobody gave")
    else:
        asking = gates.Asking(asker="", requested_by=one.requested_by)
        yield from gates.ask_again(one.key, row, one.gate, asking)


def _release(key: OperationKey, fence: int, delay: int) -> Script[bool]:
    """Give a claim back whose effect did not begin, if it holds still."""
    given_back = yield from one_row(
        "release_if_fenced",
        **key_params(key),
        fence=fence,
        delay=delay,
        state=OperationState.PENDING,
        expected_state=OperationState.IN_FLIGHT,
    )
    if given_back is not None:
        yield from gates.give_back(key, given_back)
    return given_back is not None
