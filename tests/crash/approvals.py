"""One scenario for each way in which an operation is asked about, decided, claimed and sent; blocking and awaiting.

A person decides what waits, each time one looks: as often as it takes, and always the same way.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from counterfoil import CounterfoilError, Policy, Provider, effect
from counterfoil.core.audit import Deed
from counterfoil.core.states import ApprovalState, OperationState
from counterfoil.storage.script import Ddl, Row, Script
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import ProviderTraits, World
from tests.crash.scenarios import (
    HONOURS_KEYS,
    KEYED,
    OPAQUE,
    ROWS,
    SUCCEEDED,
    UNKNOWN,
    WHO,
    Do,
    accept,
    business_tables,
    declared,
    not_sent_at_first,
)

REJECTED = frozenset({OperationState.REJECTED})
CANCELLED = frozenset({OperationState.CANCELLED})
Decide = dict[str, Any]
ASKED: dict[str, Any] = {**WHO}
POLICY = Policy(valid_for="1h")
BRIEF = Policy(valid_for="1m")
"""It has run out by the next entry."""


def declare(name: str, provider: Provider, do: Do, policy: Policy = POLICY) -> str:
    @effect(name, key="{request_id}/" + name, provider=provider, approval=policy)
    def blocking_effect(call: Any, *, title: str) -> Any:
        return do(call)

    @effect(f"{name}/async", key="{request_id}/" + name, provider=provider, approval=policy)
    async def awaiting_effect(call: Any, *, title: str) -> Any:
        return do(call)

    return name


@effect("gated-booking", key="{request_id}/gated-booking", provider=Provider.transactional(), approval=POLICY)
def booking(tx: Any, *, title: str) -> dict[str, str]:
    tx.execute("insert into booking default values")
    return {"title": title}


@effect("gated-booking/async", key="{request_id}/gated-booking", provider=Provider.transactional(), approval=POLICY)
async def awaiting_booking(tx: Any, *, title: str) -> dict[str, str]:
    await tx.execute("insert into booking default values")
    return {"title": title}


# --- bodies ----------------------------------------------------------------------------------------------------------


def performing(world: World, name: str, ruling: str, **more: Any) -> None:
    """Ask, decide, and go on; twice, as what is edited is asked about again."""
    cf, made = world.open(), declared(name)
    for _ in range(3):
        with suppress(CounterfoilError):
            cf.perform(made, title="Printer", **WHO)
        for one in cf.approvals.list(tenant=WHO["tenant"]).items:
            decide(cf.approvals, one, ruling, more)


async def aperforming(world: World, name: str, ruling: str, **more: Any) -> None:
    cf, made = world.open_async(), declared(f"{name}/async")
    for _ in range(3):
        with suppress(CounterfoilError):
            await cf.perform(made, title="Printer", **WHO)
        for one in (await cf.approvals.list(tenant=WHO["tenant"])).items:
            await decide(cf.approvals, one, ruling, more)


def decide(approvals: Any, one: Any, ruling: str, more: Decide) -> Any:
    """Decide as this person always does; what somebody wrote already is approved."""
    if ruling == "edit" and one.follows is not None:
        ruling, more = "approve", {}
    return getattr(approvals, ruling)(one.approval_id, tenant=one.tenant, by="ada", reason="so", **more)


def queueing(world: World, name: str, ruling: str, **more: Any) -> None:
    cf, made = world.open(), declared(name)
    cf.enqueue(made, title="Printer", **ASKED)
    for _ in range(2):
        for one in cf.approvals.list(tenant=WHO["tenant"]).items:
            decide(cf.approvals, one, ruling, more)
        cf.drain(made)


async def aqueueing(world: World, name: str, ruling: str, **more: Any) -> None:
    cf, made = world.open_async(), declared(f"{name}/async")
    await cf.enqueue(made, title="Printer", **ASKED)
    for _ in range(2):
        for one in (await cf.approvals.list(tenant=WHO["tenant"])).items:
            await decide(cf.approvals, one, ruling, more)
        await cf.drain(made)


# --- what must be true -----------------------------------------------------------------------------------------------


def rows(world: World, table: str) -> list[Row]:
    def script() -> Script[Any]:
        return (yield Ddl(f"select * from counterfoil_{table}"))  # noqa: S608 - ours

    found: list[Row] = world.read(script)
    return found


def decisions_are_accounted_for(aftermath: Aftermath) -> Iterator[str]:
    """Judge every approval: what was used was sent, what was sent was used, and what waits can be decided."""
    operations = {row["operation_id"]: row for row in aftermath.contents.operations}
    asked = rows(aftermath.world, "approval")
    for one in asked:
        operation = operations[one["operation_id"]]
        told = f"approval {one['seq']} ({one['state']}) of {one['operation_id']} ({operation['state']})"
        if one["spent_at"] is not None and not operation["attempt"]:
            yield f"{told} was used, and no attempt is known"
        if one["content_digest"] != operation["content_digest"]:
            yield f"{told} is about another content"
        if one["state"] == ApprovalState.PENDING and operation["state"] != OperationState.AWAITING_APPROVAL:
            yield f"{told} waits for nothing"
    for operation_id, operation in operations.items():
        of_it = [one for one in asked if one["operation_id"] == operation_id]
        if not of_it:
            yield f"{operation_id} was never asked about"
        used = any(one["spent_at"] is not None for one in of_it)
        if may_have_sent(aftermath, operation) and not used:
            yield f"{operation_id} was sent {operation['attempt']} times, and no approval was used"
        waits = sum(one["state"] == ApprovalState.PENDING for one in of_it)
        if waits != (operation["state"] == OperationState.AWAITING_APPROVAL):
            yield f"{operation_id} is {operation['state']}, and {waits} approvals are open"


_NOTED: dict[str, tuple[Deed, ...]] = {
    ApprovalState.PENDING: (),
    ApprovalState.APPROVED: (Deed.APPROVE,),
    ApprovalState.REJECTED: (Deed.REJECT,),
    ApprovalState.EDITED: (Deed.EDIT,),
    ApprovalState.CANCELLED: (Deed.WITHDRAW,),
    ApprovalState.EXPIRED: (),
}
"""What stands in the trail of an approval that ended so; before it, that it was approved, where nothing was sent."""


def decisions_are_noted_once(aftermath: Aftermath) -> Iterator[str]:
    """Hold every approval against the trail: each decision stands there once, and by whoever made it."""
    noted = rows(aftermath.world, "audit")
    for one in rows(aftermath.world, "approval"):
        entries = [each for each in noted if each["subject"] == f"approval-{one['seq']}"]
        acts = [each["act"] for each in entries]
        with_it = [each for each in noted if (each["act"], each["subject"]) == (Deed.CANCEL, one["operation_id"])]
        wanted = [] if with_it and one["state"] == ApprovalState.CANCELLED else [*_NOTED[one["state"]]]
        if len(with_it) > 1:
            yield f"{one['operation_id']} was cancelled {len(with_it)} times"
        was_open = one["state"] in {ApprovalState.PENDING, ApprovalState.APPROVED, ApprovalState.REJECTED}
        if acts != wanted and (was_open or acts != [Deed.APPROVE, *wanted]):
            yield f"approval {one['seq']} is {one['state']}, and noted is {acts}"
        if wanted and entries and entries[-1]["shown"] != one["decided_by"]:
            yield f"approval {one['seq']} was decided by {one['decided_by']}, and noted is {entries[-1]['shown']}"


def may_have_sent(aftermath: Aftermath, operation: Row) -> bool:
    """Say whether one of an operation's attempts at least did not provably send nothing."""
    ended = [one["outcome"] for one in aftermath.contents.attempts if one["operation_id"] == operation["operation_id"]]
    return len(ended) < operation["attempt"] or set(ended) - {"not_sent"} != set()


