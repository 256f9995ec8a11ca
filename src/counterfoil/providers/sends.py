"""Count the requests of httpx that really leave, below every layer that may repeat them, and stop a second one.

httpcore reports each step of a request to the `trace` that travels with it, through any transport in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from counterfoil.errors import HiddenRetries

Trace = Callable[[str, Mapping[str, Any]], Any]

CHALLENGE: Final = frozenset({401, 407})
"""Answers after which a client may send again with credentials: the first request was turned away."""


@dataclass(slots=True)
class Sends:
    """The sends of one request; `also` is a trace that somebody else wants to be told."""

    once: bool
    also: Trace | None = None
    is_heard: bool = False
    count: int = 0
    status: int | None = None

    @property
    def nothing_left(self) -> bool:
        """Say whether the wire was reported of, and no request upon it."""
        return self.is_heard and not self.count

    def note(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a step.

        Raises:
            HiddenRetries: it would be a second send.
        """
        name = event.partition(".")[2]
        self.is_heard = True
        if name == "send_request_headers.started" and info["request"].method != b"CONNECT":
            if self.once and self.count and self.status not in CHALLENGE:
                raise second_send(self.count)
            self.count, self.status = self.count + 1, None
        elif name == "receive_response_headers.complete":
            self.status = next((each for each in info["return_value"] if isinstance(each, int)), None)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a step of a blocking client."""
        self.note(event, info)
        if self.also is not None:
            self.also(event, info)

    async def atrace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a step of an awaiting client."""
        self.note(event, info)
        if self.also is not None:
            await self.also(event, info)


def second_send(sent: int) -> HiddenRetries:
    """Return what stops a client's second send."""
    return HiddenRetries(
        "The client of this effect was about to send it a second time by itself, and its provider declares no key."
        f" Requests that had left: {sent}; the next was stopped. Switch the client's retries off, or declare the key.",
        sent=sent,
    )
