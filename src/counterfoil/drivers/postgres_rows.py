"""Rows of a psycopg cursor as dictionaries; psycopg's own make a description of every column for every statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from counterfoil.storage.script import Row

    Cursor = psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]


_MOST = 1024
"""Names of columns kept for so many statements: beside the catalog's there are those that effects are."""
_NAMES: dict[str, list[str]] = {}


def has_rows(cursor: Cursor) -> bool:
    """Say whether the statement returned any row; one that returns none at all cannot be fetched from."""
    return cursor.pgresult is not None and cursor.pgresult.ntuples > 0


def named(cursor: Cursor, sql: str, rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return fetched tuples with the names of their columns, which are asked for once for each statement."""
    result = cursor.pgresult
    if result is None:
        return []
    if (names := _NAMES.get(sql)) is None:
        names = [name.decode() for at in range(result.nfields) if (name := result.fname(at)) is not None]
        if "*" not in sql:  # what that stands for is the schema's business, which another process may upgrade
            if len(_NAMES) >= _MOST:
                _NAMES.clear()
            _NAMES[sql] = names
    return [dict(zip(names, row, strict=True)) for row in rows]
