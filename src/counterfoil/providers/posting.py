"""Post a message once and take the receiver's answer: what both webhooks and CloudEvents over HTTP need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.model import Answered
from counterfoil.providers import statuses
from counterfoil.providers.http import Answers, Http

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from counterfoil.effects import EffectCall

_GONE: Final = frozenset({410})

Posted = Answered[dict[str, Any]]


def answers(
    *, duplicate: Collection[int] = (), refused: Collection[int] = (), not_sent: Collection[int] = ()
) -> Answers:
    """Return what a receiver's statuses mean: 2xx succeeded, 410 refused, 429 and 503 not sent, any other unknown.

    A receiver is a stranger's program: its 400 may have been raised behind the line that took the message.

    Args:
        duplicate: Statuses with which it says that it has the message already: proof of delivery.
        refused: Statuses with which it refuses for good, having taken nothing.
        not_sent: Statuses with which it promises that it took nothing and may be asked again.

    Raises:
        ContradictoryDeclaration: a status is declared twice, is none, or would hide a delivery.
    """
    declared = frozenset().union(duplicate, refused, not_sent)
    return Answers(
        succeeded=frozenset(duplicate),
        not_sent=frozenset(not_sent),
        refused=frozenset(refused) | (_GONE - declared),
        unknown=statuses.REFUSED - _GONE - declared,
        mismatch=frozenset(),
    )


def post(http: Http, call: EffectCall, url: str, headers: Mapping[str, str], body: bytes, **about: Any) -> Posted:
    """Post one message, and return what is known of it with the answer's status."""
    return _told(http.send(call, "POST", url, headers=dict(headers), content=body), about)


async def apost(
    http: Http, call: EffectCall, url: str, headers: Mapping[str, str], body: bytes, **about: Any
) -> Posted:
    """Post one message with an `httpx.AsyncClient`; otherwise as `post`."""
    return _told(await http.asend(call, "POST", url, headers=dict(headers), content=body), about)


def _told(answered: Answered[Any], about: Mapping[str, Any]) -> Posted:
    """Return what the receipt will hold: not the answer's body, which no receiver has to mean anything by."""
    status = answered.evidence["status"]
    is_duplicate = statuses.standard(status) is not AttemptOutcome.SUCCEEDED
    return Answered({**about, "status": status, "duplicate": is_duplicate}, answered.evidence)
