"""What `perform` does, once for both colours: a generator of steps that a blocking and an awaiting runner consume.

Per entry it makes at most one attempt and one look-up and never sleeps except to wait, bounded, for another caller.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

from counterfoil import answers
from counterfoil.core.effects import (
    AlreadySettled,
    AwaitsApproval,
    Closed,
    Held,
    MayClaim,
    Mismatch,
    NeedsApproval,
    OtherVersion,
    SameEffect,
    Superseded,
    Unsettled,
    WrongEffect,
)
from counterfoil.core.states import OperationState
from counterfoil.core.unknown import AskProvider, Resend
from counterfoil.effects import REGISTRY, Bound, Effect, EffectCall, MakeCall
from counterfoil.errors import CommitUnknown, InvalidLookupAnswer, StoreError, StoreUnavailable
from counterfoil.model import CannotTell, Found, LookupAnswer, NotSent, OperationKey, Receipt
from counterfoil.providing import answer_type
from counterfoil.results import NeverStarted, Result, Returned, found_outcome, outcome_of, storable
from counterfoil.storage import rows
from counterfoil.storage.scripts import approvals, claims, grants, lookups, settling
from counterfoil.storage.scripts.claims import Granted, LostRace, NoRow, Request, Seen
from counterfoil.storage.scripts.lookups import MayRetry, StillUnknown
from counterfoil.storage.scripts.settling import Late, Settled

if TYPE_CHECKING:
    from counterfoil.storage.script import Maker, Row

LOST_COMMITS = 2
"""Commits of a claim that may fail in one entry before the database is held to be out of order."""
SETTLE_TRIES = 3
"""Each waits for the database's lock as long as any write does: half a minute in all."""


@dataclass(frozen=True, slots=True)
class Read:
    """Run a script of reads."""

    maker: Maker[Any]


@dataclass(frozen=True, slots=True)
class Look:
    """Run a script that reads, or one that also claims: in one statement where the database can, or after a peek."""

    maker: Maker[Any]
    at_once: Maker[Any]
    in_turn: Maker[Any]


@dataclass(frozen=True, slots=True)
class Write:
    """Run a script in a transaction."""

    maker: Maker[Any]


@dataclass(frozen=True, slots=True)
class RunEffect:
    """Run the effect once; the answer is `Returned`, `Raised` or `NeverStarted`."""

    effect: Effect[Any]
    call: EffectCall
    arguments: Mapping[str, Any]
    key: OperationKey
    granted: Granted
    late: Callable[[Result], Maker[Any]]


