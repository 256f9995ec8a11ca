"""The idempotency key that a provider is given for an operation: derived, so that it survives a restore."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from counterfoil.model import OperationKey

KEY_LENGTH: Final = 64
"""Hex digits of the derived key; Adyen takes 64 characters, Amazon Pay 32, Stripe 255."""
SHORTEST_KEY: Final = 32
"""Fewer digits could not keep two operations apart."""
_HEX = frozenset("0123456789abcdef")


def provider_key(key: OperationKey, length: int = KEY_LENGTH) -> str:
    """Return the key for an operation, cut to the length that its provider takes."""
    tenant, operation_id = key.tenant.encode(), key.operation_id.encode()
    sized = len(tenant).to_bytes(4) + tenant + len(operation_id).to_bytes(4) + operation_id
    digest = hashlib.sha256(sized).hexdigest()
    return digest[: min(length, KEY_LENGTH)]


def could_be_provider_key(text: str) -> bool:
    """Say whether a text has the form of such a key."""
    return SHORTEST_KEY <= len(text) <= KEY_LENGTH and set(text) <= _HEX
