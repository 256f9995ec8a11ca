"""Read a whole ledger, for those who judge it from outside: the crash kit and its like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.storage.script import Row, Script, all_rows

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
