"""Carry out the actions that a generator yields, in both colours: each answer or error goes back into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

A = TypeVar("A")
T = TypeVar("T")


def drive(actions: Generator[A, Any, T], do: Callable[[A], Any]) -> T:
    """Carry out actions to their end."""
    try:
        action = next(actions)
        while True:
            try:
                answer = do(action)
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = actions.throw(error)
            else:
                action = actions.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        actions.close()


async def adrive(actions: Generator[A, Any, T], do: Callable[[A], Awaitable[Any]]) -> T:
    """Carry out actions on an event loop to their end."""
    try:
        action = next(actions)
        while True:
            try:
                answer = await do(action)
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = actions.throw(error)
            else:
                action = actions.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        actions.close()
