"""`counterfoil ops`: list operations, show one whole, let one be tried again or never be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.acts import act, acts
from counterfoil.cli.session import Session, integer, names_operation, verb, verb_to

if TYPE_CHECKING:
    from counterfoil.model import Page
    from counterfoil.shown import Operation, OperationDetail

EMPTY = """No operation yet. Wrap one effect:

    from counterfoil import Counterfoil, effect

    @effect("ticket.create", key="{request_id}/create-ticket")
    def create_ticket(call, *, title):
        return post_ticket(title, idempotency_key=call.provider_key)

    with Counterfoil.open("DATABASE") as cf:
        cf.perform(create_ticket, tenant="team-A", request_id="request-42", title="Printer offline")"""


@click.group()
def command() -> None:
    """List operations, show one, retry or cancel one."""


@command.command("list")
@click.option("--state", metavar="STATE", help="Only those in this state: unknown, in_flight, failed ...")
@click.option("--effect", metavar="NAME", help="Only those of this effect.")
@click.option("--request", "request_id", metavar="ID", help="Only those of this business request.")
@click.option("--thread", "thread_id", metavar="ID", help="Only those of this LangGraph thread.")
@click.option("--older", "older_than", metavar="AGE", help="Only those asked for at least this long ago: 30m, 2h.")
@click.option("--since", "newer_than", metavar="AGE", help="Only those asked for less than this long ago.")
@click.option("--before", type=integer, metavar="SEQ", help="Go on below this row: the `seq` of the last one shown.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Rows to show, at most 1000.")
@verb
def list_(session: Session, **asked: Any) -> None:
    """List operations, the newest first."""
    from counterfoil.cli.output import operation_json, show_json
    from counterfoil.operations import wish
    from counterfoil.storage.scripts import reads

    wanted = wish(**asked)
    page = session.read(lambda: reads.list_operations(session.tenant, wanted), tenant=session.tenant)
    if session.as_json:
        show_json([operation_json(each) for each in page.items])
    else:
        narrowed = any(asked[name] is not None for name in asked if name != "limit") or session.tenant is not None
        _show_page(page, nothing="No operation fits." if narrowed else _how_to_begin(session), tenant=session.tenant)


def _how_to_begin(session: Session) -> str:
    """Return the lines that make a first operation in this very database; a password is not among them."""
    scheme = "sqlite:///" if session.url.dialect == "sqlite" else ""
    return EMPTY.replace("DATABASE", f"{scheme}{session.url.path}")


def _show_page(page: Page[Operation], *, nothing: str, tenant: str | None) -> None:
    from counterfoil.cli.output import note, say, table

    if not page.items:
        say(nothing)
        return
    all_tenants = tenant is None
    headers = ["OPERATION", "STATE", "EFFECT", "ATTEMPTS", "AGE"]
    table([*(["TENANT"] if all_tenants else []), *headers], [_line(each, all_tenants) for each in page.items])
    if page.next is not None:
        note(f"More: add --before {page.next}")


def _line(operation: Operation, all_tenants: bool) -> list[object]:  # noqa: FBT001 - whether the column is there
    from counterfoil.cli.output import age

    line = [operation.operation_id, operation.state, operation.effect, operation.attempt, age(operation)]
    return [*([operation.tenant] if all_tenants else []), *line]


@command.command()
@verb
@names_operation()
def show(session: Session, operation: str) -> None:
    """Show one operation with its attempts, evidence and cases."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.operations import explained

    detail = session.one(operation)
    if session.as_json:
        show_json(detail_json(detail))
        return
    say(f"{explained(detail).answer}\n")
    show_operation(detail.operation)
    show_history(detail)


@command.command()
@acts
@verb_to("operate")
@names_operation()
def retry(session: Session, operation: str, **given: Any) -> None:
    """Let an operation that waits for a worker's next attempt be due now."""
    act(session, "retry", operation, given)


