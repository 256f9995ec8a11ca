"""What people who work on the outbox are told, and how their acts are made ready to be stored."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from counterfoil import codec, operations
from counterfoil.access import acting, name_of, system_user
from counterfoil.core import access
from counterfoil.core.arguments import CALLED, plain
from counterfoil.core.durations import utc_text
from counterfoil.core.explain import named
from counterfoil.core.machine import sources
from counterfoil.core.outbox import EVENTS, MAX_ATTEMPTS, Act, MayHaveHappened, NotBackingOff
from counterfoil.core.states import OPERATION, TERMINAL, OperationState, Sender
from counterfoil.errors import (
    InvalidArguments,
    OperationInProgress,
    OperationNotFound,
    OutcomeUnknown,
    PauseNotFound,
    VerdictConflict,
    VerdictIncomplete,
)
from counterfoil.ids import random_id
from counterfoil.reviewing import operation_not_found
from counterfoil.storage import rows
from counterfoil.storage.scripts.holding import Done, Hindered, Wish
from counterfoil.storage.scripts.reviews import NoOperation
from counterfoil.storage.tenants import whose

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.core.access import Actor, Principal
    from counterfoil.errors import CounterfoilError, OperationError
    from counterfoil.model import OperationKey
    from counterfoil.shown import Message, Operation, Pause
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.holding import Answer
    from counterfoil.storage.tenants import Everybody

OPEN: Final = "open"
"""The list of what is not settled."""
MOST_TRIES: Final = 1_000_000
"""New tries of a dead letter at the most: more than a lifetime of pauses."""


# --- pauses ----------------------------------------------------------------------------------------------------------


class Scope(NamedTuple):
    """What is paused; an empty name stands for any."""

    tenant: str
    effect: str
    stream: str

    @classmethod
    def of(cls, *, tenant: str | None, effect: str | None, stream: str | None) -> Scope:
        """Check what is named.

        Raises:
            InvalidArguments: nothing is named, or a stream without the tenant that it belongs to.
        """
        if tenant is None and effect is None and stream is None:
            raise InvalidArguments("Name what is paused: an effect, a tenant, or its stream. Nothing was changed.")
        if tenant is None and stream is not None:
            raise InvalidArguments("A stream belongs to a tenant: name that, too. Nothing was changed.")
        return cls(
            "" if tenant is None else operations.check_tenant(tenant),
            CALLED.optional_text("effect", effect) or "",
            CALLED.optional_text("stream", stream) or "",
        )

    @property
    def whose(self) -> str | Everybody:
        """Return whose rows it takes to make or lift this pause: one for all tenants is nobody's own."""
        return whose(self.tenant or None)

    @property
    def told(self) -> str:
        """Return it in words."""
        named = (("effect", self.effect), ("stream", self.stream), ("tenant", self.tenant))
        return ", ".join(f"{what} {name}" for what, name in named if name)


def who_and_why(
    by: str | Principal,
    reason: str,
    tenant: str,
    operation_id: str = "",
    unknown: Callable[[], CounterfoilError] | None = None,
    *,
    act: access.Act = access.Act.OPERATE,
) -> tuple[Actor, str]:
    """Return who acts and why, as they are stored; an empty tenant stands for all of them.

    Raises:
        VerdictIncomplete: one is missing.
        NotAllowed: the principal's role does not permit it.
        TenantNotFound: the principal is another tenant's; another error, where `unknown` makes it.
    """
    given = {"by": name_of(by), "reason": plain(CALLED.words("reason", reason))}
    for name, text in given.items():
        if not text:
            raise VerdictIncomplete(
                f"This needs {name}: whoever asks later wants to know who did it and why. Nothing was changed.",
                tenant=tenant,
                operation_id=operation_id,
            )
    return acting(by, act=act, tenant=tenant or None, unknown=unknown), given["reason"]


def lifter(by: str | Principal | None, reason: str, scope: Scope) -> tuple[Actor, str]:
    """Return who lifts a pause and why; whoever does not say is the operating-system user.

    Raises:
        NotAllowed: the principal's role does not permit it.
        PauseNotFound: the principal is another tenant's.
    """
    who = system_user() if by is None else by
    actor = acting(who, act=access.Act.OPERATE, tenant=scope.tenant or None, unknown=lambda: _no_pause(scope))
    return actor, plain(CALLED.words("reason", reason))


def lifted(found: Pause | None, scope: Scope) -> Pause:
    """Return the pause that was lifted.

    Raises:
        PauseNotFound: there was none of exactly this name.
    """
    if found is None:
        raise _no_pause(scope)
    return found


def _no_pause(scope: Scope) -> PauseNotFound:
    return PauseNotFound(
        f"Nothing is paused under exactly {scope.told}. Nothing was changed. See what is with: counterfoil outbox"
        " list --paused",
        tenant=scope.tenant,
        operation_id="",
    )


def listed(
    *, state: str | None, effect: str | None, stream: str | None, before: int | None, limit: int
) -> dict[str, Any]:
    """Check what a list of intents is narrowed to.

    Raises:
        InvalidArguments: there is no such state, or a stream's settled intents are asked for.
    """
    unsettled = state == OPEN
    narrowed = None if unsettled else state
    asked = operations.wish(narrowed, effect, None, None, None, None, before, limit)
    if stream is not None and (state is None or asked.state in TERMINAL):
        raise InvalidArguments("A stream is listed as far as it is not settled; leave out the state or the stream.")
    return {"wish": asked, "unsettled": unsettled, "stream": CALLED.optional_text("stream", stream)}


