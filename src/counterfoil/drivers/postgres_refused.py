"""Say why no connection could be opened: the URL's own mistake, a refusal that lasts, or a server that is away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, PGconn, Ping

from counterfoil.drivers.urls import is_port
from counterfoil.errors import InvalidUrl, Retry, StoreUnavailable

if TYPE_CHECKING:
    import psycopg

    from counterfoil.drivers.urls import PostgresUrl

_NOBODY = "/counterfoil/asks/nobody"
"""A socket that is nowhere: libpq reads all options, then fails without a word to anybody."""
_NUMBERS = frozenset({
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
})  # fmt: skip
_LASTING = re.compile(
    r"authentication failed|no pg_hba\.conf entry|does not exist|no such (?:user|database)|not permitted to log in"
    r"|permission denied for database|unrecognized configuration parameter|invalid value for parameter"
    r"|server does not support SSL|certificate verify failed"
)
"""What no further try changes. libpq keeps the SQLSTATE of a refused connection to itself, so that text is all there
is, against the rule; in another language than English, or from a server that says something else, a refusal counts as
one that may pass."""


def check_options(url: PostgresUrl) -> None:
    """Refuse options that libpq does not know, before anything is opened; its own words would quote a password.

    Raises:
        InvalidUrl: it cannot read the URL.
    """
    try:
        given = conninfo_to_dict(url.text)
    except ProgrammingError:
        raise _unreadable(url) from None
    for name, value in given.items():
        if name == "port" and not all(is_port(each) for each in filter(None, str(value).split(","))):
            raise InvalidUrl("Cannot read the database URL: its option port is no number from 1 to 65535.")


def unreachable(url: PostgresUrl, error: psycopg.Error) -> StoreUnavailable | InvalidUrl:
    """Say why no connection could be opened, in the server's or the system's own words, on one line.

    It must be raised without a cause: libpq's text has several lines.
    """
    wrong = _wrong_option(url)
    if wrong is not None:
        return InvalidUrl(
            f"Cannot use the database URL: its option {wrong} has a value that libpq does not know. Nothing was opened;"
            " see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS"
        )
    lasts = _lasts(url, error)
    check = "check the URL, the role, its password" if lasts else "check the URL, the role, that the server runs"
    said = one_line(str(error)) or type(error).__name__
    told = StoreUnavailable(
        f"No connection to {url.path} could be opened: {said}{'' if said.endswith('?') else '.'} Nothing was"
        f" written; {check}"
        + (", and what the server lets in." if lasts else " and can be reached, and that it has connections left.")
    )
    if lasts:
        told.retry = Retry.NEVER
    return told


def one_line(text: str) -> str:
    """Return a text of several ragged lines as one, without the full stop at its end."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "; ".join(line.rstrip(".;") for line in lines if line)


def lasting(error: StoreUnavailable | InvalidUrl) -> bool:
    """Say whether another try would find the same."""
    return error.retry is Retry.NEVER


def _lasts(url: PostgresUrl, error: psycopg.Error) -> bool:
    """Say whether the one server that was asked refused for good; of several, another may answer later."""
    several = "," in url.path
    asks_password = bool(getattr(error.pgconn, "needs_password", False))
    return not several and (asks_password or _LASTING.search(str(error)) is not None)


def _unreadable(url: PostgresUrl) -> InvalidUrl:
    known = {each.keyword.decode() for each in Conninfo.get_defaults()}
    for name in url.option_names():
        if name not in known and re.fullmatch("[A-Za-z_]+", name):  # anything else may be a part of a password
            return InvalidUrl(
                f"Cannot read the database URL: libpq has no option {name}. See"
                " https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS"
            )
    return InvalidUrl(
        "Cannot read the database URL: libpq does not understand it. Write postgresql://user@host:5432/database,"
        " options as ?name=value&name=value, and a % that begins no escape as %25."
    )


def _wrong_option(url: PostgresUrl) -> str | None:
    given: dict[str, Any] = conninfo_to_dict(url.text)
    for name in sorted(set(given) & set(url.option_names())):
        if name in _NUMBERS and not re.fullmatch(r"\s*[+-]?\d+\s*", str(given[name])):
            return name
        if name not in {"host", "hostaddr", "port"} and _is_refused(name, given[name]):
            return name
    return None


def _is_refused(name: str, value: Any) -> bool:
    asked = PGconn.ping(make_conninfo(**{name: value, "host": _NOBODY}).encode())
    return asked == Ping.NO_ATTEMPT
