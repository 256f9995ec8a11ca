"""Publish CloudEvents over HTTP, in binary or structured mode, under one id for all attempts.

Consumers may take two events with one source and id for one (CloudEvents 1.0, `id`). A broker that drops repeats is a
keyed provider: declare for how long it remembers, `Provider(key_lifetime="24h")`. Leave any other opaque.

Needs the extra `cloudevents`: pip install 'counterfoil[cloudevents]'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from counterfoil.core.arguments import DECLARED
from counterfoil.errors import ContradictoryDeclaration, MissingExtra
from counterfoil.model import Refused

try:
    from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
    from cloudevents.core.v1.event import CloudEvent

    from counterfoil.providers.http import Answers, Http
except (ModuleNotFoundError, MissingExtra):
    raise MissingExtra(
        "counterfoil.providers.cloudevents needs httpx and cloudevents, which are not both installed:"
        " pip install 'counterfoil[cloudevents]'"
    ) from None

from counterfoil.providers.posting import Posted, answers, apost, post

if TYPE_CHECKING:
    from counterfoil.effects import EffectCall

__all__ = ["STANDARD", "Answers", "Publisher", "answers"]

Mode = Literal["binary", "structured"]
Data = Mapping[str, Any] | str | bytes

_MODES: Final = {"binary": to_binary_event, "structured": to_structured_event}
STANDARD: Final = answers()
"""What answers to an event mean: those of webhooks, but for 409, which no rule gives a meaning."""
_KEY_HEADER: Final = "Idempotency-Key"
"""The event's id once more, for what stands between; consumers go by source and id."""


class Publisher:
    """Publishes events of one source through httpx, each once.

    Args:
        source: The events' `source`: a URI reference such as `"/orders"`; with the id it makes an event one.
        mode: `"binary"`: attributes in headers, data as the body; `"structured"`: all of it as JSON.
        answers: What this consumer's statuses mean: `cloudevents.answers(duplicate={409}, refused={400})`.
        client: The name under which its `httpx.Client` (or `AsyncClient`) is provided.

    Raises:
        ContradictoryDeclaration: no source, or another mode.
    """

    def __init__(self, source: str, *, mode: Mode = "binary", answers: Answers = STANDARD, client: str = "") -> None:
        self._source = DECLARED.text("cloudevents.Publisher(source=...)", source)
        if mode not in _MODES:
            raise ContradictoryDeclaration(f"cloudevents.Publisher(mode={mode!r}): write 'binary' or 'structured'.")
        self._mode = mode
        self._http = Http(answers=answers, client=client, key_header=_KEY_HEADER)

    def publish(
        self,
        call: EffectCall,
        url: str,
        type: str,  # noqa: A002 - the attribute's name
        data: Data,
        **attributes: Any,
    ) -> Posted:
        """Publish one and return what the effect returns: `id`, `source`, `status` and `duplicate`.

        Args:
            attributes: `subject`, `datacontenttype`, `dataschema`, extensions, and `time`: when it happened, with its
                zone, and left out if not given, since an attempt's time is another matter.

        Raises:
            NotSent: the consumer did not take it and may be asked again, after `retry_after` seconds if it says so.
            Refused: it will never take it, or this is no event.
            UnclearAnswer: nobody knows, and so it is after a broken connection.
        """
        event = self.message(call, type, data, attributes)
        about = {"id": call.provider_key, "source": self._source}
        return post(self._http, call, url, event.headers, event.body, **about)

    async def apublish(
        self,
        call: EffectCall,
        url: str,
        type: str,  # noqa: A002 - the attribute's name
        data: Data,
        **attributes: Any,
    ) -> Posted:
        """Publish one with an `httpx.AsyncClient`; otherwise as `publish`."""
        event = self.message(call, type, data, attributes)
        about = {"id": call.provider_key, "source": self._source}
        return await apost(self._http, call, url, event.headers, event.body, **about)

    def message(self, call: EffectCall, kind: str, data: Data, attributes: Mapping[str, Any]) -> HTTPMessage:
        """Return headers and body of an event.

        Raises:
            Refused: it is no event: an attribute or the data is not what it must be.
        """
        given = {name: value for name, value in attributes.items() if value is not None}
        own = {"id": call.provider_key, "source": self._source, "type": kind}
        try:
            body = dict(data) if isinstance(data, Mapping) else data
            event = CloudEvent({"datacontenttype": _content_type(data), **given, **own}, body)
            if "time" not in given:
                # The library fills in the time of this attempt, which is not when the event happened.
                event.get_attributes().pop("time")
            return _MODES[self._mode](event)
        except Exception as error:  # nothing has been sent, and the same event will not get any better
            raise Refused(f"This is no event ({type(error).__name__}).") from error


def _content_type(data: Data) -> str:
    match data:
        case Mapping():
            return "application/json"
        case str():
            return "text/plain; charset=utf-8"
        case bytes():
            return "application/octet-stream"
    raise TypeError(f"data of type {type(data).__name__}")
