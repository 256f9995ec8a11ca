"""Where the database URL comes from: an argument, the environment, or the project's own settings."""

from __future__ import annotations

import os
from pathlib import Path

from counterfoil.drivers.urls import anchored
from counterfoil.errors import NoDatabase

VARIABLE = "COUNTERFOIL_URL"


def database_url(url: str | None = None) -> str:
    """Return the database URL: the argument, else `COUNTERFOIL_URL`, else `[tool.counterfoil] url`.

    Raises:
        NoDatabase: none of the three names one.
    """
    found = url or os.environ.get(VARIABLE) or _from_project(Path.cwd())
    if not found:
        raise NoDatabase(
            "No database is named. Pass one: Counterfoil.open('sqlite:///agent.db') or --url sqlite:///agent.db; or set"
            f" {VARIABLE}=sqlite:///agent.db; or write into pyproject.toml: [tool.counterfoil] url ="
            ' "sqlite:///agent.db". A PostgreSQL database is named in the same places: postgresql://me@host/agents'
        )
    return found


def _from_project(start: Path) -> str | None:
    """Return the URL in the nearest `pyproject.toml` that has our table, from this folder upwards.

    A relative path in it is relative to that file: two folders of one project must not get two ledgers.
    """
    import tomllib  # noqa: PLC0415 - only where no other place names a database

    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            try:
                table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("counterfoil", {})
            except ValueError as error:
                raise NoDatabase(
                    f"{file} may name the database, but cannot be read as TOML: {error}. Mend it, or pass --url or"
                    f" {VARIABLE}."
                ) from error
            if isinstance(url := table.get("url"), str):
                return anchored(url, folder)
    return None
