"""Read database URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from counterfoil.errors import InvalidUrl

MEMORY = ":memory:"


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """A SQLite file, or `:memory:`."""

    path: str

    @property
    def in_memory(self) -> bool:
        """Say whether the database lives in this process alone."""
        return self.path == MEMORY


def parse_url(url: str, folder: Path | None = None) -> SqliteUrl:
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
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        raise InvalidUrl(
            f"Cannot read the database URL: scheme {parts.scheme!r} is not supported."
            " Use sqlite:///file.db, sqlite:////absolute/file.db or sqlite:///:memory:."
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


def anchored(url: str, folder: Path) -> str:
    """Return a URL whose relative path is taken from a folder, so that it names one file from wherever it is used.

    Raises:
        InvalidUrl: it has another form or names another database.
    """
    read = parse_url(url, folder)
    return url if read.in_memory else f"sqlite:///{quote(read.path)}"
