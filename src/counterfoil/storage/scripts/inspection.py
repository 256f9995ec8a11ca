"""Read a whole ledger, for those who judge it from outside: the crash kit and its like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.storage.script import Row, Script, all_rows, one_row

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Every row of a ledger."""

    operations: Sequence[Row]
    attempts: Sequence[Row]
    cases: Sequence[Row]
    evidence: Sequence[Row]


def everything() -> Script[Contents]:
    """Read every row."""
    return Contents(
        operations=(yield from all_rows("list_all_operations")),
        attempts=(yield from all_rows("list_all_attempts")),
        cases=(yield from all_rows("list_all_cases")),
        evidence=(yield from all_rows("list_all_evidence")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """How clocks agree, in milliseconds: this host's with the database's, and the latest rows' times with that."""

    host_ahead_ms: int
    rows_ahead_ms: int
    newest_row_at: int | None


def clocks(host_ms: int) -> Script[Clocks]:
    """Compare clocks; a row from the future was written under another clock, or before this one was set back."""
    row = yield from one_row("compare_clocks")
    if row is None:
        raise LookupError("a maximum is always one row")
    now, newest = row["now"], row["newest"]
    return Clocks(
        host_ahead_ms=host_ms - now,
        rows_ahead_ms=0 if newest is None else max(0, newest - now),
        newest_row_at=newest,
    )
