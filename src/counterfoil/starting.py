"""What both colours of `cf.workflows` share: what is asked for is checked, and what is found is told."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from counterfoil import codec
from counterfoil.access import acting, is_of_another, system_user
from counterfoil.core.access import Act
from counterfoil.core.arguments import CALLED, plain
from counterfoil.core.durations import utc_text
from counterfoil.core.states import WorkflowStatus
from counterfoil.core.templates import validate_id
from counterfoil.credentials import find_secret
from counterfoil.errors import (
    EventConflict,
    GraphMissing,
    InvalidArguments,
    SecretInState,
    ThreadExists,
    WorkflowConflict,
    WorkflowEnded,
    WorkflowFailed,
    WorkflowHindered,
    WorkflowNotDone,
    WorkflowNotFound,
)
from counterfoil.operations import check_tenant
from counterfoil.outboxing import who_and_why
from counterfoil.records import Delivered
from counterfoil.standing import workflow
from counterfoil.storage.scripts.threads import ThreadKey
from counterfoil.storage.scripts.waits import Delivery, OtherEvent, Received
from counterfoil.storage.scripts.workflows import (
    Accepted,
    Done,
    Hindered,
    NoWorkflow,
    OtherInput,
    Start,
    ThreadThere,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.core.access import Actor, Principal
    from counterfoil.desk import Desk
    from counterfoil.records import Workflow
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.workflows import Answer


def workflow_key(workflow_id: str, tenant: str) -> ThreadKey:
    """Return a workflow's key: its id is that of its thread."""
    return ThreadKey(tenant=check_tenant(tenant), thread_id=validate_id("workflow id", workflow_id))


# --- graphs ----------------------------------------------------------------------------------------------------------


def register(desk: Desk, graph: Any, *, name: str, version: int, tries: int) -> Any:
    """Compile a graph and enter it under its name and version; workers that are at work in this process see it.

    Raises:
        InvalidArguments: the name and version belong to another graph, or a number makes no sense.
    """
    from counterfoil.langgraph.registry import registered  # noqa: PLC0415 - needs LangGraph

    named = CALLED.text("name", name), CALLED.number("version", version, least=1)
    made = registered(desk, graph, name=name, version=version, tries=CALLED.number("tries", tries, least=1))
    there = desk.graphs.get(named)
    if there is not None and there.shape != made.shape:
        raise InvalidArguments(
            f"Another graph is registered as {name} version {version} already. Give a changed graph a new version, and"
            " keep the old one registered for as long as workflows run in it."
        )
    desk.graphs[named] = made
    desk.bell.ring()
    return made.graph


def graph_of(desk: Desk, name: str, version: int | None) -> Any:
    """Return a registered graph, of the newest version unless one is named.

    Raises:
        GraphMissing: there is none.
        InvalidArguments: the name is no text, or the version no number.
    """
    named = CALLED.text("graph", name)
    found = None if version is None else desk.graphs.get((named, CALLED.number("version", version, least=1)))
    if version is None:
        newest = max((known for known in desk.graphs if known[0] == name), default=None)
        found = None if newest is None else desk.graphs[newest]
    if found is None:
        known = ", ".join(f"{graph} version {number}" for graph, number in sorted(desk.graphs)) or "none"
        asked = name if version is None else f"{name} version {version}"
        raise GraphMissing(
            f"No graph is registered here as {asked}. Registered: {known}. Nothing was started. Register it first:"
            f" cf.workflows.register(builder, name={name!r})."
        )
    return found


# --- start -----------------------------------------------------------------------------------------------------------


def start_of(
    registered: Any,
    given: Mapping[str, Any],
    *,
    workflow_id: str,
    tenant: str,
    request_id: str | None,
    principal: str | None,
) -> Start:
    """Make a workflow ready to be accepted.

    Raises:
        InvalidArguments: the input is no mapping.
        UnsupportedValue: a part of it has no canonical form.
        SecretInState: it holds a credential.
    """
    wanted = dict(CALLED.mapping("input", given))
    registered.check(wanted)
    for kind, value in (("request id", request_id), ("principal", principal)):
        if value is not None:
            validate_id(kind, value)
    return Start(
        key=workflow_key(workflow_id, tenant),
        graph=registered.name,
        graph_version=registered.version,
        shape=registered.shape,
        digests=codec.digest_arguments(wanted, not_identity=(), salt=secrets.token_bytes(16)),
        payload=codec.encode(wanted),
        request_id=request_id,
        principal=principal,
    )


