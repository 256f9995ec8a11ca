"""Count what a mail server delivered, and keep its faults and holds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from threading import Condition
from typing import Final, Literal, get_args

Phase = Literal["ehlo", "helo", "auth", "mail", "rcpt", "data", "dot", "quit"]
"""Where in a conversation; `dot` is the end of a mail."""
Does = Literal["reply", "drop", "hold", "hold-before", "lose-reply", "deliver-and-reply"]
"""What a fault does; the last three only at the dot."""
PHASES: Final = frozenset(get_args(Phase))
DOES: Final = frozenset(get_args(Does))
_DELIVERING: Final = frozenset({"hold", "hold-before", "lose-reply", "deliver-and-reply"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MailFault:
    """Order one fault for the next time that a conversation comes to this phase.

    `reply` is answered instead of what is asked for; `drop` breaks off without having done it, `lose-reply` after
    delivering; `hold` withholds the answer and `hold-before` the delivery, too, until `release`; `deliver-and-reply`
    delivers and answers with `reply` all the same. `recipient` waits for that one.
    """

    phase: Phase
    does: Does = "reply"
    reply: str = ""
    recipient: str = ""

    def __post_init__(self) -> None:
        """Refuse what no server does.

        Raises:
            ValueError: there is no such phase or fault, or a reply is missing.
        """
        only_at_dot = _DELIVERING - {"hold"}
        if self.phase not in PHASES or self.does not in DOES or (self.does in only_at_dot and self.phase != "dot"):
            raise ValueError(f"no such fault: {self.does} at {self.phase}")
        if self.does.endswith("reply") and self.does != "lose-reply" and not self.reply:
            raise ValueError(f"say which reply: {self.does} at {self.phase}")

    @property
    def delivers(self) -> bool:
        """Say whether the mail is delivered all the same."""
        return self.does in _DELIVERING


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """Hold one delivered mail; `number` counts all from 1, `recipients` are those of the envelope."""

    number: int
    sender: str
    recipients: tuple[str, ...]
    message_id: str
    subject: str
    content: str


class Desk:
    """Keep the mail server's whole state under one condition."""

    def __init__(self) -> None:
        self._changed: Final = Condition()
        self._mails: list[Mail] = []
        self._faults: list[MailFault] = []
        self._held: list[Phase] = []
        self._releases = 0

    # -- what conversations do

    def take(self, phase: Phase, words: str) -> MailFault | None:
        """Consume the first fault that was ordered for this phase and is not for another recipient."""
        with self._changed:
            for fault in self._faults:
                if fault.phase == phase and fault.recipient in words:
                    self._faults.remove(fault)
                    return fault
            return None

    def deliver(self, mail: Mail) -> Mail:
        """Put a mail into the mailbox."""
        with self._changed:
            numbered = replace(mail, number=len(self._mails) + 1)
            self._mails.append(numbered)
            self._changed.notify_all()
            return numbered

    def hold(self, phase: Phase) -> None:
        """Block until the next release."""
        with self._changed:
            seen = self._releases
            self._held.append(phase)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._releases > seen)

    # -- questions and orders

    def mails(self, total: int, wait: float) -> list[Mail]:
        """Return what was delivered, as soon as it is `total` or after `wait`."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._mails) >= total, timeout=wait)
            return list(self._mails)

    def wait_held(self, count: int, wait: float) -> list[Phase]:
        """Return where conversations wait, as soon as there are `count` or after `wait`."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) >= count, timeout=wait)
            return list(self._held)

    def order(self, faults: Iterable[MailFault]) -> None:
        """Queue one-shot faults behind those already ordered."""
        with self._changed:
            self._faults.extend(faults)

    def release(self) -> int:
        """Let every conversation that waits go on, and count them."""
        with self._changed:
            released = len(self._held)
            self._held.clear()
            self._releases += 1
            self._changed.notify_all()
            return released

    def reset(self) -> None:
        """Empty the mailbox, forget all faults, and let go of whatever waits."""
        with self._changed:
            self.release()
            self._mails.clear()
            self._faults.clear()
