"""The matrix: the hiring workflow once undisturbed, then once for each place at which its worker can be killed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, Literal
from urllib.parse import quote

from counterfoil import Counterfoil
from counterfoil.demo.hiring.cuts import (
    INTENT,
    OUTCOME,
    SIDES,
    AtCommit,
    Cut,
    Idle,
    InCharge,
    InMail,
    InReport,
    at_commits,
    told,
)
from counterfoil.demo.hiring.office import Office
from counterfoil.demo.hiring.team import TeamTrial, at_random
from counterfoil.demo.hiring.timeline import MOMENTS
from counterfoil.demo.hiring.trial import Done, Left, Servers, Trial
from counterfoil.demo.places import Places
from counterfoil.desk import EMBEDDED
from counterfoil.engine.choosing import made_for
from counterfoil.testing.mail_client import CountingMailServer
from counterfoil.testing.provider_client import CountingProvider

Store = Literal["sqlite", "postgresql"]

LANES: Final = 2
"""Runs under way at once where each has a file of its own; in one database they would see each other's time."""
UNDER_WAY: Final = frozenset({(INTENT, "after"), (OUTCOME, "before")})
"""Where an attempt is under way: its provider may have acted by then, and nobody has noted it."""
RANDOM_KILLS, FEW_KILLS = 6, 1
"""Kills where chance has it; each costs the time in which an engine notices a death."""
GATEWAY: Final = "counterfoil.testing.gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """Where the worker is killed, and what must come of it.

    Args:
        cut: The place.
        honours_keys: Whether the payment gateway is one that honours keys.
        reviews: Cases that a person must settle: one where the provider of the effect under way can do nothing. None
            where it is left to chance which effect is under way: then one at the most.
    """

    cut: Cut
    honours_keys: bool = True
    reviews: int | None = 0

    @property
    def name(self) -> str:
        """Name it for the table."""
        text = told(self.cut, lambda number: MOMENTS[number].label)
        return text if self.honours_keys else f"{text}; a gateway without keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What was counted after the worker was killed at one place."""

    engine: str
    store: Store
    point: KillPoint
    mails_max: int
    charges: int
    reviews: int
    same_final_state: bool

    @property
    def keeps_promise(self) -> bool:
        """Say whether it is one mail and one charge at the most, the same end, and a review only where one must be."""
        allowed = {0, 1} if self.point.reviews is None else {self.point.reviews}
        return (self.mails_max, self.charges) == (1, 1) and self.reviews in allowed and self.same_final_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The undisturbed run, and a cell for each kill point."""

    undisturbed: Left
    cells: tuple[Cell, ...]

    @property
    def bad(self) -> tuple[Cell, ...]:
        """Return the cells in which something is wrong."""
        return tuple(cell for cell in self.cells if not cell.keeps_promise)

    @property
    def keeps_promise(self) -> bool:
        """Say whether no cell is bad, and the undisturbed run itself is as it must be."""
        first = self.undisturbed
        counted = (first.mails_max, first.charges, first.reviews, first.state["status"])
        return counted == (1, 1, 0, "done") and bool(self.cells) and not self.bad


# --- where ------------------------------------------------------------------------------------------------------------


def kill_points(done: Sequence[Done], *, honours_keys: bool = True) -> list[KillPoint]:
    """Return every place at which a worker of the undisturbed run can be killed."""
    return [
        KillPoint(cut=cut, honours_keys=honours_keys, reviews=_reviews(cut, done[cut.moment]))
        for number, one in enumerate(done)
        for cut in _cuts(number, one)
    ]


def _cuts(moment: int, done: Done) -> Iterator[Cut]:
    yield from at_commits(moment, done.committed)
    yield from (InMail(moment, address, subject) for address, subject in done.mails)
    if done.charges:
        yield InCharge(moment)
    if any(name.endswith("/report") for name in done.operations):
        yield InReport(moment)
    yield Idle(moment)


def _reviews(cut: Cut, done: Done) -> int:
    """Say whether an attempt is under way there whose provider can neither repeat it harmlessly nor be asked."""
    match cut:
        case AtCommit(_, what, number, side) if (what, side) in UNDER_WAY:
            return int(number in [n for n, is_opaque in enumerate(done.opaque, 1) if is_opaque])
        case InMail():
            return 1
        case InCharge():
            return int(done.opaque[_fee(done) - 1])
        case _:
            return 0


def _fee(done: Done) -> int:
    """Return the number of the fee among the operations of its moment."""
    return 1 + next(n for n, name in enumerate(done.operations) if name.endswith("/fee"))


def of_the_fee(done: Sequence[Done]) -> list[KillPoint]:
    """Return the places around the charge, for a gateway that honours no keys."""
    (moment,) = (number for number, one in enumerate(done) if one.charges)
    number = _fee(done[moment])
    cuts: list[Cut] = [AtCommit(moment, what, number, side) for what in (INTENT, OUTCOME) for side in SIDES]
    return [
        KillPoint(cut=cut, honours_keys=False, reviews=_reviews(cut, done[moment])) for cut in [*cuts, InCharge(moment)]
    ]


def a_few(points: Sequence[KillPoint]) -> list[KillPoint]:
    """Return the first place of each kind; before the commit of most things is after that of another one."""
    first: dict[object, KillPoint] = {}
    for point in points:
        first.setdefault((_kind(point.cut), point.honours_keys), point)
    return [point for point in first.values() if _kind(point.cut) is not None]


def _kind(cut: Cut) -> object:
    match cut:
        case AtCommit(what=what, side=side):
            return (what, side) if side == "after" or what in {INTENT, OUTCOME} else None
        case _:
            return type(cut)


# --- playing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where runs take place, and under which engine."""

    places: Places
    engine: str = "embedded"

    @property
    def store(self) -> Store:
        """Name the kind of database."""
        return "postgresql" if self.places.url.startswith("postgres") else "sqlite"

    @property
    def lanes(self) -> int:
        """Return how many runs may be under way at once."""
        return 1 if self.places.is_named else LANES

    def office(self, name: str, servers: Servers, *, honours_keys: bool) -> Office:
        """Return where one run takes place: it has a tenant of its own, and a file where nobody names a database."""
        folder = self.places.folder / name
        folder.mkdir()
        return Office(
            url=self.places.url if self.places.is_named else f"sqlite:///{quote(str(folder / 'counterfoil.db'))}",
            graph=f"{self.places.prefix}hiring",
            tenant=f"{self.places.prefix}{name}",
            mail_port=servers.mail.port,
            gateway=servers.gateway.url,
            honours_keys=honours_keys,
            reports=folder,
            engine=self.engine,
        )

    def trial(self, office: Office, servers: Servers, cut: Cut | None) -> Trial:
        """Return one run: with one worker after the other, or with three at once where an engine spreads the work."""
        return Trial(office, servers, cut) if self.engine == EMBEDDED else TeamTrial(office, servers, cut)

    def prepare(self) -> None:
        """Make the tables of the engine's own.

        Raises:
            InvalidArguments: it does not work with this database.
            MissingExtra: its package is not installed.
        """
        if self.engine != EMBEDDED:
            with Counterfoil.open(self.places.url) as cf:
                made_for(cf.desk.store)


