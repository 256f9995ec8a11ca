"""Where the worlds of a scenario stand: their databases, and the event loop that runs their coroutines."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

from counterfoil.drivers.stores import open_store
from counterfoil.drivers.urls import PostgresUrl, parse_url
from counterfoil.errors import InvalidUrl
from counterfoil.ledger import Counterfoil
from counterfoil.storage.tenants import ALL_TENANTS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from contextlib import AbstractContextManager

    from counterfoil.clock import Clock
    from counterfoil.core.durations import Duration
    from counterfoil.desk import Desk
    from counterfoil.drivers.probes import Probe
    from counterfoil.storage.script import Maker

T = TypeVar("T")


class Ground(Protocol):
    """What a world needs of the place where its database is; the world is known by its folder."""

    def url(self, folder: Path) -> str:
        """Return the URL of a world's database."""
        ...

    def desk(self, folder: Path, *, wait: Duration, clock: Clock, probe: Probe) -> Desk:
        """Open a world's database, as a process of its own would."""
        ...

    def read(self, folder: Path, clock: Clock, maker: Maker[T]) -> T:
        """Read from a world's database where no crash point stands."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and leave no task and no thread of it behind."""
        ...

    def bury(self) -> None:
        """End what a dead process has left open, as the system does for a real one."""
        ...

    def beside(self) -> AbstractContextManager[Ground]:
        """Yield the same place with connections and an event loop of its own, for a second worker."""
        ...

    def crowd(self, folder: Path) -> None:
        """Let those who will open a world's database wait for each other where that can be seen, the first one, too."""
        ...

    def waiting(self, folder: Path) -> int:
        """Count those who wait for a lock in a world's database now."""
        ...

    def clear(self, *, fresh: bool) -> None:
        """Remove every row that an earlier scenario has left, and the schema, too, for a `fresh` one."""
        ...

    def keep(self) -> None:
        """Take what is in the database now for the beginning of every world to come."""
        ...

    def renew(self) -> None:
        """Give a world to come the beginning that was kept; its folder is a copy already."""
        ...


class Files:
    """A SQLite file in each world's own folder."""

    def url(self, folder: Path) -> str:
        """Return the URL of the file."""
        return f"sqlite:///{quote(str(folder / 'world.db'))}"

    def desk(self, folder: Path, *, wait: Duration, clock: Clock, probe: Probe) -> Desk:
        """Open the file."""
        return Counterfoil.open(self.url(folder), wait=wait, clock=clock, probe=probe).desk

    def read(self, folder: Path, clock: Clock, maker: Maker[T]) -> T:
        """Open the file, read, and close it."""
        store = open_store(parse_url(self.url(folder)), clock=clock)
        try:
            return store.read(maker, tenant=ALL_TENANTS)
        finally:
            store.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on an event loop of its own."""
        return asyncio.run(work)

    def bury(self) -> None:
        """Do nothing: locks of this very process cannot be told apart."""

    def beside(self) -> AbstractContextManager[Ground]:
        """Yield the same: every opening has connections of its own."""
        return nullcontext(self)

    def crowd(self, folder: Path) -> None:
        """Make the file by which the first to open the database knows that it is not alone, and takes turns."""
        _turn(folder).touch()

    def waiting(self, folder: Path) -> int:
        """Count those who wait for their turn at the file; where the system does not tell, hold anybody for waiting."""
        try:
            queue = f":{_turn(folder).stat().st_ino} "
        except OSError:
            return 0
        try:
            locks = Path("/proc/locks").read_text("ascii").splitlines()
        except OSError:
            return 2
        return sum(" -> FLOCK " in line and queue in line for line in locks)

    def clear(self, *, fresh: bool) -> None:
        """Do nothing: the folder is new."""

    def keep(self) -> None:
        """Do nothing: the file lies in the folder."""

    def renew(self) -> None:
        """Do nothing: the file was copied with the folder."""


FILES = Files()


def _turn(folder: Path) -> Path:
    return folder / "world.db-turn"


@contextmanager
def ground_at(url: str | None) -> Iterator[Ground]:
    """Yield SQLite files, or a new database on the server of a PostgreSQL URL, dropped in the end.

    Raises:
        InvalidUrl: it names another kind of database.
    """
    if url is None:
        yield FILES
        return
    if not isinstance(parse_url(url), PostgresUrl):
        raise InvalidUrl(
            "The crash kit makes SQLite files of its own, so it takes no SQLite URL. Leave `url` out, or name a"
            " PostgreSQL server on which it may create a database: postgresql://user@host/postgres."
        )
    from counterfoil.testing.postgres_ground import postgres_ground  # noqa: PLC0415 - needs psycopg

    with postgres_ground(url) as made:
        yield made
