"""What a driver offers to the facades, in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from counterfoil.storage.script import Maker

T = TypeVar("T")


class Store(Protocol):
    """A database for blocking callers."""

    dialect: str

    @property
    def path(self) -> str:
        """Return what messages call the database."""
        ...

    def read(self, maker: Maker[T]) -> T:
        """Run a script of reads."""
        ...

    def write(self, maker: Maker[T]) -> T:
        """Run a script in a transaction."""
        ...

    def write_alone(self, maker: Maker[T]) -> T:
        """Run a script that holds user code in a transaction of its own, on the caller's thread."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class AsyncStore(Protocol):
    """A database for callers on an event loop."""

    dialect: str

    @property
    def path(self) -> str:
        """Return what messages call the database."""
        ...

    async def read(self, maker: Maker[T]) -> T:
        """Run a script of reads."""
        ...

    async def write(self, maker: Maker[T]) -> T:
        """Run a script in a transaction."""
        ...

    async def write_alone(self, maker: Maker[T]) -> T:
        """Run a script that holds user code in a transaction of its own."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
