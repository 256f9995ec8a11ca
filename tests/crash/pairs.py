"""Two workers that meet: claims, settles, look-ups, verdicts, threads and rows of business, each against another.

The first worker is a crash scenario; the second acts between any two of its steps, and the other way round.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from langgraph.runtime import RunControl

from counterfoil import EffectCall, NotSent, Provider, Refused, effect
from counterfoil.errors import VerdictConflict
from counterfoil.langgraph.claims import LEASE_MS, claim_now, owning, with_run
from counterfoil.model import OperationKey
from counterfoil.storage.scripts import leases, threads
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.scenario import Aftermath, Body, Check, Scenario
from counterfoil.testing.world import World
from tests.crash import threads as of_threads
from tests.crash.graphs import checkpoints_are_linked, values_are_stored
from tests.crash.scenarios import (
    FAILED,
    HONOURS_KEYS,
    KEYED,
    LAGS,
    MAYBE,
    OPAQUE,
    QUERYABLE,
    ROWS,
    SUCCEEDED,
    UNKNOWN,
    WHO,
    abandoned,
    accept,
    aperform,
    aperformed,
    booking,
    business_tables,
    declare,
    declared,
    joined,
    open_case,
    perform,
    performed,
    verify,
)

RETURNED, BUSY, OPEN, LOST = "returned", "OperationInProgress", "OutcomeUnknown", "FenceLost"
NOT_SENT, REFUSED, CONFLICT, NONE = "EffectNotSent", "EffectRefused", "VerdictConflict", "OperationNotFound"
TAKEN, MOVED = "ThreadBusy", "VersionConflict"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two workers, and every way in which they may end when neither dies."""

    scenario: Scenario
    second: Body
    first_ends: frozenset[str]
    second_ends: frozenset[str]
    one_wins: bool = False
    """Whether exactly one of the two returns."""

    @property
    def name(self) -> str:
        return self.scenario.name


def pair(
    name: str,
    first: Body,
    second: Body,
    first_ends: set[str],
    second_ends: set[str] | None = None,
    *,
    one_wins: bool = False,
    **fields: Any,
) -> Pair:
    return Pair(
        one_wins=one_wins,
        scenario=Scenario(name=name, run=first, **{"entries": 2, **fields}),
        second=second,
        first_ends=frozenset(first_ends),
        second_ends=frozenset(first_ends if second_ends is None else second_ends),
    )


# --- effects that outlast their claims -------------------------------------------------------------------------------

Do = Callable[[EffectCall], Any]


def outlasting(end: Do) -> Do:
    """Return an effect whose first attempt hangs until its claim is over, and then ends."""

    def do(call: EffectCall) -> Any:
        if call.attempt > 1:
            return accept(call)
        return end(call)

    return do


def hang(call: EffectCall) -> None:
    call.resource(World).clock.advance("10m")


def reply_late(call: EffectCall) -> Any:
    accepted = accept(call)
    hang(call)
    return accepted


def time_out_late(call: EffectCall) -> Any:
    reply_late(call)
    raise TimeoutError


def lose_request_late(call: EffectCall) -> Any:
    hang(call)
    raise TimeoutError


def not_sent_late(call: EffectCall) -> Any:
    hang(call)
    raise NotSent("connection refused")


def refused_late(call: EffectCall) -> Any:
    hang(call)
    raise Refused("no such card")


def overtaken(name: str, provider: Provider, end: Do, ends: set[str], **fields: Any) -> Pair:
    """Let a second performer come while the effect of the one who was first outlasts its claim."""
    declare(name, provider, outlasting(end))
    return pair(name, partial(perform, name=name), partial(perform, name=name), ends, **fields)


# --- verdicts --------------------------------------------------------------------------------------------------------


def rule(world: World, verdict: str, by: str = "ada", value: Any = None) -> None:
    """Give a verdict on the case as it was in the beginning; whoever comes too late hears who was first."""
    happened = verdict == "happened"
    seen: dict[str, Any] = {"tenant": WHO["tenant"], "expect_version": 1, "reason": "seen in the provider's list"}
    seen |= {"evidence": "a mail from the provider", "value": value} if happened else {}
    try:
        world.open().review.resolve("case-1", verdict=verdict, by=by, **seen)
    except VerdictConflict as conflict:
        if "permitted" in conflict.facts:
            raise AssertionError("it was refused for another reason than that it came too late") from conflict
        raise


def open_and_rule(world: World, name: str, verdict: str) -> None:
    """Ask for a case about an operation, and give a verdict on it."""
    cf = world.open()
    case = cf.review.open(f"r-1/{name}", tenant=WHO["tenant"])
    evidence = '{"number": 1}' if verdict == "happened" else None
    given: dict[str, Any] = {"verdict": verdict, "by": "ada", "reason": "seen", "evidence": evidence}
    cf.review.resolve(case.case_id, tenant=WHO["tenant"], expect_version=case.version, **given)


