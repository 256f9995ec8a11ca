"""`counterfoil tokens`: tokens that stand for principals; a secret is shown once, and given by file or environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.acts import may_say_why
from counterfoil.cli.session import Session, integer, user, verb, verb_to
from counterfoil.errors import InvalidCommand

if TYPE_CHECKING:
    from counterfoil.records import Token
    from counterfoil.tokens import Tokens

EMPTY = "No token."
NEVER = "never"


@click.group()
def command() -> None:
    """Issue tokens that stand for principals, list, rotate and revoke them."""


def _tokens(session: Session) -> Tokens:
    from counterfoil.tokens import Tokens

    return Tokens(session.store)


def _of(session: Session, token: str) -> Tokens:
    """Return the tokens, for one that belongs to the tenant which the verb is about.

    Raises:
        TokenNotFound: there is no such token there.
    """
    from counterfoil.issuing import token_not_found
    from counterfoil.storage.scripts import tokens

    if session.tenant is not None:
        found = session.read(lambda: tokens.find(token), tenant=session.tenant)
        if found is None or found["tenant"] != session.tenant:
            raise token_not_found(token)
    return _tokens(session)


@command.command()
@click.option("--name", required=True, metavar="PRINCIPAL", help="For whom it stands.")
@click.option("--role", required=True, metavar="ROLE", help="viewer, reviewer, operator or admin.")
@click.option("--scope", "scopes", multiple=True, metavar="ACT", help="Only this of what the role permits; repeatable.")
@click.option(
    "--expires-in", metavar="AGE", default="90d", show_default=True, help="How long it is honoured; or never."
)
@click.option("--all-tenants", is_flag=True, help="For all tenants, in the place of --tenant.")
@may_say_why
@verb_to("administer")
def issue(
    session: Session, *, scopes: tuple[str, ...], expires_in: str, all_tenants: bool, by: str | None, **given: Any
) -> None:
    """Issue a token; its secret is printed once and stored nowhere."""
    if (session.tenant is None) != all_tenants:
        raise InvalidCommand("Say for whom the token acts: either --tenant NAME or --all-tenants. None was issued.")
    lifetime = None if expires_in == NEVER else expires_in
    made = _tokens(session).issue(
        tenant=session.tenant, scopes=scopes or None, expires_in=lifetime, by=session.by(by), **given
    )
    _show_secret(session, *made)


@command.command("list")
@click.option("--after", type=integer, metavar="SEQ", help="Go on after this row: the `seq` of the last one shown.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Rows to show, at most 1000.")
@verb_to("administer")
def list_(session: Session, *, after: int | None, limit: int) -> None:
    """List tokens, the oldest first; never a secret."""
    from counterfoil.cli.output import note, say, show_json, table, when
    from counterfoil.operations import check_limit
    from counterfoil.storage import rows
    from counterfoil.storage.scripts import tokens

    most = check_limit(limit)
    found = session.read(lambda: tokens.page(session.tenant, after=after or 0, limit=most + 1), tenant=session.tenant)
    items = [rows.token(row) for row in found[:most]]
    if session.as_json:
        show_json([_json(each) for each in items])
        return
    if not items:
        say(EMPTY)
        return
    lines = [(t.token_id, t.tenant or "(all)", t.name, _role(t), t.status, when(t.expires_at)) for t in items]
    table(["TOKEN", "TENANT", "NAME", "ROLE", "STATUS", "UNTIL"], lines)
    if len(found) > most:
        note(f"More: add --after {items[-1].seq}")


@command.command()
@click.argument("token", metavar="TOKEN")
@click.option("--overlap", metavar="AGE", default="24h", show_default=True, help="How long both are honoured.")
@click.option("--expires-in", metavar="AGE", help="How long the new one is; as long as the old one unless given.")
@may_say_why
@verb_to("administer")
def rotate(session: Session, token: str, *, by: str | None, **given: Any) -> None:
    """Issue a token in the place of another one, named by its public id."""
    _show_secret(session, *_of(session, token).rotate(token, by=session.by(by), **given))


@command.command()
@click.argument("token", metavar="TOKEN")
@may_say_why
@verb_to("administer")
def revoke(session: Session, token: str, *, by: str | None, reason: str) -> None:
    """End a token at once, named by its public id."""
    from counterfoil.cli.output import clean, say, show_json

    ended = _of(session, token).revoke(token, by=session.by(by), reason=reason)
    if session.as_json:
        show_json(_json(ended))
        return
    say(clean(f"revoked  {ended.token_id}  {ended.name}  by={ended.revoked_by}"))


@command.command()
@verb
def whoami(session: Session) -> None:
    """Show who acts: the principal of the token, or the operating-system user."""
    from counterfoil.cli.output import fields, show_json
    from counterfoil.core.access import Act

    tenant, principal = session.tenant, session.principal
    acts = [str(act) for act in Act if principal is None or principal.may(act)]
    told = {
        "name": user() if principal is None else principal.name,
        "tenant": tenant,
        "role": None if principal is None else str(principal.role),
        "acts": acts,
        "token_id": None if principal is None else principal.token_id,
    }
    if session.as_json:
        show_json(told)
        return
    role = told["role"] or "(holds the database)"
    fields([*{**told, "tenant": tenant or "(all)", "role": role, "acts": ", ".join(acts)}.items()])


def _role(token: Token) -> str:
    return token.role if token.scopes is None else f"{token.role} ({', '.join(token.scopes)})"


def _json(token: Token) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(token), "status": token.status}


def _show_secret(session: Session, token: Token, secret: str) -> None:
    from counterfoil.cli.output import fields, note, say, show_json, when

    if session.as_json:
        show_json({**_json(token), "secret": secret})
        return
    fields(
        [
            ("token", token.token_id), ("name", token.name), ("tenant", token.tenant or "(all)"),
            ("role", _role(token)), ("until", when(token.expires_at) if token.expires_at else "for ever"),
        ]
    )  # fmt: skip
    say(f"\n{secret}\n")
    note("It is shown this once. Give it by COUNTERFOIL_TOKEN, or in a file by --token-file; never on a command line.")
