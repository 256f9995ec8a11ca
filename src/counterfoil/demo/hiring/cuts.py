"""Where a worker is killed: at a commit, in the middle of an effect, or while nothing is to be done."""

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from counterfoil.drivers.probes import Point

Side = Literal["before", "after"]
SIDES: Final[tuple[Side, ...]] = ("before", "after")

INTENT, OUTCOME = "an effect's intent", "an effect's outcome"
MARKERS: Final[Mapping[str, str]] = {
    "list_expired_intents": "the look at what has expired",
    "claim_due": "the look at the outbox",
    "reserve_due_workflows": "the look at what is due",
    "take_thread_if_unmoved": "the workflow claimed",
    "insert_checkpoint": "a checkpoint",
    "put_checkpoint_if_claimed": "a checkpoint",
    "share_thread": "a step's result",
    "put_writes_if_claimed": "a step's result",
    "replace_writes_if_claimed": "a step's result",
    "insert_wait": "a new wait",
    "take_event_if_kept": "an event taken",
    "end_wait_if_open": "a wait ended",
    "insert_claimed_operation": INTENT,
    "look_or_claim_operation": INTENT,
    "settle_if_fenced": OUTCOME,
    "leave_workflow_if_claimed": "the workflow given back",
}
"""The statements by which a commit is known, on either kind of database, and what the table calls what they store."""
_ONCE: Final = frozenset({"the look at what is due"})
"""What a worker does again and again, until there is nothing: only the first one in each moment is a boundary."""
_LOOKS: Final = frozenset({"the look at what has expired", "the look at the outbox"})
"""What stores nothing in this workflow, and is the same in every moment."""


@dataclass(frozen=True, slots=True)
class AtCommit:
    """Beside the commit of the n-th thing of a kind that is stored in one moment."""

    moment: int
    what: str
    number: int
    side: Side


@dataclass(frozen=True, slots=True)
class InMail:
    """The mail server has taken the mail, and its answer is not there yet."""

    moment: int
    address: str
    subject: str


@dataclass(frozen=True, slots=True)
class InCharge:
    """The gateway has charged, and its answer is not there yet."""

    moment: int


@dataclass(frozen=True, slots=True)
class InReport:
    """The report is written, and nobody has noted it yet."""

    moment: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Everything that was due in a moment is done: the workflow waits, or has ended."""

    moment: int


@dataclass(frozen=True, slots=True)
class AtRandom:
    """A while after one of several workers has claimed the workflow."""

    moment: int
    number: int
    delay_s: float


Cut = AtCommit | InMail | InCharge | InReport | Idle | AtRandom


def die() -> None:
    """Be gone at once: nothing is closed, nothing is rolled back by us."""
    os.kill(os.getpid(), signal.SIGKILL)


class Knife:
    """A probe that counts what is stored in a moment, and kills its process beside one commit of it.

    Counted are statements and not commits: steps beside each other may share a commit, or not.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[tuple[int, int], list[str]] = {}
        self.arm(None)

    def arm(self, cut: AtCommit | None) -> None:
        """Begin a moment, in which the process is to die here."""
        with self._mutex:
            self._cut = cut
            self._begun: Counter[str] = Counter()
            self.committed: Counter[str] = Counter()

    def __call__(self, point: Point, name: str) -> None:
        """Note a statement or a commit, or die."""
        whose = _thread_and_task()
        with self._mutex:
            if point is Point.BEFORE_STATEMENT and name in MARKERS:
                self._open.setdefault(whose, []).append(MARKERS[name])
            elif point is Point.BEFORE_COMMIT:
                self._pass("before", self._begun, self._open.get(whose, []))
            elif point is Point.AFTER_COMMIT:
                self._pass("after", self.committed, self._open.pop(whose, []))

    def _pass(self, side: Side, counted: Counter[str], stored: list[str]) -> None:
        cut = self._cut
        if cut is not None and cut.side == side:
            before = counted[cut.what]
            if before < cut.number <= before + stored.count(cut.what):
                die()
        counted.update(stored)


def _thread_and_task() -> tuple[int, int]:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return threading.get_ident(), id(task)


def at_commits(moment: int, committed: Mapping[str, int]) -> list[AtCommit]:
    """Return both sides of every commit that an undisturbed worker made in a moment."""
    return [
        AtCommit(moment, what, number, side)
        for what in dict.fromkeys(MARKERS.values())
        for number in range(1, 1 + _boundaries(moment, what, committed.get(what, 0)))
        for side in SIDES
    ]


def _boundaries(moment: int, what: str, number: int) -> int:
    if what in _LOOKS:
        return min(number, 1) if moment == 0 else 0
    return min(number, 1) if what in _ONCE else number


def told(cut: Cut, moments: Callable[[int], str]) -> str:
    """Name a kill point."""
    return f"{moments(cut.moment)}: {_place(cut)}"


def _place(cut: Cut) -> str:
    match cut:
        case AtCommit(what=stored, number=number, side=side):
            return f"{side} the commit of {stored} ({number})"
        case InMail(address=address, subject=subject):
            return f"the mail server has taken {subject!r} to {address}"
        case InCharge():
            return "the gateway has charged"
        case InReport():
            return "the report is written"
        case Idle():
            return "everything due is done"
        case AtRandom(number=number, delay_s=delay):
            return f"one of three workers, {delay * 1000:.0f} ms after it has the workflow ({number})"
        case _:
            assert_never(cut)
