"""urllib3: what its exceptions mean, and what may send again by itself; nothing of it is imported."""

from __future__ import annotations

from typing import Any, Final

from counterfoil.core.outcomes import root
from counterfoil.providers.tables import Table, is_named
from counterfoil.providers.tracebacks import frames, local


def _is_first_try(error: BaseException) -> bool:
    """No retry and no redirect came before: urllib3 keeps their history beside each try."""
    tries = frames(error, "urlopen", "urllib3.connectionpool")
    return not any(getattr(local(each, "retries"), "history", None) for each in tries)


def _never_left(error: BaseException) -> bool:
    """Say whether it was raised while connecting: the name, the connection, a proxy's CONNECT, the TLS handshake."""
    if not _is_first_try(error):
        return False
    reason = getattr(error, "reason", None) if type(error).__name__ == "MaxRetryError" else None
    if reason is not None and type(reason).__name__ == "ResponseError":
        return False
    if isinstance(reason, BaseException):
        wrapped = is_named(reason, TABLE.not_sent, TABLE.unknown)
        return wrapped or _while_connecting(reason) or _while_connecting(error.__context__)
    return root(type(error)) == "urllib3" and _while_connecting(error)


def _while_connecting(error: BaseException | None) -> bool:
    """Say whether an exception, its declared cause or what it was made of came through the function that connects."""
    if error is None:
        return False
    parts = (error, error.__cause__, *(each for each in error.args if isinstance(each, BaseException)))
    return any(frames(each, "connect", "urllib3.connection") for each in parts)


def hidden_retries(pool: Any) -> str | None:
    """Say what of a pool or manager may send a request again."""
    if not hasattr(pool, "urlopen"):
        return None
    given = getattr(pool, "connection_pool_kw", {}).get("retries", getattr(pool, "retries", None))
    found = "retries by default" if given is None else repeats(given)
    return None if found is None else f"it {found}; write retries=False"


def repeats(retries: Any) -> str | None:
    """Say whether a `Retry` (or a number, or False) may send again; repeated connecting is none of it."""
    if isinstance(retries, int):  # False included
        return "repeats requests" if retries else None
    total, read, status, other = (getattr(retries, each, None) for each in ("total", "read", "status", "other"))
    if total is not None and not total:
        return None
    by_status = _is_left(status) and bool(getattr(retries, "status_forcelist", None))
    return "repeats requests" if _is_left(read) or by_status or _is_left(other) else None


def _is_left(count: int | None) -> bool:
    return count is None or bool(count)


TABLE: Final = Table(
    client="urllib3",
    not_sent=frozenset(
        {"urllib3.NewConnectionError", "urllib3.NameResolutionError", "urllib3.ConnectTimeoutError"}
        | {"urllib3.ProxyError", "urllib3.EmptyPoolError", "urllib3.ClosedPoolError", "urllib3.LocationValueError"}
        | {"urllib3.ProxySchemeUnsupported"}
    ),
    unknown=frozenset(
        {"urllib3.ReadTimeoutError", "urllib3.ProtocolError", "urllib3.SSLError", "urllib3.MaxRetryError"}
        | {"urllib3.ResponseError", "urllib3.DecodeError", "urllib3.IncompleteRead"}
    ),
    is_first_try=_is_first_try,
    never_left=_never_left,
    by_structure=(
        ("not-sent ones after a retry or a redirect", "unknown"),
        ("`MaxRetryError`", "not sent if there was one try and its `reason` is one of these, else unknown"),
        ("`SSLError`, `ReadTimeoutError`, `ProtocolError`", "not sent if raised while connecting, else unknown"),
    ),
)
