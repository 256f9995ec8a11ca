"""One scenario for each kind of thing that people do by hand: the deed and its audit entry are there together."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from counterfoil import Delivery, Principal
from counterfoil.core.access import Role
from counterfoil.core.states import OperationState
from counterfoil.errors import PauseNotFound, VerdictConflict
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import World
from tests.crash.outbox import PARKED, never_sent
from tests.crash.scenarios import OPAQUE, SUCCEEDED, UNKNOWN, WHO, accept, declare, declared, performed

TENANT = WHO["tenant"]
MEI = Principal(tenant=TENANT, name="Mei", role=Role.ADMIN)
WHY: dict[str, Any] = {"by": MEI, "reason": "it works again"}

FAILED = frozenset({OperationState.FAILED})


def lose(call: Any) -> Any:
    accept(call)
    raise TimeoutError


LOST = declare("deeds-lost", OPAQUE, lose)
DEAD = declare("deeds-dead", OPAQUE, never_sent)


def entries(after: Aftermath, *acts: str) -> list[dict[str, Any]]:
    rows = after.world.rows("select * from counterfoil_audit order by seq")
    return [dict(row) for row in rows if row["act"] in acts]


# --- verdicts --------------------------------------------------------------------------------------------------------


def lost(world: World) -> None:
    performed(world, LOST)


def judge(world: World) -> None:
    given = {"verdict": "happened", "value": 1, "expect_version": 1, **WHY}
    with suppress(VerdictConflict):
        world.open().review.resolve("case-1", tenant=TENANT, **given)


def verdicts_are_noted(after: Aftermath) -> Iterator[str]:
    judged = [case for case in after.contents.cases if case["verdict"] is not None]
    if (found := len(entries(after, "verdict"))) != len(judged):
        yield f"{found} entries for {len(judged)} verdicts"


# --- dead letters ----------------------------------------------------------------------------------------------------


def dead(world: World) -> None:
    cf = world.open()
    cf.enqueue(declared(DEAD), title="Printer", delivery=Delivery(max_attempts=1), **WHO)
    cf.drain(declared(DEAD))


def give_up(world: World) -> None:
    with suppress(VerdictConflict):
        world.open().outbox.skip(f"r-1/{DEAD}", tenant=TENANT, **WHY)


def skips_are_noted(after: Aftermath) -> Iterator[str]:
    failed = [row for row in after.contents.operations if row["state"] == OperationState.FAILED]
    found = [(each["state_before"], each["state_after"]) for each in entries(after, "skip")]
    if found != [("parked", "failed")] * len(failed):
        yield f"{found} are noted, and {len(failed)} were skipped"


# --- pauses ----------------------------------------------------------------------------------------------------------


def pause_and_resume(world: World) -> None:
    cf = world.open()
    cf.outbox.pause(tenant=TENANT, effect="e", **WHY)
    with suppress(PauseNotFound):
        cf.outbox.resume(tenant=TENANT, effect="e", **WHY)


def pauses_are_noted(after: Aftermath) -> Iterator[str]:
    is_paused = bool(after.world.rows("select * from counterfoil_pause"))
    last = [each["act"] for each in entries(after, "pause", "resume")][-1:]
    if is_paused is not (last == ["pause"]):
        yield f"it is {'' if is_paused else 'not '}paused, and last noted was {last}"


# --- tokens and tenants ----------------------------------------------------------------------------------------------


def hand_out(world: World) -> None:
    cf = world.open()
    cf.tenants.create(TENANT, "Team A", **WHY)
    token, _ = cf.tokens.issue(tenant=TENANT, name="bo", role="viewer", **WHY)
    newer, _ = cf.tokens.rotate(token.token_id, **WHY)
    cf.tokens.revoke(newer.token_id, **WHY)
    cf.tenants.suspend(TENANT, **WHY)
    cf.tenants.resume(TENANT, **WHY)


async def ahand_out(world: World) -> None:
    cf = world.open_async()
    await cf.tenants.create(TENANT, "Team A", **WHY)
    token, _ = await cf.tokens.issue(tenant=TENANT, name="bo", role="viewer", **WHY)
    newer, _ = await cf.tokens.rotate(token.token_id, **WHY)
    await cf.tokens.revoke(newer.token_id, **WHY)
    await cf.tenants.suspend(TENANT, **WHY)
    await cf.tenants.resume(TENANT, **WHY)


def tokens_are_noted(after: Aftermath) -> Iterator[str]:
    rows = after.world.rows("select * from counterfoil_token order by seq")
    there = {
        "token.issue": {row["token_id"] for row in rows} - {row["replaced_by"] for row in rows},
        "token.rotate": {row["token_id"] for row in rows if row["replaced_by"] is not None},
        "token.revoke": {row["token_id"] for row in rows if row["revoked_at"] is not None},
    }
    for act, tokens in there.items():
        noted = [each["subject"] for each in entries(after, act)]
        if sorted(noted) != sorted(tokens):
            yield f"{act}: {noted} are noted, {tokens} are so"


def tenants_are_noted(after: Aftermath) -> Iterator[str]:
    moved = entries(after, "tenant.create", "tenant.suspend", "tenant.resume")
    statuses = [row["status"] for row in after.world.rows("select * from counterfoil_tenant")]
    if statuses != [each["state_after"] for each in moved][-1:]:
        yield f"the tenant is {statuses}, noted is {moved}"
    held = after.world.rows("select * from counterfoil_pause")
    if len(held) != statuses.count("suspended"):
        yield f"{len(held)} pauses, and the tenant is {statuses}"


def scenario(name: str, run: Any, *checks: Any, **fields: Any) -> Scenario:
    whole = {"entries": 2, "operations": 1, **fields}
    return Scenario(name=f"deeds-{name}", run=run, checks=(ledger_invariants, *checks), **whole)


HANDED = (tokens_are_noted, tenants_are_noted)
DEEDS = (
    scenario("verdict", judge, verdicts_are_noted, prepare=lost, may_end=SUCCEEDED | UNKNOWN),
    scenario("skip", give_up, skips_are_noted, prepare=dead, may_end=PARKED | FAILED),
    scenario("pause", pause_and_resume, pauses_are_noted, operations=0),
    scenario("tokens", hand_out, *HANDED, operations=0),
    scenario("tokens/async", ahand_out, *HANDED, operations=0),
)