@dataclass(frozen=True, slots=True)
class RunLookup:
    """Ask the provider."""

    function: Callable[..., Any]
    call: EffectCall
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskLiveness:
    """Ask the operating system whether a holder is certainly dead."""

    holder: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait a little for another caller; the answer says whether the bound is reached."""


Step: TypeAlias = Read | Look | Write | RunEffect | RunLookup | AskLiveness | Pause
T = TypeVar("T")
Protocol: TypeAlias = Generator[Step, Any, T]


@dataclass(slots=True)
class Job:
    """One entry into `perform`, and what it has done so far."""

    effect: Effect[Any]
    bound: Bound
    request: Request
    make_call: MakeCall
    follow: Callable[[Job, Row], Job] | None = None
    """How to go on with the operation that follows one which a person edited."""
    went_back: bool = False
    asked: bool = False
    attempted: bool = False
    error: BaseException | None = None
    lost_commits: int = 0
    lost: CommitUnknown | None = None

    @property
    def key(self) -> OperationKey:
        """Return the operation's key."""
        return self.request.key

    def call(self, attempt: int) -> EffectCall:
        """Return what the effect or look-up is told."""
        return self.make_call(self.effect, attempt, sends_once=False)

    def sending(self, attempt: int) -> EffectCall:
        """Return what the effect is told: without a key it may not act twice."""
        return self.make_call(self.effect, attempt, sends_once=self.effect.facts.key_lifetime is None)

    def arguments(self, content: bytes, payload: bytes) -> Mapping[str, Any]:
        """Return the arguments to send: the caller's own if they are what was stored, otherwise the stored ones."""
        if content == self.request.digests.content and not self.went_back:
            return self.bound.arguments
        return self.effect.rehydrate(payload)

    def permitted(self, content: bytes, payload: bytes) -> Mapping[str, Any]:
        """Return the arguments that a person permitted, as they are stored: the caller may have altered its own."""
        own = self.bound.arguments
        if self.went_back or not own or self.effect.bind(own, self.request.trusted).digests.content != content:
            return self.effect.rehydrate(payload)
        return self.effect.apart(own, payload)

    def become(self, row: Row) -> None:
        """Go on with the operation that follows one which a person edited, with the arguments stored there."""
        if self.follow is None:
            raise LookupError(f"operation {self.key} leads nowhere")
        other = self.follow(self, row)
        self.bound, self.request, self.make_call = other.bound, other.request, other.make_call
        self.went_back = True

    def take_stored(self, row: Row) -> None:
        """Go on with the stored arguments: they are what was approved."""
        self.bound = replace(self.bound, arguments=self.permitted(row["content_digest"], row["payload"]))
        digests = replace(self.request.digests, content=row["content_digest"])
        self.request = replace(self.request, digests=digests)

    def go_on_as(self, begun: Effect[Any]) -> None:
        """Go on under the version that began the operation: an unsettled row goes only to that one."""
        self.effect = begun
        self.went_back = True
        self.request = replace(self.request, effect_version=begun.version, facts=begun.facts)


def perform(job: Job) -> Protocol[Receipt[Any]]:  # noqa: C901, PLR0912 - one arm for each thing that can be seen, each a line or two
    """Perform one operation: answer from its row, or claim, run the effect and settle."""
    seen: Any = yield from _open(job)
    while True:
        match seen:
            case Receipt():
                return seen
            case Seen(AlreadySettled()):  # before the others, as the commonest by far
                return answers.conclude(job.effect, job.bound, seen, job.error)
            case Granted():
                seen = yield from _attempt(job, seen)
            case LostRace():
                seen = yield from _look(job)
            case MayRetry() if not job.attempted:
                seen = yield from _look(job)
            case Seen(Held() as held, row):
                yield from _wait(job, held, row)
                seen = yield from _look(job)
            case _ if _claimable(job, seen):
                seen = yield from _claim(job)
            case Seen(Unsettled(AskProvider(asked_at), expired=False), row) if not job.asked:
                seen = yield from ask_and_record(job, row, asked_at)
            case Seen(Closed()) if seen.was_edited:
                seen = yield from _follow(job, seen)
            case Seen(Closed(OperationState.REJECTED), approval=asked) if _is_anothers(asked, job):
                yield Write(partial(approvals.note_try, job.request, asked))
                return answers.conclude(job.effect, job.bound, seen, job.error)
            case Seen(Mismatch() | WrongEffect(), row) if job.request.strict:
                yield Write(partial(grants.invented, job.request, row))
                return answers.conclude(job.effect, job.bound, seen, job.error)
            case Seen(OtherVersion(stored)) if (begun := REGISTRY.find(job.effect.name, stored)) is not None:
                job.go_on_as(begun)
                seen = yield from _look(job)
            case StillUnknown(plan=Resend(), row=row) if not job.attempted:
                seen = yield from _claim_resend(job, row["version"])
            case _:
                return answers.conclude(job.effect, job.bound, seen, job.error)


def _wait(job: Job, held: Held, row: Row) -> Protocol[None]:
    """Wait a little for the holder, unless it is certainly dead: then its lease no longer counts."""
    if held.holder != job.request.known_dead and (yield AskLiveness(held.holder)):
        job.request = replace(job.request, known_dead=held.holder)
    elif (yield Pause()):
        raise answers.in_progress(job.key, held, row)


