"""A mail over a real SMTP conversation: fault by phase, what it means, and how many mails there are in the end."""

import asyncio
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from counterfoil import AsyncCounterfoil, Counterfoil, Effect, Receipt
from counterfoil.errors import EffectNotSent, EffectRefused, OutcomeUnknown
from counterfoil.testing.mail_client import MailboxClient
from counterfoil.testing.mail_desk import MailFault
from counterfoil.testing.wire import Wire
from tests.providers.mailing import CLIENTS, mail_effect

ANN = "ann@example.org"
NOT_SENT, REFUSED, UNKNOWN, SUCCEEDED = EffectNotSent, EffectRefused, OutcomeUnknown, None

MECHANISMS = 3
"""Ways to log in, of which a client tries each: that many answers to AUTH are bad."""

Order = Callable[[Wire, MailboxClient], None]


@dataclass(frozen=True)
class Row:
    name: str
    order: Order
    means: type[Exception] | None
    count: int = 0
    time_limit: str = "10s"
    log_in: bool = False


def answer(phase: Any, reply: str, means: Any) -> Row:
    """The server answers so, instead of doing what it is asked."""
    phases: list[Any] = {"ehlo": ["ehlo", "helo"], "auth": ["auth"] * MECHANISMS}.get(phase, [phase])
    faults = [MailFault(phase=each, reply=reply) for each in phases]
    return Row(f"{phase} {reply}", lambda _, mail: mail.order(*faults), means, log_in=phase == "auth")


def order(phase: Any, does: Any, means: Any, count: int = 0) -> Row:
    is_before_dot = phase not in {"dot", "quit"}  # then being slow for another reason comes to the same
    limit = "10s" if not does.startswith("hold") else "500ms" if is_before_dot else "2s"
    fault = MailFault(phase=phase, does=does)
    return Row(f"{phase} {does}", lambda _, mail: mail.order(fault), means, count, limit, log_in=phase == "auth")


def wire(name: str, order: Callable[[Wire], None], means: Any, count: int = 0, time_limit: str = "10s") -> Row:
    return Row(f"wire {name}", lambda wire, _: order(wire), means, count, time_limit)


ROWS = [
    wire("refuses", Wire.refuse, NOT_SENT),
    wire("loses the greeting", lambda w: w.cut_before_reply(b"220 "), NOT_SENT),
    wire("is silent", Wire.black_hole, NOT_SENT, time_limit="500ms"),
    # HELO
    answer("ehlo", "421 4.3.2 shutting down", NOT_SENT),
    order("ehlo", "drop", NOT_SENT),
    order("ehlo", "hold", NOT_SENT),
    # AUTH
    answer("auth", "454 4.7.0 temporary failure", NOT_SENT),
    answer("auth", "535 5.7.8 wrong password", REFUSED),
    answer("auth", "421 4.3.2 shutting down", NOT_SENT),
    order("auth", "drop", NOT_SENT),
    # MAIL FROM
    answer("mail", "451 4.7.1 come again", NOT_SENT),
    answer("mail", "550 5.7.1 not you", REFUSED),
    answer("mail", "421 4.3.2 shutting down", NOT_SENT),
    order("mail", "drop", NOT_SENT),
    order("mail", "hold", NOT_SENT),
    wire("loses MAIL FROM", lambda w: w.cut_before_request(re.compile(rb"(?i)mail from")), NOT_SENT),
    # RCPT TO
    answer("rcpt", "450 4.2.1 greylisted", NOT_SENT),
    answer("rcpt", "550 5.1.1 no such user", REFUSED),
    answer("rcpt", "421 4.3.2 shutting down", NOT_SENT),
    order("rcpt", "drop", NOT_SENT),
    order("rcpt", "hold", NOT_SENT),
    # DATA, before the mail
    answer("data", "451 4.3.0 come again", NOT_SENT),
    answer("data", "554 5.5.1 no valid recipients", REFUSED),
    answer("data", "421 4.3.2 shutting down", NOT_SENT),
    answer("data", "250 2.0.0 what?", NOT_SENT),
    order("data", "drop", NOT_SENT),
    order("data", "hold", NOT_SENT),
    wire("cut after DATA", lambda w: w.cut_after_request(b"DATA\r\n"), NOT_SENT),
    wire("loses 354", lambda w: w.cut_before_reply(b"354 "), NOT_SENT),
    # the final dot: from here on a silence says nothing
    answer("dot", "451 4.3.0 come again", NOT_SENT),
    answer("dot", "421 4.3.2 shutting down", NOT_SENT),
    answer("dot", "552 5.2.2 mailbox full", REFUSED),
    answer("dot", "354 what?", UNKNOWN),
    answer("dot", "what?", UNKNOWN),
    order("dot", "drop", UNKNOWN),
    order("dot", "lose-reply", UNKNOWN, 1),
    order("dot", "hold", UNKNOWN, 1),
    order("dot", "hold-before", UNKNOWN),
    wire("loses the mail", lambda w: w.cut_before_request(b"\r\n.\r\n"), UNKNOWN),
    wire("cut after the mail", lambda w: w.cut_after_request(b"\r\n.\r\n"), UNKNOWN, 1),
    wire("loses 250", lambda w: w.cut_before_reply(b"queued as"), UNKNOWN, 1),
    # QUIT: the mail is accepted
    answer("quit", "421 4.3.2 shutting down", SUCCEEDED),
    order("quit", "drop", SUCCEEDED),
    order("quit", "hold", SUCCEEDED),
    wire("loses QUIT", lambda w: w.cut_before_request(re.compile(rb"(?i)quit")), SUCCEEDED),
    Row("no fault", lambda _, __: None, SUCCEEDED),
    Row("no fault, logged in", lambda _, __: None, SUCCEEDED, log_in=True),
]


