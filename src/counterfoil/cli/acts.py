"""What verbs that act on one operation share: who, why, at which version, and what is printed afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.session import Session, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.shown import Operation


def says_why(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that say who acts and why."""
    why = click.option("--reason", required=True, metavar="TEXT", help="Why.")
    who = click.option("--by", metavar="NAME", help="Who does it; by default the operating-system user.")
    wrapped: Callable[..., Any] = why(who(function))
    return wrapped


def may_say_why(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that say who acts and why, where nobody has to give a reason."""
    why = click.option("--reason", default="", metavar="TEXT", help="Why.")
    who = click.option("--by", metavar="NAME", help="Who does it; by default the operating-system user.")
    wrapped: Callable[..., Any] = why(who(function))
    return wrapped


def acts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options of an act on one operation."""
    seen = click.option(
        "--expect-version", type=integer, metavar="N", help="Do it only if the operation is at this version still."
    )
    return says_why(seen(function))


def act(session: Session, name: str, operation: str, given: dict[str, Any]) -> None:
    """Do an act by its name on the one operation with this id, and print what came of it."""
    from counterfoil.access import name_of
    from counterfoil.cli.output import operation_json, show_json
    from counterfoil.outbox import Outbox

    tenant = session.one(operation).operation.tenant
    given["by"] = session.by(given["by"])
    after: Operation = getattr(Outbox(session.store), name)(operation, tenant=tenant, **given)
    if session.as_json:
        show_json(operation_json(after))
    else:
        _show(after, name, name_of(given["by"]))


def _show(after: Operation, name: str, by: str) -> None:
    from counterfoil.cli.output import clean, say
    from counterfoil.core.explain import goes_on
    from counterfoil.core.states import OperationState

    say(clean(f"recorded  {after.operation_id}  {name}  by={by}  state={after.state}"))
    if after.max_attempts is not None and OperationState(after.state) is OperationState.PENDING:
        say(f"It is due now and has {max(0, after.max_attempts - after.attempt)} tries left.")
    if told := goes_on(after):
        say(clean(told))
