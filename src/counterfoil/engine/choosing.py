"""Choose an engine by its name, and let the database tell it of workflows that can be entered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from counterfoil.desk import EMBEDDED
from counterfoil.engine.embedded import Embedded
from counterfoil.errors import InvalidArguments, MissingExtra, SchemaOutdated
from counterfoil.extras import install_line

if TYPE_CHECKING:
    from types import ModuleType

    from counterfoil.desk import Desk
    from counterfoil.drivers.postgres import PostgresStore
    from counterfoil.engine.port import Engine
    from counterfoil.storage.store import Store

ENGINES: Final = (EMBEDDED, "procrastinate")


def chosen(desk: Desk, name: str) -> Engine:
    """Return the engine of this name, ready to run; what makes a workflow enterable here tells it from now on.

    Raises:
        InvalidArguments: there is none, or it does not work with this database.
        MissingExtra: its package is not installed.
        SchemaOutdated: its tables are missing.
    """
    if name == EMBEDDED:
        return Embedded(desk)
    if name not in ENGINES:
        raise InvalidArguments(f"There is no engine {name!r}; there are {' and '.join(ENGINES)}.")
    package = procrastinate_for(desk.store)
    if not desk.store.read(package.has_schema):
        raise SchemaOutdated(
            f"The database {desk.store.path} has no tables of Procrastinate, or older ones. Nothing was changed. Make"
            " them with: counterfoil db upgrade --engine procrastinate"
        )
    engine: Engine = package.Procrastinate(desk)
    cast("PostgresStore", desk.store).tell(package.Waker())
    return engine


def made_for(store: Store) -> bool:
    """Make Procrastinate's tables where they are missing; say whether they were.

    Raises:
        InvalidArguments: the database is not PostgreSQL.
        MissingExtra: Procrastinate is not installed.
    """
    made: bool = store.write(procrastinate_for(store).make_schema)
    return made


def procrastinate_for(store: Store) -> ModuleType:
    """Return what works with Procrastinate, if it can be used on this database.

    Raises:
        InvalidArguments: it is not PostgreSQL.
        MissingExtra: Procrastinate is not installed.
    """
    if store.dialect != "postgres":
        raise InvalidArguments(
            f"Procrastinate keeps its jobs in PostgreSQL, and {store.path} is SQLite. Leave --engine out, for the"
            " embedded one, or open a PostgreSQL database: postgresql://user@host/database"
        )
    try:
        from counterfoil.engine import procrastinate  # noqa: PLC0415 - needs the package
    except ImportError as error:
        raise MissingExtra(
            f"The engine procrastinate needs {error.name or 'a package'}, which is not installed:"
            f" {install_line('counterfoil[procrastinate]')}"
        ) from error
    return procrastinate
