"""LangGraph graphs on top of the ledger: effects in nodes and tools, waits and approvals, checkpoints under a claim.

Needs the extra `langgraph`: pip install 'counterfoil[langgraph]'.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from counterfoil.langgraph.agents import ProtectTools
    from counterfoil.langgraph.protecting import effect_of, protect

__all__ = [
    "Decision",
    "ProtectTools",
    "aapprove",
    "aenqueue",
    "amint",
    "aperform",
    "approve",
    "asleep_for",
    "asleep_until",
    "asleep_until_next",
    "await_for",
    "effect_of",
    "enqueue",
    "for_server",
    "mint",
    "perform",
    "protect",
    "retry_on",
    "sleep_for",
    "sleep_until",
    "sleep_until_next",
    "wait_for",
]

_LATER = {"ProtectTools": "agents", "effect_of": "protecting", "protect": "protecting"}
"""Names that are loaded on first use: most graphs have no tools, and agents take a second to import."""


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value
