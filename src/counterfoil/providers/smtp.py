"""Send mail over SMTP, and tell a mail that never left from one whose acceptance was not heard.

A mail server takes responsibility for a mail with its answer to the final dot of DATA (RFC 5321, 4.2.5 and 6.1). So the
conversation is led step by step: what goes wrong before the dot has left was not sent, a 5xx is a refusal, and where
the answer to the dot was not heard nobody knows: SMTP has neither keys nor a question "did you take it?".
Each attempt carries the same Message-ID, by which mailboxes and people recognise a mail that came twice.

`Mailer` works with the standard library's smtplib, `AsyncMailer` with aiosmtplib (pip install 'counterfoil[smtp]').
"""

from __future__ import annotations

import smtplib
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import MissingExtra
from counterfoil.model import NotSent, Refused
from counterfoil.providers.smtp_answers import EXCEPTIONS, Reply, classify, codes_of
from counterfoil.providers.smtp_talk import Delivered, Letter, Phase, Step, converse, letter, message_id
from counterfoil.providing import Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from email.message import EmailMessage

    import aiosmtplib
    from aiosmtplib.protocol import SMTPProtocol

    from counterfoil.effects import EffectCall

__all__ = ["EXCEPTIONS", "PROVIDER", "AsyncMailer", "Mailer", "classify", "message_id"]

_LEAVE_WITHIN: Final = 1.0
"""Seconds kept back from the time limit, at most, for QUIT: the mail is accepted by then, and nothing depends on it."""
PROVIDER: Final = Provider(classify=classify)
"""A mail server: it honours no key and cannot be asked, so a mail is sent at most once."""


@contextmanager
def _nothing_left() -> Iterator[None]:
    """Turn what goes wrong before the final dot has left into what it proves: nothing was sent."""
    try:
        yield
    except (NotSent, Refused):
        raise
    except Exception as error:
        told = classify(error)
        codes = [str(code) for code in codes_of(error) if code > 0] if told else []
        text = " ".join(("Nothing was sent:", type(error).__name__, *codes))
        raise (Refused if told is AttemptOutcome.REFUSED else NotSent)(text) from error


class _Clock:
    """The time that is left for an attempt."""

    def __init__(self, limit: float) -> None:
        self.goodbye = min(_LEAVE_WITHIN, limit / 10)
        self._end = time.monotonic() + limit - self.goodbye

    def left(self) -> float:
        """Return seconds.

        Raises:
            TimeoutError: none are left.
        """
        if (seconds := self._end - time.monotonic()) <= 0:
            raise TimeoutError
        return seconds


# --- the standard library's client -----------------------------------------------------------------------------------


class Mailer:
    """Send mail through smtplib, on a connection of its own for each.

    `Mailer(lambda timeout: smtplib.SMTP("mail.example.org", 587, timeout=timeout), begin=log_in)`, where
    `log_in(client)` starts TLS and logs in, if the server wants that. What either raises counts as not sent, or as
    refused where the server answered with 5xx.
    """

    def __init__(
        self, connect: Callable[[float], smtplib.SMTP], *, begin: Callable[[smtplib.SMTP], object] = lambda _: None
    ) -> None:
        self._connect = connect
        self._begin = begin

    def send(
        self,
        call: EffectCall,
        message: EmailMessage,
        *,
        sender: str | None = None,
        recipients: Sequence[str] | None = None,
    ) -> Delivered:
        """Send a mail once; return what the effect returns: `message_id`, `accepted`, `refused` (with the codes).

        The server's words of acceptance, and whom it refused, are the receipt's evidence.

        Sender and recipients are those of its headers (Bcc included, which is not sent on) unless they are given.
        With several recipients it has succeeded as soon as the server took it for one: let each be an operation.

        Raises:
            NotSent: the mail did not leave, or the server took it for nobody and may be asked again.
            Refused: the server refused it for good, or it cannot be sent as it is.
            smtplib.SMTPException: the answer to the final dot was not heard: nobody knows.
        """
        mail = letter(call, message, sender=sender, recipients=recipients)
        clock = _Clock(call.time_limit)
        with _nothing_left():
            client = self._connect(clock.left())
        try:
            with _nothing_left():
                self._begin(client)
            return _talk(client, mail, clock)
        finally:
            _leave(client, clock.goodbye)


def _talk(client: smtplib.SMTP, mail: Letter, clock: _Clock) -> Delivered:
    talk = converse(mail, client.has_extn)
    with _nothing_left():
        client.ehlo_or_helo_if_needed()
        step = next(talk)
    while True:
        with _nothing_left():
            _allow(client, clock)
            reply = _say(client, step)
        if reply is None:
            reply = Reply.of(*client.getreply())
        try:
            step = talk.send(reply)
        except StopIteration as done:
            delivered: Delivered = done.value
            return delivered