def perform(made: Effect[Any], url: str = "sqlite:///:memory:", *, times: int = 1) -> list[Receipt[Any] | Exception]:
    """Perform the operation several times, and return what each came to."""
    asynchronous = inspect.iscoroutinefunction(made.function)
    return asyncio.run(_perform_async(made, url, times)) if asynchronous else _perform(made, url, times)


def _perform(made: Effect[Any], url: str, times: int) -> list[Receipt[Any] | Exception]:
    seen: list[Receipt[Any] | Exception] = []
    with Counterfoil.open(url) as cf:
        for _ in range(times):
            try:
                seen.append(cf.perform(made, tenant="t", address=ANN))
            except (EffectNotSent, EffectRefused, OutcomeUnknown) as error:
                seen.append(error)
    return seen


async def _perform_async(made: Effect[Any], url: str, times: int) -> list[Receipt[Any] | Exception]:
    seen: list[Receipt[Any] | Exception] = []
    async with AsyncCounterfoil.open(url) as cf:
        for _ in range(times):
            try:
                seen.append(await cf.perform(made, tenant="t", address=ANN))
            except (EffectNotSent, EffectRefused, OutcomeUnknown) as error:
                seen.append(error)
    return seen


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_fault_means_what_its_phase_says(client: str, row: Row, mail: MailboxClient, mail_wire: Wire) -> None:
    made = mail_effect(client, mail_wire.port, time_limit=row.time_limit, log_in=row.log_in)
    row.order(mail_wire, mail)
    first = perform(made)[0]
    assert isinstance(first, row.means or Receipt), getattr(first, "__cause__", first)
    expected = row.count or row.means is SUCCEEDED
    assert len(mail.wait_mails(int(expected))) == expected


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("fault", "then", "count"),
    [
        (MailFault(phase="rcpt", reply="450 4.2.1 greylisted"), Receipt, 1),
        (MailFault(phase="rcpt", reply="550 5.1.1 no such user"), EffectRefused, 0),
        (MailFault(phase="dot", does="lose-reply"), OutcomeUnknown, 1),
        (MailFault(phase="dot", does="drop"), OutcomeUnknown, 0),
    ],
    ids=["not sent", "refused", "unknown, delivered", "unknown, not delivered"],
)
def test_the_second_try_sends_only_what_was_not_sent(
    client: str, fault: MailFault, then: type, count: int, mail: MailboxClient
) -> None:
    made = mail_effect(client, mail.port)
    mail.order(fault)
    first, second = perform(made, times=2)
    assert not isinstance(first, Receipt)
    assert isinstance(second, then)
    assert mail.count() == count
