"""Read a transition table: advance, what is legal, and the diagram's source."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from counterfoil.core.states import Table

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class IllegalTransition(RuntimeError):
    """An event that the table does not list for the state: a defect of this package, never of its user."""


def advance(table: Table[S, E], state: S, event: E) -> S:
    """Return the state after `event`.

    Raises:
        IllegalTransition: the table does not list the pair.
    """
    for row in table:
        if row.state == state and row.event == event:
            return row.next
    raise IllegalTransition(f"{event} is not possible in state {state}")


def legal(table: Table[S, E], state: S) -> frozenset[E]:
    """Return the events that are possible in `state`."""
    return frozenset(row.event for row in table if row.state == state)


def sources(table: Table[S, E], event: E) -> frozenset[S]:
    """Return the states in which `event` is possible."""
    return frozenset(row.state for row in table if row.event == event)


def diagram(table: Table[S, E]) -> str:
    """Return the table as a Mermaid state diagram."""
    lines = [f"    {row.state} --> {row.next}: {row.event.replace('_', ' ')}" for row in table]
    return "\n".join(["stateDiagram-v2", *lines])
