"""Open the store that a URL names; psycopg is imported only where it names PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from counterfoil.drivers.probes import no_probe
from counterfoil.drivers.urls import PostgresUrl, SqliteUrl
from counterfoil.errors import InvalidArguments, MissingExtra
from counterfoil.extras import install_line

if TYPE_CHECKING:
    from counterfoil.clock import Clock
    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.drivers.probes import Probe
    from counterfoil.drivers.sqlite import SqliteStore
    from counterfoil.drivers.urls import DatabaseUrl


def open_store(
    url: DatabaseUrl,
    *,
    clock: Clock | None = None,
    probe: Probe | None = None,
    network_filesystem: bool = False,
    connections: int | None = None,
) -> SqliteStore | PostgresStore:
    """Open a database for blocking callers, whatever its schema.

    Raises:
        StoreError: it cannot be opened.
        MissingExtra: it is a PostgreSQL database and psycopg is not installed.
    """
    match url:
        case SqliteUrl():
            from counterfoil.drivers.sqlite import SqliteStore  # noqa: PLC0415 - only the driver that is used

            return SqliteStore(url, clock=clock, probe=probe or no_probe, network_filesystem=network_filesystem)
        case PostgresUrl():
            return _open_postgres(url, clock, probe or no_probe, connections)
        case _:
            assert_never(url)


def _open_postgres(url: PostgresUrl, clock: Clock | None, probe: Probe, connections: int | None) -> PostgresStore:
    try:
        from counterfoil.drivers.postgres import PostgresStore  # noqa: PLC0415 - needs psycopg
    except ImportError as error:
        raise MissingExtra(
            f"A PostgreSQL database needs psycopg, which cannot be imported ({' '.join(str(error).split())})."
            f" Install it with: {install_line('counterfoil[postgres]', 'psycopg[binary]')}"
        ) from error
    given: object = connections
    if given is not None and (type(given) is not int or given < 1):
        raise InvalidArguments(f"connections is a whole number from 1 on, not {given!r}.")
    options = {} if connections is None else {"connections": connections}
    return PostgresStore(url, clock=clock, probe=probe, **options)
