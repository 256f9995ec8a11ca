"""One scenario for each way through the ledger's scripts, blocking and awaiting.

Effects report to the world's counting provider; what a broken wire would do (a lost reply, a refused connection) is
done by the effect before or after the provider accepted. Bodies are module-level, so that they reach a new process.
"""

import asyncio
import contextvars
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

import psycopg

from counterfoil import (
    Absent,
    CannotTell,
    Case,
    CounterfoilError,
    Effect,
    EffectCall,
    Found,
    NotSent,
    Provider,
    Refused,
    Statement,
    effect,
)
from counterfoil.core.states import OperationState
from counterfoil.desk import NOWHERE
from counterfoil.drivers.probes import Point
from counterfoil.effects import REGISTRY
from counterfoil.model import LookupAnswer, Trusted
from counterfoil.storage.script import Ddl, Script
from counterfoil.storage.scripts import claims
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Scenario
from counterfoil.testing.world import CountingProvider, ProviderTraits, World

WHO: dict[str, str] = {"tenant": "team-A", "request_id": "r-1"}
TRUSTED = Trusted(tenant="team-A", request_id="r-1")

SUCCEEDED = frozenset({OperationState.SUCCEEDED})
UNKNOWN = frozenset({OperationState.UNKNOWN})
FAILED = frozenset({OperationState.FAILED})


# --- look-ups and providers ------------------------------------------------------------------------------------------


def find(call: EffectCall, **_arguments: Any) -> LookupAnswer:
    found = call.resource(CountingProvider).find(call)
    return Absent() if found is None else Found({"number": found.number})


def cannot_tell(call: EffectCall, **_arguments: Any) -> LookupAnswer:
    return CannotTell("it is being repaired")


OPAQUE = Provider()
KEYED = Provider(key_lifetime="24h")
QUERYABLE = Provider(lookup=find, lookup_lag="30s")
SILENT = Provider(lookup=cannot_tell, lookup_lag="30s")
REVIEWED = Provider(lookup=find, lookup_lag="30s", on_absent="review")
BOTH = Provider(key_lifetime="24h", lookup=find, lookup_lag="30s")
BOTH_SILENT = Provider(key_lifetime="24h", lookup=cannot_tell, lookup_lag="30s")

HONOURS_KEYS = ProviderTraits(key_lifetime="24h", lag="30s")
LAGS = ProviderTraits(lag="30s")


# --- effects ---------------------------------------------------------------------------------------------------------

Do = Callable[[EffectCall], Any]
ADo = Callable[[EffectCall], Awaitable[Any]]


def declare(name: str, provider: Provider, do: Do, ado: ADo | None = None) -> str:
    """Declare a blocking effect `name` and an awaiting one `name/async`, and return the name."""

    async def awaiting(call: EffectCall) -> Any:
        await asyncio.sleep(0)
        return do(call) if ado is None else await ado(call)

    @effect(name, key="{request_id}/" + name, provider=provider)
    def blocking_effect(call: EffectCall, *, title: str) -> Any:
        return do(call)

    @effect(f"{name}/async", key="{request_id}/" + name, provider=provider)
    async def awaiting_effect(call: EffectCall, *, title: str) -> Any:
        return await awaiting(call)

    return name


def declared(name: str) -> Effect[Any]:
    found = REGISTRY.find(name, 1)
    assert found is not None
    return found


def accept(call: EffectCall) -> dict[str, int]:
    return {"number": call.resource(CountingProvider).accept(call)}


def lose_reply(call: EffectCall) -> dict[str, int]:
    accepted = accept(call)
    if call.attempt == 1:
        raise TimeoutError
    return accepted


def lose_request(call: EffectCall) -> dict[str, int]:
    if call.attempt == 1:
        raise TimeoutError
    return accept(call)


def not_sent_at_first(call: EffectCall) -> dict[str, int]:
    if call.attempt == 1:
        raise NotSent("connection refused")
    return accept(call)


def refuse(call: EffectCall) -> dict[str, int]:
    raise Refused("no such card")


def late(call: EffectCall) -> dict[str, int]:
    """Hang until the claim is over and another entry has looked after it, then answer."""
    accepted = accept(call)
    if call.attempt == 1:
        world = call.resource(World)
        world.clock.advance("10m")
        # an empty context: as far as this entry knows, it is another process
        contextvars.Context().run(enter_again, world, _base(call))
    return accepted


async def alate(call: EffectCall) -> dict[str, int]:
    accepted = accept(call)
    if call.attempt == 1:
        world = call.resource(World)
        world.clock.advance("10m")
        await asyncio.create_task(aenter_again(world, _base(call)), context=contextvars.Context())
    return accepted


