"""What a crash scenario is given: a database, a provider that counts, a clock, and probes around everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from counterfoil.aio.ledger import AsyncCounterfoil
from counterfoil.core.durations import milliseconds
from counterfoil.ledger import Counterfoil
from counterfoil.storage.script import Ddl
from counterfoil.testing.grounds import FILES, Ground
from counterfoil.testing.tally import Tallied, TallyFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path

    from counterfoil.core.durations import Duration
    from counterfoil.desk import Desk
    from counterfoil.storage.script import Maker, Row, Script
    from counterfoil.testing.clock import FakeClock

T = TypeVar("T")

NOT_AT_ALL = "0s"


class ProviderPoint(StrEnum):
    """The crash points around a provider's acceptance, where no statement runs."""

    BEFORE_ACCEPT = "before-accept"
    AFTER_ACCEPT = "after-accept"


Interference: TypeAlias = Callable[[StrEnum, str], None]
"""What is called at every point with its kind and name; what it raises there is the failure."""


def no_interference(_point: StrEnum, _name: str) -> None:
    """Do nothing."""


class Operation(Protocol):
    """Whatever names an operation: an `EffectCall`, an `OperationKey`, a `Receipt`."""

    @property
    def tenant(self) -> str:
        """Return whose operation it is."""
        ...

    @property
    def operation_id(self) -> str:
        """Return its id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTraits:
    """What the counting provider can do, measured by the world's clock.

    Args:
        key_lifetime: How long a repeat of an operation is recognised and does nothing new; None for never.
        lag: How long an accepted effect stays invisible to `find`.
    """

    key_lifetime: str | timedelta | None = None
    lag: str | timedelta = "0s"


class CountingProvider:
    """A provider outside of the database: what it accepted stays accepted, whatever is rolled back or killed."""

    def __init__(
        self, tally: TallyFile, clock: FakeClock, traits: ProviderTraits, probe: Interference = no_interference
    ) -> None:
        self.tally = tally
        self._clock = clock
        self._traits = traits
        self._probe = probe

    def accept(self, operation: Operation, **body: Any) -> int:
        """Accept an effect, or recognise its key, and return its number; a crash point stands on either side."""
        name = operation.operation_id
        self._probe(ProviderPoint.BEFORE_ACCEPT, name)
        number = self._known(operation) or self._add(operation, body)
        self._probe(ProviderPoint.AFTER_ACCEPT, name)
        return number

    def find(self, operation: Operation) -> Tallied | None:
        """Return the operation's first effect, if there is one and it is visible by now."""
        since = self._clock.now_ms() - milliseconds(self._traits.lag, "lag")
        visible = (one for one in self.effects(operation) if one.body["at"] <= since)
        return next(visible, None)

    def effects(self, operation: Operation) -> list[Tallied]:
        """Return every effect that was accepted for an operation."""
        key = _key(operation.tenant, operation.operation_id)
        return [one for one in self.tally.accepted() if one.key == key]

    def count(self, operation: Operation) -> int:
        """Count the effects that were accepted for an operation: what must never exceed one."""
        return len(self.effects(operation))

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of effects by (tenant, operation id)."""
        found: dict[tuple[str, str], int] = {}
        for one in self.tally.accepted():
            whose = (one.body["tenant"], one.body["operation_id"])
            found[whose] = found.get(whose, 0) + 1
        return found

    def _known(self, operation: Operation) -> int | None:
        if self._traits.key_lifetime is None:
            return None
        since = self._clock.now_ms() - milliseconds(self._traits.key_lifetime, "key_lifetime")
        return next((one.number for one in self.effects(operation) if one.body["at"] >= since), None)

    def _add(self, operation: Operation, body: dict[str, Any]) -> int:
        whose = {"tenant": operation.tenant, "operation_id": operation.operation_id, "at": self._clock.now_ms()}
        return self.tally.accept("effect", _key(operation.tenant, operation.operation_id), {**body, **whose})


def _queried(query: str) -> Script[Sequence[Row]]:
    rows: Sequence[Row] = yield Ddl(query)
    return rows


def _key(tenant: str, operation_id: str) -> str:
    return f"{len(tenant)}:{tenant}/{operation_id}"


@dataclass(slots=True)
class World:
    """One process's view of the outside: its database, its provider, its clock.

    What is opened through it carries the probe and the clock, provides the `CountingProvider` as a resource
    (`call.resource(CountingProvider)` in an effect), and is closed by the kit.
    """

    folder: Path
    clock: FakeClock
    traits: ProviderTraits
    probe: Interference = no_interference
    ground: Ground = FILES
    provider: CountingProvider = field(init=False)
    opened: list[Counterfoil | AsyncCounterfoil] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the provider."""
        self.provider = CountingProvider(TallyFile(self.folder / "tally"), self.clock, self.traits, self.probe)

    @property
    def url(self) -> str:
        """Return the database URL."""
        return self.ground.url(self.folder)

    def open(self, *, wait: Duration = NOT_AT_ALL) -> Counterfoil:
        """Open a Counterfoil, as a process of its own would.

        Args:
            wait: How long its callers wait for others; where nobody else runs, a claim in the way is told at once.
        """
        opened = Counterfoil(self._desk(wait))
        self._provide(opened)
        return opened

    def open_async(self, *, wait: Duration = NOT_AT_ALL) -> AsyncCounterfoil:
        """Open a Counterfoil for the running event loop."""
        opened = AsyncCounterfoil(self._desk(wait))
        self._provide(opened)
        return opened

    def read(self, maker: Maker[T]) -> T:
        """Read from the database where no crash point stands."""
        return self.ground.read(self.folder, self.clock, maker)

    def rows(self, query: str) -> Sequence[Row]:
        """Return the rows of a query, which no crash point disturbs."""
        return self.read(lambda: _queried(query))

    def entered_again(self, probe: Interference) -> World:
        """Return the same outside as another process sees it."""
        return World(self.folder, self.clock, self.traits, probe, self.ground)

    def _desk(self, wait: Duration) -> Desk:
        return self.ground.desk(self.folder, wait=wait, clock=self.clock, probe=self.probe)

    def _provide(self, opened: Counterfoil | AsyncCounterfoil) -> None:
        opened.resources.provide(CountingProvider, lambda: self.provider)
        opened.resources.provide(World, lambda: self)
        self.opened.append(opened)

    def close(self) -> None:
        """Close what was opened for blocking callers."""
        blocking = [each for each in self.opened if isinstance(each, Counterfoil)]
        for each in blocking:
            self.opened.remove(each)
            each.close()

    async def aclose(self) -> None:
        """Close everything that was opened."""
        self.close()
        while self.opened:
            each = self.opened.pop()
            if isinstance(each, AsyncCounterfoil):
                await each.close()
