"""Transactional effects on an event loop: how their bodies are awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from counterfoil.active import inside

if TYPE_CHECKING:
    from counterfoil.performing import Job
    from counterfoil.transacting import Body


def awaiting_body(job: Job) -> Body:
    """Return an async transactional effect's function, which stays on its loop and within its time limit."""

    async def effect(transaction: Any) -> Any:
        with inside(f"effect {job.effect.name}"):
            async with asyncio.timeout(job.effect.facts.time_limit / 1000):  # it holds what others wait for
                return await job.effect.function(transaction, **job.bound.arguments)

    return effect
