"""Carry out the actions that a generator yields, in both colours: each answer or error goes back into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T")


def drive(actions: Generator[A, Any, T], connection: C, do: Callable[[C, A], Any]) -> T:
    """Carry out actions on one connection to their end."""
    try:
        action = next(actions)
        while True:
            try:
                answer = do(connection, action)
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = actions.throw(error)
            else:
                action = actions.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        actions.close()


async def adrive(actions: Generator[A, Any, T], connection: C, do: Callable[[C, A], Awaitable[Any]]) -> T:
    """Carry out actions on one connection of an event loop to their end."""
    try:
        action = next(actions)
        while True:
            try:
                answer = await do(connection, action)
            except BaseException as error:  # noqa: BLE001 - thrown in, to be judged there
                action = actions.throw(error)
            else:
                action = actions.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        actions.close()
