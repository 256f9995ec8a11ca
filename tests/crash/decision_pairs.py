"""Two workers that meet over a decision: who asks, who decides, who takes it back, time, and who sends.

As in `pairs`, the first worker is a crash scenario, and the second acts between any two of its steps.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from counterfoil import Counterfoil, CounterfoilError, Policy, Provider, approving, effect
from counterfoil.aio.approvals import afind_or_ask
from counterfoil.approvals import find_or_ask
from counterfoil.core.audit import Deed
from counterfoil.core.states import ApprovalState, OperationState
from counterfoil.model import Origin, Trusted
from counterfoil.storage.scripts import reconciling
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Body
from counterfoil.testing.world import CountingProvider, World
from tests.crash.approvals import (
    CANCELLED,
    REJECTED,
    decisions_are_accounted_for,
    decisions_are_noted_once,
    rows,
)
from tests.crash.pairs import BUSY, RETURNED, Pair, pair
from tests.crash.scenarios import (
    OPAQUE,
    SUCCEEDED,
    UNKNOWN,
    WHO,
    aperform_blocking,
    business_tables,
    perform,
    rows_follow_receipts,
)
from tests.crash.workflows import BLOCKING

REQUIRED, NO, GONE = "ApprovalRequired", "ApprovalRejected", "OperationClosed"
DECIDED, UNGRANTED, TOLD, QUEUED = "DecisionConflict", "NotGranted", "VerdictConflict", "OperationQueued"
TENANT: dict[str, Any] = {"tenant": WHO["tenant"]}
ASKED: dict[str, Any] = {**WHO}
NAME, ROOT = "rivals", "r-1/rivals"
SENT = SUCCEEDED | UNKNOWN
EXPIRED, PENDING = frozenset({OperationState.EXPIRED}), frozenset({OperationState.PENDING})
EDITED = f"{ROOT}~edit-"
"""How the operations begin that follow the one that a person edited."""
POLICY = Policy(decide_within="30m", valid_for="30m")


@effect(NAME, key="{request_id}/rivals", provider=OPAQUE, approval=POLICY)
def gated(call: Any, *, title: str) -> dict[str, int]:
    return {"number": call.resource(CountingProvider).accept(call, title=title)}


# --- bodies ----------------------------------------------------------------------------------------------------------

send, asend = partial(perform, name=NAME), partial(aperform_blocking, name=NAME)


def ask(world: World) -> None:
    world.open().approvals.request(gated, title="Printer", **ASKED)


async def aask(world: World) -> None:
    await world.open_async().approvals.request(gated, title="Printer", **ASKED)


def queue(world: World) -> None:
    world.open().enqueue(gated, title="Printer", **ASKED)


async def aqueue(world: World) -> None:
    await world.open_async().enqueue(gated, title="Printer", **ASKED)


ONE_BY_ONE: dict[str, Any] = {"batch": 1, "concurrency": 1}
"""A worker is held where it is: nothing else of it may go on meanwhile."""


def drain(world: World) -> None:
    world.open().drain(gated, **ONE_BY_ONE)


async def adrain(world: World) -> None:
    await world.open_async().drain(gated, **ONE_BY_ONE)


def rule(world: World, *, ruling: str, by: str = "ann", approval_id: str = "approval-1", **more: Any) -> None:
    """Decide, about what was asked first unless it is said."""
    getattr(world.open().approvals, ruling)(approval_id, by=by, reason="so", **more, **TENANT)


async def arule(world: World, *, ruling: str, by: str = "ann", approval_id: str = "approval-1", **more: Any) -> None:
    await getattr(world.open_async().approvals, ruling)(approval_id, by=by, reason="so", **more, **TENANT)


def ask_as(world: World, asker: str) -> None:
    """Ask as a step of some thread does, which is another one's question where a person has edited."""
    cf = world.open()
    job = approving.asking(cf.desk, gated, {"title": "Printer"}, Trusted(**WHO))
    job.request = replace(job.request, asker=asker)
    find_or_ask(cf.desk, job)


