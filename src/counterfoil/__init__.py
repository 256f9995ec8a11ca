"""Counterfoil: the side effects of long-running agent workflows leave exactly one receipt.

Everything public is exported here, lazily: importing the package loads no database driver and no third-party code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.aio.ledger import AsyncCounterfoil
    from counterfoil.core.access import Principal, Role
    from counterfoil.core.explain import Explanation
    from counterfoil.core.states import AttemptOutcome, Verdict
    from counterfoil.declaring import effect
    from counterfoil.delivery import Delivery
    from counterfoil.effects import Effect, EffectCall
    from counterfoil.errors import CounterfoilError, OperationError, StoreError, UsageError
    from counterfoil.keeping import Retention
    from counterfoil.ledger import Counterfoil
    from counterfoil.migrating import migrate
    from counterfoil.model import (
        Absent,
        Answered,
        CannotTell,
        Found,
        Intent,
        NotSent,
        OperationKey,
        Page,
        Receipt,
        Refused,
        Statement,
    )
    from counterfoil.policy import Policy
    from counterfoil.providing import Provider
    from counterfoil.shown import (
        Approval,
        ApprovalDetail,
        Attempt,
        Branch,
        Case,
        Evidence,
        Grant,
        Hit,
        Message,
        Operation,
        OperationDetail,
        Pause,
        Purged,
    )
    from counterfoil.verifying import Verification

_HOMES = {
    "Absent": "model",
    "Answered": "model",
    "Approval": "shown",
    "ApprovalDetail": "shown",
    "AsyncCounterfoil": "aio.ledger",
    "Attempt": "shown",
    "AttemptOutcome": "core.states",
    "Branch": "shown",
    "CannotTell": "model",
    "Case": "shown",
    "Counterfoil": "ledger",
    "CounterfoilError": "errors",
    "Delivery": "delivery",
    "Effect": "effects",
    "EffectCall": "effects",
    "Evidence": "shown",
    "Explanation": "core.explain",
    "Found": "model",
    "Grant": "shown",
    "Hit": "shown",
    "Intent": "model",
    "Message": "shown",
    "NotSent": "model",
    "Operation": "shown",
    "OperationDetail": "shown",
    "OperationError": "errors",
    "OperationKey": "model",
    "Page": "model",
    "Pause": "shown",
    "Policy": "policy",
    "Principal": "core.access",
    "Provider": "providing",
    "Purged": "shown",
    "Receipt": "model",
    "Refused": "model",
    "Retention": "keeping",
    "Role": "core.access",
    "Statement": "model",
    "StoreError": "errors",
    "UsageError": "errors",
    "Verdict": "core.states",
    "Verification": "verifying",
    "effect": "declaring",
    "migrate": "migrating",
}

__all__ = [
    "Absent",
    "Answered",
    "Approval",
    "ApprovalDetail",
    "AsyncCounterfoil",
    "Attempt",
    "AttemptOutcome",
    "Branch",
    "CannotTell",
    "Case",
    "Counterfoil",
    "CounterfoilError",
    "Delivery",
    "Effect",
    "EffectCall",
    "Evidence",
    "Explanation",
    "Found",
    "Grant",
    "Hit",
    "Intent",
    "Message",
    "NotSent",
    "Operation",
    "OperationDetail",
    "OperationError",
    "OperationKey",
    "Page",
    "Pause",
    "Policy",
    "Principal",
    "Provider",
    "Purged",
    "Receipt",
    "Refused",
    "Retention",
    "Role",
    "Statement",
    "StoreError",
    "UsageError",
    "Verdict",
    "Verification",
    "effect",
    "migrate",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
