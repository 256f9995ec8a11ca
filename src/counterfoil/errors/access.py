"""Somebody may not do that, or must not learn whether it is there."""

from __future__ import annotations

from counterfoil.errors.root import CounterfoilError
from counterfoil.exits import Exit


class AccessError(CounterfoilError):
    """Somebody may not do that, or must not learn whether it is there."""


class NotAllowed(AccessError):
    """Who asks may not do this: the role, or what its scopes leave of it, does not permit the act."""

    code = "not-allowed"
    exit = Exit.NOT_ALLOWED
    act: str


class TenantNotFound(AccessError):
    """No tenant of this name was created, or it is another one than the caller's."""

    code = "tenant-not-found"
    exit = Exit.NOT_FOUND
    tenant: str
