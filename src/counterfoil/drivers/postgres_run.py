"""Run scripts on PostgreSQL: what both colours do, as generators of actions that two small runners carry out.

A transaction is run again from its beginning where nothing of it can have been kept: after a serialization failure, a
deadlock, or a connection that was lost before COMMIT was sent. User code is never run twice.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, assert_never

import psycopg

from counterfoil.drivers.pgstate import (
    CANCELED,
    ReadOnlySession,
    ServerSilent,
    from_psycopg,
    is_lost,
    leads_astray,
    may_run_again,
)
from counterfoil.drivers.postgres_open import COMMIT, for_one_transaction
from counterfoil.drivers.postgres_own import alone, own_error, together
from counterfoil.drivers.probes import Point, Probe, no_probe
from counterfoil.errors import CommitUnknown
from counterfoil.model import Statement
from counterfoil.storage import catalog
from counterfoil.storage.script import Call, Ddl, Lone, Row, Script, Several, Step, UserCode, Wake

if TYPE_CHECKING:
    from counterfoil.clock import Clock
    from counterfoil.drivers.waking import Waker
    from counterfoil.storage.script import Maker

T = TypeVar("T")

RUNS = 6
"""How often a transaction is run before its failure reaches the caller: a pool may hold several dead connections."""
SILENCES = 2
"""How often where the server is silent, or may not be written to by default: once more, over a connection that was not
idle while the way to it broke or the default was another."""
BEGIN = "begin isolation level read committed"


@dataclass(frozen=True, slots=True)
class Execute:
    """Run one statement and return its rows; one that `ends` is the last, if it returns any."""

    sql: str
    params: Mapping[str, Any]
    prepare: bool | None = None
    """False where the server must plan it anew each time; otherwise psycopg prepares what is run often."""
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """Begin or commit."""

    sql: str


@dataclass(frozen=True, slots=True)
class Lend:
    """Run user code with a guarded handle on the open transaction."""

    function: Any


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell a waker of a workflow, on the connection whose transaction is open."""

    waker: Waker
    wake: Wake


Inner: TypeAlias = Execute | Lend | Tell
"""What a script asks for, whoever begins and ends its transaction."""
Inners: TypeAlias = Generator[Inner, Any, T]
Action: TypeAlias = Inner | Control
Actions: TypeAlias = Generator[Action, Any, T]


@dataclass(slots=True)
class Progress:
    """How far a transaction has come, for the judgement of what broke it."""

    user_code: bool = False
    user_error: BaseException | None = None
    commit_sent: bool = False


def statements(clock: Clock | None) -> dict[str, str]:
    """Return the dialect's statements as psycopg reads them; a clock of the caller's own replaces the database's."""
    return dict(_formatted(bound_clock=clock is not None))


@cache
def _formatted(*, bound_clock: bool) -> Mapping[str, str]:
    found = catalog.load("postgres", bound_clock=bound_clock)
    return {name: catalog.pyformat(statement.sql) for name, statement in found.items()}


