"""Serve a mailbox over real SMTP, in a process of its own, and count from outside what was delivered.

SMTP is spoken by aiosmtpd (pip install 'counterfoil[demo]'). Start it with `python -m counterfoil.testing.mail`, or
with `CountingMailServer`. It prints the port for mail and the URL for questions and orders:

    GET  /mails?total=&wait=            what was delivered; waits for that many
    GET  /held?count=&wait=             conversations that wait; waits for them
    POST /faults                        [{"phase", "does", "reply"?, "recipient"?}, ...], one-shot
    POST /release, /reset
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from counterfoil.errors import MissingExtra
from counterfoil.testing.children import wait_for_orphanhood
from counterfoil.testing.mail_client import NEEDS
from counterfoil.testing.mail_desk import Desk, Mail, MailFault, Phase

try:
    from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
except ModuleNotFoundError:
    raise MissingExtra(NEEDS) from None

_LOOPBACK: Final = "127.0.0.1"
USER, PASSWORD = "counterfoil", "a password that everybody knows"
"""Whoever wants to log in does so with these."""


class _Conversation(SMTP):
    """One client's conversation, which misbehaves on order."""

    def __init__(self, desk: Desk, loop: asyncio.AbstractEventLoop) -> None:
        self._desk: Final = desk
        super().__init__(
            _Handler(desk),
            loop=loop,
            hostname="mail.example.org",
            ident="counterfoil",
            enable_SMTPUTF8=True,
            authenticator=_authenticate,
            auth_require_tls=False,
        )

    async def smtp_EHLO(self, hostname: str) -> None:  # noqa: N802 - aiosmtpd finds them by name
        if await self._is_fair("ehlo"):
            await super().smtp_EHLO(hostname)

    async def smtp_HELO(self, hostname: str) -> None:  # noqa: N802
        if await self._is_fair("helo"):
            await super().smtp_HELO(hostname)

    async def smtp_AUTH(self, arg: str) -> None:  # noqa: N802
        if await self._is_fair("auth"):
            await super().smtp_AUTH(arg)

    async def smtp_MAIL(self, arg: str | None) -> None:  # noqa: N802
        if await self._is_fair("mail"):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg: str | None) -> None:  # noqa: N802
        if await self._is_fair("rcpt", arg or ""):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        if await self._is_fair("data"):
            await super().smtp_DATA(arg)

    async def smtp_QUIT(self, arg: str) -> None:  # noqa: N802
        if await self._is_fair("quit"):
            await super().smtp_QUIT(arg)

    async def _is_fair(self, phase: Phase, words: str = "") -> bool:
        """Commit the fault that was ordered for this phase, if any, and say whether to go on as usual."""
        fault = self._desk.take(phase, words)
        if fault is None:
            return True
        if fault.does == "hold":
            await asyncio.to_thread(self._desk.hold, phase)
            return True
        if fault.does == "drop":
            await self.vanish()
        await self.push(fault.reply)
        return False

    async def vanish(self) -> None:
        """Break off; aiosmtpd then cancels whoever waits here."""
        if self.transport is not None:
            self.transport.abort()  # type: ignore[attr-defined]  # a stream's transport has it
        await asyncio.get_running_loop().create_future()


class _Handler:
    """What happens at the end of a mail."""

    def __init__(self, desk: Desk) -> None:
        self._desk: Final = desk

    async def handle_DATA(self, server: _Conversation, session: Session, envelope: Envelope) -> str:  # noqa: N802, ARG002
        """Deliver a mail and answer, or not."""
        fault = self._desk.take("dot", " ".join(envelope.rcpt_tos))
        if fault is None:
            return self._deliver(envelope)
        if fault.does == "hold-before":
            await asyncio.to_thread(self._desk.hold, "dot")
        answer = self._deliver(envelope) if fault.delivers else fault.reply
        if fault.does == "hold":
            await asyncio.to_thread(self._desk.hold, "dot")
        if fault.does in ("drop", "lose-reply"):
            await server.vanish()
        return fault.reply or answer

    def _deliver(self, envelope: Envelope) -> str:
        mail = self._desk.deliver(_read(envelope))
        return f"250 2.0.0 OK: queued as {mail.number}"


def _read(envelope: Envelope) -> Mail:
    content = bytes(envelope.original_content or b"")
    parsed = message_from_bytes(content, policy=policy.default)
    return Mail(
        number=0,
        sender=str(envelope.mail_from),
        recipients=tuple(envelope.rcpt_tos),
        message_id=str(parsed["Message-ID"]),
        subject=str(parsed["Subject"]),
        content=content.decode("utf-8", "backslashreplace"),
    )


def _authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:  # noqa: ARG001
    known = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=known, handled=False)


# --- questions and orders --------------------------------------------------------------------------------------------

Control = Callable[[Desk, Mapping[str, str], Any], object]


def _mails(desk: Desk, query: Mapping[str, str], _: object) -> object:
    return [asdict(mail) for mail in desk.mails(int(query["total"]), float(query["wait"]))]


def _held(desk: Desk, query: Mapping[str, str], _: object) -> object:
    return desk.wait_held(int(query["count"]), float(query["wait"]))


def _faults(desk: Desk, _: Mapping[str, str], body: Any) -> object:
    desk.order([MailFault(**fault) for fault in body])
    return None


def _release(desk: Desk, _: Mapping[str, str], __: object) -> object:
    return desk.release()


def _reset(desk: Desk, _: Mapping[str, str], __: object) -> object:
    desk.reset()
    return None


CONTROLS: Final[Mapping[str, Control]] = {
    "/mails": _mails,
    "/held": _held,
    "/faults": _faults,
    "/release": _release,
    "/reset": _reset,
}


class _Office(ThreadingHTTPServer):
    def __init__(self, desk: Desk) -> None:
        self.desk: Final = desk
        super().__init__((_LOOPBACK, 0), _Clerk)


class _Clerk(BaseHTTPRequestHandler):
    server: _Office

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        target = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = dict(parse_qsl(target.query))
        told = json.dumps(CONTROLS[target.path](self.server.desk, asked, json.loads(text or b"null"))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


# --- the process -----------------------------------------------------------------------------------------------------


def _serve_mail(desk: Desk, started: Callable[[int], None]) -> None:
    asyncio.run(_listen(desk, started))


async def _listen(desk: Desk, started: Callable[[int], None]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Conversation(desk, loop), _LOOPBACK, 0)
    started(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main() -> None:
    """Print the port for mail and the URL for questions as the first line, and serve until killed or orphaned."""
    logging.getLogger("mail.log").setLevel(logging.CRITICAL)  # clients that misbehave are what the tests are about
    parent, desk, ready, ports = os.getppid(), Desk(), Event(), []
    office = _Office(desk)

    def started(port: int) -> None:
        ports.append(port)
        ready.set()

    Thread(target=office.serve_forever, daemon=True).start()
    Thread(target=_serve_mail, args=(desk, started), daemon=True).start()
    ready.wait()
    sys.stdout.write(f"{ports[0]} http://{_LOOPBACK}:{office.server_port}\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        wait_for_orphanhood(parent)


if __name__ == "__main__":
    main()
