"""On which terms a dispatcher sends an operation: when, in which order, how often, and until when."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from counterfoil.core.arguments import CALLED, LONGEST
from counterfoil.core.durations import Duration, milliseconds
from counterfoil.core.outbox import MAX_ATTEMPTS, Terms
from counterfoil.core.templates import Template
from counterfoil.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_ATTEMPTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """When and how an operation is sent; what is left out is as the effect declares it, or as below.

    Args:
        delay: How long after it is enqueued it is due: at once unless given.
        at: From when on it is due: a time with a zone.
        stream: Operations of one stream are sent one after the other, in the order in which they were enqueued; one
            that is not settled holds those behind it. In an effect's declaration a template over its arguments and
            trusted fields: `"ticket/{ticket_id}"`.
        max_attempts: After how many attempts that provably did nothing it is parked, 20 unless given.
        time_to_live: How long after it is enqueued it may first be sent; after that it expires unsent.
    """

    delay: Duration | None = None
    at: datetime | None = None
    stream: str | None = None
    max_attempts: int | None = None
    time_to_live: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what can never be kept.

        Raises:
            InvalidArguments: a value is not what it must be, or contradicts another one.
            InvalidDuration: a duration cannot be read.
        """
        if self.stream is not None:
            CALLED.text("Delivery(stream=...)", self.stream, longest=LONGEST)
        if self.max_attempts is not None:
            CALLED.number("Delivery(max_attempts=...)", self.max_attempts, least=1, most=_MOST_ATTEMPTS)
        if self.at is not None:
            _check_time(self.at)
        if self.at is not None and self.delay is not None:
            raise InvalidArguments("Delivery(at=..., delay=...) names two times; leave one of them out.")
        if self._time("time_to_live") == 0:
            raise InvalidArguments("Delivery(time_to_live=...) is zero, so that nothing would ever be sent.")
        self._time("delay")

    def over(self, declared: Delivery) -> Delivery:
        """Return these terms, and those that were declared wherever these say nothing."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.at is not None or self.delay is not None:
            declared = Delivery(
                stream=declared.stream, max_attempts=declared.max_attempts, time_to_live=declared.time_to_live
            )
        return Delivery(**{name: getattr(declared, name) if value is None else value for name, value in own.items()})

    def terms(self) -> Terms:
        """Return them in the form that is stored."""
        return Terms(
            delay=self._time("delay") or 0,
            due_at=0 if self.at is None else round((self.at - _EPOCH).total_seconds() * 1000),
            stream=self.stream,
            max_attempts=self.max_attempts or MAX_ATTEMPTS,
            time_to_live=self._time("time_to_live"),
        )

    def _time(self, name: str) -> int | None:
        value = getattr(self, name)
        return None if value is None else milliseconds(value, f"Delivery({name}=...)")


AT_ONCE = Delivery()


def _check_time(at: object) -> None:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidArguments(
            "Delivery(at=...) must be a datetime with a zone, as it would mean another moment on another machine:"
            " datetime(2027, 1, 4, 9, tzinfo=ZoneInfo('Europe/Berlin'))."
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """An effect's own terms; the name of its stream is made of each operation's arguments."""

    delivery: Delivery = AT_ONCE
    stream: Template | None = None

    @property
    def usual(self) -> Terms:
        """Return the terms of an operation for which nothing else is said."""
        return self.delivery.terms()

    @classmethod
    def of(cls, delivery: Delivery, arguments: Mapping[str, Any]) -> Declared:
        """Read an effect's declaration.

        Raises:
            ContradictoryDeclaration: the name of the stream is no template.
            UnknownTemplateField: it names a field that is neither an argument nor trusted.
            UnstableId: it names one that changes from one try to the next.
        """
        named = delivery.stream is not None and "{" in delivery.stream
        return cls(delivery, Template.parse(delivery.stream or "", arguments=arguments.keys()) if named else None)

    def terms(self, given: Delivery | None, arguments: Mapping[str, Any], trusted: Mapping[str, str]) -> Terms:
        """Return the terms of one operation."""
        asked = given or AT_ONCE
        if asked.stream is None and self.stream is not None:
            asked = Delivery(stream=self.stream.render(arguments, trusted)).over(asked)
        return asked.over(self.delivery).terms()
