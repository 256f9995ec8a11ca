"""Python's own clients, `socket`, `http.client` and `urllib.request`: what their exceptions mean.

Their errors are those of sockets and of TLS, whatever they were raised for: the traceback tells whether it was while
connecting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.providers.statuses import judged
from counterfoil.providers.tables import Table
from counterfoil.providers.tracebacks import frames

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement


def _never_left(error: BaseException) -> bool:
    """Say whether it was raised while connecting: the name, the connection, a proxy's CONNECT, the TLS handshake."""
    if _is_redirected(error):
        return False
    reason = getattr(error, "reason", None) if type(error).__name__ == "URLError" else None
    parts = (error, reason) if isinstance(reason, BaseException) else (error,)
    return any(frames(each, "connect", "http.client") for each in parts)


def _is_redirected(error: BaseException) -> bool:
    return bool(frames(error, "http_error_302", "urllib.request"))


def _judge(error: BaseException) -> Judgement | None:
    answer: Any = error
    if type(error).__name__ != "HTTPError":
        return None
    return judged(answer.code, is_last_of_many=_is_redirected(error))


TABLE: Final = Table(
    client="Python itself",
    not_sent=frozenset({"builtins.ConnectionRefusedError", "socket.gaierror"}),
    unknown=frozenset({"urllib.URLError", "urllib.HTTPError", "urllib.ContentTooShortError", "http.HTTPException"}),
    is_first_try=lambda error: not _is_redirected(error),
    never_left=_never_left,
    judge=_judge,
    by_structure=(
        ("any that `http.client` raises while connecting, also as the `reason` of a `URLError`", "not sent"),
        ("any, after a redirect was followed", "unknown"),
        ("`HTTPError`", "by its status"),
    ),
)
