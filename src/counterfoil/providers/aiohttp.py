"""aiohttp: what its exceptions mean; nothing of it is imported.

It sends PUT, DELETE and the safe methods a second time by itself when the connection breaks off without an answer, and
follows redirects unless told not to. Neither can be seen in the exception's class, and both in its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.providers.statuses import judged
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
