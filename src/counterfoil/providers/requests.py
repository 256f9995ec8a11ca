"""requests: what its exceptions mean, and what may send again by itself; nothing of it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.providers import urllib3
from counterfoil.providers.statuses import judged
from counterfoil.providers.tables import Table, never_left
from counterfoil.providers.tracebacks import frames

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement


def _is_first_try(error: BaseException) -> bool:
    return not frames(error, "resolve_redirects", "requests.sessions")


def _never_left(error: BaseException) -> bool:
    """Ask about the exception of urllib3 that it wraps: `ConnectionError` is both, before and after the send."""
    wrapped = error.args[0] if error.args else None
    return isinstance(wrapped, BaseException) and _is_first_try(error) and never_left(wrapped)


def _judge(error: BaseException) -> Judgement | None:
    response: Any = getattr(error, "response", None) if type(error).__name__ == "HTTPError" else None
    if response is None:
        return None
    retried = getattr(getattr(response.raw, "retries", None), "history", ())
    return judged(response.status_code, is_last_of_many=bool(response.history or retried))


def hidden_retries(session: Any) -> str | None:
    """Say what of a session's adapters may send a request again."""
    for prefix, adapter in getattr(session, "adapters", {}).items():
        if (found := urllib3.repeats(getattr(adapter, "max_retries", False))) is not None:
            return f"its adapter for {prefix} {found}; write max_retries=0"
    return None


TABLE: Final = Table(
    client="requests",
    not_sent=frozenset(
        {"requests.MissingSchema", "requests.InvalidSchema", "requests.InvalidURL", "requests.InvalidProxyURL"}
    ),
    unknown=frozenset(
        {"requests.ConnectionError", "requests.ReadTimeout", "requests.ChunkedEncodingError", "requests.RetryError"}
        | {"requests.ContentDecodingError", "requests.SSLError", "requests.ProxyError", "requests.ConnectTimeout"}
        | {"requests.JSONDecodeError", "requests.TooManyRedirects", "requests.InvalidHeader"}
    ),
    is_first_try=_is_first_try,
    never_left=_never_left,
    judge=_judge,
    by_structure=(
        ("any, after a redirect was followed", "unknown"),
        (
            "`ConnectionError`, `ConnectTimeout`, `SSLError`, `ProxyError`, `ReadTimeout`",
            "as the exception of urllib3 that it wraps",
        ),
        ("`HTTPError`", "by its status; unknown after a redirect or a retry"),
    ),
)
