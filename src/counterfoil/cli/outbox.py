"""`counterfoil outbox`: what waits to be sent, and what a person does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.acts import act, acts, may_say_why, says_why
from counterfoil.cli.session import Session, integer, names_operation, refuse_ambiguous, verb, verb_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.shown import Message, Operation, Pause

EMPTY = "Nothing waits to be sent."


@click.group()
def command() -> None:
    """List what waits to be sent, pause it, requeue or skip dead letters."""


@command.command("list")
@click.option(
    "--state", metavar="STATE", default="open", show_default=True, help="open: not settled; parked, failed ...; or all."
)
@click.option("--effect", metavar="NAME", help="Only those of this effect.")
@click.option("--stream", metavar="STREAM", help="Only those of this stream.")
@click.option("--paused", is_flag=True, help="List what is paused instead.")
@click.option("--before", type=integer, metavar="SEQ", help="Go on below this row: the `seq` of the last one shown.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Rows to show, at most 1000.")
@verb
def list_(session: Session, *, state: str, paused: bool, **asked: Any) -> None:
    """List intents, the newest first."""
    from counterfoil.cli.output import note, operation_json, say, show_json
    from counterfoil.outboxing import listed
    from counterfoil.storage.scripts import holding, reads

    pauses = session.read(lambda: holding.pauses(session.tenant), tenant=session.tenant)
    if paused:
        _show_pauses(session, pauses)
        return
    wanted = listed(state=None if state == "all" else state, **asked)
    page = session.read(lambda: reads.list_intents(session.tenant, **wanted), tenant=session.tenant)
    if session.as_json:
        show_json([operation_json(each) for each in page.items])
        return
    if page.items:
        _show_page(page.items, pauses, all_tenants=session.tenant is None)
    else:
        say(EMPTY)
    if page.next is not None:
        note(f"More: add --before {page.next}")
    if pauses:
        note(f"Paused: {len(pauses)}; see: counterfoil outbox list --paused")


def _show_page(items: Sequence[Operation], pauses: Sequence[Pause], *, all_tenants: bool) -> None:
    from counterfoil.cli.output import age, table

    headers = [*(["TENANT"] if all_tenants else []), "OPERATION", "STATE", "DUE", "EFFECT", "STREAM", "ATTEMPTS", "AGE"]
    lines = [
        [
            *([each.tenant] if all_tenants else []), each.operation_id, each.state, due(each, pauses), each.effect,
            each.stream or "-", each.attempt, age(each),
        ]
        for each in items
    ]  # fmt: skip
    table(headers, lines)


def due(operation: Operation, pauses: Sequence[Pause]) -> str:
    """Say when an intent is sent next."""
    from counterfoil.core.explain import age_text
    from counterfoil.core.states import OperationState

    if OperationState(operation.state) is not OperationState.PENDING:
        return "-"
    if any(pause.holds(operation) for pause in pauses):
        return "paused"
    return "now" if operation.due_at <= operation.now else f"in {age_text(operation.due_at - operation.now)}"


def _show_pauses(session: Session, pauses: Sequence[Pause]) -> None:
    from counterfoil.cli.output import say, show_json, table, when

    if session.as_json:
        show_json(pauses)
    elif pauses:
        lines = [(p.tenant or "-", p.effect or "-", p.stream or "-", p.paused_by, when(p.at), p.reason) for p in pauses]
        table(["TENANT", "EFFECT", "STREAM", "BY", "SINCE", "REASON"], lines)
    else:
        say("Nothing is paused.")


@command.command()
@verb
@names_operation()
def show(session: Session, operation: str) -> None:
    """Show an intent: when it is sent, what holds it back, its attempts, evidence and cases."""
    from dataclasses import asdict

    from counterfoil.cli.ops import detail_json, show_history, show_operation
    from counterfoil.cli.output import clean, say, show_json
    from counterfoil.operations import explained
    from counterfoil.outboxing import only_intent
    from counterfoil.storage.scripts import reads

    found = session.read(lambda: reads.get_intent(session.tenant, operation), tenant=session.tenant)
    refuse_ambiguous(operation, [each.operation.tenant for each in found])
    message = only_intent(found, operation, session.tenant)
    if session.as_json:
        held = {"pauses": [asdict(each) for each in message.pauses], "behind": message.behind}
        show_json({**detail_json(message.detail), **held})
        return
    told = explained(message.detail)
    say(f"{told.answer}\n")
    show_operation(message.operation)
    show_history(message.detail)
    say()
    for line in (*_held(message), told.next, f"Run: {told.command}"):
        say(clean(line))


def _held(message: Message) -> list[str]:
    """Say what keeps an intent from being sent."""
    told = [f"It is sent after {message.behind}, of the same stream."] if message.behind is not None else []
    for pause in message.pauses:
        scope = (("effect", pause.effect), ("stream", pause.stream), ("tenant", pause.tenant))
        named = ", ".join(f"{what} {name}" for what, name in scope if name)
        told.append(f"{pause.paused_by} paused {named}: {pause.reason}")
    return told


@command.command()
@click.option("--attempts", type=integer, metavar="N", help="How many new tries it has, 20 unless given.")
@acts
@verb_to("operate")
@names_operation()
def requeue(session: Session, operation: str, **given: Any) -> None:
    """Let a dead letter be tried again, at once; its case is resolved by that."""
    act(session, "requeue", operation, given)


@command.command()
@acts
@verb_to("operate")
@names_operation()
def skip(session: Session, operation: str, **given: Any) -> None:
    """Give a dead letter up: it has failed, and its stream goes on."""
    act(session, "skip", operation, given)


def names_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that name what is paused; the tenant is every verb's."""
    stream = click.option("--stream", metavar="STREAM", help="What is in this stream of the tenant.")
    wrapped: Callable[..., Any] = click.option("--effect", metavar="NAME", help="What is of this effect.")(
        stream(function)
    )
    return wrapped


@command.command()
@names_scope
@says_why
@verb_to("operate")
def pause(session: Session, *, by: str | None, **given: Any) -> None:
    """Keep intents from being sent: of an effect, of a tenant, of a tenant's stream; what is under way goes on."""
    from counterfoil.cli.output import note
    from counterfoil.outbox import Outbox

    made = Outbox(session.store).pause(tenant=session.tenant, by=session.by(by), **given)
    _show_pauses(session, [made])
    if not _holds_any(session, made):  # a name that was mistyped looks like this
        note("Nothing that waits now is held by it. What waits: counterfoil outbox list")


def _holds_any(session: Session, pause: Pause) -> bool:
    from counterfoil.outboxing import OPEN, listed
    from counterfoil.storage.scripts import reads

    held = listed(state=OPEN, effect=pause.effect, stream=pause.stream, before=None, limit=1)
    return bool(session.read(lambda: reads.list_intents(pause.tenant, **held), tenant=pause.tenant).items)


@command.command()
@names_scope
@may_say_why
@verb_to("operate")
def resume(session: Session, *, by: str | None, **given: Any) -> None:
    """Lift the pause of exactly this name."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.outbox import Outbox

    lifted = Outbox(session.store).resume(tenant=session.tenant, by=session.by(by), **given)
    if session.as_json:
        show_json(lifted)
        return
    say("It goes on. What else is paused: counterfoil outbox list --paused")