@cache
def _varying() -> frozenset[str]:
    """Name the statements of which a plan made once would be a bad one for most of their uses."""
    return frozenset(name for name, statement in catalog.load("postgres").items() if statement.varies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How units of work are run: whose clock, which probe, and a name for messages."""

    path: str
    clock: Clock | None = None
    probe: Probe = no_probe
    statements: Mapping[str, str] = field(default_factory=lambda: statements(None))
    pooled: bool = False
    """Whether sessions are shared with others: limits then hold for one transaction, and no statement stands alone."""
    waker: Waker | None = None
    """What is told of workflows that can be entered; without one, whoever works searches the rows."""

    # --- units of work -----------------------------------------------------------------------------------------------

    def reading(self, maker: Maker[T]) -> Inners[T]:
        """Run a script of reads, each statement by itself."""
        return self._run(maker(), Progress())

    def writing(self, maker: Maker[T], progress: Progress) -> Actions[T]:
        """Run a script in a transaction, or as one statement where the script is one."""
        script = maker()
        try:
            step = next(script)
            if isinstance(step, Lone) and step.name in self.statements and not self.pooled:
                rows = yield from self._lone(step, script, progress)
                if rows:
                    return _end(script, rows)
                return (yield from self._transaction(self._go_on(script, rows, progress), progress))
            return (yield from self._transaction(self._steps(script, step, progress), progress))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()

    def inside(self, maker: Maker[T], progress: Progress) -> Inners[T]:
        """Run a script in a transaction that somebody else begins and ends."""
        return self._run(maker(), progress)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _lone(self, step: Lone, script: Script[Any], progress: Progress) -> Inners[Sequence[Row]]:
        """Run a statement that is a transaction by itself; if it breaks, whether it took effect must be looked up."""
        self.probe(Point.BEFORE_STATEMENT, step.name)
        self.probe(Point.BEFORE_COMMIT, "")
        try:
            rows: Sequence[Row] = yield Execute(*self._texts(step))
        except psycopg.Error as error:
            script.close()
            raise (self._commit_unknown(error) if is_lost(error) else _meaning(error, step, progress)) from error
        self.probe(Point.AFTER_STATEMENT, step.name)
        if rows:
            self.probe(Point.AFTER_COMMIT, "")
        return rows

    def _transaction(self, body: Inners[T], progress: Progress) -> Actions[T]:
        yield Control(f"{BEGIN} {for_one_transaction()}" if self.pooled else BEGIN)
        result = yield from body
        self.probe(Point.BEFORE_COMMIT, "")
        progress.commit_sent = True
        try:
            yield Control(COMMIT)
        except psycopg.Error as error:
            # behind user code's COMMIT its session is cleaned: what was cancelled there may have been that alone
            unknown = is_lost(error) or (progress.user_code and error.sqlstate == CANCELED)
            raise (self._commit_unknown(error) if unknown else error) from error
        self.probe(Point.AFTER_COMMIT, "")
        return result

    def _run(self, script: Script[T], progress: Progress) -> Inners[T]:
        try:
            step = next(script)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return (yield from self._steps(script, step, progress))

    def _go_on(self, script: Script[T], answer: Any, progress: Progress) -> Inners[T]:
        try:
            step = script.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return (yield from self._steps(script, step, progress))

    def _steps(self, script: Script[T], step: Step, progress: Progress) -> Inners[T]:
        """Run a script from one of its steps on; errors are thrown into it, so its frame is in the traceback."""
        try:
            while True:
                try:
                    answer = yield from self._step(step, progress)
                except BaseException as error:  # noqa: BLE001 - the script may clean up, and raises it again
                    step = script.throw(error)
                else:
                    step = script.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()

    def _step(self, step: Step, progress: Progress) -> Inners[Any]:
        match step:
            case Lone(name, _) | Several(name, _) if name not in self.statements:
                return None
            case Call(name, params) | Several(name, params):
                return (yield from self._execute(name, self.statements[name], self._bound(params)))
            case Lone():
                return (yield from self._execute_lone(step, progress))
            case Ddl(sql):
                return (yield from self._execute("ddl", sql.replace("%", "%%"), {}))
            case UserCode(function):
                return (yield from _lend(function, progress))
            case Wake():
                return (yield from self._tell(step))
            case Statement():
                return (yield from self._execute_own(step, progress))
            case _:
                assert_never(step)

    def _tell(self, wake: Wake) -> Inners[None]:
        if self.waker is not None:
            self.probe(Point.BEFORE_STATEMENT, "wake")
            yield Tell(self.waker, wake)
            self.probe(Point.AFTER_STATEMENT, "wake")

    def _execute_lone(self, step: Lone, progress: Progress) -> Inners[Sequence[Row]]:
        try:
            return (yield from self._execute(step.name, *self._texts(step), ends=True))
        except psycopg.Error as error:
            raise _meaning(error, step, progress) from error

    def _execute_own(self, own: Statement[Any], progress: Progress) -> Inners[Sequence[str]]:
        """Run an effect's own statement beside ours, where its operation is there by then and waits for it."""
        try:
            rows = yield from self._execute("own_statement", *alone(own))
        except psycopg.Error as error:
            if not (is_lost(error) or may_run_again(error) or leads_astray(error)):
                progress.user_error = error
            raise
        return [row["own_row"] for row in rows]

    def _execute(self, name: str, sql: str, params: Mapping[str, Any], *, ends: bool = False) -> Inners[Sequence[Row]]:
        self.probe(Point.BEFORE_STATEMENT, name)
        rows: Sequence[Row] = yield Execute(sql, params, False if name in _varying() else None, ends)
        self.probe(Point.AFTER_STATEMENT, name)
        return rows

    def _texts(self, step: Lone) -> tuple[str, Mapping[str, Any]]:
        sql, params = self.statements[step.name], self._bound(step.params)
        return (sql, params) if step.own is None else together(sql, step.own, params)

    def _bound(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return params if self.clock is None else {**params, "now": self.clock.now_ms()}

    def _commit_unknown(self, error: psycopg.Error) -> CommitUnknown:
        return CommitUnknown(
            f"The connection to {self.path} was lost while a transaction was being committed ({type(error).__name__});"
            " whether it took effect must be looked up."
        )

    # --- what an error means -----------------------------------------------------------------------------------------

    def again_or_raise(self, error: psycopg.Error, progress: Progress, *, runs: int) -> None:
        """Return where the unit of work may be run again; otherwise raise our error for the driver's.

        Raises:
            StoreError: it may not, or was run often enough.
            psycopg.Error: a transactional effect's own statement failed; that is its caller's business.
        """
        if error is progress.user_error:
            raise error
        again = may_run_again(error) or (not progress.commit_sent and (is_lost(error) or leads_astray(error)))
        once_more = isinstance(error, ServerSilent | ReadOnlySession)
        if again and not progress.user_code and runs < (SILENCES if once_more else RUNS):
            return
        raise from_psycopg(error, self.path) from error


def _meaning(error: psycopg.Error, step: Lone, progress: Progress) -> Exception:
    """Return what is raised of a lone statement that broke; an effect's own error is its caller's business."""
    if step.own is None or is_lost(error) or may_run_again(error) or leads_astray(error):
        return error
    meaning = own_error(error, step)
    if meaning is error:
        progress.user_error = error
    return meaning


def _lend(function: Any, progress: Progress) -> Inners[Any]:
    progress.user_code = True
    try:
        return (yield Lend(function))
    except BaseException as error:
        progress.user_error = error
        raise


def _end(script: Script[T], answer: Any) -> T:
    """Give a script its last answer and return its result."""
    try:
        script.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a script went on after a lone statement that returned a row")
