"""`counterfoil workflows`: where workflows stand, what they wait for, and what a person does about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterfoil.cli.acts import may_say_why, says_why
from counterfoil.cli.session import Session, integer, verb, verb_to
from counterfoil.errors import InvalidCommand

if TYPE_CHECKING:
    from collections.abc import Callable

    from counterfoil.records import Resumption, Workflow

EMPTY = "No workflow."


@click.group()
def command() -> None:
    """List workflows, show one and its steps, deliver an event, cancel, resume or delete one."""


def names_workflow(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument that names a workflow."""
    wrapped: Callable[..., Any] = click.argument("workflow", metavar="WORKFLOW")(function)
    return wrapped


def tenant_of(session: Session) -> str:
    """Return the tenant that a verb is about.

    Raises:
        InvalidCommand: none is named.
    """
    if session.tenant is None:
        raise InvalidCommand("A workflow belongs to a tenant: add --tenant NAME. Nothing was done.")
    return session.tenant


@command.command("list")
@click.option("--status", metavar="STATUS", help="Only those in this status: waiting, running, parked, failed, ...")
@click.option("--graph", metavar="NAME", help="Only those of this graph.")
@click.option("--before", type=integer, metavar="SEQ", help="Go on below this row: the `seq` of the last one shown.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Rows to show, at most 1000.")
@verb
def list_(session: Session, *, status: str | None, graph: str | None, before: int | None, limit: int) -> None:
    """List workflows, the newest first."""
    from counterfoil.cli.output import note, say, show_json, table
    from counterfoil.standing import asked_page, paged
    from counterfoil.storage.scripts import workflows

    tenant, asked = tenant_of(session), asked_page(status, graph, before, limit)
    page = paged(session.read(lambda: workflows.page(tenant, **asked), tenant=tenant), limit)
    if session.as_json:
        show_json(page.items)
        return
    if not page.items:
        say(EMPTY)
        return
    lines = [[each.workflow_id, each.status, _due(each), each.waits_for or "-", _graph(each)] for each in page.items]
    table(["WORKFLOW", "STATUS", "DUE", "WAITS FOR", "GRAPH"], lines)
    if page.next is not None:
        note(f"More: add --before {page.next}")


def _graph(found: Workflow) -> str:
    return f"{found.graph} v{found.graph_version}"


def _due(found: Workflow) -> str:
    from counterfoil.core.explain import age_text

    if found.due_at is None:
        return "-"
    return "now" if found.due_at <= found.now else f"in {age_text(found.due_at - found.now)}"


@command.command()
@verb
@names_workflow
def show(session: Session, workflow: str) -> None:
    """Show a workflow: where it stands, what it waits for, and the events that came for it."""
    from dataclasses import asdict

    from counterfoil.cli.output import fields, say, show_json, table, when
    from counterfoil.standing import wait
    from counterfoil.starting import one, workflow_key
    from counterfoil.storage.scripts import waits, workflows

    key = workflow_key(workflow, tenant_of(session))
    found = one(key, session.read(lambda: workflows.get(key), tenant=key.tenant))
    asked = [wait(row) for row in session.read(lambda: waits.waits(key), tenant=key.tenant)]
    came = session.read(lambda: waits.inbox(key, limit=LONGEST), tenant=key.tenant)
    if session.as_json:
        show_json({**asdict(found), "waits": asked, "events": [dict(row) for row in came]})
        return
    say(f"{_told(found)}\n")
    fields(
        [
            ("workflow", found.workflow_id), ("tenant", found.tenant), ("graph", _graph(found)),
            ("status", found.status), ("version", found.version), ("due", _due(found)),
            ("holder", found.holder), ("tries", found.tries or None),
            ("error", found.error_class), ("reason", found.error_text),
            ("started", when(found.created_at)), ("changed", when(found.updated_at)),
        ]
    )  # fmt: skip
    if asked:
        say("\nWaits:")
        table(
            ["NAME", "NODE", "STATE", "UNTIL", "SINCE"],
            [[each.name, each.node or "-", each.state, when(each.due_at), when(each.created_at)] for each in asked],
        )
    if came:
        say("\nEvents:")
        names = ("event_id", "name", "subject", "state")
        lines = [[*(row[name] or "-" for name in names), when(row["received_at"])] for row in came]
        table(["EVENT", "NAME", "SUBJECT", "STATE", "CAME"], lines)


