"""The trusted context as a caller gives it: checked in one place, wherever an operation or a run is entered."""

from __future__ import annotations

from counterfoil.core.templates import validate_id
from counterfoil.errors import TenantMissing
from counterfoil.model import Trusted


def trusted_context(
    *,
    tenant: str | None,
    request_id: str | None = None,
    workflow_id: str | None = None,
    principal: str | None = None,
    thread_id: str | None = None,
    branch: str | None = None,
) -> Trusted:
    """Return the trusted context of these fields; None alone stands for one that there is not.

    Raises:
        TenantMissing: the tenant is an empty text, as where a program's setting is not set.
        InvalidId: a field is no text, empty, too long, or with NUL or a lone surrogate in it.
    """
    if tenant == "":
        raise TenantMissing(
            "The tenant is empty, so that nothing says whose this is. Pass tenant='...'. Nothing was read or done."
        )
    if tenant is not None:
        validate_id("tenant", tenant)
    if request_id is not None:
        validate_id("request_id", request_id)
    if workflow_id is not None:
        validate_id("workflow_id", workflow_id)
    if principal is not None:
        validate_id("principal", principal)
    if thread_id is not None:
        validate_id("thread_id", thread_id)
    return Trusted(
        tenant=tenant or "",
        request_id=request_id,
        workflow_id=workflow_id,
        principal=principal,
        thread_id=thread_id,
        branch=branch,
    )
