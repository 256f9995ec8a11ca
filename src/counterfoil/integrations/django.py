"""Django's transactions: `atomic` on one of its connections, by the driver's connection behind it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from counterfoil.drivers.join import kind, leads_to
from counterfoil.errors import ForeignTransaction, NestedEffect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from counterfoil.storage.store import Store
    from counterfoil.transacting import Body


class DjangoHost:
    """One of `django.db.connections` inside `atomic`."""

    def __init__(self, connection: Any) -> None:
        if not isinstance(connection, BaseDatabaseWrapper | ConnectionProxy):
            raise ForeignTransaction(
                f"{kind(connection)} is no connection of Django's. Write:"
                " with transaction.atomic(): cf.join(django.db.connection)"
            )
        self._django = connection

    def connection(self) -> Any:
        """Return the driver's connection."""
        if not self._django.in_atomic_block and self._django.get_autocommit():
            raise ForeignTransaction(
                "Django's connection has no transaction open, so there is nothing to commit with. Write: with"
                " transaction.atomic(): cf.join(connection)"
            )
        if self._django.needs_rollback:
            raise ForeignTransaction(
                "The transaction was broken by an error before, and Django will roll it back. Put"
                " transaction.atomic() around what may fail."
            )
        return self._django.connection

    def prepare(self) -> None:
        """Do nothing: Django keeps nothing back."""

    def lend(self, body: Body) -> Body:
        """Let the body use Django's models, in a savepoint of its own: only so does Django forget what is undone."""

        def lent(guarded: Any) -> Any:
            with transaction.atomic(using=self._django.alias):
                return body(guarded)

        return lent

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the driver's errors as Django's."""
        with self._django.wrap_database_errors:
            yield


def refuse_inside_atomic(wanted: str, store: Store) -> None:
    """Refuse a call that is made inside `atomic` on the store's own database, and so neither before nor after it.

    Raises:
        NestedEffect: it is; blocks of Django's own test cases do not count.
    """
    if not settings.configured:
        return
    for connection in connections.all(initialized_only=True):
        if _in_own_atomic(connection) and leads_to(store, connection.connection):
            raise NestedEffect(
                f"{wanted} was called inside transaction.atomic() on the same database ({connection.alias}). A"
                " roll-back could not take back what is sent now, and the two transactions could wait for each other."
                " For rows of this database write cf.join(connection).perform(...); call all else after the block."
            )


def _in_own_atomic(connection: BaseDatabaseWrapper) -> bool:
    blocks = getattr(connection, "atomic_blocks", ())
    return connection.in_atomic_block and not all(getattr(each, "_from_testcase", False) for each in blocks)
