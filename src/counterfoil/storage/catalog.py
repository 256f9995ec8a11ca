"""Load the named statements, apply a dialect's overrides, and render its fragments.

A statement file holds blocks of `-- name: NAME`, one line of purpose, and one statement. A block of `-- fragment: NAME`
holds a part that later statements of the same file share by writing `{NAME}`. An override file, in a folder named after
its dialect, replaces blocks by name and says why in a line that begins with `-- differs:`; it may use the fragments of
the file that it is named after.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOCK = re.compile(r"^-- (name|fragment): (\w+)\n((?:^--.*\n)+)((?:^(?!-- (?:name|fragment):).*\n?)+)", re.MULTILINE)
_PARAM = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement in one dialect; one that `tells` answers with the time of each row that it wrote."""

    name: str
    purpose: str
    sql: str
    tells: bool = False

    @property
    def params(self) -> frozenset[str]:
        """Return the names of its parameters."""
        return frozenset(_PARAM.findall(self.sql))

    @property
    def varies(self) -> bool:
        """Say whether parameters that are null leave a part of it out, so that no plan suits all of its uses."""
        return " is null or " in self.sql


FRAGMENTS: Mapping[str, Mapping[str, str]] = {
    "sqlite": {
        # Here the driver knows the time and counts the rows: that takes a tenth of what returning them does.
        "{told}": "",
        # SQLite has no clock but its host's, so the driver binds that one.
        "{now}": ":now",
        # Writers come one after the other, each with the whole file to itself.
        "{locked}": "",
        "{shared}": "",
        "{skipping}": "",
        "{least}": "min",
        "{most}": "max",
        # From 0 up to 1.
        "{chance}": "(abs(random() % 1000000) / 1000000.0)",
        # A JSON object as rows of key and value.
        "{named_channels}": "json_each(found.stored_channels)",
        "{asked_channels}": "json_each(:asked)",
    },
    "postgres": {
        "{told}": "returning {now} as now",
        # One time for a whole statement, and another for the next: a transaction may have waited for a lock meanwhile.
        "{now}": "cast(floor(extract(epoch from statement_timestamp()) * 1000) as bigint)",
        "{locked}": "for update",
        # Whoever takes a claim locks the row for an update and waits; its owner's other writes go on beside.
        "{shared}": "for key share",
        # Stands for a thread that may have no row to lock. Two that share it by chance wait for each other, no more.
        "{lock_of_thread}": "hashtextextended(cast(:tenant as text) || '/' || cast(:thread_id as text), 0)",
        # What another worker is claiming is left to it.
        "{skipping}": "for update skip locked",
        "{least}": "least",
        "{most}": "greatest",
        "{chance}": "random()",
        "{named_channels}": "json_each_text(cast(found.stored_channels as json))",
        "{asked_channels}": "json_each_text(cast(:asked as json))",
    },
}
BOUND_CLOCK: Mapping[str, str] = {"{now}": "cast(:now as bigint)"}
"""Replaces a database's own clock where a test brings one."""


def parse(text: str, fragments: dict[str, str] | None = None) -> dict[str, Statement]:
    """Parse a statement file; `fragments` are known beforehand, and its own are added to them."""
    found: dict[str, Statement] = {}
    fragments = {} if fragments is None else fragments
    for kind, name, comments, body in _BLOCK.findall(text):
        sql = _replace(body, fragments)
        if kind == "fragment":
            fragments[f"{{{name}}}"] = sql.strip()
            continue
        if name in found:
            raise ValueError(f"statement {name!r} is defined twice")
        purpose = " ".join(line.removeprefix("--").strip() for line in comments.splitlines())
        found[name] = Statement(name, purpose, sql.strip().removesuffix(";"))
    return found


def render(statement: Statement, dialect: str, *, bound_clock: bool = False) -> Statement:
    """Replace the dialect's fragments; `bound_clock` takes the time from a parameter and not from the database."""
    fragments = {**FRAGMENTS[dialect], **(BOUND_CLOCK if bound_clock else {})}
    sql = _replace(statement.sql, fragments).strip()
    return Statement(statement.name, statement.purpose, sql, tells="{told}" in statement.sql)


def pyformat(sql: str) -> str:
    """Return a statement with its parameters written as psycopg reads them: `%(name)s`."""
    return _PARAM.sub(r"%(\1)s", sql.replace("%", "%%"))


def _replace(sql: str, fragments: Mapping[str, str]) -> str:
    for mark, text in fragments.items():
        sql = sql.replace(mark, text)
    return sql


@cache
def load(dialect: str, *, bound_clock: bool = False) -> Mapping[str, Statement]:
    """Return all statements of a dialect by name."""
    root = resources.files("counterfoil.storage").joinpath("statements")
    source: dict[str, Statement] = {}
    fragments: dict[str, dict[str, str]] = {}
    for folder in (root, root.joinpath(dialect)):
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir(), key=lambda f: f.name):
            if file.name.endswith(".sql"):
                source |= parse(file.read_text("utf-8"), fragments.setdefault(file.name, {}))
    return {name: render(statement, dialect, bound_clock=bound_clock) for name, statement in source.items()}
