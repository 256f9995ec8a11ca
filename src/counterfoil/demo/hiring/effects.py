"""What the hiring workflow does to the world: mails, a fee, a report; each declared with what its provider can do."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final

from counterfoil import Absent, EffectCall, Found, Provider, effect
from counterfoil.providers import smtp
from counterfoil.providers import stripe as payments

LIMIT: Final = "20s"

# --- mails: a mail server honours no key and cannot be asked ----------------------------------------------------------

LETTERS: Final[Mapping[str, tuple[str, str]]] = {
    "invitation": ("Your interview", "Which time suits you?"),
    "reminder": ("Your interview: we have not heard from you", "Which time suits you?"),
    "offer": ("Our offer", "We would like to work with you."),
    "rejection": ("Your application", "We have decided for somebody else."),
}
"""Subject and text of each round."""


@effect("demo.hiring.mail", key="{workflow_id}/mail/{candidate}/{round}", provider=smtp.PROVIDER, time_limit=LIMIT)
def mail(call: EffectCall, *, candidate: str, address: str, round: str) -> Any:  # noqa: A002 - the word for it
    """Send the mail of one round to one candidate, at most once."""
    subject, text = LETTERS[round]
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "jobs@example.org", address, subject
    message.set_content(f"Dear {candidate},\n\n{text}")
    return call.resource(smtp.Mailer).send(call, message)


# --- the fee: Stripe honours keys and can be asked; a gateway that can do neither is declared as such -----------------

INTENTS: Final = payments.Objects("payment_intents")


def _fee(call: EffectCall, *, candidate: str, cents: int) -> Any:
    """Charge the fee for a candidate who was placed."""
    what = {"amount": cents, "currency": "eur", "description": f"Placement of {candidate}"}
    return INTENTS.create(call, what)


_FEE_KEY: Final = "{workflow_id}/fee"
charge = effect(
    "demo.hiring.fee", key=_FEE_KEY, provider=INTENTS.provider(), time_limit=LIMIT, redact=payments.SECRETS
)(_fee)
charge_blindly = effect(
    "demo.hiring.fee-opaque",
    key=_FEE_KEY,
    provider=Provider(classify=payments.classify),
    time_limit=LIMIT,
    redact=payments.SECRETS,
)(_fee)


# --- the report: a file honours no key, but one can look --------------------------------------------------------------


class Reports:
    """Where reports are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, call: EffectCall) -> Path:
        """Return where the report of an operation's workflow is."""
        return self.folder / f"{call.trusted.workflow_id}.md"

    def write(self, path: Path, text: str) -> None:
        """Write the whole file or none of it."""
        handle, draft = tempfile.mkstemp(dir=self.folder, suffix=".draft")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(draft).replace(path)


def find_report(call: EffectCall, *, text: str) -> Found | Absent:
    """Look whether the report is there."""
    path = call.resource(Reports).path(call)
    there = path.is_file() and path.read_text("utf-8") == text
    return Found(_told(path, text)) if there else Absent()


@effect(
    "demo.hiring.report",
    key="{workflow_id}/report",
    provider=Provider(lookup=find_report, lookup_lag="0s"),
    time_limit=LIMIT,
)
def write_report(call: EffectCall, *, text: str) -> Any:
    """Write the report, and return its name and digest."""
    reports = call.resource(Reports)
    path = reports.path(call)
    reports.write(path, text)
    return _told(path, text)


def _told(path: Path, text: str) -> dict[str, str]:
    return {"file": path.name, "digest": hashlib.sha256(text.encode()).hexdigest()}
