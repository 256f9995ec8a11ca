"""What the crash kit found: one run for each crash point, and what was wrong after recovery."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One place where a scenario can be cut short; numbered from 1 in the order of an undisturbed run.

    `occurrence` counts the places of one kind and name, which finds a place again where threads take turns otherwise.
    """

    number: int
    kind: str
    name: str
    occurrence: int = 1

    def is_same(self, other: CrashPoint) -> bool:
        """Say whether it is the same place, in whatever order the others came."""
        return (self.kind, self.name, self.occurrence) == (other.kind, other.name, other.occurrence)

    def __str__(self) -> str:
        return f"#{self.number} {self.kind} {self.name}".rstrip()


class Manner(StrEnum):
    """How the scenario is cut short."""

    UNDISTURBED = "undisturbed"
    CRASH = "crash"
    COMMIT_LOST = "commit-lost"
    KILL = "kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a scenario, its recovery, and the judgement.

    `outcome` and each of `recovered` is `returned`, `crashed`, `killed` or an error's class name; `states` are the
    operations' at the end.
    """

    manner: Manner
    point: CrashPoint | None = None
    outcome: str
    recovered: tuple[str, ...]
    states: tuple[str, ...]
    violations: tuple[str, ...]

    def __str__(self) -> str:
        where = f"{self.manner} at {self.point}" if self.point else str(self.manner)
        return f"{where}: {self.outcome}, then {', '.join(self.recovered)}; ends {', '.join(self.states) or '-'}"


class ScenarioViolated(AssertionError):
    """A scenario did not survive all of its crash points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All runs of one scenario; the first is the undisturbed one."""

    scenario: str
    points: tuple[CrashPoint, ...]
    runs: tuple[Run, ...]

    @property
    def violating(self) -> tuple[Run, ...]:
        """Return the runs after which something was wrong."""
        return tuple(run for run in self.runs if run.violations)

    @property
    def violations(self) -> tuple[str, ...]:
        """Return everything that was wrong."""
        return tuple(violation for run in self.violating for violation in run.violations)

    @property
    def states(self) -> Counter[str]:
        """Count in which states operations ended, over all runs."""
        return Counter(state for run in self.runs for state in run.states)

    def raise_if_violated(self) -> None:
        """Raise if anything was wrong after any crash.

        Raises:
            ScenarioViolated: something was; the text says what and where.
        """
        if self.violations:
            raise ScenarioViolated(str(self))

    def __str__(self) -> str:
        ends = ", ".join(f"{state} {n}" for state, n in sorted(self.states.items()))
        head = f"{self.scenario}: {len(self.points)} points, {len(self.runs)} runs, {len(self.violating)} violated"
        lines = [f"{head}; ends: {ends}" if ends else head]
        for run in self.violating:
            lines += [f"  {run}", *(f"    {violation}" for violation in run.violations)]
        return "\n".join(lines)