# --- one intent ------------------------------------------------------------------------------------------------------


def wish(
    act: Act, key: OperationKey, *, by: str | Principal, reason: str, expect_version: int | None, more: int | None
) -> Wish:
    """Make an act ready to be stored.

    Raises:
        VerdictIncomplete: it does not say who acts, or why.
        InvalidArguments: a number is out of range.
        OperationNotFound: the principal is another tenant's.
        NotAllowed: its role does not permit it.
    """
    unknown = partial(operation_not_found, key.operation_id, key.tenant)
    actor, reason = who_and_why(by, reason, key.tenant, key.operation_id, unknown)
    if expect_version is not None:
        CALLED.number("expect_version", expect_version)
    tries = MAX_ATTEMPTS if more is None else CALLED.number("attempts", more, least=1, most=MOST_TRIES)
    body = {"act": str(act), "by": actor.shown, "reason": reason, "id": random_id("act")}
    told = {**body, "attempts": tries} if act is Act.REQUEUE else body
    evidence = codec.encode_receipt(told).body
    return Wish(act=act, by=actor, reason=reason, evidence=evidence, more=tries, expect_version=expect_version)


def only_intent(found: tuple[Message, ...], operation_id: str, tenant: str | None) -> Message:
    """Return the one that was found.

    Raises:
        OperationNotFound: none was.
    """
    if not found:
        where = f" of tenant {tenant}" if tenant else ""
        raise OperationNotFound(
            f"The outbox holds no operation {operation_id}{where}: there is none, or its caller sends it. Look"
            f" for it with: counterfoil ops show {operation_id}",
            tenant=tenant or "",
            operation_id=operation_id,
        )
    return found[0]


def done(key: OperationKey, wish: Wish, answer: Answer) -> Operation:
    """Return the operation as an act left it, or raise what stands in the way.

    Raises:
        OperationNotFound: this tenant has no such operation.
        OperationInProgress: an attempt is under way.
        OutcomeUnknown: it may have happened.
        VerdictConflict: it is in a state that the act does not take, or somebody else was first.
    """
    match answer:
        case Done(row):
            return rows.operation(row)
        case NoOperation():
            raise operation_not_found(key.operation_id, key.tenant)
        case Hindered():
            raise hindered(key, wish, answer)


def hindered(key: OperationKey, wish: Wish, found: Hindered) -> OperationError:
    """Say why an act cannot be done, and what can."""
    match found.why:
        case MayHaveHappened():
            return _may_have_happened(key, found.row)
        case NotBackingOff():
            return _conflict(key, wish, found, _not_waiting(found.row))
        case None:
            seen = f"is at version {found.row['version']}, and was seen at version {wish.expect_version}"
            return _conflict(key, wish, found, seen)
        case _:
            wanted = " or ".join(sorted(sources(OPERATION, EVENTS[wish.act]))) if wish.act in EVENTS else "pending"
            return _conflict(key, wish, found, f"is {found.row['state']}, and this takes what is {wanted}")


def _may_have_happened(key: OperationKey, row: Row) -> OperationError:
    facts: dict[str, Any] = {"tenant": key.tenant, "operation_id": key.operation_id}
    state = OperationState(row["state"])
    if state is OperationState.IN_FLIGHT and row["lease_until"] > row["now"]:
        return OperationInProgress(
            f"Operation {key} is being sent by {row['holder']} (attempt {row['attempt']}), until"
            f" {utc_text(row['attempt_deadline'])} at the latest: it cannot be said that it was not sent. Nothing was"
            " changed. Try again after that.",
            **facts,
            age_ms=row["now"] - row["claimed_at"],
            holder=row["holder"],
            until=row["attempt_deadline"],
        )
    may = (
        "an earlier attempt may have reached the provider: it is sent again under a key that makes that harmless"
        if state is OperationState.PENDING
        else f"it may have happened: find out, and give a verdict. Run: counterfoil review open {scope(key)}"
    )
    return OutcomeUnknown(
        f"Operation {key} is {state} and cannot be cancelled as if it had not been sent. Nothing was changed: {may}",
        **facts,
        case_id=None,
    )


def scope(key: OperationKey) -> str:
    """Return the words that name an operation on the command line."""
    return named(key.operation_id, key.tenant)


def _not_waiting(row: Row) -> str:
    if Sender(row["sender"]) is Sender.CALLER:
        return "belongs to its caller, whose next perform with the same arguments sends it"
    if row["due_at"] > row["now"]:
        return f"was not tried yet, so that there is nothing to try again; it is due at {utc_text(row['due_at'])}"
    return "was not tried yet and is due; a worker sends it"


_INSTEAD: Final = {
    OperationState.PARKED: "counterfoil outbox requeue",
    OperationState.UNKNOWN: "counterfoil review open",
}
"""What can be done with an operation in a state."""


def _conflict(key: OperationKey, wish: Wish, found: Hindered, why: str) -> VerdictConflict:
    last = found.last
    was = "" if last is None else f" {last['given_by']} was here before, at {utc_text(last['at'])}: {last['answer']}."
    instead = _INSTEAD.get(OperationState(found.row["state"]), "counterfoil explain")
    return VerdictConflict(
        f"Operation {key} {why}.{was} The {wish.act} was not done and nothing was changed. What can be done:"
        f" {instead} {scope(key)}",
        tenant=key.tenant,
        operation_id=key.operation_id,
        verdict=None if last is None else last["answer"],
        verdict_by=None if last is None else last["given_by"],
        verdict_at=None if last is None else last["at"],
        version=found.row["version"],
    )
