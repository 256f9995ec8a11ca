"""Start, order about and ask the counting mail server."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from http.client import HTTPConnection
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from counterfoil.errors import MissingExtra
from counterfoil.testing.children import first_line, start
from counterfoil.testing.mail_desk import Mail, MailFault, Phase

NEEDS: Final = "The mail server of the test kit needs aiosmtpd, which is not installed: pip install 'counterfoil[demo]'"

# The loopback answers within milliseconds; this only bounds a test that has gone wrong.
_TIMEOUT: Final = 10.0

_One = TypeVar("_One")


class MailboxClient:
    """Talk to a running counting mail server, from any process that knows where it is; send to `host` and `port`."""

    def __init__(self, port: int, url: str) -> None:
        self.host: Final = "127.0.0.1"
        self.port: Final = port
        self.url: Final = url

    # -- what a test asks

    def mails(self) -> list[Mail]:
        """Return everything delivered so far, in order."""
        return self.wait_mails(0)

    def wait_mails(self, count: int = 1, timeout: float = _TIMEOUT) -> list[Mail]:
        """Return the delivered mails as soon as there are `count`, or raise TimeoutError."""
        told = self._ask("GET", f"/mails?total={count}&wait={timeout}")
        mails = [Mail(**{**mail, "recipients": tuple(mail["recipients"])}) for mail in told]
        return _at_least(count, mails)

    def count(self, recipient: str | None = None, *, message_id: str | None = None) -> int:
        """Count the delivered mails that match every filter given."""
        return sum(
            (recipient is None or recipient in mail.recipients) and message_id in (None, mail.message_id)
            for mail in self.mails()
        )

    # -- what a test orders

    def order(self, *faults: MailFault) -> None:
        """Queue faults, each for one conversation to come."""
        self._ask("POST", "/faults", [asdict(fault) for fault in faults])

    def wait_held(self, count: int = 1, timeout: float = _TIMEOUT) -> list[Phase]:
        """Return where conversations wait as soon as there are `count`, or raise TimeoutError."""
        held: list[Phase] = self._ask("GET", f"/held?count={count}&wait={timeout}")
        return _at_least(count, held)

    def release(self) -> int:
        """Let every conversation that waits go on, and return how many."""
        return int(self._ask("POST", "/release"))

    def reset(self) -> None:
        """Empty the mailbox, forget all faults, and let go of whatever waits."""
        self._ask("POST", "/reset")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        where = urlsplit(self.url)
        connection = HTTPConnection(str(where.hostname), where.port, timeout=2 * _TIMEOUT)
        try:
            connection.request(method, path, json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


class CountingMailServer(MailboxClient):
    """Run a counting mail server in its own process; it ends with this one at the latest."""

    def __init__(self) -> None:
        """Start the process and wait for its port and URL.

        Raises:
            MissingExtra: aiosmtpd is not installed.
        """
        if find_spec("aiosmtpd") is None:
            raise MissingExtra(NEEDS)
        self._owner: Final = os.getpid()
        self._process: Final = start("counterfoil.testing.mail")
        port, url = first_line(self._process).split()
        super().__init__(int(port), url)

    def close(self) -> None:
        """End the server; a forked copy of this object leaves it alone."""
        if os.getpid() != self._owner:
            return
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server."""
        self.close()


def _at_least(count: int, seen: Sequence[_One]) -> list[_One]:
    if len(seen) < count:
        raise TimeoutError(f"expected {count}, saw {len(seen)}")
    return list(seen)
