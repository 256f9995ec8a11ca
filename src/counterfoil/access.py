"""Who acts: a name that code passes, or a principal whose role and tenant must permit the act. Asked of every call."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, assert_never

from counterfoil.core.access import (
    Act,
    Actor,
    AnotherTenants,
    NotInRole,
    OneTenantsOnly,
    Permitted,
    Principal,
    canonical,
    decide_access,
)
from counterfoil.core.arguments import CALLED, plain
from counterfoil.errors import NotAllowed, TenantNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.errors import CounterfoilError


def acting(
    by: str | Principal, *, act: Act, tenant: str | None, unknown: Callable[[], CounterfoilError] | None = None
) -> Actor:
    """Return who acts within a tenant (None: all of them), as it is stored.

    Args:
        by: A name, from code that may do everything, or a principal.
        act: The kind of act.
        tenant: The tenant of the call.
        unknown: Makes the error of an unknown id; raised where the tenant is another one than the principal's.

    Raises:
        NotAllowed: the principal's role does not permit the act.
        TenantNotFound: the tenant is another one, and `unknown` is not given.
        InvalidId: the name cannot be stored.
    """
    if not isinstance(by, Principal):
        return Actor(who=canonical(CALLED.words("by", by)), shown=name_of(by))  # the name itself: shown, it is escaped
    match decide_access(by, act, tenant):
        case Permitted():
            return Actor(who=canonical(by.name), shown=name_of(by), role=by.role, token_id=by.token_id)
        case AnotherTenants():
            raise tenant_not_found(tenant or "") if unknown is None else unknown()
        case OneTenantsOnly():
            raise not_allowed(by, act, f"is here for tenant {by.tenant} alone, and this is about all tenants")
        case NotInRole():
            raise not_allowed(by, act, _lacks(by, act))
        case other:
            assert_never(other)


def name_of(by: str | Principal) -> str:
    """Return the name of who acts, as it is shown."""
    return plain(by.name if isinstance(by, Principal) else CALLED.words("by", by))


def is_of_another(by: str | Principal, tenant: str) -> bool:
    """Say whether who acts is here for another tenant than this one."""
    return isinstance(by, Principal) and isinstance(decide_access(by, Act.READ, tenant), AnotherTenants)


def _lacks(by: Principal, act: Act) -> str:
    narrowed = "" if by.scopes is None else f" with the scopes {', '.join(sorted(by.scopes))}"
    return f"is {by.role}{narrowed}, which does not permit to {act}"


def not_allowed(by: Principal, act: Act, why: str) -> NotAllowed:
    """Say who may not do what, and why."""
    return NotAllowed(
        f"{name_of(by)} {why}. Nothing was changed. Let somebody do it whose role permits it, or issue a token that"
        " does: counterfoil tokens issue --help",
        act=str(act),
        principal=name_of(by),
    )


def tenant_not_found(tenant: str) -> TenantNotFound:
    """Say that there is no such tenant; another one's is told in the same words."""
    return TenantNotFound(
        f"There is no tenant {tenant} here. Nothing was changed. Check the name; see those that there are with:"
        " counterfoil tenants list",
        tenant=tenant,
    )


def system_user() -> str:
    """Return the operating-system user; a container may have none by name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
