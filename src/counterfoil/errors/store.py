"""The database could not do what was asked."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from counterfoil.errors.root import CounterfoilError
from counterfoil.exits import Exit, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator


class StoreError(CounterfoilError):
    """The database could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be opened or reached."""

    code = "store-unavailable"
    retry = Retry.SAFE


class Busy(StoreError):
    """The database stayed locked for longer than the time-out; nothing was written."""

    code = "store-busy"
    retry = Retry.SAFE
    exit = Exit.TIMED_OUT


class PoolExhausted(Busy):
    """All connections to the database were in use for longer than the wait; nothing was written."""

    code = "pool-exhausted"


class CommitUnknown(StoreError):
    """The connection was lost during COMMIT; whether it took effect must be looked up."""

    code = "commit-unknown"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.OUTCOME_UNKNOWN

    @contextmanager
    def outlasting(self) -> Iterator[None]:
        """Raise this error where what follows it fails, too: that nothing was written is true of the latter alone."""
        try:
            yield
        except StoreError as error:
            raise self from error


class StoreClosed(StoreError):
    """A Counterfoil that was closed, or was inherited through a fork."""

    code = "store-closed"


class ConstraintViolated(StoreError):
    """A business constraint of the database refused the transaction; nothing was written."""

    code = "constraint-violated"


class StoredValueDamaged(StoreError):
    """A stored value cannot be decoded, or needs something that this machine lacks."""

    code = "stored-value-damaged"


class RightsMissing(StoreError):
    """The database role may not do what is needed; nothing was written."""

    code = "rights-missing"
    exit = Exit.NOT_ALLOWED


class SchemaMismatch(StoreError):
    """The database's schema does not fit this code."""

    exit = Exit.CONFLICT


class SchemaOutdated(SchemaMismatch):
    """The database is older than this code."""

    code = "schema-outdated"


class SchemaNewer(SchemaMismatch):
    """The database is newer than this code."""

    code = "schema-newer"


class SchemaAltered(SchemaMismatch):
    """The tables differ from what the recorded migrations make."""

    code = "schema-altered"
