"""The one writer of a SQLite database in this process: group commit with lead hand-off, for both colours.

A caller that finds nobody leading becomes the leader: it runs its own unit and all units that queued meanwhile in one
transaction, a savepoint each, commits once, and hands the lead to the next waiting caller. That costs a lone caller no
thread hop (a dedicated writer thread ran at 0.55-1.2 of its rate) and gives 32 callers 6.5-8.2 times the rate of
connections of their own. Callers on an event loop cannot lead; a thread of the writer leads for them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from itertools import islice, takewhile
from threading import get_ident
from typing import TYPE_CHECKING, Any

from counterfoil.drivers.opened import NO_FILE, OpenedFile
from counterfoil.drivers.sqlite_transaction import Transactions
from counterfoil.drivers.sqlite_unit import Unit
from counterfoil.errors import Busy, StoreClosed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from counterfoil.drivers.sqlite_run import Runner
    from counterfoil.drivers.turns import Turns

BATCH = 64
"""Units in one transaction at the most: keeps the wait of the last one near the cost of one commit."""
SLICE_S = 1.0
"""How often a waiting caller looks whether the lead was lost; nobody needs that long between two steps of leading."""
WAIT_S = 30.0
"""How long a caller waits for its turn; longer than the wait for another process's lock."""


def busy(path: str) -> Busy:
    """Tell a caller that another one's transaction kept the writer for too long."""
    return Busy(
        f"The writer of {path} was busy for {WAIT_S:.0f} s with another caller's transaction; nothing was written. Look"
        " for a transactional effect that does not return."
    )