LONGEST = 1_000


def _told(found: Workflow) -> str:
    """Say in one sentence where a workflow stands."""
    from counterfoil.cli.output import when

    waits = f" for {found.waits_for}" if found.waits_for else ""
    until = f", until {when(found.due_at)} at the latest" if found.due_at is not None else ""
    return {
        "accepted": "It is accepted, and a worker will run it.",
        "running": f"It is being run by {found.holder}.",
        "waiting": f"It waits{waits}{until}.",
        "parked": "It is parked: a person lets it go on.",
        "done": "It is done.",
        "failed": "It failed: a person lets it go on, or cancels it.",
        "cancelled": "It was cancelled.",
    }[found.status]


@command.command()
@click.option("--before", type=integer, metavar="SEQ", help="Go on below this row.")
@click.option("--limit", type=integer, default=50, show_default=True, help="Rows to show, at most 1000.")
@verb
@names_workflow
def history(session: Session, workflow: str, *, before: int | None, limit: int) -> None:
    """Show a workflow's steps, the newest first: which nodes ended when, and which fields they wrote."""
    from counterfoil.cli.output import show_json, table, when
    from counterfoil.standing import asked_steps, stepped
    from counterfoil.starting import one, workflow_key
    from counterfoil.storage.scripts import workflows

    key, asked = workflow_key(workflow, tenant_of(session)), asked_steps(before, limit)
    one(key, session.read(lambda: workflows.get(key), tenant=key.tenant))
    steps = stepped(session.read(lambda: workflows.steps(key, **asked), tenant=key.tenant))
    if session.as_json:
        show_json(steps)
        return
    lines = [[s.step, when(s.at), ", ".join(s.nodes) or s.source, ", ".join(s.fields) or "-"] for s in steps]
    table(["STEP", "AT", "NODES", "FIELDS"], lines)


@command.command()
@click.option("--id", "event_id", required=True, metavar="ID", help="The event's own id.")
@click.option("--payload", metavar="JSON", help="What it says.")
@click.option("--subject", metavar="TEXT", help="What it is about.")
@click.option("--sequence", type=integer, metavar="N", help="Its number among those about its subject.")
@verb_to("operate")
@names_workflow
@click.argument("event", metavar="EVENT")
def deliver(session: Session, workflow: str, event: str, *, payload: str | None, **given: Any) -> None:
    """Keep an event for a workflow; the same one again changes nothing."""
    import json

    from counterfoil.cli.output import clean, say, show_json
    from counterfoil.starting import delivered, delivery_of
    from counterfoil.storage.scripts import waits

    try:
        body = None if payload is None else json.loads(payload)
    except ValueError as error:
        raise InvalidCommand(f"--payload is no JSON: {error}. Nothing was stored.") from error
    delivery = delivery_of(event, workflow_id=workflow, tenant=tenant_of(session), payload=body, **given)
    told = delivered(delivery, session.store.write(lambda: waits.deliver(delivery), tenant=delivery.key.tenant))
    if session.as_json:
        show_json(told)
        return
    say(
        f"{'Kept' if told.is_new else 'It came before'}: {told.state}." + (" A wait asks for it." if told.wakes else "")
    )
    if not told.has_workflow:
        say(f"There is no workflow {clean(workflow)} of tenant {clean(delivery.key.tenant)} yet; it is kept for one.")


@command.command()
@click.option("--expect-version", type=integer, metavar="N", help="Do nothing if it moved since this version.")
@says_why
@verb_to("operate")
@names_workflow
def cancel(session: Session, workflow: str, *, by: str | None, reason: str, expect_version: int | None) -> None:
    """End a workflow for good; what it enqueued before is sent all the same."""
    _act(session, workflow, "cancel", by, reason, expect_version)


