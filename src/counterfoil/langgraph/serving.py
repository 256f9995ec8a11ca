"""Under LangGraph's own server: what it says of a run, and what of that is trusted.

The server makes the configurations, so no object of ours can travel in them. It names the run and counts its attempts:
when it starts another attempt it holds the last one for dead, and the claim follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from counterfoil.core.templates import validate_id
from counterfoil.core.workflows import ServedRun
from counterfoil.errors import InvalidArguments
from counterfoil.langgraph.context import conf_of
from counterfoil.model import Trusted

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

Trust: TypeAlias = Callable[["RunnableConfig"], Mapping[str, str | None]]
"""Picks the trusted fields out of a configuration that the server made: code of whoever runs the server."""

FIELDS = ("request_id", "workflow_id", "principal")


def served_run(config: Mapping[str, Any]) -> ServedRun | None:
    """Return what the server says of a run, or None for a run of somebody else."""
    metadata = config.get("metadata") or {}
    run_id, attempt = metadata.get("run_id") or conf_of(config).get("run_id"), metadata.get("run_attempt")
    if run_id is None or type(attempt) is not int:
        return None
    return ServedRun(validate_id("run id", str(run_id)), attempt)


def checked_trust(trust: object) -> Any:
    """Return the function that picks the trusted fields, or None.

    Raises:
        InvalidArguments: it is no function.
    """
    if trust is not None and not callable(trust):
        raise InvalidArguments(
            "trust=... of cf.saver is a function that takes a run's configuration and returns its trusted fields, not"
            f" {type(trust).__qualname__}."
        )
    return trust


def trusted_from(tenant: str, trust: Trust | None, config: Mapping[str, Any]) -> Trusted:
    """Return what is trusted in a run whose configuration the server made.

    Raises:
        InvalidArguments: something else than trusted fields was returned; the tenant is the saver's.
        InvalidId: one cannot be stored.
    """
    found: Any = {} if trust is None else trust(config)  # type: ignore[arg-type]  # a configuration is a mapping
    if not isinstance(found, Mapping) or not found.keys() <= set(FIELDS):
        named = ", ".join(map(repr, found)) if isinstance(found, Mapping) else type(found).__qualname__
        raise InvalidArguments(
            f"trust=... of cf.saver returned {named}; it returns a mapping with any of {', '.join(FIELDS)}. The tenant"
            " is the saver's own: cf.saver(tenant=...)."
        )
    given = {name: validate_id(name, value) for name, value in found.items() if value is not None}
    return Trusted(tenant=tenant, **given)
