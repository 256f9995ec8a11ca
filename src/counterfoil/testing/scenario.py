"""Crash scenarios: what happens in a world, how it recovers, and what must be true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from counterfoil.core.states import OperationState
from counterfoil.storage.scripts import inspection
from counterfoil.testing.invariants import ledger_invariants
from counterfoil.testing.world import ProviderTraits, World

if TYPE_CHECKING:
    from counterfoil.storage.scripts.inspection import Contents

Body: TypeAlias = Callable[[World], Any]
"""A function, or a coroutine function, that opens a Counterfoil in the world and does something with it."""


@dataclass(frozen=True)
class Aftermath:
    """A world after recovery, to be judged."""

    world: World
    scenario: Scenario

    @cached_property
    def contents(self) -> Contents:
        """Read the whole ledger."""
        return self.world.read(inspection.everything)


Check: TypeAlias = Callable[[Aftermath], Iterable[str]]
"""Says in one line each what should not be so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that happens and must survive a crash at every point.

    Args:
        name: What reports call it.
        run: What happens; it is run once undisturbed and then once for each crash point.
        recover: What is entered after the crash; by default `run` again.
        prepare: Makes the state in which every run begins; not crashed.
        checks: What must be true after recovery; by default the invariants of the ledger.
        traits: What the counting provider can do.
        operations: How many operations there must be after recovery.
        may_end: The states in which an operation may honestly be after recovery.
        patience: How far the clock moves before each entry of the recovery: beyond lease, deadline and lag.
        entries: How often recovery is entered; those after the first that settles must change nothing.
        fresh: Start without a schema; otherwise with the present one and no rows.
        ordered: Every run passes its points in the same order; False where threads of the scenario's own write.
    """

    name: str
    run: Body
    recover: Body | None = None
    prepare: Body | None = None
    checks: tuple[Check, ...] = (ledger_invariants,)
    traits: ProviderTraits = field(default_factory=ProviderTraits)
    operations: int = 1
    may_end: frozenset[OperationState] = frozenset({OperationState.SUCCEEDED})
    patience: str = "2m"
    entries: int = 3
    fresh: bool = False
    ordered: bool = True

    @property
    def recovering(self) -> Body:
        """Return what is entered after the crash."""
        return self.recover or self.run
