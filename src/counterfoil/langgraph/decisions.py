"""What a person decided about an operation, as a node holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from counterfoil.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.effects import Effect
    from counterfoil.shown import Approval

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[T]):
    """A decision, which `perform` and `enqueue` take in the place of an effect; what was not approved they refuse.

    `approval` says who decided what, when and why; where a person edited the operation, it is that of the edited one.
    """

    approval: Approval
    effect: Effect[T]
    arguments: Mapping[str, Any] = field(repr=False)

    @property
    def approved(self) -> bool:
        """Say whether a person said yes."""
        return self.approval.approved

    @property
    def state(self) -> str:
        """Return what was decided: `"approved"`, `"rejected"`, `"expired"` or `"cancelled"`."""
        return self.approval.state

    @property
    def reason(self) -> str | None:
        """Return why, in the words of whoever decided."""
        return self.approval.reason


def named(asked: Effect[T] | Decision[T], given: Mapping[str, Any]) -> tuple[Effect[T], dict[str, Any]]:
    """Return an effect and its arguments, of which a decision names both.

    Raises:
        InvalidArguments: arguments were given beside a decision.
    """
    if not isinstance(asked, Decision):
        return asked, dict(given)
    if given:
        raise InvalidArguments(
            f"A decision about {asked.effect.name} names its arguments; leave {', '.join(given)} out. For other"
            " arguments, ask again: approve(effect, ...)."
        )
    return asked.effect, dict(asked.arguments)
