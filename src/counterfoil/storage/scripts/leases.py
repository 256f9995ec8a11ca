"""Scripts that renew a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.core.states import OperationState
from counterfoil.storage.script import Script, lone_row

if TYPE_CHECKING:
    from counterfoil.model import OperationKey


def renew(key: OperationKey, *, fence: int, lease: int) -> Script[bool]:
    """Extend a claim's lease, up to its attempt's deadline; say whether another beat makes sense."""
    row = yield from lone_row(
        "renew_lease_if_fenced",
        tenant=key.tenant,
        operation_id=key.operation_id,
        fence=fence,
        lease=lease,
        expected_state=OperationState.IN_FLIGHT,
    )
    return row is not None and row["lease_until"] < row["attempt_deadline"]
