"""Open the hiring workflow's database as a process of its own: its graph registered, its clients provided."""

import smtplib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import stripe

from counterfoil import Counterfoil
from counterfoil.clock import Clock
from counterfoil.demo.hiring.effects import Reports, charge, charge_blindly
from counterfoil.demo.hiring.workflow import Patience, build
from counterfoil.drivers.probes import Probe
from counterfoil.providers import stripe as payments
from counterfoil.providers.smtp import Mailer

MAIL_USER, MAIL_PASSWORD = "counterfoil", "a password that everybody knows"
"""With which the demo's mail server lets log in."""
STRIPE_KEY: Final = "sk_test_that_everybody_knows"
TIMEOUT_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """Where everything is: the database, the mail server, the gateway, and the folder for reports.

    Args:
        url: The database.
        graph: The name under which the graph is registered.
        tenant: Whose workflow it is.
        mail_port: Where the mail server listens on this machine.
        gateway: The URL of the payment gateway.
        honours_keys: Whether the gateway is one that honours keys and can be asked.
        reports: Where reports are written.
        patience: How long the workflow waits; days unless it is to be watched.
        engine: What wakes workflows.
    """

    url: str
    graph: str = "hiring"
    tenant: str = "team-A"
    mail_port: int
    gateway: str
    honours_keys: bool = True
    reports: Path
    patience: Patience | None = None
    engine: str = "embedded"


def open_office(office: Office, *, clock: Clock | None = None, probe: Probe | None = None) -> Counterfoil:
    """Open the database; clients are made here, in each process anew, and never stored."""
    cf = Counterfoil.open(office.url, clock=clock, probe=probe, engine=office.engine)
    cf.resources.provide(Mailer, lambda: Mailer(_connect(office.mail_port), begin=_log_in))
    cf.resources.provide(stripe.StripeClient, lambda: _gateway(office.gateway))
    cf.resources.provide(Reports, lambda: Reports(office.reports))
    fee = charge if office.honours_keys else charge_blindly
    cf.workflows.register(build(fee=fee, patience=office.patience), name=office.graph)
    return cf


def _connect(port: int) -> Callable[[float], smtplib.SMTP]:
    return lambda timeout: smtplib.SMTP("127.0.0.1", port, local_hostname="office.example.org", timeout=timeout)


def _log_in(client: smtplib.SMTP) -> None:
    client.login(MAIL_USER, MAIL_PASSWORD)


def _gateway(url: str) -> stripe.StripeClient:
    return payments.client(STRIPE_KEY, timeout=TIMEOUT_S, base_addresses={"api": url})
