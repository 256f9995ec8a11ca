"""Mail each of five people once, as an operation each; `python -m tests.cases.mass_mail URL PORT [DIE_AFTER]`."""

import os
import signal
import smtplib
import sys
from email.message import EmailMessage
from typing import Any

from counterfoil import Counterfoil, effect
from counterfoil.errors import EffectNotSent, EffectRefused, OutcomeUnknown
from counterfoil.providers.smtp import PROVIDER, Mailer

ADDRESSES = [f"{name}@example.org" for name in ("one", "two", "three", "four", "five")]


@effect("cases.newsletter", key="newsletter:{issue}:{address}", provider=PROVIDER)
def newsletter(call: Any, *, issue: int, address: str) -> Any:
    message = EmailMessage()
    message["From"] = "news@example.org"
    message["To"] = address
    message["Subject"] = f"Issue {issue}"
    message.set_content("What is new")
    return call.resource(Mailer).send(call, message)


def opened(url: str, port: int) -> Counterfoil:
    cf = Counterfoil.open(url)
    cf.resources.provide(
        Mailer,
        lambda: Mailer(
            lambda timeout: smtplib.SMTP("127.0.0.1", port, local_hostname="client.example.org", timeout=timeout)
        ),
    )
    return cf


def mail_all(cf: Counterfoil, die_after: str = "") -> dict[str, str]:
    """Mail everybody, whatever becomes of the others; return what became of each."""
    told: dict[str, str] = {}
    for address in ADDRESSES:
        try:
            told[address] = cf.perform(newsletter, tenant="t", issue=7, address=address).answered_from
        except (EffectNotSent, EffectRefused, OutcomeUnknown) as error:
            told[address] = error.code
        if address == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
    return told


if __name__ == "__main__":
    with opened(sys.argv[1], int(sys.argv[2])) as opened_cf:
        mail_all(opened_cf, *sys.argv[3:])
