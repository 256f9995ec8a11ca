"""When a claim's lease is over: one rule for operations and threads, for who decides and for who explains."""

from __future__ import annotations


def is_over(lease_until: int, now: int) -> bool:
    """Say whether a lease has run out; both times are the database's, and the lease does not include its end."""
    return now >= lease_until