@command.command()
@acts
@verb_to("operate")
@names_operation()
def cancel(session: Session, operation: str, **given: Any) -> None:
    """End an operation that provably was not sent, so that it never is."""
    act(session, "cancel", operation, given)


def detail_json(detail: OperationDetail) -> dict[str, Any]:
    """Return an operation with its history as JSON shows it."""
    from dataclasses import asdict

    from counterfoil.cli.output import approval_json, operation_json, receipt_json
    from counterfoil.operations import explained

    return {
        "answer": explained(detail).answer,
        **operation_json(detail.operation),
        "attempt_history": [asdict(each) for each in detail.attempts],
        "evidence": [asdict(each) for each in detail.evidence],
        "cases": [asdict(each) for each in detail.cases],
        "approvals": [approval_json(each) for each in detail.approvals],
        "receipt": None if detail.receipt is None else receipt_json(detail.receipt),
        "lineage": [operation_json(each) for each in detail.lineage],
    }


def show_operation(operation: Operation) -> None:
    """Print what is known of an operation."""
    from counterfoil.cli.output import fields, key_given, when
    from counterfoil.core.states import OperationState

    trusted, origin, queued = operation.trusted, operation.origin, operation.max_attempts is not None
    fields(
        (
            ("operation", operation.operation_id),
            ("tenant", operation.tenant),
            ("effect", f"{operation.effect} v{operation.effect_version}"),
            ("state", operation.state),
            ("branch", operation.branch),
            ("provider key", key_given(operation)),
            ("fingerprint", operation.fingerprint),
            ("created", when(operation.created_at)),
            ("settled", when(operation.settled_at)),
            ("held by", operation.holder),
            ("stream", operation.stream),
            ("due", when(operation.due_at) if queued and operation.state == OperationState.PENDING else None),
            ("expires", when(operation.expires_at)),
            ("tries", f"{operation.attempt} of {operation.max_attempts}" if queued else None),
            ("error", operation.error_text or operation.error_class),
            ("request", trusted.request_id),
            ("workflow", trusted.workflow_id),
            ("principal", trusted.principal),
            ("thread", origin.thread_id),
            ("checkpoint", origin.checkpoint_id),
            ("node", origin.node),
            ("run", origin.run_id),
            ("trace", origin.trace_id),
        )
    )


def show_history(detail: OperationDetail) -> None:
    """Print attempts, evidence, cases and lineage as tables, those that exist."""
    from counterfoil.cli.output import approval_state, say, table, when

    tables: list[tuple[list[str], list[list[object]]]] = [
        (
            ["ATTEMPT", "OUTCOME", "STARTED", "ENDED", "ERROR"],
            [
                [a.attempt, a.outcome, when(a.started_at), when(a.ended_at), a.error_text or a.error_class or ""]
                for a in detail.attempts
            ],
        ),
        (
            ["EVIDENCE", "ATTEMPT", "AT", "BY", "ANSWER"],
            [[e.kind, e.attempt, when(e.at), e.given_by or "-", e.answer] for e in detail.evidence],
        ),
        (
            ["APPROVAL", "STATE", "ASKED", "DECIDE BY", "BY", "REASON"],
            [
                [
                    a.approval_id,
                    approval_state(a),
                    when(a.requested_at),
                    when(a.decide_by),
                    a.decided_by or "-",
                    a.reason or "",
                ]
                for a in detail.approvals
            ],
        ),
        (
            ["CASE", "KIND", "STATE", "VERSION", "OPENED", "REASON"],
            [[c.case_id, c.kind, c.state, c.version, when(c.opened_at), c.reason] for c in detail.cases],
        ),
        (
            ["SAME ACTION IN", "OPERATION", "STATE", "SETTLED"],
            [[o.branch or "main line", o.operation_id, o.state, when(o.settled_at)] for o in detail.lineage],
        ),
    ]
    for headers, lines in tables:
        if lines:
            say()
            table(headers, lines)
