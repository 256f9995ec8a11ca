"""Make or upgrade the schema inside a transaction of the caller's own, as a migration tool has one open."""

from __future__ import annotations

from typing import Any

from counterfoil.drivers.schema import run_in


def migrate(transaction: Any) -> tuple[str, ...]:
    """Apply what a database lacks of Counterfoil's schema, in the open transaction; it counts once that commits.

    For an application that migrates all its tables with one tool: `counterfoil.migrate(op.get_bind())` in a revision of
    Alembic, `counterfoil.migrate(schema_editor.connection)` in a `RunPython` of Django.

    Args:
        transaction: A `sqlite3` or `psycopg` connection with a transaction open, or SQLAlchemy's `Connection` or
            `Session`, or Django's connection, over one.

    Returns:
        The names of the migrations that were applied; none if the schema is current.

    Raises:
        ForeignTransaction: it is something else, or has no transaction open.
        SchemaMismatch: the schema is newer than this code, or was altered.
        RightsMissing: this role may not make or change the tables.
        Busy: others kept a lock for too long.
    """
    applied = run_in(_drivers_own(transaction), lambda migrator: migrator.migrate(upgrade=True))
    return tuple(f"{each.number:04} {each.name}" for each in applied)


def _drivers_own(transaction: Any) -> Any:
    """Return the driver's connection behind SQLAlchemy's or Django's, neither of which is imported for it."""
    package = type(transaction).__module__.partition(".")[0]
    if package == "sqlalchemy":
        connection = transaction.connection() if callable(transaction.connection) else transaction
        if not connection.in_transaction():
            connection.begin()  # as it does itself before a statement, so that its commit is one
        return connection.connection.driver_connection
    if package == "django":
        transaction.ensure_connection()
        return transaction.connection
    return transaction
