"""`counterfoil tenants`: those that were created, to be suspended and resumed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.acts import may_say_why, says_why
from counterfoil.cli.session import Session, integer, verb_to
from counterfoil.errors import InvalidCommand

if TYPE_CHECKING:
    from counterfoil.records import Tenant
    from counterfoil.tenants import Tenants

EMPTY = "No tenant was created; any name is one from its first operation."


@click.group()
def command() -> None:
    """Create tenants, list, suspend and resume them."""


def _tenants(session: Session, named: str) -> Tenants:
    """Return the tenants.

    Raises:
        InvalidCommand: --tenant names another one than the argument.
    """
    from counterfoil.tenants import Tenants

    if session.named not in {None, named}:
        raise InvalidCommand(f"Two tenants are named: {named} and --tenant {session.named}. Nothing was done.")
    return Tenants(session.store)


@command.command()
@click.argument("tenant_id", metavar="TENANT")
@click.option("--name", metavar="TEXT", help="Its name for people; its id unless given.")
@may_say_why
@verb_to("administer")
def create(session: Session, tenant_id: str, *, name: str | None, by: str | None, reason: str) -> None:
    """Record a tenant, so that it can be suspended; the same one again is found."""
    _show(session, _tenants(session, tenant_id).create(tenant_id, name, by=session.by(by), reason=reason))


@command.command("list")
@click.option("--after", metavar="TENANT", help="Go on after this one.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Rows to show, at most 1000.")
@verb_to("administer")
def list_(session: Session, *, after: str | None, limit: int) -> None:
    """List the tenants that were created, by their id."""
    from counterfoil.cli.output import note, say, show_json, table, when
    from counterfoil.operations import check_limit
    from counterfoil.storage import rows
    from counterfoil.storage.scripts import tenants

    most = check_limit(limit)
    found = session.read(lambda: tenants.page(session.tenant, after=after or "", limit=most + 1), tenant=session.tenant)
    items = [rows.tenant(row) for row in found[:most]]
    if session.as_json:
        show_json([asdict(each) for each in items])
        return
    if not items:
        say(EMPTY)
        return
    lines = [(t.tenant, t.name, t.status, when(t.updated_at), t.changed_by, t.reason or "-") for t in items]
    table(["TENANT", "NAME", "STATUS", "SINCE", "BY", "REASON"], lines)
    if len(found) > most:
        note(f"More: add --after {items[-1].tenant}")


@command.command()
@click.argument("tenant_id", metavar="TENANT")
@says_why
@verb_to("administer")
def suspend(session: Session, tenant_id: str, *, by: str | None, **given: Any) -> None:
    """Refuse a tenant's tokens and keep back what it enqueued, until it is resumed."""
    from counterfoil.cli.output import note

    who = session.by(by)
    _show(session, _tenants(session, tenant_id).suspend(tenant_id, by=who, **given))
    if not isinstance(who, str) and who.tenant == tenant_id:
        note(
            "Your own token is refused from now on. Who holds the database, or an admin for all tenants, can let the"
            f" tenant go on: counterfoil tenants resume {tenant_id} --reason '...'"
        )


@command.command()
@click.argument("tenant_id", metavar="TENANT")
@says_why
@verb_to("administer")
def resume(session: Session, tenant_id: str, *, by: str | None, **given: Any) -> None:
    """Honour a suspended tenant's tokens again, and send what it enqueued."""
    _show(session, _tenants(session, tenant_id).resume(tenant_id, by=session.by(by), **given))


def _show(session: Session, tenant: Tenant) -> None:
    from counterfoil.cli.output import clean, say, show_json

    if session.as_json:
        show_json(asdict(tenant))
        return
    say(clean(f"{tenant.tenant} ({tenant.name}) is {tenant.status}, by {tenant.changed_by}"))