def one_verdict_each(after: Aftermath) -> Iterator[str]:
    """Find verdicts that did not make it into their case, and cases that nobody's verdict is kept of."""
    for case in after.contents.cases:
        kept = [each["given_by"] for each in after.contents.evidence if each["kind"] == "verdict"]
        told = [] if case["verdict"] is None else [case["verdict_by"]]
        if kept != told:
            yield f"case {case['seq']} was judged by {told}, evidence is kept of {kept}"


JUDGED: tuple[Check, ...] = (ledger_invariants, one_verdict_each)


# --- heartbeats ------------------------------------------------------------------------------------------------------


def beat(world: World, name: str) -> None:
    """Beat for the abandoned claim; a beat that is late is refused once another one holds the claim."""
    cf = world.open()
    key = OperationKey(tenant=WHO["tenant"], operation_id=f"r-1/{name}")
    for _ in range(2):
        cf.desk.store.write(lambda: leases.renew(key, fence=1, lease=declared(name).facts.lease))


# --- rows of business ------------------------------------------------------------------------------------------------


@effect("pairs/booking", key="{request_id}/booking", provider=Provider.transactional())
def failing_booking(tx: Any, *, title: str) -> None:
    tx.execute("insert into booking default values")
    raise Refused("the room is closed")


def book(world: World) -> None:
    world.open().perform(booking, title="Room", **WHO)


def fail_to_book(world: World) -> None:
    with suppress(Refused):
        world.open().perform(failing_booking, title="Printer", **WHO)


# --- threads ---------------------------------------------------------------------------------------------------------


def run_on(world: World) -> None:
    """Claim a thread, store a checkpoint, outlast the claim, and try to store more."""
    cf = world.open()
    claimed, _ = claim_now(cf.desk, cf.config(**of_threads.WHO), None)
    saver, config = cf.saver(), with_run(cf.config(**of_threads.WHO), claimed)
    place = of_threads.place
    with owning(claimed, RunControl()):
        first, second = of_threads.made("0001"), of_threads.made("0002")
        saver.put(place(config), first, of_threads.METADATA, first["channel_versions"])
        world.clock.advance("2m")
        saver.put_writes(place(config, "0001"), of_threads.WRITES, "task", "path")
        saver.put(place(config, "0001"), second, of_threads.METADATA, second["channel_versions"])


def beat_on(world: World) -> None:
    """Own a thread, and beat once in time and once too late."""
    cf = world.open()
    claimed, _ = claim_now(cf.desk, cf.config(**of_threads.WHO), None)
    with owning(claimed, RunControl()):
        for pause in ("20s", "2m"):
            world.clock.advance(pause)
            cf.desk.store.write(lambda: threads.renew(of_threads.KEY, attempt=claimed.attempt, lease=LEASE_MS))


def copy(world: World) -> None:
    world.open().saver(tenant="team-A").copy_thread("t-1", "t-2")


def prune(world: World) -> None:
    world.open().saver(tenant="team-A").prune(["t-1"])


def fork(world: World, at: str | None = None) -> None:
    world.open().fork("t-1", at, branch="what-if", tenant="team-A")


def owners_follow_each_other(after: Aftermath) -> Iterator[str]:
    """Find what a run has stored after another one had taken its thread."""
    rows = after.world.rows("select thread_id, seq, attempt from counterfoil_checkpoint order by thread_id, seq")
    for one, other in pairwise(rows):
        if one["thread_id"] == other["thread_id"] and one["attempt"] > other["attempt"]:
            yield f"a checkpoint of run {one['attempt']} was stored after one of run {other['attempt']}"


def nobody_owns_it(after: Aftermath) -> Iterator[str]:
    """Find a thread that its last run has not given back; there is none if none began."""
    for row in after.world.rows("select state, holder, parked_on from counterfoil_thread"):
        if tuple(row.values()) != ("idle", None, None):
            yield f"the thread is {tuple(row.values())}"


UPKEPT = (owners_follow_each_other, nobody_owns_it, values_are_stored)
OWNED = (*UPKEPT, checkpoints_are_linked)

# --- the list --------------------------------------------------------------------------------------------------------

EITHER = SUCCEEDED | FAILED


def both(name: str) -> tuple[Body, Body]:
    return partial(perform, name=name), partial(perform, name=name)


def aboth(name: str) -> tuple[Body, Body]:
    return partial(aperform, name=name), partial(aperform, name=name)


def claims(name: str, ends: set[str], prepare: Body | None = None, **fields: Any) -> Pair:
    """Two performers of one operation."""
    return pair(f"{name}/{name}", *both(name), ends, prepare=prepare, **fields)


