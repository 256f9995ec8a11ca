"""Transactional effects on an event loop: how their steps and their bodies are awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.active import inside

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from counterfoil.performing import Job
    from counterfoil.transacting import Body, Protocol, Step

T = TypeVar("T")


async def arun(protocol: Protocol[T], do: Callable[[Step], Awaitable[Any]]) -> T:
    """Carry out the steps on an event loop, giving each answer or error back."""
    try:
        step = next(protocol)
        while True:
            try:
                answer = await do(step)
            except Exception as error:  # noqa: BLE001 - thrown in, to be judged there
                step = protocol.throw(error)
            else:
                step = protocol.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def awaiting_body(job: Job) -> Body:
    """Return an async transactional effect's function, which stays on its loop and within its time limit."""

    async def effect(transaction: Any) -> Any:
        with inside(f"effect {job.effect.name}"):
            async with asyncio.timeout(job.effect.facts.time_limit / 1000):  # it holds what others wait for
                return await job.effect.function(transaction, **job.bound.arguments)

    return effect
