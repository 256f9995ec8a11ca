"""What the end of an effect is stored as: what it returned, or what its exception means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from counterfoil import codec
from counterfoil.core.outcomes import classify
from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import CounterfoilError, HiddenRetries
from counterfoil.model import Answered, Found, NotSent, Refused
from counterfoil.storage.scripts.moves import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.effects import Effect

ERROR_TEXT = 500
"""Characters kept of a message that an effect's author wrote for a refusal."""
SEARCHED_TEXT = 20 * ERROR_TEXT
"""Characters searched for credentials before that: one that was cut in two would not be recognised."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The effect returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The effect raised, or was cancelled while it ran."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The caller was cancelled before the effect began."""

    error: BaseException


Result = Returned | Raised | NeverStarted


def outcome_of(effect: Effect[Any], result: Result) -> Outcome:
    """Return what is to be stored of a result."""
    match result:
        case Returned(value):
            return happened(effect, value)
        case NeverStarted(error):
            return Outcome(outcome=AttemptOutcome.NOT_SENT, error_class=_class(error), error_text=_before(error))
        case Raised(error):
            outcome, covers_earlier = _classified(effect, error)
            return Outcome(
                outcome=outcome, error_class=_class(error), error_text=_text(error), covers_earlier=covers_earlier
            )
        case _:
            assert_never(result)


def happened(effect: Effect[Any], value: Any) -> Outcome:
    """Return what is to be stored of what an effect returned."""
    if isinstance(value, Answered):
        return _proved(effect, value.value, value.evidence, value.unreadable)
    return _proved(effect, value, None, None)


def found_outcome(effect: Effect[Any], found: Found) -> Outcome:
    """Return what is to be stored of an effect that a look-up found."""
    return _proved(effect, found.value, found.evidence, None)


def _proved(effect: Effect[Any], value: Any, evidence: Mapping[str, Any] | None, unreadable: str | None) -> Outcome:
    encoded = codec.encode_receipt(value, redact=effect.redact)
    kept = None if evidence is None else codec.encode_receipt(evidence, redact=effect.redact).body
    return Outcome(
        outcome=AttemptOutcome.SUCCEEDED,
        receipt=encoded.body,
        marker=encoded.marker if unreadable is None else storable(unreadable),
        evidence=kept,
    )


def _classified(effect: Effect[Any], error: BaseException) -> tuple[AttemptOutcome, bool]:
    """Return what an exception means, and whether a refusal covers earlier attempts, too."""
    told = _told(effect, error)
    if isinstance(told, Refused):
        return AttemptOutcome.REFUSED, told.covers_earlier
    if told in {AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED, AttemptOutcome.UNKNOWN}:
        return told, True
    ours = classify(error, not_sent=effect.not_sent, refused=effect.refused)
    if ours is AttemptOutcome.UNKNOWN and _never_left(error):
        return AttemptOutcome.NOT_SENT, True
    return ours, not isinstance(error, Refused) or error.covers_earlier


def _never_left(error: BaseException) -> bool:
    """Say whether nothing was sent: a known client's exception proves it, or the client was refused before."""
    from counterfoil.providers.tables import never_left  # noqa: PLC0415 - only failures need the clients' tables

    if isinstance(error, HiddenRetries):
        return error.sent == 0
    try:
        return never_left(error)
    except Exception:  # noqa: BLE001 - the effect has ended: nothing may keep its outcome from being recorded
        return False


def _told(effect: Effect[Any], error: BaseException) -> AttemptOutcome | Refused | None:
    """Ask the provider's classifier; one that fails itself says nothing."""
    if effect.provider.classify is None:
        return None
    try:
        return effect.provider.classify(error)
    except Exception:  # noqa: BLE001 - the effect has ended: nothing may keep its outcome from being recorded
        return AttemptOutcome.UNKNOWN


def _before(error: BaseException) -> str | None:
    """Say what kept an effect from beginning; another's own words may quote the payload."""
    match error:
        case CounterfoilError():
            return storable(str(error))
        case NotSent():
            return _text(error)
        case _:
            return f"{_class(error)}, before the effect began"


def _class(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _text(error: BaseException) -> str | None:
    """Keep the words of an effect's author; a client library's message may quote the payload."""
    if isinstance(error, NotSent | Refused):
        return storable(str(error.args[0])) if error.args else None
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"HTTP status {status}" if isinstance(status, int) else None


def storable(text: str) -> str:
    """Return words for people as any database can hold them, without credentials."""
    from counterfoil.credentials import redact_text  # noqa: PLC0415 - only failures need it

    kept = redact_text(text[:SEARCHED_TEXT])[:ERROR_TEXT]
    return kept.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
