"""What a driver offers to the facades, in both colours.

Whoever asks says for which tenant; where the database has no roles, its statements alone hold to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from counterfoil.storage.migrator import Migration
    from counterfoil.storage.script import Maker
    from counterfoil.storage.tenants import Whose

T = TypeVar("T")


class Store(Protocol):
    """A database for blocking callers."""

    dialect: str
    claims_at_once: bool
    """Whether one statement here can look at an operation and claim it: then no read goes before the claim."""

    @property
    def path(self) -> str:
        """Return what messages call the database."""
        ...

    def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads."""
        ...

    def look(self, looking: Maker[T], claiming: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that peeks and then claims, or, where that would wait for others, one that only looks."""
        ...

    def write(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in a transaction."""
        ...

    def write_alone(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds user code in a transaction of its own, on the caller's thread."""
        ...

    def renew(self, maker: Maker[T], *, within: float, tenant: Whose = None) -> T:
        """Run a script that renews a lease: it may be run again, and is worth nothing after so many seconds."""
        ...

    def migrate(self, *, upgrade: bool) -> tuple[Migration, ...]:
        """Make the schema in an empty database; check it, or upgrade it, in one that has ours; say what was applied."""
        ...

    def awaiting(self) -> AsyncStore:
        """Return the twin for callers on an event loop."""
        ...

    @property
    def forked(self) -> bool:
        """Say whether this is a child of the process that opened it."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class AsyncStore(Protocol):
    """A database for callers on an event loop."""

    dialect: str
    claims_at_once: bool
    """Whether one statement here can look at an operation and claim it: then no read goes before the claim."""

    @property
    def path(self) -> str:
        """Return what messages call the database."""
        ...

    async def read(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script of reads."""
        ...

    async def write(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script in a transaction."""
        ...

    async def write_alone(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds blocking user code in a transaction of its own, on another thread."""
        ...

    async def write_lent(self, maker: Maker[T], *, tenant: Whose = None) -> T:
        """Run a script that holds async user code, made by `lend`, in a transaction of its own."""
        ...

    def lend(self, function: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
        """Return async user code as a script of this store takes it."""
        ...

    def retire(self) -> None:
        """Let go of what belongs to event loops; the blocking twin closes the rest."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
