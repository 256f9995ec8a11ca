"""Trusted fields that are given in two places at once: alike they are fine, and no place wins over another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.errors import TrustedFieldMismatch
from counterfoil.langgraph.context import Context, carried, conf_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def said_by(config: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the trusted fields that a configuration was given for a run; that of a node says where the node is."""
    found = carried(config or {})
    if found is not None and not isinstance(found, Context):
        return {}
    fields = dict(found.trusted.fields()) if found is not None and not found.of_saver else {}
    thread = conf_of(config).get("thread_id")
    fields.pop("thread_id", None)  # in a branch it is what keys call the thread, and not its id
    return fields if thread is None else {**fields, "thread_id": str(thread)}


def agreed(given: Mapping[str, str], config: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the fields that are given together with those that a configuration brings.

    Raises:
        TrustedFieldMismatch: both say one field, and not the same.
    """
    brought = said_by(config)
    for name in given.keys() & brought.keys():
        if given[name] != brought[name]:
            raise TrustedFieldMismatch(
                f"{name} is given twice, and the configuration says another one. Nothing was run. Give it in one place:"
                " as an argument of cf.run or cf.config, or in the configuration.",
                field=name,
            )
    return {**brought, **given}


def refuse_other(bound: Mapping[str, Any] | None, config: Mapping[str, Any] | None) -> None:
    """Refuse a context for a graph that is bound to another one, as `graph.with_config(cf.config(...))` is.

    Raises:
        TrustedFieldMismatch: they differ in a field that both have.
    """
    if bound and isinstance(carried(bound), Context) and isinstance(carried(config or {}), Context):
        agreed(said_by(bound), config)
