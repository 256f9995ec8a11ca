"""`counterfoil db`: is the schema right, make it right, print the SQL for somebody else to run; and retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import Session, verb, verb_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.drivers.sqlite_look import SqliteLook
    from counterfoil.storage.store import Store


LONGEST_NAME = 63
"""Bytes of a name that PostgreSQL keeps; it cuts off what is longer."""
NOTABLE_MS = 1_000
"""Clocks that differ by less say nothing: the answer was on its way as long."""


@click.group()
def command() -> None:
    """Check the database's schema, upgrade it, print its SQL, or remove what is kept no longer."""


@command.command()
@verb
def status(session: Session) -> None:
    """Say whether the schema and the role's rights are what this code needs; exit 8 if not. Nothing is changed."""
    from counterfoil.cli.output import fields, say, show_json
    from counterfoil.errors import Exit

    found = _status(session.look, session.tenant)
    if session.as_json:
        show_json(found)
    else:
        fields([(name, _LINES.get(name, _cell)(value)) for name, value in found.items()])
        if not found["ours"]:
            say("It holds no tables of Counterfoil: check --url, or put them into it with counterfoil db upgrade.")
        if found.get("lacking"):
            say("Let the owner of the tables run what this prints, with the role's name: counterfoil db grants ROLE")
    if not found["current"] or found.get("lacking"):
        click.get_current_context().exit(Exit.CHECK_FOUND)


def _status(store: SqliteLook | Store, tenant: str | None) -> dict[str, Any]:
    from dataclasses import asdict

    from counterfoil.clock import SystemClock
    from counterfoil.drivers.sqlite_look import SqliteLook
    from counterfoil.storage import rights
    from counterfoil.storage.migrator import Migrator, migrations
    from counterfoil.storage.script import all_rows
    from counterfoil.storage.scripts import inspection, reads
    from counterfoil.storage.tenants import ALL_TENANTS, whose

    seen = store.read(Migrator(store.dialect, store.path).status)
    newest = migrations(store.dialect)[-1].number
    newer = [number for number in seen.applied if number > newest]
    found: dict[str, Any] = {
        "database": store.path,
        "dialect": store.dialect,
        "ours": bool(seen.applied or seen.differing),
        "current": not (seen.missing or seen.differing or newer),
        "applied": list(seen.applied),
        "missing": [f"{m.number:04} {m.name}" for m in seen.missing],
        "unknown_to_this_code": newer,
        "differing": list(seen.differing),
    }
    if found["ours"]:
        may = store.read(lambda: all_rows("list_rights"))
        found["rights"] = rights.summary(store.dialect, may)
        found["lacking"] = list(rights.lacking(store.dialect, may))
        if store.dialect == "postgres":
            found["row_security"] = rights.row_security(may)
            found["for_one_tenant"] = rights.for_one_tenant(may)
    if found["current"] and _sees_rows(found, tenant):
        found["operations"] = store.read(lambda: reads.count_operations(tenant), tenant=whose(tenant))
        asked = whose(tenant) if found.get("for_one_tenant") else ALL_TENANTS
        found["clock"] = asdict(store.read(lambda: inspection.clocks(SystemClock().now_ms()), tenant=asked))
    if isinstance(store, SqliteLook):
        found["file"] = store.condition()
    return found


def _sees_rows(found: dict[str, Any], tenant: str | None) -> bool:
    """Say whether the role may read, and would be shown what it asks for."""
    from counterfoil.storage import rights

    reads = rights.READ not in {right.partition(" ")[0] for right in found["lacking"]}
    return reads and not (tenant is None and found.get("for_one_tenant"))


def _file(file: dict[str, Any]) -> str:
    log = f"write-ahead log of {file['log_bytes']} bytes" if file["write_ahead_log"] else "rollback journal"
    where = file["file_system"] or "a file system that the system does not name"
    return f"{file['bytes']} bytes, {file['free_pages']} of {file['pages']} pages free, {log}, on {where}"


def _clock(clock: dict[str, Any]) -> str:
    told = []
    if abs(clock["host_ahead_ms"]) >= NOTABLE_MS:
        told.append(f"this host's differs from the database's by {clock['host_ahead_ms']} ms")
    if clock["rows_ahead_ms"]:
        told.append(f"the newest row is {clock['rows_ahead_ms']} ms in the future: a clock was set back, or differs")
    return "; ".join(told) or "agrees"


def _cell(value: object) -> object:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{n} {name}" for name, n in value.items() if n) or "none yet"
        case _:
            return value


_LINES: dict[str, Callable[[Any], object]] = {"file": _file, "clock": _clock}


@command.command()
@click.option("--engine", type=click.Choice(["procrastinate"]), help="Make this engine's tables, too.")
@verb
def upgrade(session: Session, *, engine: str | None) -> None:
    """Make the schema in a new database, or apply what is missing; all rows are kept."""
    from counterfoil.cli.output import say, show_json

    session.refuse_token("make or upgrade the schema")
    store = session.raw_store
    names = [f"{m.number:04} {m.name}" for m in store.migrate(upgrade=True)]
    if engine is not None:
        from counterfoil.engine.choosing import made_for

        names += [f"the tables of {engine}"] if made_for(store) else []
    if session.as_json:
        show_json({"database": store.path, "applied": names})
        return
    say(f"Applied to {store.path}: {', '.join(names)}" if names else f"{store.path} is current; nothing to do.")