def play_all(
    plan: Plan, *, quick: bool = False, tell: Callable[[int, int], None] = lambda _played, _all: None
) -> Matrix:
    """Play the undisturbed run, and then one for each kill point.

    Args:
        plan: Where, and under which engine.
        quick: Only the first kill point of each kind.
        tell: Told after each run how many of all are played.

    Raises:
        DemoBroken: a worker was not killed where it should have been, or did what nobody provided for.
    """
    plan.prepare()
    with _servers(plan.lanes) as free:
        gateways = (True, False) if plan.engine == EMBEDDED else (True,)
        base = {keys: _play(plan, free, f"undisturbed-{keys}", None, honours_keys=keys) for keys in gateways}
        chosen = _chosen(plan, base, quick=quick)

        def one(number: int) -> Cell:
            point = chosen[number]
            left = _play(plan, free, f"run-{number + 1}", point.cut, honours_keys=point.honours_keys)
            tell(number + 1, len(chosen))
            return _cell(plan, point, left, base[point.honours_keys])

        with ThreadPoolExecutor(plan.lanes) as lanes:
            return Matrix(undisturbed=base[True], cells=tuple(lanes.map(one, range(len(chosen)))))


def _chosen(plan: Plan, base: Mapping[bool, Left], *, quick: bool) -> list[KillPoint]:
    if plan.engine != EMBEDDED:
        return [KillPoint(cut=cut, reviews=None) for cut in at_random(FEW_KILLS if quick else RANDOM_KILLS)]
    points = [*kill_points(base[True].done), *of_the_fee(base[False].done)]
    return a_few(points) if quick else points


def _play(plan: Plan, free: SimpleQueue[Servers], name: str, cut: Cut | None, *, honours_keys: bool) -> Left:
    servers = free.get()
    try:
        office = plan.office(name, servers, honours_keys=honours_keys)
        return plan.trial(office, servers, cut).play()
    finally:
        free.put(servers)


def _cell(plan: Plan, point: KillPoint, left: Left, base: Left) -> Cell:
    return Cell(
        engine=plan.engine,
        store=plan.store,
        point=point,
        mails_max=left.mails_max,
        charges=left.charges,
        reviews=left.reviews,
        same_final_state=left.state == base.state,
    )


@contextmanager
def _servers(count: int) -> Iterator[SimpleQueue[Servers]]:
    """Run a mail server and a gateway for each lane."""
    free: SimpleQueue[Servers] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(count):
            gateway = stack.enter_context(CountingProvider(module=GATEWAY))
            free.put(Servers(stack.enter_context(CountingMailServer()), gateway))
        yield free
