"""`counterfoil find`: what an id of any kind belongs to."""

from __future__ import annotations

import click

from counterfoil.cli.session import Session, integer, verb


@click.command()
@click.argument("any_id", metavar="ANY_ID")
@click.option("--limit", type=integer, default=50, show_default=True, help="Operations to show, at most 1000.")
@verb
def command(session: Session, any_id: str, limit: int) -> None:
    """Say what an id of any kind belongs to.

    Knows the ids of operations (also their beginning), cases, approvals, grants, requests, workflows, threads,
    checkpoints, runs and traces, and the key that a provider was given.
    """
    from counterfoil.cli.output import age, key_given, operation_json, show_json, table
    from counterfoil.errors import OperationNotFound
    from counterfoil.operations import check_limit
    from counterfoil.storage.scripts import reads

    wanted = check_limit(limit)
    hits = session.read(lambda: reads.find(session.tenant, any_id, limit=wanted), tenant=session.tenant)
    if not hits:
        where = f" of tenant {session.tenant}" if session.tenant else ""
        raise OperationNotFound(
            f"No operation{where} is known by {any_id}. A provider's own ids stand in receipts, which are not"
            " searched; see the newest operations with: counterfoil ops list",
            tenant=session.tenant or "",
            operation_id=any_id,
        )
    if session.as_json:
        show_json([{"found_by": hit.found_by, **operation_json(hit.operation)} for hit in hits])
        return
    lines = [(h.found_by, h.operation.tenant, h.operation.operation_id, h.operation.state, h.operation.effect,
              age(h.operation), key_given(h.operation) or "-") for h in hits]  # fmt: skip
    table(["FOUND BY", "TENANT", "OPERATION", "STATE", "EFFECT", "AGE", "PROVIDER KEY"], lines)
