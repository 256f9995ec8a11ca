"""The counting mail server: what it delivers, what it does on order, and that it ends with its parent."""

import smtplib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from typing import Any

import pytest

from counterfoil.errors import MissingExtra
from counterfoil.testing import mail_client
from counterfoil.testing.mail_client import CountingMailServer, MailboxClient
from counterfoil.testing.mail_desk import MailFault

TEXT = "From: a@example.org\r\nSubject: s\r\nMessage-ID: <1@example.org>\r\n\r\nhello\r\n"


@pytest.fixture(scope="module")
def running() -> Iterator[CountingMailServer]:
    with CountingMailServer() as server:
        yield server


@pytest.fixture
def server(running: CountingMailServer) -> CountingMailServer:
    running.reset()
    return running


def deliver(server: MailboxClient, *recipients: str) -> Any:
    with smtplib.SMTP(server.host, server.port, local_hostname="client.example.org", timeout=10) as client:
        return client.sendmail("a@example.org", recipients or ["b@example.org"], TEXT)


def test_a_mail_is_delivered_numbered_and_counted(server: CountingMailServer) -> None:
    deliver(server, "b@example.org", "c@example.org")
    deliver(server)
    first, second = server.mails()
    assert (first.number, first.sender, first.recipients) == (1, "a@example.org", ("b@example.org", "c@example.org"))
    assert (second.number, second.subject, second.message_id) == (2, "s", "<1@example.org>")
    assert (server.count("b@example.org"), server.count("c@example.org"), server.count("d@example.org")) == (2, 1, 0)
    assert server.count(message_id="<1@example.org>") == 2


def test_another_process_can_count(server: CountingMailServer) -> None:
    deliver(server)
    code = (
        f"from {mail_client.__name__} import MailboxClient; print(MailboxClient({server.port}, {server.url!r}).count())"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"


def test_a_fault_happens_once_and_to_its_recipient(server: CountingMailServer) -> None:
    server.order(MailFault(phase="rcpt", reply="550 no", recipient="c@example.org"))
    for refused in ({"c@example.org": (550, b"no")}, {}):
        assert deliver(server, "b@example.org", "c@example.org") == refused
    assert (server.count("b@example.org"), server.count("c@example.org")) == (2, 1)


def test_it_may_deliver_and_say_no(server: CountingMailServer) -> None:
    server.order(MailFault(phase="dot", does="deliver-and-reply", reply="451 no"))
    with pytest.raises(smtplib.SMTPDataError):
        deliver(server)
    assert server.count() == 1


def test_a_held_conversation_waits_for_its_release(server: CountingMailServer) -> None:
    server.order(MailFault(phase="dot", does="hold-before"))
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(deliver, server)
        assert server.wait_held() == ["dot"]
        assert server.count() == 0
        assert server.release() == 1
        assert sending.result() == {}
    assert server.count() == 1


def test_a_reset_forgets_mails_and_faults(server: CountingMailServer) -> None:
    deliver(server)
    server.order(MailFault(phase="mail", reply="550 no"))
    server.reset()
    deliver(server)
    assert server.count() == 1


def test_waiting_in_vain_is_a_timeout(server: CountingMailServer) -> None:
    with pytest.raises(TimeoutError):
        server.wait_mails(timeout=0.01)
    with pytest.raises(TimeoutError):
        server.wait_held(timeout=0.01)


@pytest.mark.parametrize(
    "fault",
    [
        {"phase": "lunch", "reply": "550 no"},
        {"phase": "mail", "does": "shrug"},
        {"phase": "mail", "does": "lose-reply"},
        {"phase": "mail"},
        {"phase": "dot", "does": "deliver-and-reply"},
    ],
)
def test_what_no_server_does_cannot_be_ordered(fault: Any) -> None:
    with pytest.raises(ValueError, match=r"no such fault|which reply"):
        MailFault(**fault)


def test_it_ends_with_the_process_that_started_it() -> None:
    code = (
        f"from {mail_client.__name__} import CountingMailServer as S; s = S(); print(s.port, flush=True); s._owner = 0"
    )
    port = int(subprocess.check_output([sys.executable, "-c", code], text=True))
    while True:  # until it has noticed
        try:
            smtplib.SMTP("127.0.0.1", port, timeout=1).close()
        except ConnectionRefusedError:
            break
        except (smtplib.SMTPServerDisconnected, ConnectionResetError):
            continue


def test_without_aiosmtpd_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_client, "find_spec", lambda name: None if name == "aiosmtpd" else util.find_spec(name))
    with pytest.raises(MissingExtra, match=r"pip install 'counterfoil\[demo\]'$"):
        CountingMailServer()
