"""A conversation that hands over one mail, as steps and answers, and the mail as it is handed over."""

from __future__ import annotations

import copy
import re
import smtplib
from dataclasses import dataclass
from email.utils import format_datetime, getaddresses, localtime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, cast

from counterfoil.core.states import AttemptOutcome
from counterfoil.model import Answered, NotSent, Refused
from counterfoil.providers.smtp_answers import Reply, by_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from email.message import EmailMessage
    from email.policy import EmailPolicy

    from counterfoil.effects import EffectCall

_GO_AHEAD: Final = 354
_CLOSING: Final = 421
_WORDS: Final = 200
"""Characters kept of the words with which a server accepts a mail: they hold its queue id."""
_UNSAFE: Final = re.compile(r"[\s<>\x00-\x1f\x7f]")


class Phase(StrEnum):
    """How far a conversation has come."""

    SENDER = "MAIL FROM"
    RECIPIENT = "RCPT TO"
    DATA = "DATA"
    DOT = "the end of the mail"


@dataclass(frozen=True, slots=True)
class Step:
    """What to say next."""

    phase: Phase
    address: str = ""
    options: tuple[str, ...] = ()
    content: bytes = b""


# --- the letter ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A mail ready for the wire: its content ends with the final dot."""

    message_id: str
    sender: str
    recipients: tuple[str, ...]
    content: bytes
    is_international: bool

    def options(self, has: Callable[[str], bool]) -> tuple[str, ...]:
        """Return what to add to MAIL FROM, by what the server offers.

        Raises:
            Refused: an address needs SMTPUTF8, which it does not offer.
        """
        size = (f"SIZE={len(self.content)}",) if has("size") else ()
        if not self.is_international:
            return size
        if not has("smtputf8"):
            raise Refused("An address is not ASCII, and the mail server does not offer SMTPUTF8.")
        return (*size, "SMTPUTF8", "BODY=8BITMIME")


def message_id(call: EffectCall, domain: str) -> str:
    """Return the Message-ID of an operation's mail: the same for each attempt."""
    place = domain if domain.isascii() and domain else "counterfoil.invalid"
    return f"<{call.provider_key}@{place}>"


def letter(
    call: EffectCall, message: EmailMessage, *, sender: str | None = None, recipients: Sequence[str] | None = None
) -> Letter:
    """Make a message ready to be sent, with the operation's Message-ID in place of its own and without Bcc.

    Raises:
        Refused: it has no sender or recipient, or cannot be written down.
    """
    source = sender or next(iter(_addresses(message, "Sender") or _addresses(message, "From")), "")
    to = tuple(_addresses(message, "To", "Cc", "Bcc") if recipients is None else recipients)
    if not source or not to or any(_UNSAFE.search(address) for address in (source, *to)):
        raise Refused("The mail has no sender or no recipient, or an address that cannot be one.")
    name = message_id(call, source.rpartition("@")[2])
    is_international = not "".join((source, *to)).isascii()
    content = _written(_addressed(message, name), is_international=is_international)
    return Letter(message_id=name, sender=source, recipients=to, content=content, is_international=is_international)


def _addresses(message: EmailMessage, *names: str) -> list[str]:
    lines = [str(line) for name in names for line in message.get_all(name, ())]
    return list(dict.fromkeys(address for _, address in getaddresses(lines) if address))


def _addressed(message: EmailMessage, name: str) -> EmailMessage:
    """Return a copy with its headers; deleting first gives the copy a list of headers of its own."""
    copied = copy.copy(message)
    del copied["Bcc"], copied["Message-ID"]
    copied["Message-ID"] = name
    if "Date" not in copied:
        copied["Date"] = format_datetime(localtime())
    return copied


def _written(message: EmailMessage, *, is_international: bool) -> bytes:
    kind = "8bit" if is_international else "7bit"
    try:
        policy = cast("EmailPolicy", message.policy).clone(linesep="\r\n", cte_type=kind, utf8=is_international)
        plain = message.as_bytes(policy=policy)
    except Exception as error:  # nothing has been sent, and the same message will not get any better
        raise Refused(f"The mail cannot be written down ({type(error).__name__}).") from error
    lines = re.sub(rb"\r\n|\r|\n", b"\r\n", plain.removesuffix(b"\r\n")) + b"\r\n"
    return re.sub(rb"(?m)^\.", b"..", lines) + b".\r\n"  # RFC 5321, 4.5.2


# --- the conversation ------------------------------------------------------------------------------------------------


Delivered = Answered[dict[str, Any]]


def converse(mail: Letter, has: Callable[[str], bool]) -> Generator[Step, Reply, Delivered]:
    """Yield what to say and take the answers; return what the receipt will hold, and what the server said as evidence.

    Raises:
        NotSent: the server said that it did nothing, and may be asked again.
        Refused: it refused for good.
        smtplib.SMTPDataError: its answer to the final dot says neither.
    """
    _demand(Phase.SENDER, (yield Step(Phase.SENDER, mail.sender, mail.options(has))))
    refused = yield from _name_recipients(mail)
    _demand(Phase.DATA, (yield Step(Phase.DATA)), wanted=_GO_AHEAD)
    answer = yield Step(Phase.DOT, content=mail.content)
    if not answer.is_yes:
        raise _answer_to_dot(answer)
    numbers = {address: reply.numbers for address, reply in refused.items()}
    accepted = [each for each in mail.recipients if each not in refused]
    return Answered(
        {"message_id": mail.message_id, "accepted": accepted, "refused": numbers},
        {"class": "succeeded", "reply": f"{answer.code} {answer.text}"[:_WORDS], "refused": numbers},
    )


def _name_recipients(mail: Letter) -> Generator[Step, Reply, dict[str, Reply]]:
    refused: dict[str, Reply] = {}
    for address in mail.recipients:
        reply = yield Step(Phase.RECIPIENT, address)
        if not reply.is_yes:
            refused[address] = reply
        if reply.code == _CLOSING:
            break
    if len(refused) == len(mail.recipients) or _CLOSING in {reply.code for reply in refused.values()}:
        raise _before_dot(Phase.RECIPIENT, list(refused.values()))
    return refused


def _demand(phase: Phase, reply: Reply, *, wanted: int | None = None) -> None:
    if reply.code != wanted if wanted else not reply.is_yes:
        raise _before_dot(phase, [reply])


def _before_dot(phase: Phase, replies: Sequence[Reply]) -> NotSent | Refused:
    """Return what an answer before the dot means: the mail was not sent, whatever it is."""
    text = f"{phase} was answered with {', '.join(sorted({reply.numbers for reply in replies}))}"
    is_final = by_codes([reply.code for reply in replies]) is AttemptOutcome.REFUSED
    return Refused(text) if is_final else NotSent(text)


def _answer_to_dot(reply: Reply) -> Exception:
    if by_codes([reply.code]) is AttemptOutcome.UNKNOWN:
        return smtplib.SMTPDataError(reply.code, reply.text.encode())
    return _before_dot(Phase.DOT, [reply])
