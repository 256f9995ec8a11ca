"""gRPC: what its exceptions mean; nothing of it is imported.

`UNAVAILABLE` is raised for a connection that never stood and for a reply that was lost, and only the text tells them
apart: it is unknown. So is `RESOURCE_EXHAUSTED`, which the client itself raises for a reply that is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from counterfoil.core.states import AttemptOutcome
from counterfoil.model import Refused
from counterfoil.providers.tables import Table

if TYPE_CHECKING:
    from counterfoil.providers.tables import Judgement

NO_RETRIES: Final = (("grpc.enable_retries", 0),)
"""Channel options that switch off the retries of a service configuration: `insecure_channel(target, NO_RETRIES)`."""

CONTENT: Final = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"})
"""Codes by which a service refuses what was asked."""

DOOR: Final = frozenset({"NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"})
"""Codes that refuse this try and say nothing of an earlier one."""


def _judge(error: BaseException) -> Judgement | None:
    call: Any = error
    if not callable(getattr(error, "code", None)):
        return None
    name = getattr(call.code(), "name", None)
    if name in CONTENT:
        return AttemptOutcome.REFUSED
    return Refused(covers_earlier=False) if name in DOOR else AttemptOutcome.UNKNOWN


TABLE: Final = Table(
    client="grpc",
    not_sent=frozenset(),
    unknown=frozenset({"grpc.RpcError", "grpc.FutureTimeoutError", "grpc.FutureCancelledError"}),
    judge=_judge,
    by_structure=(
        (f"`RpcError` with {', '.join(f'`{each}`' for each in sorted(CONTENT | DOOR))}", "refused"),
        ("`RpcError` with any other code, `UNAVAILABLE` too", "unknown"),
    ),
)
