"""Read database URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`, `postgresql://...`."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from counterfoil.errors import InvalidUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY = ":memory:"
LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """A SQLite file, or `:memory:`."""

    path: str
    dialect: ClassVar[str] = "sqlite"

    @property
    def in_memory(self) -> bool:
        """Say whether the database lives in this process alone."""
        return self.path == MEMORY


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A PostgreSQL database, by libpq's URL."""

    text: str = field(repr=False)
    dialect: ClassVar[str] = "postgres"

    @property
    def in_memory(self) -> bool:
        """Say whether the database lives in this process alone."""
        return False

    @property
    def path(self) -> str:
        """Return the URL without its password and settings, for messages."""
        parts = urlsplit(self.text)
        user, _, host = parts.netloc.rpartition("@")
        name = user.partition(":")[0]
        return f"{parts.scheme}://{f'{name}@' if name else ''}{host}{parts.path}"

    def option_names(self) -> set[str]:
        """Name the options that are given behind the question mark."""
        return {name for name, _ in parse_qsl(urlsplit(self.text).query, keep_blank_values=True)}

    def conninfo(self, defaults: Mapping[str, Any]) -> str:
        """Return the URL with settings that it does not give itself."""
        parts = urlsplit(self.text)
        given = self.option_names()
        added = urlencode({name: value for name, value in defaults.items() if name not in given})
        return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, added)))))


DatabaseUrl: TypeAlias = SqliteUrl | PostgresUrl
_POSTGRES = {"postgresql", "postgres", "postgresql+psycopg"}


def parse_url(url: str, folder: Path | None = None) -> DatabaseUrl:
    """Read a database URL; a relative path is taken from `folder`, or from the current one, once and for all.

    Raises:
        InvalidUrl: it has another form or names another database.
    """
    if not isinstance(url, str):
        raise InvalidUrl(
            f"A database URL is text, not {type(url).__qualname__}: write sqlite:///file.db, or"
            ' f"sqlite:///{path}" for a path.'
        )
    if any(unicodedata.category(char) == "Cc" for char in url):
        raise InvalidUrl("Cannot read the database URL: it holds a control character, such as a line break.")
    try:
        parts = urlsplit(url)
    except ValueError:  # its words quote the password
        raise InvalidUrl(
            "Cannot read the database URL: what stands between // and the first slash has a bracket, or a character of"
            " another alphabet that looks like one with a meaning. Escape a password's own characters, as in %5B for [."
        ) from None
    if parts.scheme in _POSTGRES:
        return _postgres(url, parts)
    if parts.scheme != "sqlite":
        raise InvalidUrl(
            f"Cannot read the database URL: scheme {parts.scheme!r} is not supported."
            " Use sqlite:///file.db, sqlite:////absolute/file.db, sqlite:///:memory: or"
            " postgresql://user@host/database."
        )
    if parts.netloc or parts.query or parts.fragment:
        raise InvalidUrl(
            "Cannot read the database URL: a SQLite URL has three slashes and a path (four for an absolute path),"
            " with no host, query or fragment: sqlite:///agent.db."
        )
    path = unquote(parts.path).removeprefix("/")
    if "\0" in path:
        raise InvalidUrl("Cannot read the database URL: the path holds a NUL character.")
    if not path:
        raise InvalidUrl(
            "The database URL names no file. Write sqlite:///file.db, or sqlite:///:memory: for a database that is gone"
            " when it is closed."
        )
    return SqliteUrl(path if path == MEMORY else str((folder or Path.cwd()) / path))


def _postgres(url: str, parts: SplitResult) -> PostgresUrl:
    if "@" in parts.path or parts.netloc.count("@") > 1:
        raise InvalidUrl(
            "Cannot read the database URL: an @ stands where none belongs. Escape a password's own characters: a"
            " slash is written %2F, an @ %40, a question mark %3F and a # %23."
        )
    slashes = url[len(parts.scheme) :].startswith("://")
    if parts.fragment or not slashes or not parts.path.strip("/"):
        raise InvalidUrl(
            "Cannot read the database URL: a PostgreSQL URL has two slashes, names a database and has no fragment:"
            " postgresql://user@host:5432/database. A # in a password is written %23."
        )
    if not all(map(_has_no_odd_port, parts.netloc.rpartition("@")[2].split(","))):
        raise InvalidUrl(
            "Cannot read the database URL: what follows the host's colon is no port, a number from 1 to 65535. With a"
            " user and a password write postgresql://user:password@host:5432/database."
        )
    return PostgresUrl(f"postgresql{url[len(parts.scheme) :]}")


def _has_no_odd_port(place: str) -> bool:
    """Say whether a host is followed by a port, or by none; an address in brackets has colons of its own."""
    _, colon, port = place.rpartition("]")[2].partition(":")
    return not colon or port == "" or is_port(port)


def is_port(text: str) -> bool:
    """Say whether a text is the number of a port."""
    return text.isascii() and text.isdigit() and 1 <= int(text) <= LAST_PORT


def anchored(url: str, folder: Path) -> str:
    """Return a URL whose relative path is taken from a folder, so that it names one file from wherever it is used.

    Raises:
        InvalidUrl: it has another form or names another database.
    """
    read = parse_url(url, folder)
    return url if read.in_memory or isinstance(read, PostgresUrl) else f"sqlite:///{quote(read.path)}"
