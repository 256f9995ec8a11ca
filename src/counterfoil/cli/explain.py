"""`counterfoil explain`: why an operation ran, did not run, or waits; or what an error means."""

from __future__ import annotations

import click

from counterfoil.cli.session import Session, names_operation, verb


@click.command()
@verb
@names_operation("OPERATION|CODE")
def command(session: Session, operation: str) -> None:
    """Say why an operation ran, did not run, or waits; or print an error's page.

    Five lines: the answer, why, who holds it, what happens next, and the command to run.

    The code of an error, such as outcome-unknown, is answered with its page and needs no database. An operation that
    has such an id is explained with --tenant.
    """
    from counterfoil.cli.output import say, show_json
    from counterfoil.cli.pages import page

    text = page(operation) if session.named is None else None
    if text is None:
        _explain(session, operation)
    elif session.as_json:
        show_json({"code": operation, "page": text})
    else:
        say(text.rstrip("\n"))


def _explain(session: Session, operation: str) -> None:
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