def before(name: str) -> Body:
    """Let an outcome be unknown, and its case be open."""
    return partial(performed, name=name)


def abefore(name: str) -> Body:
    return partial(aperformed, name=name)


def left(name: str) -> Body:
    """Let a claim be over of which nobody has heard."""
    return partial(abandoned, name=name)


CLAIMS = (
    claims("opaque", {RETURNED, BUSY}, may_end=MAYBE),
    claims("keyed", {RETURNED, BUSY}, traits=HONOURS_KEYS),
    pair("opaque/opaque, awaiting", *aboth("opaque"), {RETURNED, BUSY}, may_end=MAYBE),
    pair("take-over/take-over, opaque", *both("opaque"), {OPEN}, prepare=left("opaque"), may_end=UNKNOWN),
    pair("take-over/take-over, keyed", *both("keyed"), {RETURNED, BUSY}, prepare=left("keyed"), traits=HONOURS_KEYS),
    pair(
        "take-over/take-over, queryable", *both("queryable"), {RETURNED, BUSY}, prepare=left("queryable"), traits=LAGS
    ),
    pair(
        "take-over/case",
        partial(perform, name="opaque"),
        partial(open_case, name="opaque"),
        {OPEN},
        {RETURNED},
        prepare=left("opaque"),
        may_end=UNKNOWN,
    ),
    pair(
        "take-over/beat",
        partial(perform, name="keyed"),
        partial(beat, name="keyed"),
        {RETURNED, BUSY},
        {RETURNED},
        prepare=left("keyed"),
        traits=HONOURS_KEYS,
    ),
)

LATE = (
    overtaken("overtaken-opaque", OPAQUE, reply_late, {RETURNED, BUSY, OPEN}, may_end=MAYBE),
    overtaken("overtaken-keyed", KEYED, reply_late, {RETURNED, BUSY, LOST}, traits=HONOURS_KEYS),
    overtaken("overtaken-queryable", QUERYABLE, reply_late, {RETURNED, BUSY}, traits=LAGS),
    overtaken("timed-out-late", QUERYABLE, time_out_late, {RETURNED, BUSY}, traits=LAGS),
    overtaken("request-lost-late", QUERYABLE, lose_request_late, {RETURNED, BUSY, NOT_SENT}, traits=LAGS),
    overtaken("not-sent-late", OPAQUE, not_sent_late, {RETURNED, BUSY, NOT_SENT, OPEN}, may_end=MAYBE),
    overtaken("refused-late", OPAQUE, refused_late, {REFUSED, BUSY, OPEN}, may_end=FAILED | UNKNOWN),
)

declare("unsent", OPAQUE, outlasting(lose_request_late))
RULED = {RETURNED, BUSY, CONFLICT, NONE}


def overruled(end: str, name: str, verdict: str, ends: set[str], **fields: Any) -> Pair:
    """Let a person judge an operation whose effect outlasts its claim."""
    first, second = partial(perform, name=name), partial(open_and_rule, name=name, verdict=verdict)
    return pair(f"{end}/{verdict}", first, second, ends, RULED, checks=JUDGED, **fields)


def verdicts(name: str, first: Body, second: Body, **fields: Any) -> Pair:
    """Two verdicts on the case of one operation, which is performed again after them."""
    whole = {"prepare": before(name), "recover": partial(perform, name=name), "checks": JUDGED, **fields}
    return pair(f"two verdicts on {name}", first, second, {RETURNED, CONFLICT}, **whole)


def answered(name: str, verdict: str, first_ends: set[str], **fields: Any) -> Pair:
    """A look-up against a verdict."""
    first, second = partial(perform, name=name), partial(rule, verdict=verdict)
    whole = {"prepare": before(name), "traits": LAGS, **fields}
    return pair(f"look-up/{verdict}", first, second, first_ends, {RETURNED, CONFLICT}, **whole)


HAPPENED, RETRY, CLOSE = "happened", "did_not_happen_retry", "did_not_happen_close"
VERDICTS = (
    overruled("late reply", "overtaken-opaque", HAPPENED, {RETURNED}, may_end=MAYBE),
    overruled("late time-out", "unsent", RETRY, {OPEN, NOT_SENT}, may_end=MAYBE),
    overruled("late time-out", "unsent", CLOSE, {OPEN, REFUSED}, may_end=FAILED | UNKNOWN),
    verdicts("judged-retry", partial(rule, verdict=RETRY), partial(rule, verdict=CLOSE, by="bob"), may_end=EITHER),
    verdicts(
        "judged-happened",
        partial(rule, verdict=HAPPENED, value={"number": 1}),
        partial(rule, verdict=HAPPENED, by="bob", value={"number": 2}),
    ),
    answered("found", HAPPENED, {RETURNED}),
    answered("absent", RETRY, {RETURNED}),
    answered("absent", CLOSE, {RETURNED, REFUSED}, may_end=EITHER),
    pair(
        "verify/happened",
        partial(verify, name="found"),
        partial(rule, verdict=HAPPENED, value={"number": 1}),
        {RETURNED},
        {RETURNED, CONFLICT},
        prepare=before("found"),
        traits=LAGS,
    ),
)