def _follow(job: Job, seen: Seen) -> Protocol[Any]:
    """Go on with the operation that follows one which a person edited; who asks anew asks for one of its own."""
    if seen.follower is None:
        return (yield from _claimed(job, lambda: claims.ask_anew(job.request)))
    yield from go_on_with(job, seen.follower)
    return (yield from _look(job))


def go_on_with(job: Job, follower: Row) -> Generator[Read, Any, None]:
    """Let an entry be one into the operation that follows an edited one."""
    key = OperationKey(tenant=job.key.tenant, operation_id=follower["operation_id"])
    row = yield Read(lambda: claims.existing_operation(key))
    job.become(row)


def _open(job: Job) -> Protocol[Any]:
    if job.request.gate is not None or job.request.strict:
        return (yield from _look(job))
    try:
        request = job.request
        return (
            yield Look(
                partial(claims.look, request),
                partial(claims.look_or_claim, request),
                partial(claims.look_then_claim, request),
            )
        )
    except CommitUnknown as error:
        return (yield from _find_claim(job, error))


def _is_anothers(approval: Row | None, job: Job) -> TypeGuard[Row]:
    """Say whether some other step than this one asked a person."""
    return approval is not None and approval["asker"] != job.request.asker


def _look(job: Job) -> Protocol[Seen | NoRow]:
    seen: Seen | NoRow = yield Read(lambda: claims.look(job.request))
    return seen


def _claimable(job: Job, seen: object) -> bool:
    """Say whether a claim would change anything; everything else is answered from the read alone."""
    match seen:
        case NoRow() | Seen(MayClaim()) | Seen(Unsettled(expired=True)) | Seen(Unsettled(plan=Resend())):
            return not job.attempted
        case Seen(NeedsApproval()) | Seen(AwaitsApproval(is_over=True)):
            return True
        case _:
            return False


# --- claim, attempt, settle ------------------------------------------------------------------------------------------


def _claim(job: Job) -> Protocol[Any]:
    return (yield from _claimed(job, lambda: claims.claim(job.request)))


def _claim_resend(job: Job, version: int) -> Protocol[Any]:
    return (yield from _claimed(job, lambda: claims.claim_resend(job.request, version)))


def _claimed(job: Job, maker: Maker[Any]) -> Protocol[Any]:
    try:
        return (yield Write(maker))
    except CommitUnknown as error:
        return (yield from _find_claim(job, error))
    except StoreError as error:
        if job.lost is None:
            raise
        raise job.lost from error  # an earlier claim's COMMIT may be on its way still


def _find_claim(job: Job, lost: CommitUnknown) -> Protocol[Any]:
    """Look up whether a claim took effect whose COMMIT nobody heard of; if not, the database could not do its work.

    One that did not is claimed again, but not without end: where the disk is full that would go round for ever.
    """
    job.lost = lost
    with lost.outlasting():
        seen = yield Read(lambda: claims.find_claim(job.request))
    job.lost_commits += 1
    if _claimable(job, seen) and job.lost_commits > LOST_COMMITS:
        raise StoreUnavailable(
            f"Operation {job.key} could not be claimed: the database failed to commit, and the claim is not in it."
            " Nothing was sent. Check the free disk space, then call again."
        ) from lost
    return seen


def _attempt(job: Job, granted: Granted) -> Protocol[Any]:
    """Run the effect once and settle; what did not succeed goes back to be looked at."""
    job.attempted = True
    result: Result = _unasked(job, granted) or (yield from run(job, granted))
    settled = yield from _settle(job, recording(job, granted, result), result)
    job.error = None if isinstance(result, Returned) else result.error
    if isinstance(result, NeverStarted) or not isinstance(job.error, Exception | None):
        _raise_own(job.error)
    match settled:
        case Settled(row) if isinstance(result, Returned):
            return rows.receipt(row, "effect")
        case Late(SameEffect(), row):
            return rows.receipt(row, "receipt")
        case Late(Superseded(), row):
            raise answers.superseded(job.key, row) from job.error
        case _:
            return (yield from _look(job))