CHECKS = (ledger_invariants, decisions_are_accounted_for, decisions_are_noted_once)
BOOKED = (*ROWS, decisions_are_accounted_for, decisions_are_noted_once)
PLAIN = ProviderTraits()


def scenarios(
    name: str,
    bodies: tuple[Callable[..., Any], Callable[..., Any]],
    ruling: str,
    may_end: frozenset[OperationState],
    **more: Any,
) -> tuple[Scenario, Scenario]:
    changes = {"changes": more.pop("changes")} if "changes" in more else {}
    effect_name = more.pop("of", name)
    given = {"traits": PLAIN, "checks": CHECKS, "patience": "2m", "may_end": may_end, **more}
    one, other = (
        Scenario(name=title, run=partial(body, name=effect_name, ruling=ruling, **changes), **given)
        for title, body in ((name, bodies[0]), (f"{name}/async", bodies[1]))
    )
    return one, other


PERFORM, QUEUE = (performing, aperforming), (queueing, aqueueing)
ALL = (
    *scenarios(declare("approved", OPAQUE, accept), PERFORM, "approve", SUCCEEDED | UNKNOWN),
    *scenarios(declare("approved-keyed", KEYED, accept), PERFORM, "approve", SUCCEEDED, traits=HONOURS_KEYS),
    *scenarios(declare("rejected", OPAQUE, accept), PERFORM, "reject", REJECTED),
    *scenarios(declare("withdrawn", OPAQUE, accept), PERFORM, "cancel", CANCELLED),
    *scenarios(
        declare("edited", OPAQUE, accept),
        PERFORM,
        "edit",
        CANCELLED | SUCCEEDED | UNKNOWN,
        changes={"title": "Scanner"},
        operations=2,
    ),
    *scenarios(declare("asked-again", OPAQUE, not_sent_at_first, BRIEF), PERFORM, "approve", SUCCEEDED | UNKNOWN),
    *scenarios(declare("queued", OPAQUE, accept), QUEUE, "approve", SUCCEEDED | UNKNOWN, ordered=False, patience="5m"),
    *scenarios(
        "booked",
        PERFORM,
        "approve",
        SUCCEEDED,
        of="gated-booking",
        prepare=business_tables,
        checks=BOOKED,
    ),
)
