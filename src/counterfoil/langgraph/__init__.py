"""LangGraph graphs on top of the ledger: perform or enqueue effects in nodes, mint ids, checkpoints under a claim.

Needs the extra `langgraph`: pip install 'counterfoil[langgraph]'.
"""

from __future__ import annotations

from counterfoil.errors import MissingExtra
from counterfoil.extras import install_line

try:
    import langgraph.graph  # noqa: F401 - whether it is installed
except ModuleNotFoundError as missing:
    raise MissingExtra(
        f"counterfoil.langgraph needs {missing.name}, which is not installed. Install it with:"
        f" {install_line('counterfoil[langgraph]')}"
    ) from None

from counterfoil.langgraph.approve import aapprove, approve
from counterfoil.langgraph.compile import for_server
from counterfoil.langgraph.decisions import Decision
from counterfoil.langgraph.enqueue import aenqueue, enqueue
from counterfoil.langgraph.mint import amint, mint
from counterfoil.langgraph.perform import aperform, perform, retry_on
from counterfoil.langgraph.waits import (
    asleep_for,
    asleep_until,
    asleep_until_next,
    await_for,
    sleep_for,
    sleep_until,
    sleep_until_next,
    wait_for,
)

__all__ = [
    "Decision",
    "aapprove",
    "aenqueue",
    "amint",
    "aperform",
    "approve",
    "asleep_for",
    "asleep_until",
    "asleep_until_next",
    "await_for",
    "enqueue",
    "for_server",
    "mint",
    "perform",
    "retry_on",
    "sleep_for",
    "sleep_until",
    "sleep_until_next",
    "wait_for",
]
