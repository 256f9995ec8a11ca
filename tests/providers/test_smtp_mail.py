"""What a mail looks like that arrives, several recipients in one mail, and the clients' bare exceptions."""

import asyncio
import smtplib
import sys
from collections.abc import Callable
from email.message import EmailMessage
from types import SimpleNamespace
from typing import Any

import aiosmtplib
import pytest

from counterfoil import Absent, Answered, AttemptOutcome, Counterfoil, Found, NotSent, Provider, Refused, effect
from counterfoil.errors import ContradictoryDeclaration, MissingExtra, OutcomeUnknown
from counterfoil.providers.smtp import AsyncMailer, Mailer, classify, message_id
from counterfoil.providers.tables import never_left
from counterfoil.testing.clock import FakeClock
from counterfoil.testing.mail_client import MailboxClient
from counterfoil.testing.mail_desk import MailFault
from counterfoil.testing.wire import Wire
from tests.providers.mailing import CLIENTS, async_mailer, invitation, mailer

ANN, BOB = "ann@example.org", "bob@example.org"
NO, LATER = "550 5.1.1 no such user", "450 4.2.1 greylisted"


def call(*, attempt: int = 1, time_limit: float = 10) -> Any:
    return SimpleNamespace(provider_key="ab" * 32, attempt=attempt, time_limit=time_limit)


def send(client: str, port: int, message: EmailMessage, made: Any = None, **more: Any) -> dict[str, Any]:
    return sent(client, port, message, made, **more).value


def sent(client: str, port: int, message: EmailMessage, made: Any = None, **more: Any) -> Answered[dict[str, Any]]:
    if client == "smtplib":
        return mailer(port).send(made or call(), message, **more)
    return asyncio.run(async_mailer(port).send(made or call(), message, **more))


# --- the mail --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_it_arrives_as_written_with_the_operations_message_id(client: str, mail: MailboxClient) -> None:
    message = invitation(ANN)
    message["Bcc"] = BOB
    message["Message-ID"] = "<another@example.org>"
    before = message.as_bytes()
    told = send(client, mail.port, message)
    (arrived,) = mail.mails()
    assert told == {
        "message_id": f"<{'ab' * 32}@example.org>",
        "accepted": [ANN, BOB],
        "refused": {},
    }
    assert arrived.message_id == told["message_id"] == message_id(call(attempt=2), "example.org")
    assert (arrived.sender, arrived.recipients) == ("desk@example.org", (ANN, BOB))
    assert "\r\n\r\nHello\r\n.a line that begins with a dot\r\n" in arrived.content
    assert BOB not in arrived.content
    assert "\r\nDate: " in arrived.content
    assert message.as_bytes() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_each_attempt_carries_the_same_message_id(client: str, mail: MailboxClient) -> None:
    told = [send(client, mail.port, invitation(ANN), call(attempt=n))["message_id"] for n in (1, 2)]
    assert told[0] == told[1] == mail.mails()[0].message_id
    assert mail.count(message_id=told[0]) == 2


@pytest.mark.parametrize("client", CLIENTS)
def test_sender_and_recipients_may_be_given(client: str, mail: MailboxClient) -> None:
    send(client, mail.port, invitation(ANN), sender="bounce@example.net", recipients=[BOB])
    (arrived,) = mail.mails()
    assert (arrived.sender, arrived.recipients) == ("bounce@example.net", (BOB,))


@pytest.mark.parametrize("client", CLIENTS)
def test_an_address_and_a_text_may_be_of_any_script(client: str, mail: MailboxClient) -> None:
    message = invitation("jürgen@example.org")
    message.replace_header("Subject", "Grüße")
    message.set_content("你好\n", cte="8bit")
    send(client, mail.port, message)
    (arrived,) = mail.mails()
    assert arrived.recipients == ("jürgen@example.org",)
    assert arrived.subject == "Grüße"
    assert "你好" in arrived.content


def nobody() -> EmailMessage:
    message = invitation(ANN)
    del message["To"]
    return message


def from_nobody() -> EmailMessage:
    message = invitation(ANN)
    del message["From"]
    return message


def of_no_bytes() -> EmailMessage:
    message = invitation(ANN)
    message.set_payload([message])  # it holds itself
    return message


@pytest.mark.parametrize("make", [nobody, from_nobody, of_no_bytes])
@pytest.mark.parametrize("client", CLIENTS)
def test_what_cannot_be_sent_is_refused_before_a_connection_is_made(
    client: str, make: Callable[[], EmailMessage], mail: MailboxClient, mail_wire: Wire
) -> None:
    with pytest.raises(Refused):
        send(client, mail_wire.port, make())
    assert mail_wire.counts.connections == 0


