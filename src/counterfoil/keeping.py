"""How long what is known of a settled operation is kept, as it is declared, and the refusal of what is too short."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING

from counterfoil.core.durations import Duration, duration_text, milliseconds
from counterfoil.core.retention import Periods, too_short
from counterfoil.errors import ContradictoryDeclaration

if TYPE_CHECKING:
    from counterfoil.core.outbox import Terms
    from counterfoil.model import ProviderFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each class is kept after an operation is settled; what is left out stays for ever.

    `purge` removes what is over, and nothing else does. The arguments that an operation was asked for with are not
    among the classes: they go when it is settled.

    Args:
        payload: What was learnt about it beside its receipt: the bodies of evidence, and what failed attempts told.
        receipt: The receipt's value and evidence, or a refusal's words. After it the id is answered with
            `OperationExpired`, which says when and how it ended; it is never executed again.
        tombstone: The row itself. After it the id is forgotten, and whoever asks for it again executes it again.
    """

    payload: Duration | None = None
    receipt: Duration | None = None
    tombstone: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what can never be kept.

        Raises:
            ContradictoryDeclaration: a class would outlast the one that it is a part of.
            InvalidDuration: a duration cannot be read.
        """
        given = [(one.name, self._time(one.name)) for one in fields(self)]
        periods = [(name, period) for name, period in given if period is not None]
        for (name, period), (larger, limit) in pairwise(periods):
            if period > limit:
                raise ContradictoryDeclaration(
                    f"Retention({name}={duration_text(period)!r}, {larger}={duration_text(limit)!r}): the {larger}"
                    f" takes the {name} along when it goes. Keep the {larger} at least as long."
                )

    @property
    def periods(self) -> Periods:
        """Return them in milliseconds."""
        return Periods(**{one.name: self._time(one.name) for one in fields(self)})

    def _time(self, name: str) -> int | None:
        value = getattr(self, name)
        return None if value is None else milliseconds(value, f"Retention({name}=...)")


FOREVER = Retention()
"""Nothing is ever purged."""


def refuse_too_short(name: str, periods: Periods, facts: ProviderFacts, terms: Terms) -> None:
    """Refuse to forget an effect's operations while a repeat of them may still come.

    Raises:
        ContradictoryDeclaration: a class would go before that; the message has the numbers.
    """
    for found in too_short(periods, facts, terms):
        raise ContradictoryDeclaration(
            f"Operations of effect {name} would lose their {found.name} {duration_text(found.period)} after they are"
            f" settled, but it must be kept for {duration_text(found.needed)}: {found.why}. Declare"
            f" Retention({found.name}={duration_text(found.needed)!r}) or longer, or shorten that."
        )
