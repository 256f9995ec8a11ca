"""`counterfoil approvals`: what waits for a person's decision before it is sent, and the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import Session, integer, verb, verb_to

if TYPE_CHECKING:
    from counterfoil.approvals import Approvals
    from counterfoil.shown import Approval, ApprovalDetail

EMPTY = "Nothing waits for a decision."


@click.group()
def command() -> None:
    """List what waits for a decision before it is sent, show it, approve, reject, edit or cancel it."""


@command.command("list")
@click.option(
    "--state", type=click.Choice(["pending", "approved", "rejected", "edited", "expired", "cancelled", "all"]),
    default="pending", show_default=True, help="pending: waits for a decision.",
)  # fmt: skip
@click.option("--after", type=integer, metavar="N", help="Go on after this approval's number.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Approvals to show, at most 1000.")
@verb
def list_(session: Session, state: str, after: int | None, limit: int) -> None:
    """List approvals, the oldest first."""
    from counterfoil.approving import paged, wanted_state
    from counterfoil.cli.output import approval_json, approval_state, note, say, show_json, table, when
    from counterfoil.operations import check_limit
    from counterfoil.storage.scripts import approvals

    wanted, most = wanted_state(None if state == "all" else state), check_limit(limit)
    page = paged(
        session.read(
            lambda: approvals.page(session.tenant, state=wanted, after=after or 0, limit=most + 1),
            tenant=session.tenant,
        ),
        most,
    )
    if session.as_json:
        show_json([approval_json(each) for each in page.items])
        return
    if not page.items:
        say(EMPTY)
        return
    lines = [
        (a.approval_id, a.tenant, a.operation_id, a.effect, approval_state(a), a.requested_by or "-", when(a.decide_by))
        for a in page.items
    ]
    table(["APPROVAL", "TENANT", "OPERATION", "EFFECT", "STATE", "ASKED BY", "DECIDE BY"], lines)
    if page.next is not None:
        note(f"More: add --after {page.next}")


@command.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--reveal", is_flag=True, help="Print what looks like a credential, too: it would be sent as it is.")
@verb
def show(session: Session, approval: str, *, reveal: bool) -> None:
    """Show what is asked: the very arguments that would be sent, who asked, and what was sent already."""
    from counterfoil.cli.output import show_json

    found = _found(session, approval)
    if session.as_json:
        show_json({**_json(found, reveal=reveal), "others": [_short(other) for other in found.others]})
        return
    _show(found, reveal=reveal)


def _json(found: ApprovalDetail, *, reveal: bool) -> dict[str, Any]:
    from counterfoil.cli.output import approval_json, hidden, operation_json

    shown = _readable(found, reveal=reveal)
    return {
        **approval_json(found.approval),
        "arguments": shown,
        "hidden": hidden(found.arguments, shown),
        "operation": operation_json(found.operation),
    }


def _short(operation: Any) -> dict[str, Any]:
    return {"operation_id": operation.operation_id, "state": operation.state, "attempts": operation.attempt}


def _readable(found: ApprovalDetail, *, reveal: bool) -> dict[str, Any] | None:
    from counterfoil.cli.output import readable

    return None if found.arguments is None else readable(found.arguments, reveal=reveal)


def _show(found: ApprovalDetail, *, reveal: bool) -> None:
    from counterfoil.cli.output import clean, fields, say, when
    from counterfoil.core.states import ApprovalState

    asked = found.approval
    say(clean(f"{asked.approval_id} is {asked.state}: {asked.effect} (version {asked.effect_version})"))
    if asked.ran_out:
        say(_ran_out(asked))
    if asked.state == ApprovalState.EXPIRED:
        say(clean(f"It ran out at {when(asked.decided_at)}: {asked.reason}"))
    elif asked.decided_by is not None:
        say(clean(f"{asked.decided_by} decided at {when(asked.decided_at)}: {asked.reason or 'no reason given'}"))
    say()
    fields(
        [
            ("operation", f"{asked.operation_id} is {found.operation.state}"),
            ("tenant", asked.tenant),
            ("asked by", asked.requested_by),
            ("asked at", when(asked.requested_at)),
            ("decide by", when(asked.decide_by)),
            ("approved until", when(asked.valid_until)),
            (_spent(found), when(asked.spent_at)),
            ("edited by", asked.edited_by),
            ("follows", asked.follows),
            ("followed by", asked.followed_by),
            ("workflow", found.operation.trusted.workflow_id),
            ("request", found.operation.trusted.request_id),
            ("content", asked.fingerprint),
        ]
    )
    _show_arguments(found, reveal=reveal)
    if found.others:
        say("\nUnder the same intent:")
        fields([(f"  {each.operation_id}", f"{each.state}, attempts: {each.attempt}") for each in found.others])
    if asked.state == "pending" and not asked.ran_out:
        say()
        say(clean(f"Run: counterfoil approvals approve {asked.approval_id} --tenant {asked.tenant}"))
        say(clean(f"Run: counterfoil approvals reject {asked.approval_id} --tenant {asked.tenant} --reason TEXT"))


def _ran_out(asked: Approval) -> str:
    from counterfoil.cli.output import when

    if asked.state == "pending":
        return f"Nobody decided by {when(asked.decide_by)}: it is over, and nothing is sent."
    return f"It ran out at {when(asked.valid_until)} before anything was sent: that is asked about again first."


def _spent(found: ApprovalDetail) -> str:
    """Name the time at which the first attempt under a decision began by what is known of it."""
    told = {"succeeded": "sent at", "failed": "tried at", "in_flight": "being sent since"}
    return told.get(found.operation.state, "perhaps sent at")


def _show_arguments(found: ApprovalDetail, *, reveal: bool) -> None:
    from counterfoil.cli.output import hidden, say, show_arguments

    asked, given = found.approval, _readable(found, reveal=reveal)
    say("\nWould be sent:" if asked.state == "pending" else "\nWas asked about:")
    command = f"counterfoil approvals show {asked.approval_id} --tenant {asked.tenant} --reveal"
    show_arguments(given, hidden(found.arguments, given), command)


@command.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--reason", default="", metavar="TEXT", help="Why.")
@verb_to("decide")
def approve(session: Session, approval: str, reason: str) -> None:
    """Let an operation be sent, with exactly the arguments that `show` prints."""
    _decide(session, approval, "approve", reason)


@command.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--reason", required=True, metavar="TEXT", help="Why.")
@verb_to("decide")
def reject(session: Session, approval: str, reason: str) -> None:
    """Say no, for good: nothing is sent."""
    _decide(session, approval, "reject", reason)


@command.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--reason", required=True, metavar="TEXT", help="Why.")
@verb_to("decide")
def cancel(session: Session, approval: str, reason: str) -> None:
    """Withdraw what was asked, or approved and not sent yet."""
    _decide(session, approval, "cancel", reason)


@command.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--app", required=True, metavar="MODULE:NAME", help="What declares the effect: an opened Counterfoil.")
@click.option("--set", "changes", multiple=True, required=True, metavar="NAME=JSON", help="An argument's new value.")
@click.option("--reason", default="", metavar="TEXT", help="Why.")
@verb_to("decide")
def edit(session: Session, approval: str, app: str, changes: tuple[str, ...], reason: str) -> None:
    """Ask about other arguments in place of these, which are never sent."""
    from counterfoil.cli.running import desk_of

    given = dict(_change(each) for each in changes)
    with desk_of(app):  # its effects are declared from now on
        asked = _approvals(session).edit(
            approval, tenant=_tenant(session, approval), by=session.by(None), changes=given, reason=reason
        )
    _tell(session, asked, f"Asked anew. Run: counterfoil approvals show {asked.approval_id} --tenant {asked.tenant}")


def _change(text: str) -> tuple[str, Any]:
    from counterfoil.core.json_text import InvalidJson, read_json

    name, sign, value = text.partition("=")
    if not (name and sign):
        raise click.UsageError(f"--set {text!r} names no argument; write --set amount=5.")
    try:
        return name, read_json(value)
    except InvalidJson as wrong:
        raise click.UsageError(
            f"--set {name}=... is not JSON: {wrong}. A text keeps its quotes: --set 'to=\"ann@example.test\"'."
        ) from None


def _decide(session: Session, approval: str, ruling: str, reason: str) -> None:
    tenant = _tenant(session, approval)
    decided: Approval = getattr(_approvals(session), ruling)(
        approval, tenant=tenant, by=session.by(None), reason=reason
    )
    told = f"recorded  {decided.approval_id}  {decided.state}  by={decided.decided_by}  {decided.operation_id}"
    _tell(session, decided, told)


def _tell(session: Session, approval: Approval, told: str) -> None:
    from counterfoil.cli.output import approval_json, clean, say, show_json

    if session.as_json:
        show_json(approval_json(approval))
    else:
        say(clean(told))


def _approvals(session: Session) -> Approvals:
    from counterfoil.approvals import Approvals
    from counterfoil.desk import Desk

    return Approvals(Desk(session.store, session.store.awaiting(), 0))


def _tenant(session: Session, approval_id: str) -> str:
    return session.tenant if session.tenant is not None else _found(session, approval_id).approval.tenant


def _found(session: Session, approval_id: str) -> ApprovalDetail:
    from counterfoil.approving import not_found, number
    from counterfoil.storage.scripts import approvals

    seq = number(approval_id, session.tenant or "any")
    found = session.read(lambda: approvals.get(session.tenant, seq), tenant=session.tenant)
    if found is None:
        raise not_found(approval_id, session.tenant or "any")
    return found