@pytest.mark.parametrize("recipient", ["ann@example.org>\r\nRCPT TO:<eve@example.org", "ann @example.org", "<ann>"])
def test_an_address_cannot_smuggle_commands(recipient: str, mail: MailboxClient) -> None:
    with pytest.raises(Refused):
        send("smtplib", mail.port, invitation(ANN), recipients=[recipient])
    assert mail.count() == 0


# --- several recipients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("replies", "means"),
    [
        ({ANN: NO}, dict),
        ({BOB: LATER}, dict),
        ({ANN: NO, BOB: NO}, Refused),
        ({ANN: NO, BOB: LATER}, NotSent),
        ({ANN: LATER, BOB: LATER}, NotSent),
        ({BOB: "421 4.3.2 shutting down"}, NotSent),
    ],
    ids=lambda given: " ".join(given.values()) if isinstance(given, dict) else given.__name__,
)
def test_a_mail_to_several_tells_who_was_refused(
    client: str, replies: dict[str, str], means: type, mail: MailboxClient
) -> None:
    mail.order(*(MailFault(phase="rcpt", reply=reply, recipient=to) for to, reply in replies.items()))
    message = invitation(f"{ANN}, {BOB}")
    if means is not dict:
        with pytest.raises(means):
            send(client, mail.port, message)
        assert mail.count() == 0
        return
    answered = sent(client, mail.port, message)
    told = answered.value
    assert answered.evidence == {
        "class": "succeeded",
        "reply": "250 2.0.0 OK: queued as 1",
        "refused": told["refused"],
    }
    assert told["refused"] == {to: reply.rpartition(" no ")[0] or "450 4.2.1" for to, reply in replies.items()}
    assert sorted([*told["accepted"], *told["refused"]]) == [ANN, BOB]
    assert [one.recipients for one in mail.mails()] == [tuple(told["accepted"])]


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_a_sender_that_stalled_past_its_time_limit_does_not_send(
    client: str, mail: MailboxClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 1.0, 2.0, 9.5])  # begun, connected, ..., and then a long pause
    monkeypatch.setattr("counterfoil.providers.smtp.time", SimpleNamespace(monotonic=lambda: next(times, 9.5)))
    with pytest.raises(NotSent):
        send(client, mail.port, invitation(ANN))
    assert mail.count() == 0


@pytest.mark.parametrize(("client", "means"), [("smtplib", NotSent), ("aiosmtplib", aiosmtplib.SMTPException)])
def test_a_long_mail_cut_in_the_middle_has_not_reached_its_end(
    client: str, means: type[Exception], mail: MailboxClient, mail_wire: Wire
) -> None:
    message = invitation(ANN)
    lines = ("x" * 70 + "\n") * 120_000  # more than the buffers between take, so that a client is still at it
    message.set_content(f"{lines}the middle\n{lines}")
    mail_wire.cut_before_request(b"the middle")
    with pytest.raises(means):  # aiosmtplib hands all over at once and cannot tell
        send(client, mail_wire.port, message)
    assert mail.count() == 0


def test_a_cancelled_sender_says_nothing_of_its_own(mail: MailboxClient) -> None:
    mail.order(MailFault(phase="data", does="hold"))

    async def cancelled() -> None:
        task = asyncio.create_task(async_mailer(mail.port).send(call(), invitation(ANN)))
        await asyncio.to_thread(mail.wait_held)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    mail.release()
    assert mail.count() == 0


# --- mailboxes that can be asked -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("does", "answered_from"), [("lose-reply", "lookup"), ("drop", "effect")])
def test_a_mailbox_that_can_be_searched_by_message_id_settles_it(
    does: Any, answered_from: str, mail: MailboxClient
) -> None:
    def find(call: Any, *, address: str) -> Found | Absent:
        sought = message_id(call, "example.org")
        return Found({"message_id": sought}) if mail.count(message_id=sought) else Absent()

    searched = Provider(lookup=find, lookup_lag="0s", classify=classify)
    made = effect("mail.searched", key="{address}", provider=searched)(
        lambda call, *, address: mailer(mail.port).send(call, invitation(address))
    )
    mail.order(MailFault(phase="dot", does=does))
    clock = FakeClock()
    with Counterfoil.open("sqlite:///:memory:", clock=clock) as cf:
        if does == "drop":
            with pytest.raises(OutcomeUnknown):
                cf.perform(made, tenant="t", address=ANN)
            clock.advance("31s")
        assert cf.perform(made, tenant="t", address=ANN).answered_from == answered_from
    assert mail.count() == 1