class Writer:
    """Serialises all writes of this process on one connection."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        runner: Runner,
        turns: Turns,
        file: OpenedFile = NO_FILE,
    ) -> None:
        self._path = runner.path
        self._transactions = Transactions(connect(), runner, turns, file)
        self._mutex = threading.Lock()
        self._queue: deque[Unit] = deque()
        self._leading = False
        self._leader: int | None = None
        self._terms = 0  # counts the changes of the lead, so that a waiting caller can tell two of them apart
        self._batch: list[Unit] = []
        self._closed = False
        self._stopping = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._thread_wake = threading.Semaphore(0)

    # --- callers ---------------------------------------------------------------------------------------------------

    def run(self, unit: Unit) -> Any:
        """Run a unit on behalf of a blocking caller, leading if nobody else does.

        Raises:
            Busy: another caller's transaction kept the writer for longer than the wait; the unit was not run.
        """
        if self._finds_nobody():
            return self._run_at_once(unit)
        try:
            leads = self._enqueue(unit, leader=get_ident())
            while not unit.done:
                if leads:
                    self._lead(unit)
                else:
                    self._wait(unit)
                leads = self._accept(unit)
        except BaseException:
            if unit.queued:
                self.withdraw(unit)  # what nobody waits for is not run, if it is not too late
            raise
        return unit.answer()

    def run_if_idle(self, unit: Unit) -> bool:
        """Run a unit if nobody leads and nobody waits, and say whether it was run."""
        if not self._finds_nobody():
            return False
        unit.result = self._run_at_once(unit)
        return True

    def submit(self, unit: Unit) -> None:
        """Queue a unit for a caller that must not block; `unit.notify` is called when it is done."""
        if self._enqueue(unit):
            self._wake_thread()

    def withdraw(self, unit: Unit) -> bool:
        """Take a unit back that nobody has begun; False if it is too late for that."""
        with self._mutex:
            if unit not in self._queue or unit.leads:
                return False
            self._queue.remove(unit)
            return True

    def close(self) -> None:
        """Wait for the units that are queued, then close the connection; twice, or in a forked child, it does nothing.

        A child must not even close: that could delete the write-ahead log under its parent.
        """
        last = Unit(_nothing, transaction=False)
        try:
            leads = self._enqueue(last, leader=get_ident(), closing=True)
        except StoreClosed:
            return
        while not last.done:
            if leads:
                self._lead(last)
            else:
                last.waking().wait(SLICE_S)
            leads = self._accept(last)
        self._stopping = True
        if self._thread is not None:
            self._thread_wake.release()
            self._thread.join()
        self._transactions.connection.close()

    @property
    def usable(self) -> bool:
        """Say whether it is open and belongs to this process."""
        return not self._closed and not self.forked

    @property
    def forked(self) -> bool:
        """Say whether this is a child of the process that opened it."""
        return self._pid != os.getpid()

    def check_usable(self) -> None:
        """Refuse use after close and in a forked child, which shares the parent's file locks.

        Raises:
            StoreClosed: it was closed, or belongs to the parent process.
        """
        if self.forked:
            raise StoreClosed(
                "This Counterfoil was opened before the process forked; SQLite connections must not be carried across"
                " a fork. Call Counterfoil.open(url) in the child process."
            )
        if self._closed:
            raise StoreClosed("This Counterfoil is closed. Open a new one with Counterfoil.open(url).")

    # --- a caller that waits -----------------------------------------------------------------------------------------

    def _enqueue(self, unit: Unit, *, leader: int | None = None, closing: bool = False) -> bool:
        """Queue a unit; True if the caller now leads, which it also does if it had the lead and lost hold of it."""
        self.check_usable()  # before the mutex, too: in a forked child its holder does not exist
        self._transactions.refuse_nested()
        with self._mutex:
            self.check_usable()
            self._closed = closing
            self._queue.append(unit)
            unit.queued = True
            if self._leading and (leader is None or leader != self._leader):
                unit.waking()  # before anyone can be done with it
                return False
            self._leading, self._leader, self._terms = True, leader, self._terms + 1
            return True

    def _wait(self, unit: Unit) -> None:
        """Wait until the unit is done or leads; take it back when that is interrupted or takes too long."""
        try:
            woken = self._watch(unit)
        except BaseException:
            if not self.withdraw(unit):
                unit.waking().wait()
                self._resign(unit)
            raise
        unit.waking().clear()
        if not woken and self.withdraw(unit):
            raise busy(self._path)

    def _watch(self, unit: Unit) -> bool:
        """Wait for the unit in slices, taking a lead over that was lost; False if it took too long."""
        lost: int | None = None
        for _ in range(int(WAIT_S / SLICE_S)):
            if unit.waking().wait(SLICE_S):
                return True
            before, lost = lost, self._terms if self._is_lost(self._leader) else None
            if lost is not None and lost == before and self._take_over(unit, lost):
                return True
        return False

    def _is_lost(self, leader: int | None) -> bool:
        """Say whether nobody leads who should: a signal interrupted it where nothing could catch that."""
        frame = sys._current_frames().get(leader) if leader is not None else None  # noqa: SLF001 - no other way to see it
        while frame is not None:
            if frame.f_code in _LEADING:
                return False
            frame = frame.f_back
        return self._leading

    def _take_over(self, unit: Unit, term: int) -> bool:
        """Make a waiting caller the leader in place of one that lost the lead, unless the lead moved meanwhile."""
        with self._mutex:
            if not self._leading or self._terms != term or unit not in self._queue:
                return False
            self._terms += 1
            for waiting in self._queue:
                waiting.leads = False
            self._leader, unit.leads = None, True
            return True

    def _accept(self, unit: Unit) -> bool:
        """Take the lead if it was given to this unit's caller."""
        with self._mutex:
            leads, unit.leads = unit.leads, False
            if leads:
                self._leader, self._terms = get_ident(), self._terms + 1
            return leads

    def _resign(self, unit: Unit) -> None:
        """Hand on a lead that was given to a caller just before it was interrupted; its unit is not run."""
        with self._mutex:
            leads, unit.leads = unit.leads, False
            if leads:
                self._queue.remove(unit)
        if leads:
            self._hand_on()

    # --- the lead --------------------------------------------------------------------------------------------------

    def _finds_nobody(self) -> bool:
        """Take the lead if nobody else has it and nobody waits: the caller's unit then needs no queue."""
        me = get_ident()
        if self._closed or self._pid != os.getpid() or self._transactions.running == me:
            self.check_usable()
            self._transactions.refuse_nested()
        with self._mutex:
            if self._closed or self._queue or (self._leading and self._leader != me):
                return False
            self._leading, self._leader, self._terms = True, me, self._terms + 1
            return True

    def _run_at_once(self, unit: Unit) -> Any:
        try:
            return self._transactions.run(unit)
        finally:
            self._hand_on()

    def _lead(self, own: Unit | None) -> None:
        """Run one batch (whose first unit is the own one) or, without an own one, all there are; then hand on.

        Whoever becomes the leader is the first in the queue, so a blocking caller never works longer for others than
        its own commit takes.
        """
        try:
            while batch := self._next_batch(own):
                self._run_batch(batch, own)
                if own is not None:
                    break
        finally:
            self._rescue(own)
            self._hand_on()

    def _next_batch(self, own: Unit | None) -> list[Unit]:
        """Take the next units that may share a transaction; one that must be alone on its own thread is left."""
        with self._mutex:
            self._transactions.committed = False
            self._batch = self._peek(own)
            for _ in self._batch:
                self._queue.popleft()
            return self._batch

    def _peek(self, own: Unit | None) -> list[Unit]:
        if self._queue and not self._queue[0].shares:
            head = self._queue[0]
            return [head] if head is own or head.notify is not None or not head.alone else []
        return list(islice(takewhile(lambda unit: unit.shares, self._queue), BATCH))

    def _run_batch(self, batch: list[Unit], own: Unit | None) -> None:
        try:
            self._run_units(batch)
        except Exception as error:  # noqa: BLE001 - each unit's caller gets it, not the leader alone
            for unit in batch:
                unit.error = unit.error or error
        except BaseException as error:  # noqa: BLE001 - an interrupt of the leader is not the others' business
            self._interrupted(batch, own, error)
            return
        for unit in batch:
            unit.finish()
        self._batch = []

    def _run_units(self, batch: list[Unit]) -> None:
        if len(batch) > 1:
            self._transactions.run_together(batch)
            return
        (unit,) = batch
        unit.error = None
        unit.result = self._transactions.run(unit)

    def _interrupted(self, batch: list[Unit], own: Unit | None, error: BaseException) -> None:
        """Give an interrupt to the leader; the others keep what was committed, or go back to the queue."""
        lead = own or batch[0]
        lead.error = error
        self._rescue(lead)
        lead.finish()

    def _rescue(self, own: Unit | None) -> None:
        """After an interrupt: finish what was committed for others, and put back what was taken and not run."""
        batch, self._batch = self._batch, []
        others = [unit for unit in batch if unit is not own and not unit.done]
        if self._transactions.committed:
            for unit in others:
                unit.finish()
        elif others:
            with self._mutex:
                self._queue.extendleft(reversed([unit for unit in others if unit not in self._queue]))

    def _hand_on(self) -> None:
        """Give the lead to the first caller that waits, or to the thread if that caller cannot lead."""
        with self._mutex:
            self._leader, self._terms = None, self._terms + 1
            if not self._queue:
                self._leading = False
                return
            heir = self._queue[0]
            if heir.notify is None:
                heir.leads = True
        if heir.notify is None:
            heir.waking().set()
        else:
            self._wake_thread()

    # --- the thread that leads for those who cannot ------------------------------------------------------------------

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="counterfoil-writer", daemon=True)
            self._thread.start()
        self._thread_wake.release()

    def _serve(self) -> None:
        while True:
            self._thread_wake.acquire()
            if self._stopping:
                return
            if self._accept_for_others():
                self._lead(None)

    def _accept_for_others(self) -> bool:
        """Take the lead for callers that cannot, unless somebody took it over meanwhile."""
        with self._mutex:
            mine = self._leading and self._leader is None
            if mine:
                self._leader, self._terms = get_ident(), self._terms + 1
            return mine


_LEADING = frozenset({Writer._lead.__code__, Writer._run_at_once.__code__})  # noqa: SLF001 - its own
"""Where a thread is while it leads; elsewhere it has lost hold of the lead."""


def _nothing() -> Any:
    return
    yield
