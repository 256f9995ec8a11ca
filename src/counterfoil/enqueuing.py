"""Make intents of calls: check what is asked for, and say what became of it; the same for both colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from counterfoil import answers
from counterfoil.core.arguments import CALLED
from counterfoil.core.effects import Mismatch, PastRetention, Ungranted, WrongEffect
from counterfoil.core.states import OperationState
from counterfoil.delivery import Delivery
from counterfoil.desk import check_effect
from counterfoil.errors import CommitUnknown, InvalidArguments
from counterfoil.model import Intent, Origin
from counterfoil.performing import Write
from counterfoil.storage.scripts import outbox
from counterfoil.storage.scripts.outbox import Known, Queued, Wish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.model import Trusted
    from counterfoil.performing import Job
    from counterfoil.storage.script import Maker, Row, Script
    from counterfoil.transacting import Protocol as Steps

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Asked(Protocol[R_co]):
    """What was asked for: a script to run in a transaction, and what its result means."""

    @property
    def tenant(self) -> str:
        """Return whose operations they are."""
        ...

    @property
    def maker(self) -> Maker[Any]:
        """Return the script."""
        ...

    def conclude(self, result: Any, /) -> R_co:
        """Return what the caller gets, or raise what stands in the way."""
        ...


class Enqueuing:
    """One call of `enqueue`: what is asked for, as a script, and what its result means."""

    def __init__(
        self,
        desk: Desk,
        effect: Effect[Any],
        arguments: Mapping[str, Any],
        trusted: Trusted,
        origin: Origin,
        delivery: Delivery | None,
    ) -> None:
        """Check what is asked for.

        Raises:
            UsageError: the caller's code is wrong; the class says how.
        """
        check_effect(effect)
        _check_sendable(effect, delivery)
        self.desk = desk
        self.tenant = trusted.tenant
        self.job: Job = desk.job(effect, arguments, trusted, origin)
        terms = effect.delivery.terms(delivery, self.job.bound.arguments, trusted.fields())
        desk.check_retention(effect, terms)
        self.wish = Wish(self.job.request, terms)

    def go_on_with(self, row: Row) -> None:
        """Ask for the operation that follows one which a person edited."""
        self.job.become(row)
        self.wish = replace(self.wish, request=self.job.request)

    @property
    def maker(self) -> Maker[Queued | Known]:
        """Return the script that records the intent."""
        return lambda: outbox.enqueue(self.wish)

    def conclude(self, result: Queued | Known) -> Intent:
        """Return the intent, or raise what stands in the way.

        Raises:
            FingerprintMismatch: the id was used with other arguments.
            DifferentEffect: it belongs to another effect.
            OperationExpired: it is settled, and its receipt is kept no longer.
        """
        match result:
            case Queued():
                waits = self.job.request.gate is not None
                return self._intent(OperationState.AWAITING_APPROVAL if waits else OperationState.PENDING, is_new=True)
            case Known(Mismatch(), row):
                raise answers.mismatch(self.job.effect, self.job.bound, row)
            case Known(WrongEffect() as decision, _):
                raise answers.standing_in_the_way(self.job.key, self.job.effect, decision)
            case Known(PastRetention(), row):
                raise answers.expired(self.job.key, row)
            case Known(Ungranted()):
                raise answers.ungranted(self.job.key)
            case Known(_, row):
                return self._intent(OperationState(row["state"]), is_new=False)

    def refuse_beside(self, first: Enqueuing) -> None:
        """Refuse to mean something else by an id than another call that is not recorded yet.

        Raises:
            FingerprintMismatch: that one has other arguments.
            DifferentEffect: that one has another effect.
        """
        ours, other = self.job.request, first.job.request
        if other.effect != ours.effect:
            raise answers.standing_in_the_way(self.job.key, self.job.effect, WrongEffect(other.effect))
        if other.digests.identity != ours.digests.identity:
            raise answers.mismatch(self.job.effect, self.job.bound, other.columns())

    def _intent(self, state: OperationState, *, is_new: bool) -> Intent:
        key = self.job.key
        return Intent(
            tenant=key.tenant,
            operation_id=key.operation_id,
            effect=self.job.effect.name,
            state=state.value,
            is_new=is_new,
        )


def recorded(maker: Maker[T]) -> Steps[T]:
    """Record intents; where nobody heard of the COMMIT, doing it again finds what is there and changes nothing."""
    try:
        result: T = yield Write(maker)
    except CommitUnknown as lost:
        with lost.outlasting():
            result = yield Write(maker)
    return result


def record_all(calls: Sequence[Enqueuing]) -> Script[tuple[Queued | Known, ...]]:
    """Record all, or none where one stands in the way: it is refused before this transaction is committed."""
    results = yield from outbox.enqueue_all([call.wish for call in calls])
    for call, result in zip(calls, results, strict=True):
        call.conclude(result)
    return results


def _record_permitted(calls: Sequence[Enqueuing]) -> Script[tuple[Queued | Known, ...]]:
    """Record all, or none where a strict program must refuse one; that is noted, so it raises after the commit."""
    refused = yield from outbox.refusal([call.wish for call in calls])
    return refused if refused is not None else (yield from record_all(calls))


class Several:
    """One call of `enqueue_all`: operations of one effect that are recorded together or not at all."""

    def __init__(
        self,
        desk: Desk,
        effect: Effect[Any],
        several: Iterable[Mapping[str, Any]],
        trusted: Trusted,
        delivery: Delivery | None,
    ) -> None:
        """Check what is asked for.

        Raises:
            UsageError: the caller's code is wrong; the class says how.
        """
        _check_several(several)
        self.tenant = trusted.tenant
        self.calls = tuple(
            Enqueuing(desk, effect, CALLED.mapping("enqueue_all(...)", one), trusted, Origin(), delivery)
            for one in several
        )

    @property
    def maker(self) -> Maker[tuple[Queued | Known, ...]]:
        """Return the script that records the intents."""
        return lambda: _record_permitted(self.calls)

    def conclude(self, results: tuple[Queued | Known, ...]) -> tuple[Intent, ...]:
        """Return the intents in the order in which they were asked for."""
        return tuple(call.conclude(result) for call, result in zip(self.calls, results, strict=True))


def _check_several(several: object) -> None:
    if isinstance(several, Mapping) or not isinstance(several, Iterable):
        raise InvalidArguments(
            f"What enqueue_all(...) records is of type {type(several).__name__}; write a list with a mapping of"
            " arguments for each operation."
        )


def _check_sendable(effect: Effect[Any], delivery: object) -> None:
    if effect.facts.transactional:
        raise InvalidArguments(
            f"The effect {effect.name} is transactional: it is a part of a transaction and nothing that a dispatcher"
            f" could send later. Write cf.join(tx).perform({effect.__name__}, ...)."
        )
    if delivery is not None and not isinstance(delivery, Delivery):
        raise InvalidArguments(
            f"delivery is of type {type(delivery).__name__}; write delivery=Delivery(delay='5m'), or leave it out."
        )