async def aask_as(world: World, asker: str) -> None:
    cf = world.open_async()
    job = approving.asking(cf.desk, gated, {"title": "Printer"}, Trusted(**WHO))
    job.request = replace(job.request, asker=asker)
    await afind_or_ask(cf.desk, job)


SCANNER = {"title": "Scanner"}
approve, aapprove = partial(rule, ruling="approve"), partial(arule, ruling="approve")
reject, areject = partial(rule, ruling="reject", by="bob"), partial(arule, ruling="reject", by="bob")
edit, aedit = (
    partial(rule, ruling="edit", by="cyd", changes=SCANNER),
    partial(arule, ruling="edit", by="cyd", changes=SCANNER),
)
cancel, acancel = partial(rule, ruling="cancel", by="dan"), partial(arule, ruling="cancel", by="dan")


def call_off(world: World) -> None:
    """Cancel the operation itself."""
    world.open().outbox.cancel(ROOT, by="eve", reason="so", **TENANT)


async def acall_off(world: World) -> None:
    await world.open_async().outbox.cancel(ROOT, by="eve", reason="so", **TENANT)


def abandon(world: World) -> None:
    """Cancel the workflow that asked."""
    world.open().workflows.cancel("w-1", by="eve", reason="so", **TENANT)


async def aabandon(world: World) -> None:
    await world.open_async().workflows.cancel("w-1", by="eve", reason="so", **TENANT)


def let_time_end(world: World) -> None:
    """Let half an hour pass, and record what has run out by then."""
    cf = world.open()
    world.clock.advance("31m")
    cf.desk.store.write(lambda: reconciling.expire_decisions(100))


async def alet_time_end(world: World) -> None:
    cf = world.open_async()
    world.clock.advance("31m")
    await cf.desk.async_store.write(lambda: reconciling.expire_decisions(100))


def finish(world: World, ruling: str = "approve", *, queued: bool = False) -> None:
    """Send what may be; decide about all that waits still, and send that."""
    cf = world.open()
    for _ in range(3 if queued else 2):
        with suppress(CounterfoilError):
            cf.perform(gated, title="Printer", **ASKED)
        if queued:
            cf.drain(gated)
        for one in cf.approvals.list(**TENANT).items:
            getattr(cf.approvals, ruling)(one.approval_id, by="zoe", reason="so", **TENANT)


# --- beginnings ------------------------------------------------------------------------------------------------------


def permitted(world: World) -> None:
    ask(world)
    approve(world, by="zoe")


def queued_and_permitted(world: World) -> None:
    queue(world)
    approve(world, by="zoe")


def asked_by_workflow(world: World) -> None:
    cf = world.open()
    cf.workflows.register(BLOCKING, name="flow")
    cf.workflows.start("flow", {"title": "printer"}, request_id="r-1", workflow_id="w-1", **TENANT)
    find_or_ask(
        cf.desk, approving.asking(cf.desk, gated, {"title": "Printer"}, Trusted(**ASKED), Origin(thread_id="w-1"))
    )


def permitted_to_workflow(world: World) -> None:
    asked_by_workflow(world)
    approve(world, by="zoe")


def edited(world: World) -> None:
    ask(world)
    edit(world)


# --- what must be true -----------------------------------------------------------------------------------------------


def ledger(after: Aftermath) -> Iterator[str]:
    """Judge the ledger as ever, but for how many operations there are: one, or two of which a person wrote one."""
    ids = {row["operation_id"] for row in after.contents.operations}
    yield from ledger_invariants(Aftermath(after.world, replace(after.scenario, operations=len(ids))))
    allowed = [ROOT, *(f"{EDITED}{number}" for number in range(1, after.scenario.operations))]
    if not ids <= set(allowed):
        yield f"there are {sorted(ids)}"


