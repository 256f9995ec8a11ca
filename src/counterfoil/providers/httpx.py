"""httpx: what its exceptions mean, and what may send again by itself; nothing of it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.outcomes import root
from counterfoil.providers.sends import Sends
from counterfoil.providers.statuses import SAFE, judged
from counterfoil.providers.tables import Table
from counterfoil.providers.tracebacks import frames, local

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement

_CLIENT: Final = "httpx._client"


def _is_first_try(error: BaseException) -> bool:
    """No redirect was followed, and the transport is httpx's own: another one may have sent before."""
    if root(type(error)) == "httpcore":
        return True
    hops, sends = frames(error, "_send_handling_redirects", _CLIENT), frames(error, "_send_single_request", _CLIENT)
    if any(local(each, "history") for each in hops):
        return False
    return all(root(type(local(each, "transport"))) == "httpx" for each in sends)


def _judge(error: BaseException) -> Judgement | None:
    response: Any = getattr(error, "response", None) if type(error).__name__ == "HTTPStatusError" else None
    return None if response is None else judged(response.status_code, is_last_of_many=bool(response.history))


def hidden_retries(client: Any) -> str | None:
    """Say what of an httpx client may send a request again; its own transports repeat no more than connecting."""
    mounted = getattr(client, "_mounts", {}).values()
    for transport in (getattr(client, "_transport", None), *mounted):
        if transport is not None and root(type(transport)) != "httpx" and _retries(transport):
            return f"its transport {type(transport).__qualname__} retries"
    return None


def _retries(transport: Any) -> bool:
    """Say whether a transport that is not httpx's own calls itself, or something that it holds, a retry."""
    names = [type(transport).__name__, *getattr(transport, "__dict__", {})]
    return any("retr" in name.lower() for name in names)


def guard(client: Any) -> None:
    """Let a client send each unsafe request once, whatever its transports do: its later sends are stopped."""
    hooks = client.event_hooks["request"]
    if not any(each in {_watch, _awatch} for each in hooks):
        hooks.append(_awatch if hasattr(client, "aclose") else _watch)


class _Watched(Sends):
    """The sends of one request of a guarded client."""


def _watch(request: Any) -> None:
    request.extensions["trace"] = _watched(request).trace


async def _awatch(request: Any) -> None:
    request.extensions["trace"] = _watched(request).atrace


def _watched(request: Any) -> _Watched:
    """Return a count of its own for each request; one made of a redirect carries the trace of that before."""
    given = request.extensions.get("trace")
    before = getattr(given, "__self__", None)
    return _Watched(once=request.method not in SAFE, also=before.also if isinstance(before, _Watched) else given)


TABLE: Final = Table(
    client="httpx",
    not_sent=frozenset(
        {"httpx.ConnectError", "httpx.ConnectTimeout", "httpx.PoolTimeout", "httpx.ProxyError"}
        | {"httpx.UnsupportedProtocol", "httpx.InvalidURL"}
        | {"httpcore.ConnectError", "httpcore.ConnectTimeout", "httpcore.PoolTimeout", "httpcore.ProxyError"}
        | {"httpcore.UnsupportedProtocol"}
    ),
    unknown=frozenset(
        {"httpx.ReadError", "httpx.ReadTimeout", "httpx.WriteError", "httpx.WriteTimeout", "httpx.CloseError"}
        | {"httpx.RemoteProtocolError", "httpx.LocalProtocolError", "httpx.DecodingError", "httpx.TooManyRedirects"}
        | {"httpcore.ReadError", "httpcore.ReadTimeout", "httpcore.WriteError", "httpcore.WriteTimeout"}
        | {"httpcore.RemoteProtocolError", "httpcore.LocalProtocolError"}
    ),
    is_first_try=_is_first_try,
    judge=_judge,
    by_structure=(
        ("not-sent ones after a redirect was followed, or through a transport that is not httpx's own", "unknown"),
        ("`HTTPStatusError`", "by its status; unknown after a redirect"),
    ),
)
