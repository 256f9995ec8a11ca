"""Plan, apply and verify migrations; nothing is guessed from a version row alone."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from counterfoil.errors import SchemaAltered, SchemaNewer, SchemaOutdated
from counterfoil.storage.script import Row, Script, all_rows, ddl, one_row

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_HARMLESS = re.compile(r"create index [^(]+\((?:(?!\bcollate\b)[^()])*\)", re.IGNORECASE)
"""What may stand beside our definitions: an index of plain columns, which can neither refuse nor change a row.

A unique one refuses rows; one over an expression, with a condition or with a collation may fail on a row; a trigger
does anything.
"""
_TABLES = {
    "sqlite": """create table counterfoil_migration (
  number integer primary key,
  name text not null,
  digest text not null,
  applied_at integer not null
) strict""",
    "postgres": """create table counterfoil_migration (
  number bigint primary key,
  name text collate "C" not null,
  digest text collate "C" not null,
  applied_at bigint not null
)""",
}


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """Return the digest that is recorded when it is applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Status:
    """What a database has against what this code needs."""

    applied: tuple[int, ...]
    missing: tuple[Migration, ...]
    differing: tuple[str, ...]


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return a dialect's migrations in order."""
    folder = resources.files("counterfoil.storage").joinpath("migrations", dialect)
    named = ((file, _FILE.fullmatch(file.name)) for file in folder.iterdir())
    found = (Migration(int(match[1]), match[2], file.read_text("utf-8")) for file, match in named if match)
    return tuple(sorted(found, key=lambda m: m.number))


def statements(sql: str) -> list[str]:
    """Split a migration into statements; each ends with a semicolon at the end of a line."""
    return [part.strip() for part in re.split(r";\s*(?:\n|\Z)", sql) if part.strip()]


@cache
def expected_schema(dialect: str) -> dict[str, str]:
    """Return the definitions that all migrations together make, by name."""
    text = resources.files("counterfoil.storage").joinpath("migrations", dialect, "schema.sql").read_text("utf-8")
    found = {}
    for statement in statements(text):
        body = re.sub(r"\A(--.*\n)+", "", statement)
        name = re.search(r"\b(counterfoil_\w+)", body)
        if name is not None:
            found[name[1]] = squeeze(body)
    return found


def squeeze(sql: str) -> str:
    """Return a definition with its white space made equal."""
    return re.sub(r"\s+", " ", sql).strip()


@dataclass(frozen=True, slots=True)
class Migrator:
    """Migrations of one database."""

    dialect: str
    path: str

    def status(self) -> Script[Status]:
        """Read what was applied, what is missing, and which definitions differ from the recorded migrations' result."""
        applied = yield from self._applied()
        known = {m.number: m for m in migrations(self.dialect)}
        missing = tuple(m for number, m in known.items() if number not in {row["number"] for row in applied})
        differing = [row["name"] for row in applied if _altered(row, known.get(row["number"]))]
        if not missing and applied:
            differing += yield from self._differing()
        return Status(tuple(row["number"] for row in applied), missing, tuple(differing))

    def is_current(self) -> Script[bool]:
        """Say whether the schema is exactly what this code needs.

        Raises:
            SchemaNewer: it was made by newer code.
            SchemaAltered: its tables differ from what its migrations make.
        """
        status = yield from self.status()
        self._refuse(status)
        return not status.missing

    def migrate(self, *, upgrade: bool) -> Script[tuple[Migration, ...]]:
        """Apply what is missing: always in a database that is empty of ours, otherwise only with `upgrade`.

        Raises:
            SchemaOutdated: it needs an upgrade and `upgrade` is false.
            SchemaNewer: it was made by newer code.
            SchemaAltered: its tables differ from what its migrations make.
        """
        yield from one_row("lock_migrations")
        status = yield from self.status()
        self._refuse(status)
        if status.applied and status.missing and not upgrade:
            raise SchemaOutdated(
                f"The database {self.path} is at schema {max(status.applied)}, this code needs"
                f" {status.missing[-1].number}. Run: counterfoil db upgrade --url <url> (it keeps all rows), or read"
                " what it would do with: counterfoil db sql --missing."
            )
        if not status.applied and status.missing:
            yield from ddl(_TABLES[self.dialect])
        for migration in status.missing:
            yield from self._apply(migration)
        return status.missing

    def _apply(self, migration: Migration) -> Script[None]:
        yield from one_row("insert_migration", number=migration.number, name=migration.name, digest=migration.digest)
        for statement in statements(migration.sql):
            yield from ddl(statement)

    def _applied(self) -> Script[Sequence[Row]]:
        table = yield from one_row("has_migration_table")
        if table is None or not table["n"]:
            return []
        return (yield from all_rows("list_migrations"))

    def _differing(self) -> Script[list[str]]:
        rows = yield from all_rows("list_schema")
        expected = expected_schema(self.dialect)
        real = {squeeze(row["sql"]) for row in rows}
        gone = {name for name, sql in expected.items() if sql not in real}
        ours = [row for row in rows if row["tbl_name"].lower() in expected]
        return sorted(gone | {row["name"] for row in ours if _is_foreign(row, expected)})

    def _refuse(self, status: Status) -> None:
        newest = migrations(self.dialect)[-1].number
        if status.applied and max(status.applied) > newest:
            raise SchemaNewer(
                f"The database {self.path} is at schema {max(status.applied)}, newer than this code knows ({newest})."
                " Nothing was written. Install the release that made it, or a newer one."
            )
        if status.differing:
            raise SchemaAltered(
                f"The database {self.path} differs from what its migrations make, in {', '.join(status.differing)}."
                " Nothing was written. Compare with: counterfoil db status; restore the definitions or the database."
            )


def _is_foreign(row: Row, expected: Mapping[str, str]) -> bool:
    """Say whether something that we did not make could act on our rows."""
    sql = squeeze(row["sql"])
    return sql not in expected.values() and not _HARMLESS.fullmatch(sql)


def _altered(row: Row, known: Migration | None) -> bool:
    return known is not None and row["digest"] != known.digest


def plain_sql(dialect: str, applied: Collection[int] = ()) -> str:
    """Return the migrations that are not `applied` as one text for a database administrator to read or run."""
    parts = [] if applied else [f"{_TABLES[dialect]};"]
    for m in (m for m in migrations(dialect) if m.number not in applied):
        parts.append(
            f"insert into counterfoil_migration (number, name, digest, applied_at)\n"
            f"values ({m.number}, '{m.name}', '{m.digest}', 0);"
        )
        parts.append(m.sql.strip())
    return "\n\n".join(["begin;", *parts, "commit;"]) + "\n"