def sent_as_decided(after: Aftermath) -> Iterator[str]:
    """Find what was sent beside an approval for exactly these bytes that stands, and what was sent twice under one."""
    sent = after.world.provider.tally.accepted()
    if len(sent) > 1:
        yield f"the provider accepted {[one.body for one in sent]}"
    found = rows(after.world, "approval")
    for body in (one.body for one in sent):
        of_it = [one for one in found if one["operation_id"] == body["operation_id"]]
        if [one["state"] for one in of_it if one["spent_at"] is not None] != [ApprovalState.APPROVED]:
            yield f"{body['operation_id']} was sent, and the approvals of it are {[one['state'] for one in of_it]}"
        if body["title"] not in ({"Scanner", "Camera"} if any(one["edited_by"] for one in of_it) else {"Printer"}):
            yield f"{body['operation_id']} was sent as {body['title']}"


def asked_once(after: Aftermath) -> Iterator[str]:
    """Find a question that was asked twice of one operation."""
    asked_about = [one["operation_id"] for one in rows(after.world, "approval")]
    if len(set(asked_about)) != len(asked_about):
        yield f"asked was about {asked_about}"


CHECKS = (ledger, sent_as_decided, decisions_are_accounted_for, decisions_are_noted_once)


def met(
    name: str,
    first: Body,
    second: Body,
    first_ends: set[str],
    second_ends: set[str],
    *,
    ruling: str = "approve",
    by_dispatcher: bool = False,
    **fields: Any,
) -> Pair:
    """Return a pair over one decision; what is open after it is decided by somebody else."""
    by_dispatcher |= fields.get("prepare") in {queue, queued_and_permitted}
    whole = {
        "recover": partial(finish, ruling=ruling, queued=by_dispatcher),
        "checks": CHECKS,
        "may_end": SENT,
        **fields,
    }
    return pair(name, first, second, first_ends, second_ends, **whole)


# --- the list --------------------------------------------------------------------------------------------------------

Colours = tuple[Body, Body]
DONE, WON_OR_LOST = {RETURNED}, {RETURNED, DECIDED}
SENT_OR_ASKED, SENT_OR_GONE = {RETURNED, REQUIRED}, {RETURNED, GONE}


def both(name: str, first: Colours, second: Colours, *ends: set[str], **fields: Any) -> Sequence[Pair]:
    """Return a pair in both colours."""
    return [
        met(title, one, other, *ends, **fields)
        for title, one, other in zip((name, f"{name}, awaiting"), first, second, strict=True)
    ]


def given(bodies: tuple[Any, Any], **more: Any) -> Colours:
    blocking, awaiting = bodies
    return partial(blocking, **more), partial(awaiting, **more)


SEND, DRAIN, ASK, QUEUE = (send, asend), (drain, adrain), (ask, aask), (queue, aqueue)
APPROVE, REJECT, CANCEL = (approve, aapprove), (reject, areject), (cancel, acancel)
EDIT, CALL_OFF, ABANDON = (edit, aedit), (call_off, acall_off), (abandon, aabandon)
TIME = (let_time_end, alet_time_end)
ONE, OTHER = given((ask_as, aask_as), asker="t-1"), given((ask_as, aask_as), asker="t-2")

REFUSED: dict[str, Any] = {"ruling": "reject", "may_end": REJECTED}
SENDING = (
    *both("approve/send", APPROVE, SEND, DONE, SENT_OR_ASKED, prepare=ask),
    *both("approve/drain", APPROVE, DRAIN, DONE, DONE, prepare=queue),
    *both("reject/send", REJECT, SEND, DONE, {REQUIRED, NO}, prepare=ask, **REFUSED),
    *both("reject/drain", REJECT, DRAIN, DONE, DONE, prepare=queue, **REFUSED),
    *both("send/send, approved", SEND, SEND, {RETURNED, BUSY}, {RETURNED, BUSY}, prepare=permitted),
)

