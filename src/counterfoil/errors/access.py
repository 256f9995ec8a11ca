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


class TenantExists(AccessError):
    """A tenant was to be created that is there under another name."""

    code = "tenant-exists"
    exit = Exit.CONFLICT
    tenant: str


class TokenRefused(AccessError):
    """A token is not honoured: unknown, mistyped, expired, revoked, or of a suspended tenant; never said which."""

    code = "token-refused"
    exit = Exit.NOT_ALLOWED


class TokenNotFound(AccessError):
    """No token with this public id exists, or it is another tenant's."""

    code = "token-not-found"
    exit = Exit.NOT_FOUND
    token_id: str


class TokenEnded(AccessError):
    """A token that was to be rotated is expired or revoked, or another one has its place."""

    code = "token-ended"
    exit = Exit.CONFLICT
    token_id: str
