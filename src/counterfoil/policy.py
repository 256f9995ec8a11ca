"""When an effect may be sent only with a person's decision: a clause of its contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.core.approvals import Gate
from counterfoil.core.arguments import DECLARED
from counterfoil.core.durations import Duration, milliseconds
from counterfoil.errors import ContradictoryDeclaration, InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An effect is sent only once a person has approved it: `@effect(..., approval=Policy())`.

    The gate is in the effect itself: whichever code asks for it, nothing leaves without a decision for exactly these
    arguments that holds at the moment of sending, by the database's clock.

    Args:
        when: Which arguments need it, called with them as keywords: `when=lambda amount, **_: amount > 100`. It must
            be a pure function of them. Without it, all do.
        decide_within: How long a decision is waited for; after it the operation is expired, for good.
        valid_for: How long a decision holds; what is not sent until then is asked about again.
        edits_need_another: Whether whoever edits an operation must leave it to somebody else to approve it, and what is
            edited in place of it, too.
    """

    when: Callable[..., bool] | None = None
    decide_within: Duration = "7d"
    valid_for: Duration = "24h"
    edits_need_another: bool = False

    def __post_init__(self) -> None:
        """Check the parts.

        Raises:
            ContradictoryDeclaration: one is not what it must be.
        """
        DECLARED.flag("Policy(edits_need_another=...)", self.edits_need_another)
        if self.when is not None:
            DECLARED.function("Policy(when=...)", self.when)
        if not (self.terms.decide_within and self.terms.valid_for):
            raise ContradictoryDeclaration(
                "Policy(...) leaves no time: decide_within and valid_for must be above zero."
            )

    @property
    def terms(self) -> Gate:
        """Return the terms on which a decision is asked for."""
        return Gate(
            decide_within=milliseconds(self.decide_within, "decide_within"),
            valid_for=milliseconds(self.valid_for, "valid_for"),
            needs_another=self.edits_need_another,
        )

    def gate(self, arguments: Mapping[str, Any]) -> Gate | None:
        """Return the gate that these arguments meet, or None.

        Raises:
            InvalidArguments: `when` says neither yes nor no.
        """
        needs = True if self.when is None else self.when(**arguments)
        if not isinstance(needs, bool):  # what forgets to return would let everything through
            raise InvalidArguments(
                f"Policy(when=...) returned {type(needs).__name__}, so that nobody knows whether a decision is needed."
                " Nothing was sent. Return True or False."
            )
        return self.terms if needs else None


ASKED = Policy()
"""On which terms a decision is asked for about an effect that declares none."""