RIVALS: dict[str, Any] = {"one_wins": True, "prepare": ask, "may_end": SENT | CANCELLED | REJECTED}
WRITTEN: dict[str, Any] = {"operations": 2, "may_end": SENT | CANCELLED | REJECTED}
DECIDING = (
    *both("approve/reject", APPROVE, REJECT, WON_OR_LOST, WON_OR_LOST, **RIVALS),
    *both("approve/approve", APPROVE, given(APPROVE, by="bob"), DONE, DONE, prepare=ask),
    *both("edit/approve", EDIT, APPROVE, DONE, WON_OR_LOST, prepare=ask, **WRITTEN),
    *both("edit/reject", EDIT, REJECT, WON_OR_LOST, WON_OR_LOST, **RIVALS | WRITTEN),
    *both("edit/edit", EDIT, given(EDIT, by="bob"), WON_OR_LOST, WON_OR_LOST, **RIVALS | WRITTEN),
    *both("cancel/approve", CANCEL, APPROVE, DONE, WON_OR_LOST, prepare=ask, may_end=SENT | CANCELLED),
    *both("cancel/reject", CANCEL, REJECT, WON_OR_LOST, WON_OR_LOST, **RIVALS),
    *both("call-off/approve", CALL_OFF, APPROVE, DONE, WON_OR_LOST, prepare=ask, may_end=SENT | CANCELLED),
    *both("call-off/reject", CALL_OFF, REJECT, {RETURNED, TOLD}, WON_OR_LOST, **RIVALS | {"prepare": queue}),
    *both("abandon/approve", ABANDON, APPROVE, DONE, WON_OR_LOST, prepare=asked_by_workflow, may_end=SENT | CANCELLED),
)

TAKEN_BACK: dict[str, Any] = {"prepare": permitted, "may_end": SENT | CANCELLED}
QUEUED_THEN: dict[str, Any] = {**TAKEN_BACK, "prepare": queued_and_permitted}
TAKING_BACK = (
    *both("edit/send", EDIT, SEND, WON_OR_LOST, SENT_OR_ASKED, operations=2, **TAKEN_BACK),
    *both("edit/drain", EDIT, DRAIN, WON_OR_LOST, DONE, operations=2, **QUEUED_THEN),
    *both("cancel/send", CANCEL, SEND, WON_OR_LOST, SENT_OR_GONE, **TAKEN_BACK),
    *both("cancel/drain", CANCEL, DRAIN, WON_OR_LOST, DONE, **QUEUED_THEN),
    *both("call-off/send", CALL_OFF, SEND, {RETURNED, BUSY, TOLD}, SENT_OR_GONE, **TAKEN_BACK),
    *both("call-off/drain", CALL_OFF, DRAIN, {RETURNED, BUSY, TOLD}, DONE, **QUEUED_THEN),
    *both("abandon/send", ABANDON, SEND, DONE, SENT_OR_GONE, **TAKEN_BACK | {"prepare": permitted_to_workflow}),
)

IN_TIME = (
    *both("time/approve", TIME, APPROVE, DONE, WON_OR_LOST, prepare=ask, may_end=SENT | EXPIRED),
    *both("time/reject", TIME, REJECT, DONE, WON_OR_LOST, prepare=ask, may_end=SENT | EXPIRED | REJECTED),
    *both("time/edit", TIME, EDIT, DONE, WON_OR_LOST, prepare=ask, operations=2, may_end=SENT | EXPIRED | CANCELLED),
    *both("time/send", TIME, SEND, DONE, SENT_OR_ASKED, prepare=permitted),
    *both("time/drain", TIME, DRAIN, DONE, DONE, prepare=queued_and_permitted),
)

