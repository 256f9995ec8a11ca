"""What PostgreSQL drivers tell of workflows that can be entered, in the transaction that makes it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import psycopg

    from counterfoil.storage.script import Wake


class Waker(Protocol):
    """Puts a wake-up into an open transaction: it is there when that is committed, and never was if it is not."""

    def tell(self, connection: psycopg.Connection[Any], wake: Wake) -> None:
        """Tell of a workflow; the transaction goes on, whatever was told before."""
        ...

    async def atell(self, connection: psycopg.AsyncConnection[Any], wake: Wake) -> None:
        """Tell of a workflow on an async connection."""
        ...
