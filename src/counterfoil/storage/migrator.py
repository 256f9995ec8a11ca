"""Plan, apply and verify migrations; nothing is guessed from a version row alone."""

from __future__ import annotations

import hashlib
import re
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from counterfoil.errors import Busy, CommitUnknown, SchemaAltered, SchemaNewer, SchemaOutdated
from counterfoil.storage import rights
from counterfoil.storage.script import Row, Script, all_rows, ddl, one_row

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from counterfoil.storage.script import Maker
    from counterfoil.storage.store import Store

    Applied = tuple["Migration", ...]

MIGRATE_TRIES = 3
"""Commits of a migration that may fail before the database is held to be out of order."""
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<dollar>\$\w*\$).*?(?P=dollar)|(?P<end>;)|.""", re.DOTALL
)
_BODY = re.compile(r"\bcreate\s+(?:temp\w*\s+)?trigger\b(?!.*\bexecute\b)", re.IGNORECASE | re.DOTALL)
"""A trigger with a body of its own, as SQLite has them; PostgreSQL's execute a function."""
_BODY_ENDS = re.compile(r";\s*end\s*\Z", re.IGNORECASE)
"""Where the body of such a trigger is over; SQLite itself finds it so."""
_NAME = r'(?:"(?:[^"]|"")+"|[^\s",(]+)'
_PLAIN = r"\((?:(?!\bcollate\b)[^()])*\)"
_HARMLESS = re.compile(
    rf"create index [^(]+{_PLAIN}(?: include {_PLAIN})?(?: with {_PLAIN})?"
    rf"|create policy {_NAME} on {_NAME} as restrictive to {_NAME}(?:, {_NAME})*{re.escape(rights.ONE_TENANT)}",
    re.IGNORECASE,
)
"""What may stand beside our definitions: an index of plain columns, which can neither refuse nor change a row; and the
policy that lets a role work for one tenant at a time.

A unique index refuses rows; one over an expression, with a condition or with a collation may fail on a row; a trigger
does anything, another policy lets tenants see each other, or hides receipts.
"""
_WIDE = re.compile(
    r"\b(?:answer|body|error_text|evidence|field_digests|leaning|metadata|payload|provider|reason|receipt"
    r"|stored_channels|value|verdict_reason)\b"
)
"""Columns of any length: an index of PostgreSQL refuses a row whose indexed values exceed 2.7 KB."""
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