def test_a_server_without_tls_is_told_nothing(mail: MailboxClient) -> None:
    secure = Mailer(
        lambda timeout: smtplib.SMTP("127.0.0.1", mail.port, local_hostname="client.example.org", timeout=timeout),
        begin=lambda client: client.starttls(),
    )
    with pytest.raises(NotSent):
        secure.send(call(), invitation(ANN))
    assert mail.count() == 0


# --- the clients by themselves ---------------------------------------------------------------------------------------

NOT_SENT, REFUSED, UNKNOWN = AttemptOutcome.NOT_SENT, AttemptOutcome.REFUSED, AttemptOutcome.UNKNOWN

BARE = [
    ([("ehlo", "reply", "421 no"), ("helo", "reply", "421 no")], NOT_SENT),
    ([("ehlo", "reply", "554 no"), ("helo", "reply", "554 no")], REFUSED),
    ([("mail", "reply", "451 no")], NOT_SENT),
    ([("mail", "reply", "550 no")], REFUSED),
    ([("rcpt", "reply", "450 no")], NOT_SENT),
    ([("rcpt", "reply", "550 no")], REFUSED),
    ([("data", "reply", "451 no")], NOT_SENT),
    ([("dot", "reply", "451 no")], NOT_SENT),
    ([("dot", "reply", "552 no")], REFUSED),
    ([("mail", "drop", "")], UNKNOWN),  # the same exception as the next: by itself it does not say
    ([("dot", "lose-reply", "")], UNKNOWN),
    ([("dot", "hold", "")], UNKNOWN),
]


def bare(client: str, port: int, message: EmailMessage, timeout: float) -> None:
    if client == "smtplib":
        with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example.org", timeout=timeout) as connection:
            connection.send_message(message)
    else:
        asyncio.run(aiosmtplib.send(message, hostname="127.0.0.1", port=port, timeout=timeout, start_tls=False))


@pytest.mark.parametrize(("faults", "means"), BARE, ids=str)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_bare_exceptions_have_their_table(
    client: str, faults: list[tuple[Any, Any, str]], means: AttemptOutcome, mail: MailboxClient
) -> None:
    mail.order(*(MailFault(phase=phase, does=does, reply=reply) for phase, does, reply in faults))
    with pytest.raises((smtplib.SMTPException, aiosmtplib.SMTPException)) as caught:
        bare(client, mail.port, invitation(ANN), 0.5 if faults[0][1] == "hold" else 10.0)
    assert classify(caught.value) is means
    mail.release()


def test_others_exceptions_are_left_to_the_general_rules() -> None:
    assert classify(ValueError()) is None
    assert classify(ConnectionRefusedError()) is None
    assert classify(aiosmtplib.SMTPConnectError("no")) is NOT_SENT
    assert classify(aiosmtplib.SMTPConnectTimeoutError("no")) is NOT_SENT
    assert classify(aiosmtplib.SMTPReadTimeoutError("no")) is UNKNOWN
    assert classify(smtplib.SMTPResponseException(500, "Line too long.")) is UNKNOWN


@pytest.mark.parametrize("cls", [smtplib.SMTPException, smtplib.SMTPServerDisconnected, aiosmtplib.SMTPException])
def test_a_class_that_a_lost_answer_raises_cannot_be_declared_harmless(cls: type[Exception]) -> None:
    with pytest.raises(ContradictoryDeclaration):
        effect("mail.harmless", key="{address}", not_sent=cls)(lambda call, *, address: None)


@pytest.mark.parametrize(
    ("error", "proves"),
    [
        (aiosmtplib.SMTPConnectError("no"), "nothing was sent"),
        (aiosmtplib.SMTPConnectTimeoutError("no"), "nothing was sent"),
        (smtplib.SMTPNotSupportedError("no"), "nothing was sent"),
        (aiosmtplib.SMTPConnectResponseError(554, "no"), ""),  # by its code, where that is asked for
        (smtplib.SMTPServerDisconnected("no"), ""),
        (smtplib.SMTPDataError(451, b"no"), ""),
    ],
)
def test_some_prove_without_a_declaration_that_nothing_was_sent(error: Exception, proves: str) -> None:
    assert never_left(error) == bool(proves)


def test_without_aiosmtplib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiosmtplib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'counterfoil\[smtp\]'$"):
        AsyncMailer(lambda _: aiosmtplib.SMTP())
