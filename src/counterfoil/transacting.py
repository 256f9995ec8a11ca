"""What `perform` does with a transactional effect, in both colours: its rows and its receipt are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from counterfoil import answers
from counterfoil.active import inside
from counterfoil.core.effects import AwaitsApproval, Closed, MayClaim, NeedsApproval
from counterfoil.errors import CommitUnknown, InvalidArguments
from counterfoil.model import Statement
from counterfoil.performing import Read, Write, go_on_with
from counterfoil.results import happened
from counterfoil.storage import rows
from counterfoil.storage.scripts import claims, settling
from counterfoil.storage.scripts.claims import NoRow, Seen
from counterfoil.storage.scripts.settling import Settled

if TYPE_CHECKING:
    from counterfoil.model import Receipt
    from counterfoil.performing import Job
    from counterfoil.storage.script import Maker
    from counterfoil.storage.scripts.moves import Outcome

T = TypeVar("T")
Body: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class WriteAlone:
    """Run a script that holds a caller's code, or an effect's own statement, in a transaction of its own."""

    maker: Maker[Any]


Recorded: TypeAlias = Settled | Seen
Step: TypeAlias = Read | Write | WriteAlone
Protocol: TypeAlias = Generator[Step, Any, T]


def transact(job: Job, body: Body | None, *, at_once: bool) -> Protocol[Receipt[Any]]:
    """Perform a transactional effect on a connection of ours.

    Args:
        job: What is to be performed.
        body: The effect's function, ready to be given the open transaction; None if it is one statement.
        at_once: Whether the database runs such a statement and records it in one.
    """
    if at_once and body is None and job.request.is_free:
        done = yield from _at_once(job)
        if not _takes_decision(done):
            return receipt(job, done)
    seen = yield from _asked(job, (yield _look(job)))
    if isinstance(seen, Seen) and not isinstance(seen.decision, MayClaim):
        return receipt(job, seen)
    try:
        done = yield WriteAlone(work(job, body))
    except CommitUnknown as error:
        done = yield from _look_after(job, error)
    return receipt(job, done)


def record(job: Job, body: Body | None, *, at_once: bool) -> Protocol[Receipt[Any]]:
    """Perform a transactional effect in one go, without a look at what is there; see `transact`.

    An effect's own statement that is run again breaks on the operation's row, or on the rows of its first time, with
    nothing kept of it; looking first would cost as much again.
    """
    if job.request.gate is None:
        is_one = at_once and body is None and job.request.is_free
        done = (yield from _at_once(job)) if is_one else (yield Write(work(job, body)))
        if not _takes_decision(done):
            return receipt(job, done)
    _refuse_unasked(job, (yield from _led(job, (yield _look(job)))))
    return receipt(job, (yield Write(work(job, body))))


# --- what takes a person's decision ----------------------------------------------------------------------------------


def _takes_decision(done: Recorded) -> bool:
    """Say whether nothing was done because somebody was asked about the operation, whatever its effect declares."""
    return isinstance(done, Seen) and done.row.get("approved_until") is not None


def _asked(job: Job, seen: Seen | NoRow) -> Protocol[Seen | NoRow]:
    """Ask for the decision that is needed, and go on with what was approved: its own arguments, or those edited."""
    while True:
        match seen:
            case NoRow() if job.request.gate is not None:
                seen = yield Write(lambda: claims.ask_or_hold(job.request))
            case Seen(NeedsApproval()) | Seen(AwaitsApproval(is_over=True)):
                seen = yield Write(lambda: claims.ask_or_hold(job.request))
            case Seen(Closed(), follower=None) if seen.was_edited:
                seen = yield Write(lambda: claims.ask_anew(job.request))
            case Seen(Closed()) if seen.was_edited:
                seen = yield from _led(job, seen)
            case _:
                return (yield from _led(job, seen))


def _led(job: Job, seen: Seen | NoRow) -> Protocol[Seen | NoRow]:
    """Go on with the operation that follows an edited one, and with the very arguments that were approved."""
    while isinstance(seen, Seen) and seen.follower is not None:
        yield from go_on_with(job, seen.follower)
        seen = yield _look(job)
    if isinstance(seen, Seen) and isinstance(seen.decision, MayClaim):
        job.take_stored(seen.row)
    return seen


def _refuse_unasked(job: Job, seen: Seen | NoRow) -> None:
    """Refuse what nobody approved: to ask inside the caller's transaction would be undone with it.

    Raises:
        ApprovalRequired: nobody was asked.
    """
    if isinstance(seen, NoRow):
        raise answers.approval_required(job.key, None, None)
    if not isinstance(seen.decision, MayClaim):
        answers.conclude(job.effect, job.bound, seen, None)


def _at_once(job: Job) -> Protocol[Recorded]:
    try:
        done: Recorded = yield Write(work(job, at_once=True))
    except Exception as error:  # noqa: BLE001 - whatever broke, a receipt that is there is the answer
        done = yield from _look_after(job, error)
    return done


def _look_after(job: Job, error: Exception) -> Protocol[Seen]:
    """Look at an operation whose transaction broke; if nothing is there, raise what broke it."""
    with suppress(Exception):  # what broke it says more
        seen = yield _look(job)
        if isinstance(seen, Seen):
            return seen
    raise error


# --- what an effect does ---------------------------------------------------------------------------------------------


def work(job: Job, body: Body | None = None, *, at_once: bool = False) -> Maker[Recorded]:
    """Return the script that does an effect's work and records it: its own statement, or the body that is given."""
    if body is None:
        own = _statement(job)
        return lambda: settling.by_statement(job.request, own, at_once=at_once)
    doing = settling.by_body(body, _encoding(job))
    return lambda: settling.transactional(job.request, doing)


def _look(job: Job) -> Read:
    return Read(lambda: claims.look(job.request))


def _statement(job: Job) -> Statement[Any]:
    """Ask an effect for its statement, before anything is done.

    Raises:
        InvalidArguments: it returned something else.
    """
    with inside(f"effect {job.effect.name}"):
        own = job.effect.function(job.call(1), **job.bound.arguments)
    if not isinstance(own, Statement):
        raise InvalidArguments(
            f"The effect {job.effect.name} is declared with Provider.one_statement(), but returned"
            f" {type(own).__name__}. Nothing was written. Write: return Statement('insert ... returning ...', name=...)"
        )
    return own


def blocking_body(job: Job) -> Body | None:
    """Return a transactional effect's function, ready to be given the open transaction; None if it is one statement."""
    if job.effect.provider.is_one_statement:
        return None

    def body(transaction: Any) -> Any:
        with inside(f"effect {job.effect.name}"):
            return job.effect.function(transaction, **job.bound.arguments)

    return body


def _encoding(job: Job) -> Callable[[Any], Outcome]:
    """Return how a transactional effect's result is stored."""
    return lambda value: happened(job.effect, value)


def receipt(job: Job, seen: Recorded) -> Receipt[Any]:
    """Return the receipt of a transactional effect that ran now or before."""
    if isinstance(seen, Settled):
        return rows.receipt(seen.row, "effect")
    return answers.conclude(job.effect, job.bound, seen, None)
