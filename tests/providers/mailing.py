"""One mail as an effect, through smtplib or aiosmtplib, over a wire that can break."""

import smtplib
from email.message import EmailMessage
from typing import Any

import aiosmtplib

from counterfoil import Effect, effect
from counterfoil.providers.smtp import PROVIDER, AsyncMailer, Mailer
from counterfoil.testing.mail import PASSWORD, USER

CLIENTS = ("smtplib", "aiosmtplib")


def invitation(address: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Desk <desk@example.org>"
    message["To"] = address
    message["Subject"] = "Your interview"
    message.set_content("Hello\n.a line that begins with a dot\n")
    return message


def mailer(port: int, *, log_in: bool = False) -> Mailer:
    def begin(client: smtplib.SMTP) -> None:
        if log_in:
            client.login(USER, PASSWORD)

    return Mailer(
        lambda timeout: smtplib.SMTP("127.0.0.1", port, local_hostname="client.example.org", timeout=timeout),
        begin=begin,
    )


def async_mailer(port: int, *, log_in: bool = False) -> AsyncMailer:
    who: Any = {"username": USER, "password": PASSWORD} if log_in else {}
    return AsyncMailer(
        lambda timeout: aiosmtplib.SMTP(
            hostname="127.0.0.1",
            port=port,
            local_hostname="client.example.org",
            timeout=timeout,
            start_tls=False,
            **who,
        )
    )


def mail_effect(client: str, port: int, *, time_limit: str = "10s", log_in: bool = False) -> Effect[Any]:
    declared = effect(f"mail.invite-{client}", key="invite:{address}", provider=PROVIDER, time_limit=time_limit)
    if client == "smtplib":
        sender = mailer(port, log_in=log_in)
        return declared(lambda call, *, address: sender.send(call, invitation(address)))

    async_sender = async_mailer(port, log_in=log_in)

    async def invite(call: Any, *, address: str) -> Any:
        return await async_sender.send(call, invitation(address))

    return declared(invite)
