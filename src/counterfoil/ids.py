"""Ids that are made, never derived from the clock or a position: holders, cases and minted ids."""

from __future__ import annotations

import os
import secrets
import socket


def random_id(prefix: str) -> str:
    """Return `prefix` and 80 random bits in hex."""
    return f"{prefix}_{secrets.token_hex(10)}"


def holder_name() -> str:
    """Name this process as a holder of claims: host, process and a random part.

    The random part keeps two processes apart that get the same process id in two containers.
    """
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
