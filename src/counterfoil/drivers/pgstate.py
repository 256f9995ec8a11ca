"""Turn psycopg's errors into ours, by SQLSTATE and never by text."""

from __future__ import annotations

import psycopg

from counterfoil.errors import Busy, CommitUnknown, ConstraintViolated, RightsMissing, StoreError, StoreUnavailable

_AGAIN = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected
CANCELED = "57014"
_BUSY = frozenset({"55P03", CANCELED})  # lock_not_available, query_canceled (a time-out of the server's)
# completion unknown; shut down, crashed, starting; session ended
_LOST = frozenset({"40003", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
_NOT_ALLOWED = "42501"
READ_ONLY = "25006"
_OF_LIBPQ = psycopg.DatabaseError
_UNFIT = frozenset({READ_ONLY, "0A000"})  # also a standby's answer to READ WRITE, and a plan for tables as they were


class ServerSilent(psycopg.OperationalError):
    """The server answered nothing for too long; what became of the statement must be looked up."""


class ReadOnlySession(psycopg.errors.ReadOnlySqlTransaction):
    """The session's default is to write nothing, as an administrator wants it; nothing was sent."""


def leads_astray(error: psycopg.Error | CommitUnknown) -> bool:
    """Say whether a connection leads where nobody answers, nothing can be written, or plans are out of date.

    Others may lead there, too; new ones need not: a fail-over or an upgrade came between.
    """
    cause = error.__cause__ if isinstance(error, CommitUnknown) else error
    return isinstance(cause, ServerSilent) or getattr(cause, "sqlstate", None) in _UNFIT


def is_lost(error: psycopg.Error) -> bool:
    """Say whether the connection is gone, so that the server's last word is not known."""
    if error.sqlstate is None:  # no word of the server's: libpq's own, which may be of any kind
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or type(error) is _OF_LIBPQ
    return error.sqlstate in _LOST or error.sqlstate.startswith("08")


def may_run_again(error: psycopg.Error) -> bool:
    """Say whether the server undid the transaction because of others, and asks to run it again."""
    return error.sqlstate in _AGAIN


def from_psycopg(error: psycopg.Error, path: str) -> StoreError:
    """Return our error for one of psycopg's."""
    state, name = error.sqlstate or "", type(error).__name__
    if state in _AGAIN or state in _BUSY:
        return Busy(
            f"The database {path} kept a row locked, or undid the transaction for others' sake, for too long ({name});"
            " nothing was written. Try again, or look in pg_stat_activity for a session that holds a transaction open;"
            " to work inside that transaction use cf.join(connection)."
        )
    if state.startswith("23"):
        return ConstraintViolated(f"The database {path} refused a row ({name}); nothing was written.")
    if state == _NOT_ALLOWED:
        return RightsMissing(
            f"The database role lacks a right in {path}, or row security keeps a row from it ({name}); nothing was"
            " written. Let the owner of the tables run what this prints, with the role's name: counterfoil db grants"
            " ROLE"
        )
    if isinstance(error, ReadOnlySession):
        return RightsMissing(
            f"The setting default_transaction_read_only is on for this role, or for the whole of {path}, so Counterfoil"
            " only reads there; nothing was written. Connect as a role that is to write, or let an administrator run:"
            " alter role ... set default_transaction_read_only = off"
        )
    if state == READ_ONLY:
        return StoreUnavailable(
            f"The database {path} is read-only, as a standby is; nothing was written. Connect to the primary: with"
            " several hosts in the URL, add target_session_attrs=read-write."
        )
    return StoreUnavailable(
        f"The database {path} could not do its work ({name}{f' {state}' if state else ''}). Nothing was written; check"
        " that the server runs and can be reached, and its log."
    )
