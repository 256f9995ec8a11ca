"""Scripts that look what entering a workflow again would meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.storage.script import Row, Script, all_rows, one_row
from counterfoil.storage.scripts import workflows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from counterfoil.storage.scripts.threads import ThreadKey
    from counterfoil.storage.scripts.workflows import Kept

MOST = 10_000
"""Operations of one workflow that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """What a workflow has stored."""

    workflow: Row
    kept: Kept
    operations: Sequence[Row]
    waits: Sequence[Row]


def look(key: ThreadKey) -> Script[Met | None]:
    """Read a workflow with what it waits for and what its steps asked for."""
    row, kept = (yield from one_row("get_workflow", **key.params)), (yield from workflows.entry(key))
    if row is None or kept is None:
        return None
    operations = yield from all_rows("list_workflow_operations", **key.params, limit=MOST)
    waits = yield from all_rows("list_waits", **key.params)
    return Met(workflow=row, kept=kept, operations=operations, waits=waits)
