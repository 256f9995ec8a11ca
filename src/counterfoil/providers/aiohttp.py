"""aiohttp: what its exceptions mean, and what keeps it from sending again; imported only where there is a session.

It sends PUT, DELETE and the safe methods a second time by itself when the connection breaks off without an answer, and
follows redirects unless told not to. Neither can be seen in the exception's class, and both in its traceback.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.sends import second_send
from counterfoil.providers.statuses import SAFE, judged
from counterfoil.providers.tables import Table, is_named
from counterfoil.providers.tracebacks import frames, local

if TYPE_CHECKING:
    from types import FrameType

    from counterfoil.providers.tables import Judgement

_PARSED: Final = frozenset({"aiohttp.ContentTypeError", "aiohttp.TooManyRedirects", "aiohttp.WSServerHandshakeError"})
"""Raised of an answer that was something else than a refusal."""


def _is_first_try(error: BaseException) -> bool:
    requests = frames(error, "_request", "aiohttp.client")
    return bool(requests) and not any(_sent_before(each) for each in requests)


def _sent_before(request: FrameType) -> bool:
    """Say whether a redirect was followed, the second send was used up, or a middleware may have sent before."""
    repeated = request.f_globals.get("IDEMPOTENT_METHODS", ())
    may_repeat = local(request, "method") in repeated
    used_up = may_repeat and local(request, "retry_persistent_connection", default=True) is not True
    return bool(local(request, "history") or used_up or local(request, "effective_middlewares"))


def _judge(error: BaseException) -> Judgement | None:
    if not is_named(error, frozenset({"aiohttp.ClientResponseError"}), _PARSED):
        return None
    if not frames(error, "raise_for_status", "aiohttp.client_reqrep"):
        return AttemptOutcome.UNKNOWN  # an answer that is not HTTP is given a status of 400 on this side
    response: Any = error
    return judged(response.status, is_last_of_many=bool(response.history))


def guard(session: Any) -> None:
    """Let a session send each unsafe request once: it repeats PUT and DELETE, which no setting switches off."""
    from aiohttp import TraceConfig  # noqa: PLC0415 - there is a session, so it is loaded

    if any(_connects in each.on_connection_create_start for each in session.trace_configs):
        return
    watch: Any = TraceConfig(trace_config_ctx_factory=_Sent)
    watch.on_request_start.append(_begins)
    watch.on_request_headers_sent.append(_sends)
    watch.on_request_redirect.append(_is_redirected)
    for signal in (watch.on_connection_create_start, watch.on_connection_reuseconn):
        signal.append(_connects)
    watch.freeze()
    session.trace_configs.append(watch)


class _Sent(SimpleNamespace):
    """What has left of one request."""

    def __init__(self, trace_request_ctx: Any = None) -> None:
        super().__init__(trace_request_ctx=trace_request_ctx)
        self.count = 0
        self.is_safe = False


async def _begins(_: Any, sent: _Sent, about: Any) -> None:
    sent.is_safe = about.method in SAFE


async def _sends(_: Any, sent: _Sent, __: Any) -> None:
    sent.count += 1


async def _is_redirected(_: Any, sent: _Sent, __: Any) -> None:
    sent.count = 0


async def _connects(_: Any, sent: _Sent, __: Any) -> None:
    if sent.count and not sent.is_safe:
        raise second_send(sent.count)


TABLE: Final = Table(
    client="aiohttp",
    not_sent=frozenset(
        {"aiohttp.ClientConnectorError", "aiohttp.ConnectionTimeoutError", "aiohttp.ClientHttpProxyError"}
        | {"aiohttp.InvalidURL", "aiohttp.NonHttpUrlClientError", "aiohttp.ServerFingerprintMismatch"}
    ),
    unknown=frozenset(
        {"aiohttp.ClientOSError", "aiohttp.ServerDisconnectedError", "aiohttp.ClientPayloadError"}
        | {"aiohttp.ServerTimeoutError", "aiohttp.SocketTimeoutError", "aiohttp.ClientConnectionError"}
        | {"aiohttp.ClientConnectionResetError", "aiohttp.ClientResponseError", "aiohttp.RedirectClientError"}
        | {"aiohttp.InvalidUrlRedirectClientError", "aiohttp.NonHttpUrlRedirectClientError"}
        | _PARSED
    ),
    is_first_try=_is_first_try,
    judge=_judge,
    by_structure=(
        ("not-sent ones after a redirect, after the hidden second send, or through middlewares", "unknown"),
        ("`ClientResponseError` of `raise_for_status`", "by its status; unknown after a redirect"),
    ),
)