ONCE: dict[str, Any] = {"checks": (*CHECKS, asked_once)}
HANDED: dict[str, Any] = {**ONCE, "by_dispatcher": True}
ANEW: dict[str, Any] = {"prepare": edited, "operations": 4, "may_end": SENT | CANCELLED | PENDING}
"""What was permitted to one thread waits for that one."""
ASKING = (
    *both("ask/ask", ASK, ASK, DONE, DONE, **ONCE),
    *both("ask/ask of two threads", ONE, OTHER, DONE, DONE, **ONCE),
    *both("send/ask", SEND, ASK, {REQUIRED}, DONE, **ONCE),
    *both("queue/send", QUEUE, SEND, DONE, {REQUIRED}, **HANDED),
    *both("queue/approve", QUEUE, APPROVE, DONE, DONE, prepare=ask, **HANDED),
    *both("queue/send, approved", QUEUE, SEND, DONE, {RETURNED, QUEUED}, prepare=permitted, **HANDED),
    *both("anew/anew", ONE, OTHER, DONE, DONE, **ANEW),
    *both("anew/approve", ONE, given(APPROVE, approval_id="approval-2"), DONE, DONE, **ANEW),
    *both("anew/edit", ONE, given(EDIT, approval_id="approval-2", changes={"title": "Camera"}), DONE, DONE, **ANEW),
)

# --- rows of business under a decision -------------------------------------------------------------------------------


@effect("rivals-gated-booking", key="{request_id}/rivals", provider=Provider.transactional(), approval=POLICY)
def gated_booking(tx: Any, *, title: str) -> None:
    tx.execute("insert into booking default values")


def permitted_booking(world: World) -> None:
    business_tables(world)
    world.open().approvals.request(gated_booking, title="Printer", **ASKED)
    approve(world, by="zoe")


def book(world: World) -> None:
    world.open().perform(gated_booking, title="Printer", **ASKED)


def finish_booking(world: World) -> None:
    cf = world.open()
    for _ in range(2):
        with suppress(CounterfoilError):
            cf.perform(gated_booking, title="Printer", **ASKED)
        for one in cf.approvals.list(**TENANT).items:
            cf.approvals.approve(one.approval_id, by="zoe", **TENANT)


GATED_ROWS: dict[str, Any] = {
    "prepare": permitted_booking,
    "checks": (*CHECKS, rows_follow_receipts),
    "recover": finish_booking,
}
BOOKING = (
    met("cancel/book", cancel, book, WON_OR_LOST, SENT_OR_GONE, may_end=SENT | CANCELLED, **GATED_ROWS),
    met("time/book", let_time_end, book, DONE, SENT_OR_ASKED, **GATED_ROWS),
)

# --- what was permitted beforehand, and to whom ----------------------------------------------------------------------

FREE, BOOKED = "rivals-granted", "rivals-booked"
GATE: dict[str, Any] = {"by": "gate", "title": "Printer", **WHO}


@effect(FREE, key="{request_id}/rivals", provider=OPAQUE)
def granted(call: Any, *, title: str) -> dict[str, int]:
    return {"number": call.resource(CountingProvider).accept(call, title=title)}


@effect(BOOKED, key="{request_id}/rivals", provider=Provider.transactional())
def granted_booking(tx: Any, *, title: str) -> None:
    tx.execute("insert into booking default values")


def strict(world: World) -> Counterfoil:
    cf = world.open()
    object.__setattr__(cf.desk, "strict", True)  # as `Counterfoil.open(..., strict=True)` makes it
    return cf


def perform_strictly(world: World, made: Any = granted) -> None:
    strict(world).perform(made, title="Printer", **ASKED)


async def aperform_strictly(world: World) -> None:
    cf = world.open_async()
    object.__setattr__(cf.desk, "strict", True)  # as `Counterfoil.open(..., strict=True)` makes it
    await cf.perform(granted, title="Printer", **ASKED)


def enqueue_strictly(world: World) -> None:
    strict(world).enqueue(granted, title="Printer", **ASKED)


def grant(world: World, made: Any = granted) -> None:
    business_tables(world)
    world.open().grants.issue(made, **GATE)


def revoke(world: World) -> None:
    world.open().grants.revoke("grant-1", by="ops", reason="so", **TENANT)
    keep_what_began(world)


async def arevoke(world: World) -> None:
    await world.open_async().grants.revoke("grant-1", by="ops", reason="so", **TENANT)
    keep_what_began(world)


