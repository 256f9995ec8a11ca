"""Show the matrix: as a table for people, as plain data for programs."""

from typing import Any, Final

from counterfoil.demo.hiring.matrix import Cell, Matrix
from counterfoil.demo.places import Places

SUMMARY: Final = (
    "{where}: the worker was killed at {places} places; {bad} of the runs were bad. Counted are the mails in the"
    " mailbox for a candidate and round at the most, and the charges at the gateway. {reviews} outcomes that nobody can"
    " know were reviewed by a person; none was guessed."
)
_HEADS: Final = ("mails", "charges", "reviews", "same end")


def as_json(matrix: Matrix, places: Places) -> dict[str, Any]:
    """Return the matrix as plain data."""
    kept = {"database": places.shown, "tenants": f"{places.prefix}*"} if places.is_named else None
    return {"cells": [_data(cell) for cell in matrix.cells], "bad": len(matrix.bad), "kept": kept}


def _data(cell: Cell) -> dict[str, Any]:
    return {
        "engine": cell.engine,
        "store": cell.store,
        "kill_point": cell.point.name,
        "mails_max": cell.mails_max,
        "charges": cell.charges,
        "reviews": cell.reviews,
        "same_final_state": cell.same_final_state,
    }


def as_text(matrix: Matrix, places: Places) -> str:
    """Return the table, what it comes to, what is wrong, and where the workflow is."""
    parts = [table(matrix), summary(matrix), *(_broken(cell) for cell in matrix.bad)]
    if not matrix.keeps_promise and not matrix.bad:
        parts.append("NOT AS IT MUST BE: the undisturbed run itself.")
    if places.is_named:
        parts.append(
            f"The rows stay in {places.shown}\n  under tenants that begin with {places.prefix}; no other row was"
            " touched."
        )
    return "\n\n".join(parts)


def table(matrix: Matrix) -> str:
    """Return the aligned table."""
    width = max((len(cell.point.name) for cell in matrix.cells), default=20)
    head = f"{'the worker is killed at':{width}}   {'   '.join(_HEADS)}"
    return "\n".join([head, "-" * len(head), *(_line(cell, width) for cell in matrix.cells)])


def _line(cell: Cell, width: int) -> str:
    values = (cell.mails_max, cell.charges, cell.reviews, "yes" if cell.same_final_state else "NO")
    told = "   ".join(f"{value!s:^{len(head)}}" for value, head in zip(values, _HEADS, strict=True))
    mark = "" if cell.keeps_promise else "   <- bad"
    return f"{cell.point.name:{width}}   {told.rstrip()}{mark}"


def summary(matrix: Matrix) -> str:
    """Return what the table comes to."""
    where = ", ".join(sorted({f"{cell.engine} on {cell.store}" for cell in matrix.cells})) or "nothing was played"
    return SUMMARY.format(
        where=where,
        places=len(matrix.cells),
        bad=len(matrix.bad),
        reviews=sum(cell.reviews for cell in matrix.cells),
    )


def _broken(cell: Cell) -> str:
    return (
        f"NOT AS IT MUST BE: {cell.point.name}: {cell.mails_max} mails, {cell.charges} charges, {cell.reviews} reviews"
        f" ({cell.point.reviews} expected), the same end: {cell.same_final_state}."
    )