def late_timeout(call: EffectCall) -> dict[str, int]:
    accepted = late(call)
    if call.attempt == 1:
        raise TimeoutError
    return accepted


async def alate_timeout(call: EffectCall) -> dict[str, int]:
    accepted = await alate(call)
    if call.attempt == 1:
        raise TimeoutError
    return accepted


async def cancelled(call: EffectCall) -> dict[str, int]:
    accepted = accept(call)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return accepted


def _base(call: EffectCall) -> str:
    return call.operation_id.removeprefix(f"{call.request_id}/")


def enter_again(world: World, name: str) -> None:
    with suppress(CounterfoilError):
        perform(world, name)


async def aenter_again(world: World, name: str) -> None:
    with suppress(CounterfoilError):
        await aperform(world, name)


# --- bodies ----------------------------------------------------------------------------------------------------------


def perform(world: World, name: str, **who: str) -> None:
    world.open().perform(declared(name), title="Printer", **{**WHO, **who})


async def aperform(world: World, name: str, **who: str) -> None:
    await world.open_async().perform(declared(f"{name}/async"), title="Printer", **{**WHO, **who})


async def aperform_blocking(world: World, name: str) -> None:
    """An awaiting caller of a blocking effect, which runs in a thread."""
    await world.open_async().perform(declared(name), title="Printer", **WHO)


async def aperform_cancelled(world: World, name: str) -> None:
    with suppress(asyncio.CancelledError):
        await aperform(world, name)


def perform_several(world: World, name: str) -> None:
    """Two tenants with one id, and the first of them once more."""
    for tenant in ("team-A", "team-B", "team-A"):
        perform(world, name, tenant=tenant)


async def aperform_several(world: World, name: str) -> None:
    for tenant in ("team-A", "team-B", "team-A"):
        await aperform(world, name, tenant=tenant)


def verify(world: World, name: str) -> None:
    world.open().verify(declared(name), title="Printer", **WHO)


async def averify(world: World, name: str) -> None:
    await world.open_async().verify(declared(f"{name}/async"), title="Printer", **WHO)


def judge(world: World, name: str, verdict: str) -> None:
    """Let a person give a verdict on the open case, if it is still open, and then perform."""
    cf = world.open()
    for case in cf.review.list(tenant=WHO["tenant"]).items:
        cf.review.resolve(case.case_id, **given(world, case, verdict))
    with suppress(CounterfoilError):
        cf.perform(declared(name), title="Printer", **WHO)


async def ajudge(world: World, name: str, verdict: str) -> None:
    cf = world.open_async()
    for case in (await cf.review.list(tenant=WHO["tenant"])).items:
        await cf.review.resolve(case.case_id, **given(world, case, verdict))
    with suppress(CounterfoilError):
        await cf.perform(declared(f"{name}/async"), title="Printer", **WHO)


def given(world: World, case: Case, verdict: str) -> dict[str, Any]:
    """Return what a careful person says: the verdict, unless the provider shows the effect by now."""
    verdict = "happened" if world.provider.count(case) else verdict
    evidence = '{"number": 1}' if verdict == "happened" else None
    seen = {"tenant": case.tenant, "expect_version": case.version}
    return {**seen, "verdict": verdict, "by": "ada", "reason": "seen in the provider's list", "evidence": evidence}


def open_case(world: World, name: str) -> None:
    world.open().review.open(f"r-1/{name}", tenant=WHO["tenant"])


async def aopen_case(world: World, name: str) -> None:
    await world.open_async().review.open(f"r-1/{name}", tenant=WHO["tenant"])


def open_only(world: World) -> None:
    world.open()


async def aopen_only(world: World) -> None:
    world.open_async()


# --- beginnings ------------------------------------------------------------------------------------------------------


def performed(world: World, name: str) -> None:
    """Perform, whatever comes of it, and let everything run out that has a time."""
    enter_again(world, name)
    world.clock.advance("2m")


async def aperformed(world: World, name: str) -> None:
    await aenter_again(world, name)
    world.clock.advance("2m")


def performed_just_now(world: World, name: str) -> None:
    enter_again(world, name)


async def aperformed_just_now(world: World, name: str) -> None:
    await aenter_again(world, name)


def abandoned(world: World, name: str) -> None:
    """Claim, and never be heard of again."""
    cf = world.open()
    job = cf.desk.job(declared(name), {"title": "Printer"}, TRUSTED, NOWHERE)
    cf.desk.store.write(lambda: claims.claim(job.request))
    world.clock.advance("2m")


# --- rows of business ------------------------------------------------------------------------------------------------


