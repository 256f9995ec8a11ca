"""Say with a statement whose rows it may touch, where row security goes by that and nobody said so before it.

Sent in one go the two are one transaction, and what was said ends with it; libpq 13 has to take round trips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from counterfoil.storage.tenants import SETTING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

SAY: Final = f"select set_config('{SETTING}', %(wall)s, true)"


def must_say(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Say whether the next statement must say for itself whose rows it may touch.

    No transaction around it did, or user code was in that, which may have set or reset what was said.
    """
    alone = getattr(connection, "walled", False) and connection.pgconn.transaction_status == TransactionStatus.IDLE
    return alone or getattr(connection, "unsaid", False)


def said(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Note that it was said."""
    if getattr(connection, "unsaid", False):
        connection.unsaid = False  # type: ignore[union-attr]


def one(connection: psycopg.Connection[Any]) -> AbstractContextManager[object]:
    """Return a block whose statements are one transaction."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else connection.transaction()


def aone(connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[object]:
    """Return a block whose statements are one transaction, for callers on an event loop."""
    return connection.pipeline() if psycopg.AsyncPipeline.is_supported() else connection.transaction()
