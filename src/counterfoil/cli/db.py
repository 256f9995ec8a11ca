"""`counterfoil db`: the database's schema: is it right, make it right, or print the SQL for somebody else to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import Session, verb

if TYPE_CHECKING:
    from counterfoil.drivers.sqlite_look import SqliteLook
    from counterfoil.storage.store import Store


@click.group()
def command() -> None:
    """Check the database's schema, upgrade it, or print its SQL."""


@command.command()
@verb
def status(session: Session) -> None:
    """Say whether the schema is what this code needs; exit 8 if it is not. Nothing is changed."""
    from counterfoil.cli.output import fields, say, show_json
    from counterfoil.errors import Exit

    found = _status(session.look, session.tenant)
    if session.as_json:
        show_json(found)
    else:
        fields([(name, _cell(value)) for name, value in found.items()])
        if not found["ours"]:
            say("It holds no tables of Counterfoil: check --url, or put them into it with counterfoil db upgrade.")
    if not found["current"]:
        click.get_current_context().exit(Exit.CHECK_FOUND)


def _status(store: SqliteLook | Store, tenant: str | None) -> dict[str, Any]:
    from counterfoil.storage.migrator import Migrator, migrations
    from counterfoil.storage.scripts import reads

    seen = store.read(Migrator(store.dialect, store.path).status)
    newest = migrations(store.dialect)[-1].number
    newer = [number for number in seen.applied if number > newest]
    found: dict[str, Any] = {
        "database": store.path,
        "dialect": store.dialect,
        "ours": bool(seen.applied),
        "current": not (seen.missing or seen.differing or newer),
        "applied": list(seen.applied),
        "missing": [f"{m.number:04} {m.name}" for m in seen.missing],
        "unknown_to_this_code": newer,
        "differing": list(seen.differing),
    }
    if found["current"]:
        found["operations"] = store.read(lambda: reads.count_operations(tenant))
    return found


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


@command.command()
@verb
def upgrade(session: Session) -> None:
    """Make the schema in a new database, or apply what is missing; all rows are kept."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.storage.migrator import Migrator

    store = session.raw_store
    migrator = Migrator(store.dialect, store.path)
    done = [] if store.read(migrator.is_current) else store.write_alone(lambda: migrator.migrate(upgrade=True))
    names = [f"{m.number:04} {m.name}" for m in done]
    if session.as_json:
        show_json({"database": store.path, "applied": names})
        return
    say(f"Applied to {store.path}: {', '.join(names)}" if names else f"{store.path} is current; nothing to do.")


@command.command()
@click.option("--missing", is_flag=True, help="Only what the database lacks; without it the whole schema.")
@verb
def sql(session: Session, *, missing: bool) -> None:
    """Print the schema's SQL for a database administrator to read or run; nothing is changed."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.storage.migrator import Migrator, plain_sql

    applied: tuple[int, ...] = ()
    if missing:
        store = session.look
        applied = store.read(Migrator(store.dialect, store.path).status).applied
    dialect = session.url.dialect
    text = plain_sql(dialect, applied)
    if session.as_json:
        show_json({"dialect": dialect, "sql": text})
        return
    say(text.rstrip("\n"))
