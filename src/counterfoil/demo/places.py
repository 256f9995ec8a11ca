"""Where the two columns keep what they know: files of their own, or for Counterfoil a database that somebody names."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from counterfoil.errors import InvalidUrl

if TYPE_CHECKING:
    from counterfoil.demo.situations import Situation
    from counterfoil.demo.steps import Column
    from counterfoil.storage.script import Script

TENANTS = ("team-A", "team-B")
"""Whose requests the situations are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The databases of one run of the demo.

    Args:
        folder: Where the files are; plain LangGraph's saver gets one for each situation, so that it never waits for a
            lock.
        url: Counterfoil's database, which all situations share.
        shown: How the database is shown: without its password.
        prefix: What the tenants' names begin with in a database that is not the demo's own.
        kept: Whether anything is left to look at.
    """

    folder: Path
    url: str
    shown: str
    prefix: str = ""
    kept: bool = False

    @classmethod
    def in_folder(cls, folder: Path, *, kept: bool) -> Places:
        """Keep everything in files in one folder."""
        url = f"sqlite:///{quote(str(folder.absolute() / 'counterfoil.db'))}"
        return cls(folder=folder.absolute(), url=url, shown=url, kept=kept)

    @classmethod
    def in_database(cls, folder: Path, url: str) -> Places:
        """Let Counterfoil use a database in which others may have rows, under tenants that nobody else has.

        Raises:
            InvalidUrl: it is no database's, or of one that only one process could see.
            StoreError: the database does not open, its schema is not right, or this role may not write to it.
        """
        from counterfoil.drivers.urls import PostgresUrl, anchored, parse_url
        from counterfoil.ledger import Counterfoil

        read = parse_url(url)
        if read.in_memory:
            raise InvalidUrl(
                "The demo runs in many processes, and sqlite:///:memory: is seen by one alone. Name a file."
            )
        with Counterfoil.open(url) as cf:  # what is wrong with it is told here and not by many processes
            cf.desk.store.write(_write_nothing)
        whole = anchored(url, Path.cwd())
        shown = read.path if isinstance(read, PostgresUrl) else whole
        return cls(folder=folder.absolute(), url=whole, shown=shown, prefix=f"demo-{secrets.token_hex(4)}-", kept=True)

    @property
    def is_named(self) -> bool:
        """Say whether Counterfoil's database is one that somebody named."""
        return bool(self.prefix)

    @property
    def tenants(self) -> list[str]:
        """Name the tenants as Counterfoil's rows do."""
        return [f"{self.prefix}{tenant}" for tenant in TENANTS]

    def database(self, column: Column, situation: Situation) -> str:
        """Return what a column opens: Counterfoil a URL, LangGraph's saver a file."""
        return self.url if column == "counterfoil" else str(self.folder / f"plain-{situation.slug}.db")


def _write_nothing() -> Script[None]:
    """Change no row, which only who may write is let do."""
    from counterfoil.storage.script import Ddl

    yield Ddl("update counterfoil_operation set state = state where 1 = 0")