def accepted(wish: Start, given: Mapping[str, Any], answer: Accepted | OtherInput | ThreadThere) -> Workflow:
    """Return the workflow that was accepted, or the one of its id that was there.

    Raises:
        WorkflowConflict: that one has another input, or runs another graph.
        ThreadExists: the id is that of a thread which is no workflow.
    """
    key = wish.key
    match answer:
        case Accepted(row, is_new):
            return replace(workflow(row), is_new=is_new)
        case OtherInput(row, kept):
            fields = codec.differing_fields(kept["field_digests"], given) if row["graph"] == wish.graph else ()
            what = f"in {', '.join(fields)}" if fields else f"it runs {row['graph']}, not {wish.graph}"
            raise WorkflowConflict(
                f"Workflow {key.thread_id} of tenant {key.tenant} was started at {utc_text(row['created_at'])} with"
                f" another input: {what}. That one is left alone, and nothing was started. Use another id for another"
                " workflow.",
                tenant=key.tenant,
                operation_id="",
                workflow_id=key.thread_id,
                fields=tuple(fields),
            )
        case ThreadThere():
            raise ThreadExists(
                f"{key.thread_id} is a thread of tenant {key.tenant} that was not started as a workflow. It is left"
                " alone, and nothing was started. Use another workflow id.",
                tenant=key.tenant,
                operation_id="",
            )


# --- events ----------------------------------------------------------------------------------------------------------


def delivery_of(
    event: str,
    *,
    workflow_id: str,
    tenant: str,
    event_id: str,
    payload: Any,
    subject: str | None,
    sequence: int | None,
) -> Delivery:
    """Make an event ready to be kept.

    Raises:
        InvalidArguments: a sequence without a subject.
        InvalidId: an id, the name or the subject is too long to be looked up by.
        UnsupportedValue: a part of the payload has no canonical form.
    """
    if sequence is not None and subject is None:
        raise InvalidArguments("A sequence counts the events about one subject: name that, too. Nothing was stored.")
    checked = None if sequence is None else CALLED.number("sequence", sequence)
    content = {"payload": payload, "subject": subject, "sequence": checked}
    return Delivery(
        key=workflow_key(workflow_id, tenant),
        event_id=validate_id("event id", event_id),
        name=validate_id("event name", CALLED.text("event", event)),
        subject=None if subject is None else validate_id("subject", CALLED.text("subject", subject)),
        sequence=checked,
        digest=codec.fingerprint(content),
        payload=_without_credentials(codec.encode(payload)),
    )


def _without_credentials(payload: bytes) -> bytes:
    """Refuse a payload that holds a credential.

    Raises:
        SecretInState: it does.
    """
    rule = find_secret(payload.decode())
    if rule is not None:
        raise SecretInState(
            f"The event's payload holds a credential ({rule}). Nothing was stored. Deliver a reference to it.", path="$"
        )
    return payload


def delivered(delivery: Delivery, answer: Received | OtherEvent) -> Delivered:
    """Return what became of an event.

    Raises:
        EventConflict: one of its id came before, with another content.
    """
    if isinstance(answer, Received):
        return Delivered(
            event_id=delivery.event_id,
            state=answer.state,
            received_at=answer.received_at,
            is_new=answer.is_new,
            wakes=answer.wakes,
            has_workflow=answer.has_workflow,
        )
    raise EventConflict(
        f"Event {delivery.event_id} of workflow {delivery.key.thread_id} came before, at"
        f" {utc_text(answer.row['received_at'])}, as {answer.row['name']} with another content. That one is kept, and"
        " this one was not stored. Give another event another id.",
        tenant=delivery.key.tenant,
        operation_id="",
        event_id=delivery.event_id,
    )


# --- people ----------------------------------------------------------------------------------------------------------


