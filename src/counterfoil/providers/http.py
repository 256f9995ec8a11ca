"""Effects that are one HTTP request, with httpx: the key sent, every answer classified, the look-up made.

`Http` is declared once for an API; effects `send` (or `asend`) through it, and its `finder` is their look-up. Needs the
extra `http`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from counterfoil.core.states import AttemptOutcome
from counterfoil.errors import MissingExtra, ResourceMissing
from counterfoil.extras import install_line
from counterfoil.model import Absent, Answered, CannotTell, Found, LookupAnswer, NotSent, Refused
from counterfoil.providers.sends import Sends, Trace
from counterfoil.providers.statuses import JUDGED, Answers

try:
    import httpx
except ModuleNotFoundError as missing:
    raise MissingExtra(
        f"counterfoil.providers.http needs {missing.name}, which is not installed: {install_line('counterfoil[http]')}"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from counterfoil.effects import EffectCall

__all__ = ["Answers", "Http", "KeyReused", "Shown", "UnclearAnswer"]

LONGEST_WAIT_S: Final = 24 * 3600.0
"""A `Retry-After` beyond this is a mistake or a refusal; nothing may be put off without end."""


class KeyReused(Refused):
    """The provider says that this key came to it before with other content; it did nothing now."""


class UnclearAnswer(Exception):
    """The provider answered, and its status does not say whether the effect happened; `response` is that answer."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"HTTP {response.status_code}: unknown")
        self.response = response


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """One HTTP API, as effects use it: which client, which key header, what its statuses mean.

    Args:
        answers: What its statuses mean where they differ from the fixed table.
        client: The name under which its `httpx.Client` (or `AsyncClient`) is provided: `cf.resources.provide(...)`.
        key_header: The header that carries `call.provider_key`.
    """

    answers: Answers = field(default_factory=Answers)
    client: str = ""
    key_header: str = "Idempotency-Key"

    def send(self, call: EffectCall, method: str, url: str, **request: Any) -> Answered[Any]:
        """Make an effect's one request and return what was answered, for the effect to return.

        Redirects are not followed. `request` is what `httpx.Client.build_request` takes: `json`, `params`, `headers`.

        Raises:
            NotSent: nothing happened; `retry_after` says when to come back, if the provider did.
            Refused: refused for good, as `KeyReused` where the key came before with other content.
            UnclearAnswer: the status says neither.
            HiddenRetries: the client would send again, and the provider honours no key.
        """
        client = self._client(call, httpx.Client)
        sends = Sends(call.sends_once, _given_trace(request))
        made = self._built(client, call, method, url, request, sends.trace)
        try:
            response = client.send(made, **_ONE_SEND)
        except httpx.TransportError as error:
            raise _told(error, sends) from error
        try:
            response.read()
            is_whole = True
        except self._tolerated(response):
            is_whole = False
        finally:
            response.close()
        return self._concluded(call, response, sends, is_whole=is_whole)

    async def asend(self, call: EffectCall, method: str, url: str, **request: Any) -> Answered[Any]:
        """Make an effect's one request with an `httpx.AsyncClient`; otherwise as `send`."""
        client = self._client(call, httpx.AsyncClient)
        sends = Sends(call.sends_once, _given_trace(request))
        made = self._built(client, call, method, url, request, sends.atrace)
        try:
            response = await client.send(made, **_ONE_SEND)
        except httpx.TransportError as error:
            raise _told(error, sends) from error
        try:
            await response.aread()
            is_whole = True
        except self._tolerated(response):
            is_whole = False
        finally:
            await response.aclose()
        return self._concluded(call, response, sends, is_whole=is_whole)

    def finder(self, url: str, **how: Any) -> Callable[..., LookupAnswer]:
        """Return a look-up that asks for what was made under the operation's key: `Provider(lookup=...)`.

        `how` is what `Shown` takes: where the key goes, and where in the answer things are.
        """
        shown = Shown(url=url, **how)

        def find(call: EffectCall, **_: Any) -> LookupAnswer:
            client = call.resource(httpx.Client, self.client)
            return shown.read(call, client.get(shown.address(call), **shown.question(call)))

        return find

    def afinder(self, url: str, **how: Any) -> Callable[..., Coroutine[Any, Any, LookupAnswer]]:
        """Return a look-up that asks with an `httpx.AsyncClient`; otherwise as `finder`."""
        shown = Shown(url=url, **how)

        async def find(call: EffectCall, **_: Any) -> LookupAnswer:
            client = call.resource(httpx.AsyncClient, self.client)
            return shown.read(call, await client.get(shown.address(call), **shown.question(call)))

        return find

    # -- inside

    def _client(self, call: EffectCall, kind: type[R]) -> R:
        """Return the client; without one, nothing can have been sent."""
        try:
            return call.resource(kind, self.client)
        except ResourceMissing as error:
            raise NotSent("there is no client to send it with") from error

    def _built(
        self, client: _Client, call: EffectCall, method: str, url: str, given: dict[str, Any], trace: Trace
    ) -> httpx.Request:
        extensions = {**(given.get("extensions") or {}), "trace": trace}
        try:
            headers = httpx.Headers(given.get("headers"))
            headers[self.key_header] = call.provider_key
            asked = {"timeout": _patience(call), **given, "headers": headers, "extensions": extensions}
            return client.build_request(method, url, **asked)
        except Exception as error:
            raise NotSent("the request could not be built") from error

    def _tolerated(self, response: httpx.Response) -> type[Exception]:
        """Return what may go wrong with an answer's body: the status of one that is no success says it all."""
        succeeded = self.answers.outcome(response.status_code) is AttemptOutcome.SUCCEEDED
        return httpx.DecodingError if succeeded else httpx.HTTPError

    def _concluded(self, call: EffectCall, response: httpx.Response, sends: Sends, *, is_whole: bool) -> Answered[Any]:
        status = response.status_code
        match self.answers.outcome(status):
            case AttemptOutcome.SUCCEEDED:
                value, unreadable = _value(response) if is_whole else (None, _undecodable(response))
                return Answered(value, _evidence(response, sends), unreadable)
            case AttemptOutcome.NOT_SENT:
                raise NotSent(f"HTTP {status}: not sent", retry_after=retry_after(response))
            case AttemptOutcome.REFUSED:
                raise self._refusal(call, response)
            case _:
                raise UnclearAnswer(response)

    def _refusal(self, call: EffectCall, response: httpx.Response) -> Refused:
        status, stored = response.status_code, _is_replayed(response)
        if self.answers.is_mismatch(status) and not call.sends_once:
            return KeyReused(
                f"HTTP {status}: mismatch, this key came to the provider before with other content",
                covers_earlier=False,
            )
        return Refused(f"HTTP {status}: refused", covers_earlier=stored or status in JUDGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How an API shows what was made under a key: `GET /things?key=...` or `GET /things/{key}`.

    Args:
        url: The address; `{key}` in it stands for the operation's key.
        param: The query parameter that carries the key where the address does not.
        items: The member of the answer that lists the things; without one the answer is the list, or the thing itself.
        holds: The member of a thing that repeats the key, for an API that may show things of other keys.
        absent: Statuses that say that there is none; 404 where the address holds the key.
    """

    url: str
    param: str = "key"
    items: str | None = None
    holds: str | None = None
    absent: Collection[int] | None = None

    def address(self, call: EffectCall) -> str:
        """Return the address to ask."""
        return self.url.replace("{key}", quote(call.provider_key, safe=""))

    def question(self, call: EffectCall) -> dict[str, Any]:
        """Return what is asked with."""
        params = {} if self._in_path else {"params": {self.param: call.provider_key}}
        return {"timeout": call.time_limit, "follow_redirects": False, **params}

    @property
    def _in_path(self) -> bool:
        return "{key}" in self.url

    def read(self, call: EffectCall, response: httpx.Response) -> LookupAnswer:
        """Return what an answer says: anything but a clear yes or no settles nothing."""
        status = response.status_code
        if status in (({404} if self._in_path else set()) if self.absent is None else self.absent):
            return Absent()
        if not response.is_success:
            return CannotTell(f"HTTP {status}")
        value, unreadable = _value(response)
        things = None if unreadable is not None else self._things(value)
        if things is None:
            return CannotTell(f"HTTP {status}: the answer is not of the declared shape")
        return self._one_of(call, things, status)

    def _things(self, value: Any) -> list[Any] | None:
        if self.items is not None:
            value = value.get(self.items) if isinstance(value, dict) else None
        elif isinstance(value, dict) and self._in_path:
            return [value]
        return value if isinstance(value, list) else None

    def _one_of(self, call: EffectCall, things: list[Any], status: int) -> LookupAnswer:
        ours = (
            things if self.holds is None else [each for each in things if _holds(each, self.holds, call.provider_key)]
        )
        if not things:
            return Absent()
        if not ours:
            return CannotTell("the answer shows things of other keys only")
        if len(ours) > 1:
            return CannotTell(f"the answer shows {len(ours)} things where there should be one")
        return Found(ours[0], {"status": status})


R = TypeVar("R")
_Client = httpx.Client | httpx.AsyncClient
_ONE_SEND: Final[dict[str, Any]] = {"stream": True, "follow_redirects": False}


def _patience(call: EffectCall) -> httpx.Timeout:
    """Return the time limit for each phase, and twice that for the answer: a late one still settles the operation."""
    return httpx.Timeout(call.time_limit, read=2 * call.time_limit)


def _told(error: httpx.TransportError, sends: Sends) -> Exception:
    """Return what an effect raises of a failed send: the wire knows better than the exception's class."""
    return NotSent(f"no request had left ({type(error).__name__})") if sends.nothing_left else error


def retry_after(response: httpx.Response) -> float | None:
    """Return for how many seconds a provider asks to be left alone: a number or an HTTP date, within a day."""
    given = response.headers.get("Retry-After", "").strip()
    seconds = float(given) if given.isascii() and given.isdecimal() else _until(given, response.headers.get("Date"))
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_WAIT_S)


