"""Say with a statement that stands alone whose rows it may touch, where row security goes by that.

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


def stands_alone(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Say whether the next statement must say for itself whose rows it may touch: no transaction around it did."""
    return getattr(connection, "walled", False) and connection.pgconn.transaction_status == TransactionStatus.IDLE


def one(connection: psycopg.Connection[Any]) -> AbstractContextManager[object]:
    """Return a block whose statements are one transaction."""
    return connection.pipeline() if psycopg.Pipeline.is_supported() else connection.transaction()


def aone(connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[object]:
    """Return a block whose statements are one transaction, for callers on an event loop."""
    return connection.pipeline() if psycopg.AsyncPipeline.is_supported() else connection.transaction()
