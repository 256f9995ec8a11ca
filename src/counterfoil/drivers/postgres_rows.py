"""Rows of a psycopg cursor as dictionaries; psycopg's own make a description of every column for every statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from counterfoil.storage.script import Row

    Cursor = psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]


def has_rows(cursor: Cursor) -> bool:
    """Say whether the statement returned any row; one that returns none at all cannot be fetched from."""
    return cursor.pgresult is not None and cursor.pgresult.ntuples > 0


def named(cursor: Cursor, rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return fetched tuples with the names of their columns."""
    result = cursor.pgresult
    if result is None:
        return []
    names = [name.decode() for at in range(result.nfields) if (name := result.fname(at)) is not None]
    return [dict(zip(names, row, strict=True)) for row in rows]
