"""An effect that is one SQL statement, run together with the one that records it: the text, and what errors mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.errors import NotNullViolation, UniqueViolation

from counterfoil.errors import Busy
from counterfoil.model import OperationKey
from counterfoil.storage.placeholders import own_params, pyformat
from counterfoil.storage.scripts.settling import not_one_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from counterfoil.model import Statement
    from counterfoil.storage.script import Lone

_PLACE = "select 1 as own_statement"
_ALONE = "with own_row as (\n{}\n)\nselect cast(row_to_json(own_row) as text) as own_row from own_row limit 2"
_TABLE = "counterfoil_operation"
_NO_ROW, _SEVERAL_ROWS = "state", "sender"
"""The columns for which the statement gives nothing in these cases; they may not be null, so that nothing is kept."""


def together(ours: str, own: Statement[Any], params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a statement of ours with the effect's own in its place, and the parameters of both."""
    before, after = ours.split(_PLACE)
    return f"{before}{pyformat(own)}\n{after}", {**params, **own_params(own)}


def alone(own: Statement[Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the effect's own statement as one that returns its rows as the JSON that is recorded, two at most."""
    return _ALONE.format(pyformat(own)), own_params(own)


def own_error(error: psycopg.Error, step: Lone) -> Exception:
    """Return what an error of both statements means; one of the effect's own stays as it is."""
    if error.diag.table_name != _TABLE:
        return error
    key = OperationKey(tenant=step.params["tenant"], operation_id=step.params["operation_id"])
    match error:
        case NotNullViolation() if error.diag.column_name in {_NO_ROW, _SEVERAL_ROWS}:
            return not_one_row(key, several=error.diag.column_name == _SEVERAL_ROWS)
        case UniqueViolation():
            return _exists(key)
        case _:
            return error


def _exists(key: OperationKey) -> Busy:
    """Return what is raised of an operation that exists, for a caller that then does not find it."""
    return Busy(
        f"Operation {key} was recorded by another transaction in this moment, which this one cannot see; nothing was"
        " written here. Roll back and try again: the receipt is there then."
    )
