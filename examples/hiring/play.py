"""Two workers, one of which is killed with SIGKILL while the workflow is under way; the other one finishes it.

Run it: python examples/hiring/play.py. It starts a mail server and a payment gateway of its own, which count.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from counterfoil import Counterfoil
from counterfoil.demo.hiring.office import Office, open_office
from counterfoil.demo.hiring.person import settle
from counterfoil.demo.hiring.timeline import given
from counterfoil.demo.hiring.workflow import Patience
from counterfoil.testing.mail_client import CountingMailServer, MailboxClient
from counterfoil.testing.provider_client import CountingProvider, ProviderClient

HERE = Path(__file__).parent
MAILS = 5
"""Two invitations, an offer, two rejections."""
LIMIT_S = 45.0


def worker(office: Office) -> "subprocess.Popen[bytes]":
    """Start a worker as a person does in a terminal."""
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    known = {
        "COUNTERFOIL_URL": office.url,
        "PYTHONPATH": path,
        "HIRING_GATEWAY": office.gateway,
        "HIRING_MAIL_PORT": str(office.mail_port),
    }
    line = [sys.executable, "-m", "counterfoil", "worker", "--app", "app:cf"]
    return subprocess.Popen(line, cwd=office.reports, env={**os.environ, **known})


def tell(cf: Counterfoil) -> None:
    """Tell the workflow what comes: the candidates' times, and a grade for one of them."""
    soon = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    for event, subject, payload in (
        ("slot", "ann", {"at": soon}),
        ("slot", "bob", {"at": soon}),
        ("feedback", "ann", {"grade": 5}),
        ("feedback", "bob", {"grade": 4}),
    ):
        told = {"tenant": "team-A", "workflow_id": "hiring-1", "event_id": f"{event}-{subject}"}
        cf.workflows.deliver(event, subject=subject, payload=payload, **told)  # type: ignore[arg-type]


def wait_for_the_end(cf: Counterfoil, office: Office, mailbox: MailboxClient, gateway: ProviderClient) -> str:
    """Look until the workflow has ended; a mail that was on its way when the worker died is looked for by a person."""
    until = time.monotonic() + LIMIT_S
    while (status := cf.workflows.get("hiring-1", tenant="team-A").status) != "done" and time.monotonic() < until:
        settle(cf, office, mailbox, gateway)
        time.sleep(0.2)
    return status


def play(folder: Path, mailbox: MailboxClient, gateway: ProviderClient) -> bool:
    """Play it, and say whether there was one mail for each candidate and round, and one charge."""
    url, patience = f"sqlite:///{folder / 'hiring.db'}", Patience(slot="10s", reminded="10s", feedback="20s")
    office = Office(url=url, mail_port=mailbox.port, gateway=gateway.url, reports=folder, patience=patience)
    workers = []
    try:
        with open_office(office) as cf:
            cf.workflows.start("hiring", given(), tenant="team-A", workflow_id="hiring-1")
            workers.append(worker(office))
            mailbox.wait_mails(1, timeout=15)
            workers[0].kill()  # kill -9
            print("a worker was killed after", len(mailbox.mails()), "mails")
            workers.append(worker(office))
            tell(cf)
            print("the workflow is", wait_for_the_end(cf, office, mailbox, gateway))
    finally:
        for each in workers:
            each.terminate()
            each.wait()
    counted = Counter((mail.recipients[0], mail.subject) for mail in mailbox.mails())
    print("\n".join(f"{n} to {who}: {what}" for (who, what), n in counted.items()))
    print(gateway.count(), "charge;", (folder / "hiring-1.md").read_text("utf-8").splitlines()[-1])
    return set(counted.values()) == {1} and len(counted) == MAILS and gateway.count() == 1


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as made,
        CountingMailServer() as mail_server,
        CountingProvider(module="counterfoil.testing.gateway") as payments,
    ):
        sys.exit(0 if play(Path(made), mail_server, payments) else 1)