def settled(key: ThreadKey, act: str, answer: Answer) -> Workflow:
    """Return the workflow as an act left it.

    Raises:
        WorkflowNotFound: this tenant has no such workflow.
        WorkflowHindered: it cannot be done with one in its status, or it moved since it was seen.
    """
    match answer:
        case Done(row):
            return workflow(row)
        case NoWorkflow():
            return not_found(key)
        case Hindered(row):
            raise _hindered(key, act, row)


def deleted(key: ThreadKey, answer: bool | Hindered) -> bool:  # noqa: FBT001 - the answer
    """Say whether there was anything to delete.

    Raises:
        WorkflowHindered: the workflow is being run, or moved since it was seen.
    """
    if isinstance(answer, Hindered):
        raise _hindered(key, "delete", answer.row)
    return answer


def _hindered(key: ThreadKey, act: str, row: Row) -> WorkflowHindered:
    return WorkflowHindered(
        f"Workflow {key.thread_id} of tenant {key.tenant} is {row['status']} at version {row['version']}: to {act} it"
        " is not possible, or it moved since it was seen. Nothing was changed. See: counterfoil workflows show"
        f" {key.thread_id} --tenant {key.tenant}",
        tenant=key.tenant,
        operation_id="",
        workflow_id=key.thread_id,
        status=row["status"],
    )


def who_acts(by: str | Principal, reason: str, key: ThreadKey) -> tuple[Actor, str]:
    """Return who does something to a workflow, and why.

    Raises:
        VerdictIncomplete: one is missing.
        NotAllowed: the principal's role does not permit it.
        WorkflowNotFound: the principal is another tenant's.
    """
    return who_and_why(by, reason, key.tenant, unknown=lambda: missing(key))


def who_deletes(by: str | Principal | None, reason: str, key: ThreadKey) -> tuple[Actor, str] | None:
    """Return who deletes a workflow, and why; None if the principal is another tenant's, where there is nothing of it.

    Raises:
        NotAllowed: the principal's role does not permit it.
    """
    who = system_user() if by is None else by
    why = plain(CALLED.words("reason", reason))
    return None if is_of_another(who, key.tenant) else (acting(who, act=Act.OPERATE, tenant=key.tenant), why)


def not_found(key: ThreadKey) -> NoReturn:
    """Say that there is no such workflow.

    Raises:
        WorkflowNotFound: always.
    """
    raise missing(key)


def missing(key: ThreadKey) -> WorkflowNotFound:
    """Return what says that there is no such workflow."""
    return WorkflowNotFound(
        f"Tenant {key.tenant} has no workflow {key.thread_id}. Check the id, the tenant and the database; list them"
        f" with: counterfoil workflows list --tenant {key.tenant}",
        tenant=key.tenant,
        operation_id="",
        workflow_id=key.thread_id,
    )


def one(key: ThreadKey, row: Row | None) -> Workflow:
    """Return the workflow that was found.

    Raises:
        WorkflowNotFound: none was.
    """
    return not_found(key) if row is None else workflow(row)


def done_only(found: Workflow) -> Workflow:
    """Return a workflow that is done.

    Raises:
        WorkflowNotDone: it goes on still.
        WorkflowFailed: it failed, or is parked.
        WorkflowEnded: it was cancelled.
    """
    told = f"Workflow {found.workflow_id} of tenant {found.tenant}"
    facts: dict[str, Any] = {"tenant": found.tenant, "operation_id": "", "workflow_id": found.workflow_id}
    match WorkflowStatus(found.status):
        case WorkflowStatus.DONE:
            return found
        case WorkflowStatus.CANCELLED:
            raise WorkflowEnded(f"{told} was {found.error_text}. It has no result.", status=found.status, **facts)
        case WorkflowStatus.FAILED | WorkflowStatus.PARKED:
            raise WorkflowFailed(
                f"{told} is {found.status}: {found.error_class}: {found.error_text} When its cause is mended, let it"
                f" go on with: counterfoil workflows resume {found.workflow_id} --tenant {found.tenant} --reason '...'",
                error_class=found.error_class,
                **facts,
            )
        case _:
            waits = f" It waits for {found.waits_for}." if found.waits_for else ""
            raise WorkflowNotDone(
                f"{told} is {found.status} and has no result yet.{waits} Ask again later.", status=found.status, **facts
            )
