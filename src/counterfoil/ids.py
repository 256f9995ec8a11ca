"""Ids that are made, never derived from the clock or a position: holders and minted ids."""

from __future__ import annotations

import secrets


def random_id(prefix: str) -> str:
    """Return `prefix` and 80 random bits in hex."""
    return f"{prefix}_{secrets.token_hex(10)}"