_MADE = re.compile(r"^create (?:unique )?(?:table|index|trigger|view|policy) (counterfoil_\w+)", re.MULTILINE)
_HALVES = "Something is there that a migration makes which is not recorded: it was applied by halves, or by hand."
_BEGIN = {
    "sqlite": "begin immediate;",
    "postgres": "begin;\n\nselect pg_advisory_xact_lock(7165074649429406310); -- as lock_migrations does",
}
_NOW = {
    "sqlite": "cast(strftime('%s', 'now') as integer) * 1000",
    "postgres": "cast(floor(extract(epoch from now()) * 1000) as bigint)",
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
    """Split a migration into statements at its semicolons, which inside text, comments and dollar quotes end nothing.

    Those inside the body of a trigger end nothing either.
    """
    parts, begin = list[str](), 0
    for token in _TOKEN.finditer(sql):
        if token["end"] and not _is_in_body(sql[begin : token.start()]):
            parts.append(sql[begin : token.start()].strip())
            begin = token.end()
    parts.append(sql[begin:].strip())
    return [part for part in parts if _bare(part).strip()]


def _is_in_body(part: str) -> bool:
    """Say whether a statement has begun the body of a trigger, and not ended it."""
    text = _bare(part)
    return _BODY.search(text) is not None and _BODY_ENDS.search(text) is None


def _bare(sql: str) -> str:
    return re.sub(r"--.*", "", sql)


@cache
def expected_schema(dialect: str) -> dict[str, str]:
    """Return the definitions that all migrations together make, by name."""
    text = resources.files("counterfoil.storage").joinpath("migrations", dialect, "schema.sql").read_text("utf-8")
    found = {}
    for statement in statements(text):
        body = re.sub(r"\A(--.*\n|\s)+", "", statement)
        name = re.search(r"\b(counterfoil_\w+)", body)
        if name is not None:
            found[name[1]] = squeeze(body)
    return found


@lru_cache(1000)
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
        if missing:
            there = yield from self._there_already(missing)
            if there and (yield from self._applied()) != applied:  # somebody committed them between two reads
                return (yield from self.status())
            differing += there
        elif applied:
            differing += yield from self._differing()
        return Status(tuple(row["number"] for row in applied), missing, tuple(differing))

    def is_current(self) -> Script[bool]:
        """Say whether the schema is exactly what this code needs.

        Raises:
            SchemaNewer: it was made by newer code.
            SchemaAltered: its tables differ from what its migrations make.
            RightsMissing: this role may not look at it.
        """
        status = yield from self.status()
        self._refuse(status)
        return not status.missing

    def is_ready(self) -> Script[bool]:
        """Say whether the schema is what this code needs, and see to it that this role may work with it.

        A right that is missing is named here, and not when an effect has happened and its outcome cannot be stored.

        Raises:
            SchemaMismatch: as `is_current` says.
            RightsMissing: this role may write some things and not others, or may not read everything.
        """
        if not (yield from self.is_current()):
            return False
        may = yield from all_rows("list_rights")
        lacking = rights.lacking(self.dialect, may)
        if lacking:
            raise rights.too_few(may, self.path, lacking)
        return True

    def migrate(self, *, upgrade: bool) -> Script[tuple[Migration, ...]]:
        """Apply what is missing: always in a database that is empty of ours, otherwise only with `upgrade`.

        Raises:
            SchemaOutdated: it needs an upgrade and `upgrade` is false.
            SchemaNewer: it was made by newer code.
            SchemaAltered: its tables differ from what its migrations make.
            RightsMissing: this role may not make or change tables.
        """
        yield from one_row("lock_migrations")
        status = yield from self.status()
        self._refuse(status)
        if not status.missing:
            return ()
        fresh = not status.applied
        if not fresh and not upgrade:
            raise SchemaOutdated(
                f"The database {self.path} is at schema {max(status.applied)}, this code needs"
                f" {status.missing[-1].number}. Run: counterfoil db upgrade --url <url> (it keeps all rows), or read"
                " what it would do with: counterfoil db sql --missing."
            )
        yield from self._check_owner(fresh=fresh)
        if fresh:
            yield from ddl(_TABLES[self.dialect])
        for migration in status.missing:
            yield from self._apply(migration)
        return status.missing

    def _apply(self, migration: Migration) -> Script[None]:
        yield from one_row("insert_migration", number=migration.number, name=migration.name, digest=migration.digest)
        for statement in statements(migration.sql):
            yield from ddl(statement)

    def _find(self) -> Script[Row]:
        ours = yield from one_row("find_ours")
        if ours is None:
            raise LookupError("find_ours returned no row")
        return ours

    def _applied(self) -> Script[Sequence[Row]]:
        ours = yield from self._find()
        refusal = rights.out_of_reach(ours, self.path)
        if refusal is not None:
            raise refusal
        if not ours["n"]:
            return []
        return (yield from all_rows("list_migrations"))

    def _check_owner(self, *, fresh: bool) -> Script[None]:
        if fresh:
            refusal = rights.unmakeable((yield from self._find()), self.path)
        else:
            refusal = rights.unowned((yield from all_rows("list_rights")), self.path)
        if refusal is not None:
            raise refusal

    def _there_already(self, missing: Sequence[Migration]) -> Script[list[str]]:
        """Name what missing migrations make and what is there all the same: one was applied by halves, or by hand."""
        made = {name for migration in missing for name in _MADE.findall(migration.sql)}
        rows = yield from all_rows("list_schema")
        return sorted({row["name"] for row in rows if row["name"] in made})

    def _differing(self) -> Script[list[str]]:
        rows = yield from all_rows("list_schema")
        expected = expected_schema(self.dialect)
        real = {squeeze(row["sql"]) for row in rows}
        gone = {name for name, sql in expected.items() if sql not in real}
        ours = [row for row in rows if row["tbl_name"].lower() in expected]
        return sorted(gone | {row["name"] for row in ours if self._is_foreign(row, expected)})

    def _is_foreign(self, row: Row, expected: Mapping[str, str]) -> bool:
        """Say whether something that we did not make could act on our rows."""
        sql = squeeze(row["sql"])
        if sql in expected.values():
            return False
        too_wide = self.dialect == "postgres" and _WIDE.search(sql.partition("(")[2])
        return bool(too_wide) or not _HARMLESS.fullmatch(sql)

    def _refuse(self, status: Status) -> None:
        newest = migrations(self.dialect)[-1].number
        if status.applied and max(status.applied) > newest:
            raise SchemaNewer(
                f"The database {self.path} is at schema {max(status.applied)}, newer than this code knows ({newest})."
                " Nothing was written. Install the release that made it, or a newer one."
            )
        if status.differing:
            halves = f" {_HALVES}" if status.missing else ""
            raise SchemaAltered(
                f"The database {self.path} differs from what its migrations make, in {', '.join(status.differing)}."
                f"{halves} Nothing was written. Compare with: counterfoil db status; restore the definitions or the"
                " database."
            )


def _altered(row: Row, known: Migration | None) -> bool:
    return known is not None and row["digest"] != known.digest


def prepare(store: Store, write: Callable[[Maker[Applied]], Applied], *, upgrade: bool) -> Applied:
    """Make the schema in an empty database; check it, or upgrade it, in one that has ours; return what was applied.

    A migration whose COMMIT nobody heard of is asked for again: it is found done, or is done now.

    Raises:
        SchemaMismatch: the schema does not fit this code; the class says how.
        RightsMissing: this role may not work with it, or may not make it.
        Busy: another process was changing the schema, or used a table that has to change, for too long.
    """
    migrator = Migrator(store.dialect, store.path)
    lost: CommitUnknown | None = None
    for _ in range(MIGRATE_TRIES):
        with nullcontext() if lost is None else lost.outlasting():
            if store.read(migrator.is_ready):
                return ()
            try:
                return write(lambda: migrator.migrate(upgrade=upgrade))
            except CommitUnknown as error:
                lost = error
            except Busy as error:
                raise _schema_busy(store.path) from error
    raise lost or LookupError("unreachable: the last try returns or raises")


def _schema_busy(path: str) -> Busy:
    return Busy(
        f"The schema of {path} could not be made or upgraded: another process is doing so, or has a transaction open on"
        " a table that has to change. Nothing was changed. Try again; on PostgreSQL pg_stat_activity tells who it is."
    )


def plain_sql(dialect: str, applied: Collection[int] = ()) -> str:
    """Return the migrations that are not `applied` as one text for a database administrator to read or run.

    It holds the statements that a program would run, in the same order, and keeps such a program out while it runs.
    """
    parts = [] if applied else [f"{_TABLES[dialect]};"]
    for m in (m for m in migrations(dialect) if m.number not in applied):
        parts.append(
            f"insert into counterfoil_migration (number, name, digest, applied_at)\n"
            f"values ({m.number}, '{m.name}', '{m.digest}', {_NOW[dialect]});"
        )
        parts.append(m.sql.strip())
    return "\n\n".join([_BEGIN[dialect], *parts, "commit;"]) + "\n"