def _unasked(job: Job, granted: Granted) -> NeverStarted | None:
    """Keep stored arguments from being sent that a person must permit, where the caller's own need no decision."""
    if granted.was_asked or granted.content == job.request.digests.content:
        return None
    try:
        gate = job.effect.stored_gate(granted.payload)
    except BaseException as error:  # noqa: BLE001 - the claim is taken: that nothing was sent must be recorded
        return NeverStarted(error)
    if gate is None:
        return None
    job.request = replace(job.request, gate=gate)
    return NeverStarted(NotSent("what is stored needs an approval, which nobody gave"))


def run(job: Job, granted: Granted) -> Protocol[Result]:
    """Run the effect once, with the stored arguments if they are not the caller's own."""
    given = job.permitted if granted.was_asked else job.arguments
    try:
        call, arguments = job.sending(granted.attempt), given(granted.content, granted.payload)
    except BaseException as error:  # noqa: BLE001 - the claim is taken: that nothing was sent must be recorded
        return NeverStarted(error)
    result: Result = yield RunEffect(
        job.effect,
        call,
        arguments,
        job.key,
        granted,
        lambda late: recording(job, granted, late),
    )
    return result


def recording(job: Job, granted: Granted, result: Result) -> Maker[Any]:
    """Return the script that records a result; the user's code that it takes runs here, outside any transaction."""
    outcome = outcome_of(job.effect, result)
    return lambda: settling.settle(job.request, granted, outcome)


def _raise_own(error: BaseException | None) -> None:
    """Raise what is the caller's own: its cancellation or interrupt, or what kept the effect from beginning."""
    if error is not None and not isinstance(error, NotSent):
        raise error


def _settle(job: Job, maker: Maker[Any], result: Result) -> Protocol[Settled | Late]:
    """Settle, trying again where the database is busy: what is known now is known here alone.

    A COMMIT nobody heard of is looked up by running the guarded write again, which then changes nothing.
    """
    lost: CommitUnknown | None = None
    for left in reversed(range(SETTLE_TRIES)):
        try:
            settled: Settled | Late = yield Write(maker)
        except StoreError as error:
            lost = error if isinstance(error, CommitUnknown) else lost
            if not left:
                raise answers.not_stored(job.key, result, lost or error) from (lost or error)
        else:
            return settled
    raise LookupError("unreachable: the last try returns or raises")


# --- look-up ---------------------------------------------------------------------------------------------------------


def ask_and_record(job: Job, row: Row, asked_at: int) -> Protocol[Any]:
    """Ask the provider about an unknown outcome and record what it answered; `asked_at` is the time before that."""
    job.asked = True
    answer = yield from ask(job, row)
    found = found_outcome(job.effect, answer) if isinstance(answer, Found) else None

    def maker() -> Any:
        return lookups.record_lookup(job.request, answer, asked_at=asked_at, version=row["version"], found=found)

    try:
        return (yield Write(maker))
    except CommitUnknown as lost:
        with lost.outlasting():
            return (yield from _look(job))


def ask(job: Job, row: Row) -> Protocol[LookupAnswer]:
    """Ask the provider about the last attempt, with the stored arguments as long as they are kept."""
    arguments = job.bound.arguments
    if row["payload"] is not None:
        arguments = job.arguments(row["content_digest"], row["payload"])
    told = yield RunLookup(job.effect.provider.asking, job.call(row["attempt"]), arguments)
    return checked_answer(job.effect, told)


def checked_answer(effect: Effect[Any], answer: Any) -> LookupAnswer:
    """Return a look-up's answer.

    Raises:
        InvalidLookupAnswer: it is none of the three; a bare None could mean "absent" as well as "I do not know".
    """
    if (known := answer_type(answer)) is None:
        raise InvalidLookupAnswer(
            f"The look-up of effect {effect.name} returned {type(answer).__name__}. Return Found(value), Absent() or"
            " CannotTell(): only these say whether the effect happened."
        )
    return CannotTell(storable(str(known.reason))) if isinstance(known, CannotTell) else known
