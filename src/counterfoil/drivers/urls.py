"""Read database URLs: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

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


def parse_url(url: str) -> SqliteUrl:
    """Read a database URL.

    Raises:
        InvalidUrl: it has another form or names another database.
    """
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
    return SqliteUrl(path or MEMORY)