def keep_what_began(world: World) -> None:
    """Write down what had begun when the grant was known to be taken back."""
    begun = world.rows("select operation_id from counterfoil_operation")
    (world.folder / "begun").write_text(str(len(begun)))


def begun_while_granted(after: Aftermath) -> Iterator[str]:
    """Find what began when its grant had been taken back, and a deed that was noted otherwise than once."""
    begun = after.world.folder / "begun"
    if begun.exists() and len(after.contents.operations) > int(begun.read_text()):
        yield "it began when its grant had been taken back"
    noted = [row["act"] for row in rows(after.world, "audit")]
    if noted.count(Deed.REVOKE_GRANT) != sum(one["revoked_at"] is not None for one in rows(after.world, "grant")):
        yield f"noted is {noted}"


def against_revoking(name: str, first: Body, second: Body = revoke, **fields: Any) -> Pair:
    whole: dict[str, Any] = {"prepare": grant, "checks": (ledger, begun_while_granted), "may_end": SENT, **fields}
    return pair(name, first, second, {RETURNED, UNGRANTED}, DONE, **whole)


def drain_granted(world: World) -> None:
    with suppress(CounterfoilError):
        enqueue_strictly(world)
    world.open().drain(granted)


GRANTS = (
    against_revoking("send/revoke", perform_strictly),
    against_revoking("send/revoke, awaiting", aperform_strictly, arevoke),
    against_revoking("queue/revoke", enqueue_strictly, recover=drain_granted),
    against_revoking(
        "book/revoke",
        partial(perform_strictly, made=granted_booking),
        prepare=partial(grant, made=granted_booking),
        checks=(ledger, rows_follow_receipts, begun_while_granted),
    ),
)


def suspend(world: World) -> None:
    world.open().tenants.suspend(WHO["tenant"], by="root", reason="so")
    world.clock.advance("1s")


async def asuspend(world: World) -> None:
    await world.open_async().tenants.suspend(WHO["tenant"], by="root", reason="so")
    world.clock.advance("1s")


def tenant_with_queue(world: World) -> None:
    world.open().tenants.create(WHO["tenant"], by="root", reason="so")
    queue(world)


def tenant_with_permitted(world: World) -> None:
    tenant_with_queue(world)
    approve(world, by="zoe")


def resume_and_finish(world: World) -> None:
    finish(world, queued=True)  # it is suspended still, if it was, and sends nothing
    world.clock.advance("1s")
    world.open().tenants.resume(WHO["tenant"], by="root", reason="so")
    world.clock.advance("1s")
    finish(world, queued=True)


def nothing_was_sent_while_suspended(after: Aftermath) -> Iterator[str]:
    """Find an attempt that began while its tenant was suspended, and a deed that was noted otherwise than once."""
    moved = [row for row in rows(after.world, "audit") if row["act"] in {Deed.SUSPEND_TENANT, Deed.RESUME_TENANT}]
    acts = [row["act"] for row in moved]
    if acts not in ([], [Deed.SUSPEND_TENANT], [Deed.SUSPEND_TENANT, Deed.RESUME_TENANT]):
        yield f"noted is {acts}"
    since, until = ([row["at"] for row in moved] + [2**60, 2**60])[:2]
    yield from (
        f"attempt {one['attempt']} began while the tenant was suspended"
        for one in after.contents.attempts
        if since < one["started_at"] <= until
    )


SUSPENDED: dict[str, Any] = {
    "recover": resume_and_finish,
    "checks": (*CHECKS, nothing_was_sent_while_suspended),
    "may_end": SENT,
}
TENANTS = (
    *both("suspend/drain", (suspend, asuspend), DRAIN, DONE, DONE, prepare=tenant_with_permitted, **SUSPENDED),
    *both("suspend/approve", (suspend, asuspend), APPROVE, DONE, DONE, prepare=tenant_with_queue, **SUSPENDED),
)

DECISION_PAIRS = (*SENDING, *DECIDING, *TAKING_BACK, *IN_TIME, *ASKING, *BOOKING, *GRANTS, *TENANTS)
