"""Workflows that are due here, in a version of their graph that this process does not register."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from counterfoil.errors import GraphMismatch
from counterfoil.storage.scripts import workflows
from counterfoil.storage.tenants import ALL_TENANTS

if TYPE_CHECKING:
    from counterfoil.desk import Desk
    from counterfoil.storage.scripts.workflows import Due

LOG = logging.getLogger("counterfoil.workflows")
TOLD = GraphMismatch.__name__


async def tell_stranded(desk: Desk, *, limit: int) -> None:
    """Let workflows say so in their rows that are due, and whose graph is registered here in other versions alone.

    They stay due: a worker that has their version, as there is while a new one is rolled out, enters them at once.
    """
    newest = {name: graph for (name, _), graph in sorted(desk.graphs.items(), key=lambda known: known[0])}
    for name, graph in newest.items():
        found = await desk.async_store.read(
            partial(workflows.find_stranded, name, error_class=TOLD, limit=limit), tenant=ALL_TENANTS
        )
        for due in found:
            if (name, due.graph_version) not in desk.graphs:
                await _tell(desk, due, graph)


async def _tell(desk: Desk, due: Due, graph: Any) -> None:
    kept = await desk.async_store.read(partial(workflows.entry, due.key), tenant=due.key.tenant)
    told = () if kept is None else graph.differences(kept.shape)
    differs = f", and differs: {'; '.join(told)}" if told else ""
    text = (
        f"It began in {graph.name} version {due.graph_version}, which is not registered here; version {graph.version}"
        f" is{differs}. Register the graph that it began in under its version, beside the newer one."
    )
    LOG.warning("workflow %s of tenant %s: %s", due.key.thread_id, due.key.tenant, text)
    await desk.async_store.write(partial(workflows.note, due, error_class=TOLD, error_text=text), tenant=due.key.tenant)