@command.command()
@click.option("--missing", is_flag=True, help="Only what the database lacks; without it the whole schema.")
@click.option("--dialect", type=click.Choice(["sqlite", "postgres"]), help="Not the URL's, so that none is needed.")
@verb
def sql(session: Session, *, missing: bool, dialect: str | None) -> None:
    """Print the schema's SQL for a database administrator to read or run; nothing is changed."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.errors import InvalidCommand
    from counterfoil.storage.migrator import Migrator, plain_sql

    applied: tuple[int, ...] = ()
    if missing and dialect:
        raise InvalidCommand("What is missing is asked of a database, which has its own dialect. Leave out --dialect.")
    if missing:
        store = session.look
        applied = store.read(Migrator(store.dialect, store.path).status).applied
    dialect = dialect or session.url.dialect
    text = plain_sql(dialect, applied)
    if session.as_json:
        show_json({"dialect": dialect, "sql": text})
        return
    say(text.rstrip("\n"))


@command.command()
@click.option("--payload", metavar="AGE", help="Keep what was learnt beside a receipt this long, such as 30d.")
@click.option("--receipt", metavar="AGE", help="Keep receipts this long; then the id is refused with date and outcome.")
@click.option("--tombstone", metavar="AGE", help="Keep ids this long; after that a repeat is executed again.")
@click.option("--import", "modules", metavar="MODULE", multiple=True, help="Module that declares your effects.")
@verb_to("operate")
def purge(session: Session, modules: tuple[str, ...], **ages: str | None) -> None:
    """Remove what is kept no longer: by these ages after settling, or as the effects of a module declare.

    What is not settled stays, and so does what a case is open about or a waiting run may ask for. Events and waits of
    workflows that ended as long ago as the shortest of the ages go, too.
    """
    from dataclasses import asdict

    from counterfoil.cli.output import say, show_json
    from counterfoil.drivers.driving import drive
    from counterfoil.errors import InvalidCommand
    from counterfoil.keeping import Retention
    from counterfoil.performing import Read
    from counterfoil.purging import check_declared
    from counterfoil.purging import purge as purging
    from counterfoil.storage.tenants import whose

    if not (modules or any(ages.values())):
        raise InvalidCommand("Say how long to keep what: --receipt 400d, or --import the module of your effects.")
    for module in modules:
        _import(module)
    retention, store = Retention(**ages), session.store
    check_declared(retention)
    purged = drive(
        purging(retention, session.tenant),
        lambda step: (store.read if isinstance(step, Read) else store.write)(step.maker, tenant=whose(session.tenant)),
    )
    if session.as_json:
        show_json(asdict(purged))
        return
    say(f"Purged: {purged.payloads} payloads, {purged.receipts} receipts, {purged.tombstones} tombstones.")
    if purged.events or purged.waits:
        say(f"Of workflows that have ended: {purged.events} events, {purged.waits} waits.")
    if purged.held:
        say(f"{purged.held} were due and stay: a case about them is open, or a run waits that may ask for them.")


def _import(module: str) -> None:
    """Import a module of the user's, from the current folder, too.

    Raises:
        InvalidCommand: there is none of this name.
    """
    import sys
    from importlib import import_module
    from pathlib import Path

    from counterfoil.errors import InvalidCommand

    sys.path.insert(0, str(Path.cwd()))
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidCommand(f"There is no module {error.name} to import. Nothing was purged.") from error
    finally:
        sys.path.remove(str(Path.cwd()))


@command.command()
@click.argument("role")
@click.option("--schema", default="public", show_default=True, help="Where the tables are.")
@click.option("--read-only", is_flag=True, help="For a role that looks and never writes.")
@click.option("--one-tenant", is_flag=True, help="For a role that may never work for all tenants at once: no worker.")
@verb
def grants(session: Session, role: str, *, schema: str, read_only: bool, one_tenant: bool) -> None:
    """Print the SQL by which a PostgreSQL role may work with the tables, and no more; nothing is changed."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.storage import rights

    _check_name("the role", role)
    _check_name("--schema", schema)
    text = rights.grants(role, schema, read_only=read_only, one_tenant=one_tenant)
    if session.as_json:
        asked = {"role": role, "schema": schema, "read_only": read_only, "one_tenant": one_tenant}
        show_json({**asked, "sql": text})
        return
    say(text.rstrip("\n"))


def _check_name(what: str, name: str) -> None:
    """Refuse what PostgreSQL would not take for this name, or take for another one.

    Raises:
        InvalidCommand: it is empty, too long, or holds a NUL.
    """
    from counterfoil.errors import InvalidCommand

    if not name.strip() or "\0" in name or len(name.encode()) > LONGEST_NAME:
        raise InvalidCommand(
            f"The name of {what} is {name[:20]!r}: PostgreSQL takes 1 to {LONGEST_NAME} bytes, and a longer name for"
            " another one. Nothing was printed to be run."
        )
