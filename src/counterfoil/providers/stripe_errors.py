"""Stripe's client: what its exceptions mean; nothing of it is imported."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.outcomes import root
from counterfoil.core.states import AttemptOutcome
from counterfoil.model import Refused
from counterfoil.providers.statuses import judged
from counterfoil.providers.tables import Table, never_left

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from counterfoil.providers.tables import Judgement

BY_CLASS: Final[Mapping[str, AttemptOutcome | Refused]] = {
    "CardError": AttemptOutcome.REFUSED,
    "RateLimitError": AttemptOutcome.NOT_SENT,
    # The key came before with other content, which was refused now; what came of that content, it does not say.
    "IdempotencyError": Refused(covers_earlier=False),
}
"""What these exceptions mean; others go by their HTTP status, and a broken connection by how far it came."""


def classify(error: BaseException) -> Judgement | None:
    """Return what an exception of Stripe's client means, or None for another package's."""
    names = [cls.__name__ for cls in type(error).__mro__ if root(cls) == "stripe"]
    if "StripeError" not in names:
        return None
    if "APIConnectionError" in names:
        return AttemptOutcome.NOT_SENT if never_connected(error) else AttemptOutcome.UNKNOWN
    by_class = next((BY_CLASS[name] for name in names if name in BY_CLASS), None)
    return _by_status(getattr(error, "http_status", None)) if by_class is None else by_class


def _by_status(status: object) -> Judgement:
    """Return what a status means; a 503 comes from what stands before Stripe, too, and promises nothing."""
    return AttemptOutcome.UNKNOWN if status == HTTPStatus.SERVICE_UNAVAILABLE else judged(status)


def never_connected(error: BaseException) -> bool:
    """Say whether the exception of the client underneath proves that no connection stood."""
    return any(never_left(each) for each in _underneath(error))


def _underneath(error: Any) -> Iterator[BaseException]:
    if root(type(error)) == "stripe" and isinstance(error.__cause__, BaseException):
        yield error.__cause__


TABLE: Final = Table(
    client="stripe",
    not_sent=frozenset(),
    unknown=frozenset({"stripe.APIConnectionError", "stripe.APIError", "stripe.StripeError"}),
    never_left=never_connected,
    judge=classify,
    by_structure=(
        ("`APIConnectionError`", "not sent if no connection stood, as the exception that it was made of; else unknown"),
        ("`CardError`", "refused"),
        ("`RateLimitError`", "not sent"),
        ("`IdempotencyError`", "refused, which tells nothing of an earlier attempt"),
        ("others", "by their status; 5xx, 503 included, and 409 unknown"),
    ),
)
