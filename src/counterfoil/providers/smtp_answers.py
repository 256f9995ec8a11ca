"""What a mail server's answers mean, and what the exceptions of smtplib and aiosmtplib mean by themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.outcomes import root
from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

BY_CODE: Final = None
"""What a class means depends on the server's code: 4xx not sent, 5xx refused, anything else unknown."""

EXCEPTIONS: Final[dict[tuple[str, str], AttemptOutcome | None]] = {
    ("smtplib", "SMTPConnectError"): BY_CODE,
    ("smtplib", "SMTPHeloError"): BY_CODE,
    ("smtplib", "SMTPAuthenticationError"): BY_CODE,
    ("smtplib", "SMTPSenderRefused"): BY_CODE,
    ("smtplib", "SMTPRecipientsRefused"): BY_CODE,
    ("smtplib", "SMTPDataError"): BY_CODE,  # to DATA itself or to the final dot: not accepted either way
    ("smtplib", "SMTPNotSupportedError"): AttemptOutcome.NOT_SENT,
    ("smtplib", "SMTPServerDisconnected"): AttemptOutcome.UNKNOWN,  # before or after the dot: it does not say
    ("smtplib", "SMTPResponseException"): AttemptOutcome.UNKNOWN,  # a reply that cannot be read, whenever
    ("smtplib", "SMTPException"): AttemptOutcome.UNKNOWN,
    ("aiosmtplib", "SMTPConnectResponseError"): BY_CODE,
    ("aiosmtplib", "SMTPConnectError"): AttemptOutcome.NOT_SENT,
    ("aiosmtplib", "SMTPConnectTimeoutError"): AttemptOutcome.NOT_SENT,
    ("aiosmtplib", "SMTPHeloError"): BY_CODE,
    ("aiosmtplib", "SMTPAuthenticationError"): BY_CODE,
    ("aiosmtplib", "SMTPSenderRefused"): BY_CODE,
    ("aiosmtplib", "SMTPRecipientRefused"): BY_CODE,
    ("aiosmtplib", "SMTPRecipientsRefused"): BY_CODE,
    ("aiosmtplib", "SMTPDataError"): BY_CODE,
    ("aiosmtplib", "SMTPNotSupported"): AttemptOutcome.NOT_SENT,
    ("aiosmtplib", "SMTPServerDisconnected"): AttemptOutcome.UNKNOWN,
    ("aiosmtplib", "SMTPResponseException"): AttemptOutcome.UNKNOWN,
    ("aiosmtplib", "SMTPTimeoutError"): AttemptOutcome.UNKNOWN,
    ("aiosmtplib", "SMTPReadTimeoutError"): AttemptOutcome.UNKNOWN,
    ("aiosmtplib", "SMTPException"): AttemptOutcome.UNKNOWN,
}
"""What the clients' exceptions mean by themselves, by package and class: the first of a class's line counts.

This is for code that calls smtplib or aiosmtplib itself. A `Mailer` knows more: how far the conversation had come.
"""

_YES, _NOT_NOW, _NEVER = 2, 4, 5
"""First digits of replies (RFC 5321, 4.2.1)."""
_ENHANCED: Final = re.compile(r"[245]\.\d{1,3}\.\d{1,3}(?!\S)")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered; the code is -1 where it could not be read."""

    code: int
    text: str

    @classmethod
    def of(cls, code: int, words: bytes | str) -> Reply:
        """Return a reply with its words as text."""
        return cls(code, words if isinstance(words, str) else words.decode("utf-8", "backslashreplace"))

    @property
    def is_yes(self) -> bool:
        """Say whether it completes what was asked."""
        return _class_of(self.code) == _YES

    @property
    def numbers(self) -> str:
        """Return its codes without its words, which may quote addresses."""
        enhanced = _ENHANCED.match(self.text)
        return f"{self.code} {enhanced[0]}" if enhanced else str(self.code)


def _class_of(code: int) -> int:
    """Return the first digit of a reply's code."""
    return code // 100


def classify(error: BaseException) -> AttemptOutcome | None:
    """Return what an exception of smtplib or aiosmtplib means by itself, or None for another package's."""
    for cls in type(error).__mro__:
        place = (root(cls), cls.__name__)
        if place in EXCEPTIONS:
            told = EXCEPTIONS[place]
            return by_codes(codes_of(error)) if told is BY_CODE else told
    return None


def codes_of(error: Any) -> list[int]:
    """Return the codes that an exception holds: one, or one for each recipient."""
    match getattr(error, "recipients", None):
        case dict() as each:
            return [code for code, _ in each.values()]
        case list() as each:
            return [one.code for one in each]
        case _:
            return [int(getattr(error, "smtp_code", getattr(error, "code", -1)))]


def by_codes(codes: Sequence[int]) -> AttemptOutcome:
    """Return what codes mean together: one recipient who may be tried again makes it worth while."""
    classes = {_class_of(code) for code in codes}
    if not classes or not classes <= {_NOT_NOW, _NEVER}:
        return AttemptOutcome.UNKNOWN
    return AttemptOutcome.NOT_SENT if _NOT_NOW in classes else AttemptOutcome.REFUSED


def _named(outcome: AttemptOutcome) -> frozenset[str]:
    return frozenset(".".join(place) for place, told in EXCEPTIONS.items() if told is outcome)


TABLE: Final = Table(
    client="smtplib, aiosmtplib",
    not_sent=_named(AttemptOutcome.NOT_SENT),
    unknown=_named(AttemptOutcome.UNKNOWN),
    is_first_try=lambda error: not hasattr(error, "code"),  # an answer to the connection is judged by its code
    judge=classify,
    by_structure=(("those with a code, or one for each recipient", "4xx not sent, 5xx refused, others unknown"),),
)