LOOKUPS = (
    claims("found", {RETURNED}, before("found"), traits=LAGS),
    claims("absent", {RETURNED, BUSY}, before("absent"), traits=LAGS),
    claims("cannot-tell", {OPEN}, before("cannot-tell"), may_end=UNKNOWN),
    claims("keyed-lost", {RETURNED, BUSY}, before("keyed-lost"), traits=HONOURS_KEYS),
    pair("found/found, awaiting", *aboth("found"), {RETURNED}, prepare=abefore("found"), traits=LAGS),
    pair(
        "verify/look-up",
        partial(verify, name="found"),
        partial(perform, name="found"),
        {RETURNED},
        prepare=before("found"),
        traits=LAGS,
    ),
)


def bookings(name: str, first: Body, second: Body, **fields: Any) -> Pair:
    return pair(name, first, second, {RETURNED}, prepare=business_tables, checks=ROWS, **fields)


BUSINESS = (
    bookings("booking/booking", *both("booking")),
    bookings("booking/booking, awaiting", *aboth("booking")),
    bookings("joined/joined", joined, joined),
    bookings("joined/booking", joined, book),
    bookings("failing/failing", fail_to_book, fail_to_book, operations=0),
)


def runs(name: str, first: Body, second: Body, *ends: set[str], **fields: Any) -> Pair:
    return pair(name, first, second, *ends, operations=0, **{"checks": OWNED, **fields})


WHOLE = (of_threads.ENDED, *OWNED)
THREADS = (
    runs("run/run", of_threads.run, of_threads.run, {RETURNED, TAKEN}, checks=WHOLE),
    runs("run/run, awaiting", of_threads.arun, of_threads.arun, {RETURNED, TAKEN}, checks=WHOLE),
    runs(
        "run/run, after a lost one",
        of_threads.run,
        of_threads.run,
        {RETURNED, TAKEN},
        checks=WHOLE,
        prepare=of_threads.abandoned,
    ),
    runs(
        "run/run, after a dead one",
        of_threads.run,
        of_threads.run,
        {RETURNED, TAKEN},
        checks=WHOLE,
        prepare=of_threads.held_by_the_dead,
    ),
    runs("outlasted/run", run_on, of_threads.run, {RETURNED, TAKEN, MOVED}, {RETURNED, TAKEN}),
    runs("outlasted/outlasted", run_on, run_on, {RETURNED, TAKEN, MOVED}),
    runs("outlasted/delete", run_on, of_threads.delete, {RETURNED, MOVED}, {RETURNED}),
    runs("beating/run", beat_on, of_threads.run, {RETURNED, TAKEN}),
)


def upkeep(name: str, first: Body, second: Body, *ends: set[str], **fields: Any) -> Pair:
    return runs(name, first, second, *ends, prepare=of_threads.run, **{"checks": UPKEPT, **fields})


UPKEEP = (
    upkeep("outlasted/prune", run_on, prune, {RETURNED, MOVED, TAKEN}, {RETURNED, TAKEN}),
    upkeep("outlasted/copy", run_on, copy, {RETURNED}),
    upkeep("outlasted/fork", run_on, fork, {RETURNED}),
    upkeep("copy/copy", copy, copy, {RETURNED}, checks=OWNED),
    upkeep("copy/delete", copy, of_threads.delete, {RETURNED}),
    upkeep("copy/prune", copy, prune, {RETURNED}),
    upkeep("fork/delete", fork, of_threads.delete, {RETURNED, "CheckpointNotFound"}, {RETURNED}),
    upkeep("fork/prune", partial(fork, at="0001"), prune, {RETURNED, "CheckpointNotFound"}, {RETURNED}),
    upkeep("fork/fork", fork, fork, {RETURNED}),
    upkeep("fork/fork elsewhere", fork, partial(fork, at="0001"), {RETURNED, "BranchTaken"}),
    upkeep("prune/prune", prune, prune, {RETURNED}),
    upkeep("delete/delete", of_threads.delete, of_threads.delete, {RETURNED}),
)

PAIRS = (*CLAIMS, *LATE, *VERDICTS, *LOOKUPS, *BUSINESS, *THREADS, *UPKEEP)