def _say(client: smtplib.SMTP, step: Step) -> Reply | None:
    """Say it, and return the answer to whatever is not the final dot."""
    match step.phase:
        case Phase.SENDER:
            return Reply.of(*client.mail(step.address, step.options))
        case Phase.RECIPIENT:
            return Reply.of(*client.rcpt(step.address))
        case Phase.DATA:
            return Reply.of(*client.docmd("DATA"))
        case Phase.DOT:
            client.send(step.content)  # raises unless all was handed over, dot included
            return None


def _allow(client: smtplib.SMTP, clock: _Clock) -> None:
    if client.sock is not None:
        client.sock.settimeout(clock.left())


def _leave(client: smtplib.SMTP, seconds: float) -> None:
    """Say goodbye; whatever comes of it, the outcome is known by now."""
    with suppress(smtplib.SMTPException, OSError):
        if client.sock is not None:
            client.sock.settimeout(seconds)
            client.quit()
    client.close()


# --- aiosmtplib ------------------------------------------------------------------------------------------------------


class AsyncMailer:
    """Send mail through aiosmtplib, on a connection of its own for each.

    `AsyncMailer(lambda timeout: aiosmtplib.SMTP(hostname="mail.example.org", port=25, timeout=timeout))`: a client that
    is not connected, with the user name and password to log in with, if any.

    Raises:
        MissingExtra: aiosmtplib is not installed.
    """

    def __init__(self, make: Callable[[float], aiosmtplib.SMTP]) -> None:
        try:
            import aiosmtplib  # noqa: F401, PLC0415 - whether it is installed
        except ModuleNotFoundError:
            raise MissingExtra(
                "AsyncMailer needs aiosmtplib, which is not installed: pip install 'counterfoil[smtp]'"
            ) from None
        self._make = make

    async def send(
        self,
        call: EffectCall,
        message: EmailMessage,
        *,
        sender: str | None = None,
        recipients: Sequence[str] | None = None,
    ) -> Delivered:
        """Send a mail once; see `Mailer.send`.

        Raises:
            NotSent: the mail did not leave, or the server took it for nobody and may be asked again.
            Refused: the server refused it for good, or it cannot be sent as it is.
            aiosmtplib.SMTPException: the answer to the final dot was not heard: nobody knows.
        """
        mail = letter(call, message, sender=sender, recipients=recipients)
        clock = _Clock(call.time_limit)
        with _nothing_left():
            client = self._make(clock.left())
        try:
            return await _talk_async(client, mail, clock)
        finally:
            _leave_at_once(client)


async def _talk_async(client: aiosmtplib.SMTP, mail: Letter, clock: _Clock) -> Delivered:
    talk = converse(mail, client.supports_extension)
    with _nothing_left():
        await client.connect(timeout=clock.left())
        await _greet(client)
        step = next(talk)
    while True:
        with _nothing_left():
            reply = await _say_async(client, step, clock.left())
        if reply is None:
            reply = await _hear(client, clock)
        try:
            step = talk.send(reply)
        except StopIteration as done:
            delivered: Delivered = done.value
            return delivered


async def _greet(client: aiosmtplib.SMTP) -> None:
    """Say EHLO, or HELO to a server that knows no better; one that logged in has been greeted."""
    from aiosmtplib import SMTPHeloError  # noqa: PLC0415 - an optional package

    if client.is_ehlo_or_helo_needed:
        try:
            await client.ehlo()
        except SMTPHeloError:
            await client.helo()


async def _say_async(client: aiosmtplib.SMTP, step: Step, seconds: float) -> Reply | None:
    """Say it, and return the answer to whatever is not the final dot."""
    from aiosmtplib import SMTPResponseException  # noqa: PLC0415 - an optional package

    if step.phase is Phase.DOT:
        _protocol(client).write(step.content)
        return None
    try:
        answer = await _command(client, step, seconds)
    except SMTPResponseException as error:
        return Reply.of(error.code, error.message)
    return Reply.of(answer.code, answer.message)


async def _command(client: aiosmtplib.SMTP, step: Step, seconds: float) -> aiosmtplib.SMTPResponse:
    encoding = "ascii" if step.address.isascii() else "utf-8"
    if step.phase is Phase.SENDER:
        return await client.mail(step.address, options=step.options, encoding=encoding, timeout=seconds)
    if step.phase is Phase.RECIPIENT:
        return await client.rcpt(step.address, encoding=encoding, timeout=seconds)
    return await client.execute_command(b"DATA", timeout=seconds)


async def _hear(client: aiosmtplib.SMTP, clock: _Clock) -> Reply:
    answer = await _protocol(client).read_response(timeout=clock.left())
    return Reply.of(answer.code, answer.message)


def _protocol(client: aiosmtplib.SMTP) -> SMTPProtocol:
    """Return the open connection: the client's own `data` would not say whether the dot had left."""
    if client.protocol is None:
        raise ConnectionError("the connection is closed")
    return client.protocol


def _leave_at_once(client: aiosmtplib.SMTP) -> None:
    """Say goodbye without waiting for an answer: a cancellation meanwhile would cost an outcome that is known."""
    with suppress(Exception):
        _protocol(client).write(b"QUIT\r\n")
    client.close()
