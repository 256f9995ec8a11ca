"""`counterfoil audit`: who did what to what, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import Session, integer, verb, verb_to

if TYPE_CHECKING:
    from counterfoil.records import AuditEntry

EMPTY = "Nothing was done by hand."
_FINGERPRINT = 17
"""Characters of a fingerprint that tell two apart; messages show as many."""


@click.group()
def command() -> None:
    """List who did what to what, and why; export it."""


@command.command("list")
@click.option("--subject", metavar="ID", help="Only about this: an operation, an approval, a workflow, a token ...")
@click.option("--who", metavar="NAME", help="Only what this principal did.")
@click.option("--after", type=integer, metavar="SEQ", help="Go on after this entry: the `seq` of the last one shown.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Entries to show, at most 1000.")
@verb
def list_(session: Session, **asked: Any) -> None:
    """List entries, the oldest first."""
    from dataclasses import asdict

    from counterfoil.cli.output import note, say, show_json, table
    from counterfoil.issuing import entries_of
    from counterfoil.storage.scripts import audit

    wish = entries_of(**asked)
    page = session.read(lambda: audit.page(session.tenant, wish), tenant=session.tenant)
    if session.as_json:
        show_json([asdict(each) for each in page.items])
        return
    if not page.items:
        say(EMPTY)
        return
    table(["AT", "TENANT", "WHO", "ROLE", "ACT", "SUBJECT", "BECAME", "REASON"], [_line(each) for each in page.items])
    if page.next is not None:
        note(f"More: add --after {page.next}")


def _line(entry: AuditEntry) -> tuple[str, ...]:
    from counterfoil.cli.output import when

    became = f"{_short(entry.before)} -> {_short(entry.after)}"
    named = (when(entry.at), entry.tenant or "(all)", entry.shown, entry.role or "-")
    of = "" if entry.operation_id in {None, entry.subject} else f" of {entry.operation_id}"
    return (*named, entry.act, f"{entry.kind} {entry.subject}{of}", became, entry.reason or "-")


def _short(state: str | None) -> str:
    """Return a state with the beginning of its fingerprint: --json and export have all of it."""
    if not state:
        return "-"
    return " ".join(word if ":" not in word else word[:_FINGERPRINT] for word in state.split(" "))


@command.command()
@verb_to("export")
def export(session: Session) -> None:
    """Print all entries as lines of JSON, the oldest first; with --json as one array."""
    import json
    from functools import partial

    from counterfoil.cli.output import say, show_json
    from counterfoil.issuing import EXPORT_PAGE, entries_of, following, line
    from counterfoil.storage.scripts import audit

    wish, kept = entries_of(None, None, None, EXPORT_PAGE), list[Any]()
    while True:
        page = session.read(partial(audit.page, session.tenant, wish), tenant=session.tenant)
        for entry in page.items:
            if session.as_json:
                kept.append(json.loads(line(entry)))
            else:
                say(line(entry))
        if page.next is None:
            break
        wish = following(wish, page.next)
    if session.as_json:
        show_json(kept)