def _until(date: str, sent: str | None) -> float | None:
    """Return the seconds until an HTTP date, by the provider's own clock if it tells the time."""
    then = _timestamp(date)
    return None if then is None else then - (_timestamp(sent or "") or time.time())


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _given_trace(request: Mapping[str, Any]) -> Trace | None:
    return (request.get("extensions") or {}).get("trace")


def _value(response: httpx.Response) -> tuple[Any, str | None]:
    """Return what an answer holds, or why it cannot be read: the effect happened all the same."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not response.content:
        return None, None
    try:
        if kind.endswith(("/json", "+json")):
            return response.json(), None
        return (response.text if kind.startswith("text/") else response.content), None
    except (ValueError, RecursionError):
        return None, _undecodable(response)


def _undecodable(response: httpx.Response) -> str:
    return f"the body of the answer (HTTP {response.status_code}) could not be decoded"


def _evidence(response: httpx.Response, sends: Sends) -> dict[str, Any]:
    """Return what supports a success: the status, its class, how often it was sent, whether it is a stored answer."""
    replayed = {"replayed": True} if _is_replayed(response) else {}
    named = {"request_id": named} if (named := response.headers.get("X-Request-Id")) else {}
    return {"status": response.status_code, "class": "succeeded", "sends": max(sends.count, 1), **replayed, **named}


def _is_replayed(response: httpx.Response) -> bool:
    return bool(response.headers.get("Idempotent-Replayed", "").strip().lower() == "true")


def _holds(thing: Any, member: str, key: str) -> bool:
    return isinstance(thing, dict) and thing.get(member) == key