@effect("booking", key="{request_id}/booking", provider=Provider.transactional())
def booking(tx: Any, *, title: str) -> dict[str, str]:
    tx.execute("insert into booking default values")
    return {"title": title}


@effect("booking/async", key="{request_id}/booking", provider=Provider.transactional())
async def awaiting_booking(tx: Any, *, title: str) -> dict[str, str]:
    await tx.execute("insert into booking default values")
    return {"title": title}


@effect("booking/statement", key="{request_id}/booking", provider=Provider.one_statement())
def stated_booking(call: Any, *, title: str) -> Statement[Any]:
    return Statement("insert into booking default values returning title")


def business_tables(world: World, name: str = "") -> None:
    world.open().desk.store.write(make_business_tables)


def make_business_tables() -> Script[None]:
    yield Ddl("create table booking (title text default 'Room')")
    yield Ddl("create table orders (title text default 'Room')")


def begun(world: World) -> Any:
    """Open a connection of the caller's own, with a transaction open on it."""
    if world.url.startswith("postgresql"):
        connection: Any = psycopg.connect(world.url, autocommit=True)
        connection.execute("begin")
    else:
        connection = sqlite3.connect(world.url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("begin immediate")
    return connection


def joined(world: World, made: Any = booking) -> None:
    """Write business rows and the effect in one transaction of the caller's own; its COMMIT is a point, too."""
    cf = world.open()
    with closing(begun(world)) as connection:
        if cf.join(connection).perform(made, title="Room", **WHO).answered_from == "effect":
            connection.execute("insert into orders default values")
        world.probe(Point.BEFORE_COMMIT, "caller")
        connection.execute("commit")
        world.probe(Point.AFTER_STATEMENT, "caller")  # its own COMMIT cannot get lost on the way to Counterfoil


def rows_follow_receipts(aftermath: Aftermath) -> Iterator[str]:
    settled = [row for row in aftermath.contents.operations if row["receipt"] is not None]
    bookings = len(aftermath.world.rows("select title from booking"))
    if bookings != len(settled):
        yield f"{bookings} bookings for {len(settled)} receipts"


def orders_follow_receipts(aftermath: Aftermath) -> Iterator[str]:
    found = tuple(len(aftermath.world.rows(f"select title from {table}")) for table in ("orders", "booking"))  # noqa: S608 - ours
    if found != (1, 1):
        yield f"orders and bookings: {found}"


# --- the list --------------------------------------------------------------------------------------------------------


def both(name: str, run: Any, arun: Any, effect_name: str | None = None, **fields: Any) -> tuple[Scenario, Scenario]:
    """Return a scenario in both colours; `prepare` may be one body or a pair of them."""
    named = {} if effect_name is None else {"name": effect_name}
    before, abefore = fields.pop("prepare", (None, None))
    blocking = Scenario(name=name, run=partial(run, **named), prepare=_named(before, named), **fields)
    awaiting = Scenario(name=f"{name}/async", run=partial(arun, **named), prepare=_named(abefore, named), **fields)
    return blocking, awaiting


def _named(body: Any, named: dict[str, str]) -> Any:
    return None if body is None else partial(body, **named)


def performs(name: str, provider: Provider, do: Do, ado: ADo | None = None, **fields: Any) -> tuple[Scenario, Scenario]:
    return both(name, perform, aperform, declare(name, provider, do, ado), **fields)


def judged(verdict: str, name: str, **fields: Any) -> tuple[Scenario, Scenario]:
    run, arun = partial(judge, verdict=verdict), partial(ajudge, verdict=verdict)
    return both(name, run, arun, name, prepare=LOST, **fields)


MAYBE = SUCCEEDED | UNKNOWN
LOST = (performed, aperformed)
ROWS = (ledger_invariants, rows_follow_receipts)

PLAIN: tuple[Scenario, ...] = (
    *performs("opaque", OPAQUE, accept, may_end=MAYBE),
    *performs("keyed", KEYED, accept, traits=HONOURS_KEYS),
    *performs("queryable", QUERYABLE, accept, traits=LAGS),
    *performs("keyed-and-queryable", BOTH, accept, traits=HONOURS_KEYS),
    Scenario(name="opaque/blocking-in-async", run=partial(aperform_blocking, name="opaque"), may_end=MAYBE),
    *performs("refused", OPAQUE, refuse, may_end=FAILED | UNKNOWN),
    *performs("not-sent", OPAQUE, not_sent_at_first, may_end=MAYBE),
    *performs("timed-out", OPAQUE, lose_reply, may_end=UNKNOWN),
    *both("two-tenants", perform_several, aperform_several, "keyed", traits=HONOURS_KEYS, operations=2),
    Scenario(
        name="cancelled/async",
        run=partial(aperform_cancelled, name=declare("cancelled", OPAQUE, accept, cancelled)),
        may_end=UNKNOWN,
    ),
)

LATER: tuple[Scenario, ...] = (
    *performs("found", QUERYABLE, lose_reply, prepare=LOST, traits=LAGS),
    *performs("absent", QUERYABLE, lose_request, prepare=LOST, traits=LAGS),
    *performs("absent-reviewed", REVIEWED, lose_request, prepare=LOST, traits=LAGS, may_end=UNKNOWN),
    *performs("cannot-tell", SILENT, lose_reply, prepare=LOST, may_end=UNKNOWN),
    *performs("keyed-lost", KEYED, lose_reply, prepare=LOST, traits=HONOURS_KEYS),
    *performs("keyed-cannot-tell", BOTH_SILENT, lose_reply, prepare=LOST, traits=HONOURS_KEYS),
    *performs("too-early", QUERYABLE, lose_reply, prepare=(performed_just_now, aperformed_just_now), traits=LAGS),
    *performs("key-expired", KEYED, lose_reply, traits=HONOURS_KEYS, patience="25h", may_end=UNKNOWN),
    *performs("key-expired-found", BOTH, lose_reply, traits=HONOURS_KEYS, patience="25h"),
)

LEASES: tuple[Scenario, ...] = (
    Scenario(
        name="taken-over-opaque",
        run=partial(perform, name="opaque"),
        prepare=partial(abandoned, name="opaque"),
        may_end=UNKNOWN,
    ),
    Scenario(
        name="taken-over-keyed",
        run=partial(perform, name="keyed"),
        prepare=partial(abandoned, name="keyed"),
        traits=HONOURS_KEYS,
    ),
    Scenario(
        name="taken-over-queryable",
        run=partial(perform, name="queryable"),
        prepare=partial(abandoned, name="queryable"),
        traits=LAGS,
    ),
    Scenario(
        name="taken-over-keyed/async",
        run=partial(aperform, name="keyed"),
        prepare=partial(abandoned, name="keyed/async"),
        traits=HONOURS_KEYS,
    ),
    Scenario(
        name="taken-over-queryable/async",
        run=partial(aperform, name="queryable"),
        prepare=partial(abandoned, name="queryable/async"),
        traits=LAGS,
    ),
    *performs("late-opaque", OPAQUE, late, alate, may_end=MAYBE),
    *performs("late-keyed", KEYED, late, alate, traits=HONOURS_KEYS),
    *performs("late-queryable", QUERYABLE, late, alate, traits=LAGS),
    *performs("late-time-out", QUERYABLE, late_timeout, alate_timeout, traits=LAGS),
)

VERIFIED: tuple[Scenario, ...] = (
    *both("verified", verify, averify, "queryable", prepare=LOST, traits=LAGS),
    *both("verified-unknown", verify, averify, "found", prepare=LOST, traits=LAGS),
)

JUDGED: tuple[Scenario, ...] = (
    *judged("happened", declare("judged-happened", OPAQUE, lose_reply)),
    *judged("did_not_happen_retry", declare("judged-retry", OPAQUE, lose_request)),
    *judged("did_not_happen_close", declare("judged-close", OPAQUE, lose_request), may_end=FAILED),
    *both("review-opened", open_case, aopen_case, "opaque", prepare=(abandoned, abandoned), may_end=UNKNOWN),
)

TRANSACTIONAL: tuple[Scenario, ...] = (
    *both("transactional", perform, aperform, "booking", prepare=(business_tables, business_tables), checks=ROWS),
    Scenario(
        name="transactional/blocking-in-async",
        run=partial(aperform_blocking, name="booking"),
        prepare=business_tables,
        checks=ROWS,
    ),
    *both(
        "statement",
        perform,
        aperform_blocking,
        "booking/statement",
        prepare=(business_tables, business_tables),
        checks=ROWS,
    ),
    Scenario(name="joined", run=joined, prepare=business_tables, checks=(*ROWS, orders_follow_receipts)),
    Scenario(
        name="joined-statement",
        run=partial(joined, made=stated_booking),
        prepare=business_tables,
        checks=(*ROWS, orders_follow_receipts),
    ),
)

OPENING: tuple[Scenario, ...] = (*both("opened", open_only, aopen_only, fresh=True, operations=0, entries=2),)

ALL = (*PLAIN, *LATER, *LEASES, *VERIFIED, *JUDGED, *TRANSACTIONAL, *OPENING)
BY_NAME = {scenario.name: scenario for scenario in ALL}
assert len(BY_NAME) == len(ALL)
