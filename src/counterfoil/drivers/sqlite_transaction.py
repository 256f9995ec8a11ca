"""The transactions of the writer's connection: begin, run one script or several, commit; and what an error means."""

from __future__ import annotations

import sqlite3
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.drivers.opened import NO_FILE, OpenedFile
from counterfoil.drivers.probes import Point
from counterfoil.drivers.sqlite_run import commit_unknown
from counterfoil.drivers.sqlstate import from_sqlite
from counterfoil.errors import NestedEffect
from counterfoil.storage.script import Lone, Peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.drivers.sqlite_run import Runner
    from counterfoil.drivers.sqlite_unit import Unit
    from counterfoil.drivers.turns import Turns
    from counterfoil.storage.script import Row, Script

T = TypeVar("T")


class Transactions:
    """Runs units on one connection, for one caller at a time."""

    def __init__(
        self, connection: sqlite3.Connection, runner: Runner, turns: Turns, file: OpenedFile = NO_FILE
    ) -> None:
        self.connection = connection
        self.committed = False  # whether the last transaction took effect, whatever was raised after that
        self._runner = runner
        self._turns = turns
        self._file = file
        self._commit_sent = False
        self.running: int | None = None  # the thread that is inside one

    def run(self, unit: Unit) -> Any:
        """Run one unit and return its result."""
        self.running = get_ident()
        try:
            if unit.transaction:
                return self._run_alone(unit.maker())
            self._undo()
            return self._runner.run(self.connection, unit.maker())
        finally:
            self.running = None

    def run_together(self, units: list[Unit]) -> None:
        """Run several units in one transaction; each keeps its own result or error."""
        self.running = get_ident()
        try:
            self._transaction(lambda: self._each(units))
        finally:
            self.running = None

    def refuse_nested(self) -> None:
        """Refuse a caller whose own transaction is open here: it would wait for itself, or undo itself.

        Raises:
            NestedEffect: the call comes from inside a transactional effect.
        """
        if self.running == get_ident():
            raise NestedEffect(
                "The database was used through Counterfoil inside a transactional effect, whose transaction is open."
                " Use the transaction that the effect was given, and perform other effects after it."
            )

    # --- one transaction -------------------------------------------------------------------------------------------

    def _run_alone(self, script: Script[T]) -> T:
        """Run a script in a transaction, or without one around it where its only statement may stand alone."""
        try:
            step = next(script)
            if isinstance(step, Peek):
                self._undo()
                step = script.send(self._runner.peek(self.connection, step))
            if type(step) is Lone and step.name in self._runner.statements:
                if rows := self._lone(step):
                    return _end(script, rows)
                step = script.send(rows)
            result: T = self._transaction(lambda: self._runner.go_on(self.connection, script, step))
        except StopIteration as stop:
            result = stop.value
        finally:
            script.close()
        return result

    def _lone(self, step: Lone) -> list[Row]:
        with self._turns:
            self._prepare(settles=step.settles)
            return self._runner.lone(self.connection, step)

    def _transaction(self, body: Callable[[], Any]) -> Any:
        with self._turns:
            result = self._take_turn(body)
        self._runner.probe(Point.AFTER_COMMIT, "")
        return result

    def _take_turn(self, body: Callable[[], Any]) -> Any:
        self.committed = self._commit_sent = False
        try:
            self._begin()
            result = body()
            self._runner.probe(Point.BEFORE_COMMIT, "")
            self._commit()
            self.committed = True
        except BaseException:
            self.committed = self._commit_sent and not self.connection.in_transaction
            self._undo()
            raise
        return result

    def _prepare(self, *, settles: bool = False) -> None:
        self._undo()
        if settles:
            self._file.check_again()
        else:
            self._file.check()

    def _begin(self) -> None:
        self._prepare()
        try:
            self.connection.execute("begin immediate")
        except sqlite3.Error as error:
            raise from_sqlite(error, self._runner.path) from error

    def _undo(self) -> None:
        """Roll back, be it what an interrupt left open just where nothing could catch it."""
        if self.connection.in_transaction:
            self.connection.execute("rollback")

    def _commit(self) -> None:
        self._commit_sent = True
        try:
            self.connection.execute("commit")
        except sqlite3.Error as error:
            if self.connection.in_transaction:
                raise from_sqlite(error, self._runner.path) from error
            raise commit_unknown(error, self._runner.path) from error

    def _each(self, units: list[Unit]) -> None:
        """Run units one after another, a savepoint each, so that one that fails takes nothing with it."""
        for unit in units:
            unit.error = unit.result = None
            self.connection.execute("savepoint counterfoil_unit")
            try:
                unit.result = self._runner.run(self.connection, unit.maker())
            except Exception as error:  # belongs to this unit's caller, not to the others
                unit.error = error
                if not self.connection.in_transaction:
                    raise  # SQLite undid the whole transaction, as a full disk makes it do: nobody's work was kept
                self.connection.execute("rollback to counterfoil_unit")
            self.connection.execute("release counterfoil_unit")


def _end(script: Script[T], rows: list[Row]) -> T:
    try:
        script.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a script went on after the row of a statement that stood alone")
