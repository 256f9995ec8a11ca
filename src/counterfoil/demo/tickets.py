"""Play the thirteen situations in both columns, a few at a time, and gather what the server counted."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Final

from counterfoil.demo.places import TENANTS, Places
from counterfoil.demo.situations import SITUATIONS, Situation
from counterfoil.demo.stage import Stage
from counterfoil.demo.steps import COLUMNS, Column, Report, Step
from counterfoil.errors import MissingExtra
from counterfoil.extras import install_line
from counterfoil.testing.provider_client import CountingProvider, ProviderClient

LANES: Final = 3
"""Situations under way at once, each with a ticket server of its own: a demo process is idle for part of its life."""

_NEEDED: Final = ("httpx", "langgraph.graph", "langgraph.checkpoint.sqlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One situation in one column: what the server counted after each step, and how the runs ended."""

    counts: tuple[int, ...]
    reports: tuple[Report, ...]

    @property
    def tickets(self) -> int:
        """Return what the server counted in the end."""
        return self.counts[-1]

    @property
    def before(self) -> int:
        """Return what the server had counted before the last step."""
        return self.counts[-2]

    @property
    def unknown(self) -> int:
        """Count the runs that were parked because nobody can know the outcome."""
        return sum(report.end == "parked" for report in self.reports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How often a node ran, what the server counted before and after the resume, and the receipts the node saw."""

    node_calls: int
    before: int
    after: int
    receipts: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.node_calls}/{self.before}/{self.after} {list(self.receipts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One situation in both columns."""

    situation: Situation
    plain: Played
    counterfoil: Played

    @property
    def keeps_promise(self) -> bool:
        """Say whether Counterfoil's side is what it must be, the way its runs ended included."""
        ends = sorted(report.end for report in self.counterfoil.reports)
        counted = (self.counterfoil.tickets, self.counterfoil.unknown)
        waited = not self.situation.asks_again or self.counterfoil.before == 0
        right = counted == (self.situation.requests, self.situation.unknown)
        return right and waited and ends == sorted(self.situation.ends)

    def replays(self) -> dict[Column, Replay]:
        """Return the details of a situation of two steps, for both columns."""
        return {"plain": replay(self.plain), "counterfoil": replay(self.counterfoil)}


def play_all(places: Places) -> list[Row]:
    """Play all situations.

    Raises:
        DemoBroken: a demo process did what no situation provides for.
    """
    servers: SimpleQueue[ProviderClient] = SimpleQueue()
    providers = [CountingProvider() for _ in range(LANES)]
    for provider in providers:
        servers.put(provider)
    try:
        with ThreadPoolExecutor(LANES) as lanes:
            return list(lanes.map(lambda situation: _play(situation, places, servers), SITUATIONS))
    finally:
        for provider in providers:
            provider.close()


def check_extra(needed: Sequence[str] = _NEEDED) -> None:
    """Refuse to start without a demo's requirements.

    Raises:
        MissingExtra: they are not installed.
    """
    if missing := [name for name in needed if not _is_installed(name)]:
        raise MissingExtra(
            f"The demo needs {', '.join(missing)}, which is not installed. Install it with:"
            f" {install_line('counterfoil[demo]')}"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even its parent package
        return False


def _play(situation: Situation, places: Places, servers: SimpleQueue[ProviderClient]) -> Row:
    server = servers.get()
    try:
        played = {column: _play_column(situation, column, places, server) for column in COLUMNS}
    finally:
        servers.put(server)
    return Row(situation=situation, **played)


def _play_column(situation: Situation, column: Column, places: Places, server: ProviderClient) -> Played:
    server.reset()
    server.configure(situation.server)
    stage = Stage(server, _step(situation, column, places, server.url))
    situation.play(stage)
    return Played(counts=tuple(stage.counts), reports=tuple(stage.reports))


def _step(situation: Situation, column: Column, places: Places, url: str) -> Step:
    return Step(
        column=column,
        url=url,
        database=places.database(column, situation),
        tenant=TENANTS[0],
        tenant_prefix=places.prefix,
        request_id=situation.slug,
        thread_id=situation.slug,
    )


def replay(played: Played) -> Replay:
    """Put together what two steps of one situation saw."""
    before, after = played.counts
    return Replay(
        node_calls=sum(report.calls for report in played.reports),
        before=before,
        after=after,
        receipts=tuple(number for report in played.reports for number in report.receipts),
    )
