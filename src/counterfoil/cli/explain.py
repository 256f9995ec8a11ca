"""`counterfoil explain`: why an operation ran, did not run, or waits."""

from __future__ import annotations

import click

from counterfoil.cli.session import Session, verb


@click.command()
@click.argument("operation", metavar="OPERATION")
@verb
def command(session: Session, operation: str) -> None:
    """Say in five lines why an operation ran, did not run, or waits."""
    from counterfoil.cli.output import clean, say, show_json
    from counterfoil.operations import explained

    detail = session.one(operation)
    told = explained(detail)
    if session.as_json:
        known = {"operation_id": detail.operation.operation_id, "tenant": detail.operation.tenant}
        show_json({**known, "state": detail.operation.state, "answer": told.answer, "lines": told.lines})
        return
    for line in told.lines:
        say(clean(line))