@command.command()
@click.option("--expect-version", type=integer, metavar="N", help="Do nothing if it moved since this version.")
@says_why
@verb_to("operate")
@names_workflow
def resume(session: Session, workflow: str, *, by: str | None, reason: str, expect_version: int | None) -> None:
    """Let a workflow go on that failed or was parked, once its cause is mended."""
    _act(session, workflow, "resume", by, reason, expect_version)


def _act(session: Session, workflow: str, act: str, by: str | None, reason: str, version: int | None) -> None:
    from counterfoil.cli.output import say, show_json
    from counterfoil.starting import settled, who_acts, workflow_key
    from counterfoil.storage.scripts import workflows

    key = workflow_key(workflow, tenant_of(session))
    who, why = who_acts(session.by(by), reason, key)
    script = workflows.cancel if act == "cancel" else workflows.resume
    found = settled(
        key,
        act,
        session.store.write(lambda: script(key, by=who, reason=why, expected_version=version), tenant=key.tenant),
    )
    if session.as_json:
        show_json(found)
        return
    say(_told(found))


@command.command()
@click.option("--expect-version", type=integer, metavar="N", help="Do nothing if it moved since this version.")
@may_say_why
@verb_to("operate")
@names_workflow
def delete(session: Session, workflow: str, *, by: str | None, reason: str, expect_version: int | None) -> None:
    """Delete all that is kept of a workflow but for its operations, which are proof."""
    from counterfoil.cli.output import say, show_json
    from counterfoil.starting import deleted, who_deletes, workflow_key
    from counterfoil.storage.scripts import deleting
    from counterfoil.storage.scripts.checkpoints import Deleted

    key, tried = workflow_key(workflow, tenant_of(session)), Deleted()
    was_there = False
    if (asking := who_deletes(session.by(by), reason, key)) is not None:
        who, why = asking
        answer = session.store.write(
            lambda: deleting.delete(key, by=who, reason=why, expected_version=expect_version, tried=tried),
            tenant=key.tenant,
        )
        was_there = deleted(key, answer)
    if session.as_json:
        show_json({"tenant": key.tenant, "workflow_id": key.thread_id, "deleted": was_there})
        return
    say("Deleted. Its operations stay as proof." if was_there else "There is nothing of it: nothing was deleted.")


@command.command("plan-resume")
@click.option("--app", metavar="MODULE:NAME", help="Your program, as for the worker: it registers the graphs.")
@verb
@names_workflow
def plan_resume(session: Session, workflow: str, *, app: str | None) -> None:
    """Show what entering a workflow again would do: which nodes run, and what is answered from receipts."""
    from counterfoil.cli.output import fields, say, show_json

    told = _plan(session, workflow, app)
    if session.as_json:
        show_json(told)
        return
    say(f"{_told(told.workflow)}\n")
    fits = {None: "its graph is not known here: add --app MODULE:NAME", True: "yes", False: "no"}[told.graph_fits]
    asked = [f"{each.name} in {each.node}" if each.node else each.name for each in told.waits]
    fields(
        [
            ("graph fits", fits), ("differs", "; ".join(told.differences) or None),
            ("next nodes", ", ".join(told.next_nodes) or None), ("waits for", ", ".join(asked) or None),
            ("answered", ", ".join(told.answered) or None), ("unsettled", ", ".join(told.unsettled) or None),
        ]
    )  # fmt: skip


def _plan(session: Session, workflow: str, app: str | None) -> Resumption:
    from counterfoil.planning import met, planned
    from counterfoil.starting import workflow_key
    from counterfoil.storage.scripts import planning

    tenant = tenant_of(session)
    if app is not None:
        from counterfoil.cli.running import desk_of
        from counterfoil.workflows import Workflows

        with desk_of(app) as desk:
            return Workflows(desk).plan_resume(workflow, tenant=tenant)
    key = workflow_key(workflow, tenant)
    return planned(None, met(key, session.read(lambda: planning.look(key), tenant=key.tenant)), None)
