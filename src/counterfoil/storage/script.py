"""Scripts: storage work as generators that yield steps and never touch a connection, clock, id or logger."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from counterfoil.model import Statement

Row: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


class Call(NamedTuple):
    """One statement to run: its name in the catalog and its parameters."""

    name: str
    params: Mapping[str, Any]


class Peek(Call):
    """A read that a script begins with and often ends with: a driver may run it before there is a transaction."""

    __slots__ = ()


class Lone(NamedTuple):
    """A statement after which its script ends if it returned a row, and which wrote nothing if it returned none.

    A driver may therefore run it without a transaction around it, if it is a script's first step but for a `Peek`.
    One that only some dialects have is answered with None by the others, and the script does the same in several
    statements.

    `own` is the statement that an effect is, to be run in the middle of this one. One that `settles` ends what the same
    caller claimed before.
    """

    name: str
    params: Mapping[str, Any]
    own: Statement[Any] | None = None
    settles: bool = False


class Several(NamedTuple):
    """A statement that does for many rows what others do one by one; dialects that gain nothing answer with None."""

    name: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UserCode:
    """The body of a transactional effect, to be run with a guarded handle on the open transaction."""

    function: Callable[[Any], Any]


class Wake(NamedTuple):
    """A workflow that can be entered once this transaction is committed, for what spreads the work, if anything does.

    Whoever is told may lose it: the row says that the workflow is due.
    """

    tenant: str
    thread_id: str
    graph: str
    graph_version: int


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement of a migration, without parameters."""

    sql: str


Step: TypeAlias = Call | Lone | Several | UserCode | Ddl | Wake | Statement[Any]
Script: TypeAlias = Generator[Step, Any, T]
Maker: TypeAlias = Callable[[], Script[T]]
"""Makes a script anew, so that a driver may run it again after a serialization failure."""


def all_rows(name: str, /, **params: Any) -> Script[Sequence[Row]]:
    """Run a statement and return its rows."""
    rows: Sequence[Row] = yield Call(name, params)
    return rows


def one_row(name: str, /, **params: Any) -> Script[Row | None]:
    """Run a statement and return its first row, or None."""
    rows: Sequence[Row] = yield Call(name, params)
    return rows[0] if rows else None


def held_row(name: str, /, **params: Any) -> Script[Row]:
    """Run a guarded write of a row that this transaction has locked, and return it: nobody can have moved it since."""
    row = yield from one_row(name, **params)
    if row is None:
        raise LookupError(f"{name} met a row that moved inside one transaction")
    return row


def peeked_row(name: str, /, **params: Any) -> Script[Row | None]:
    """Run a read that a script begins with and return its first row, or None."""
    rows: Sequence[Row] = yield Peek(name, params)
    return rows[0] if rows else None


def lone_row(name: str, /, **params: Any) -> Script[Row | None]:
    """Run a statement whose row ends the script, and return that; None says that it wrote nothing."""
    rows: Sequence[Row] | None = yield Lone(name, params)
    return rows[0] if rows else None


def settled_row(name: str, /, **params: Any) -> Script[Row | None]:
    """Run a statement that ends what its caller claimed, and the script; None says that it wrote nothing."""
    rows: Sequence[Row] | None = yield Lone(name, params, settles=True)
    return rows[0] if rows else None


def several_rows(name: str, /, **params: Any) -> Script[Sequence[Row] | None]:
    """Run a statement for many rows at once and return what it returns; None where they must be taken one by one."""
    rows: Sequence[Row] | None = yield Several(name, params)
    return rows


def recorded_row(name: str, own: Statement[Any], /, **params: Any) -> Script[Row | None]:
    """Run an effect's own statement together with one of ours, which ends the script; None where that takes two."""
    rows: Sequence[Row] | None = yield Lone(name, params, own)
    return rows[0] if rows else None


def own_rows(own: Statement[Any]) -> Script[Sequence[Row | str]]:
    """Run an effect's own statement and return its rows, no more than two; as JSON where the database writes that."""
    rows: Sequence[Row | str] = yield own
    return rows


def ddl(sql: str) -> Script[None]:
    """Run one statement of a migration."""
    yield Ddl(sql)


def user_code(function: Callable[[Any], T]) -> Script[T]:
    """Run a transactional effect's body inside the transaction."""
    result: T = yield UserCode(function)
    return result
