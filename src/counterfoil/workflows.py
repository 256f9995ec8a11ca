"""Workflows for blocking callers: start them, tell them events, and see where they stand. `cf.workflows`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.entries import DEFAULT_TRIES
from counterfoil.operations import PAGE, check_tenant
from counterfoil.planning import graph_for, met, planned
from counterfoil.standing import asked_page, asked_steps, paged, stepped, wait
from counterfoil.starting import (
    accepted,
    deleted,
    delivered,
    delivery_of,
    done_only,
    graph_of,
    one,
    register,
    settled,
    start_of,
    who_acts,
    who_deletes,
    workflow_key,
)
from counterfoil.storage.scripts import deleting, planning, waits, workflows
from counterfoil.storage.scripts.checkpoints import Deleted
from counterfoil.storage.scripts.workflows import Hindered
from counterfoil.writing import write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.core.access import Principal
    from counterfoil.desk import Desk
    from counterfoil.model import Page
    from counterfoil.records import Delivered, Resumption, Wait, Workflow, WorkflowStep


class Workflows:
    """The workflows of one database, for blocking callers; every read and act is within one tenant."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def register(self, graph: Any, *, name: str, version: int = 1, tries: int = DEFAULT_TRIES) -> Any:
        """Compile a graph for workflows and return it; workers of this process run those that were started in it.

        A workflow goes on in the version in which it was started: keep that registered while one runs in it.

        Args:
            graph: What `compile` takes; left as it is.
            name: The graph's name.
            version: Its version; a changed graph gets a new one.
            tries: Entries in a row that get no further, after which a workflow is parked.

        Raises:
            MissingExtra: LangGraph is not installed.
            InvalidArguments: another graph is registered under this name and version.
        """
        return register(self._desk, graph, name=name, version=version, tries=tries)

    def start(
        self,
        graph: str,
        input: Mapping[str, Any],  # noqa: A002 - LangGraph's name
        /,
        *,
        tenant: str,
        workflow_id: str,
        version: int | None = None,
        request_id: str | None = None,
        principal: str | None = None,
    ) -> Workflow:
        """Accept a workflow: when this returns, it is stored, and a worker runs it. The same one again is returned.

        Args:
            graph: The name of a registered graph.
            input: The graph's first input.
            tenant: Whose workflow it is.
            workflow_id: Its id, from the business; also that of its thread.
            version: The graph's version, the newest registered one unless given.
            request_id: The business request that asks for it; trusted.
            principal: Who asks for it; trusted.

        Raises:
            GraphMissing: no graph of this name is registered here.
            WorkflowConflict: the id belongs to a workflow with another input or graph; that one is left alone.
            ThreadExists: the id is that of a thread which is no workflow.
            SecretInState: the input holds a credential.
        """
        refuse_nested("workflows.start")
        refuse_on_loop("workflows.start", "await cf.workflows.start(...) with an AsyncCounterfoil")
        registered = graph_of(self._desk, graph, version)
        wish = start_of(
            registered, input, workflow_id=workflow_id, tenant=tenant, request_id=request_id, principal=principal
        )
        found = accepted(wish, input, write(self._desk, lambda: workflows.start(wish), tenant=wish.key.tenant))
        self._desk.bell.ring()
        return found

    def get(self, workflow_id: str, *, tenant: str) -> Workflow:
        """Return one workflow.

        Raises:
            WorkflowNotFound: this tenant has no such workflow.
        """
        key = workflow_key(workflow_id, tenant)
        return one(key, self._desk.store.read(lambda: workflows.get(key), tenant=key.tenant))

    def list(
        self,
        *,
        tenant: str,
        status: str | None = None,
        graph: str | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> Page[Workflow]:
        """Return one page of workflows, the newest first.

        Args:
            tenant: Whose workflows.
            status: Only those in this status, such as `"waiting"`.
            graph: Only those of this graph.
            before: The `next` of the page before.
            limit: Rows of the page, at most 1,000.

        Raises:
            InvalidArguments: there is no such status, or the limit is out of range.
        """
        checked, asked = check_tenant(tenant), asked_page(status, graph, before, limit)
        return paged(self._desk.store.read(lambda: workflows.page(checked, **asked), tenant=checked), limit)

    def history(
        self, workflow_id: str, *, tenant: str, before: int | None = None, limit: int = PAGE
    ) -> tuple[WorkflowStep, ...]:
        """Return a workflow's steps, the newest first: which nodes ended when, and which fields they wrote.

        It reaches as far back as its checkpoints are kept. Tasks of a `Send` have no name in it.

        Raises:
            InvalidArguments: the limit is out of range.
            WorkflowNotFound: this tenant has no such workflow.
        """
        key, asked = workflow_key(workflow_id, tenant), asked_steps(before, limit)
        one(key, self._desk.store.read(lambda: workflows.get(key), tenant=key.tenant))
        return stepped(self._desk.store.read(lambda: workflows.steps(key, **asked), tenant=key.tenant))

    def waits(self, workflow_id: str, *, tenant: str) -> tuple[Wait, ...]:
        """Return the events and times that the steps of a workflow wait for, or waited for.

        A decision or an outcome that it waits for is none of them: what it waits for now, whatever that is, stands in
        words in `Workflow.waits_for`, and the operation in `Workflow.parked_on`.

        Raises:
            WorkflowNotFound: this tenant has no such workflow.
        """
        key = workflow_key(workflow_id, tenant)
        one(key, self._desk.store.read(lambda: workflows.get(key), tenant=key.tenant))
        return tuple(wait(row) for row in self._desk.store.read(lambda: waits.waits(key), tenant=key.tenant))

    def result(self, workflow_id: str, *, tenant: str) -> Any:
        """Return what a workflow's graph returned.

        Raises:
            WorkflowNotFound: this tenant has no such workflow.
            WorkflowNotDone: it goes on still.
            WorkflowFailed: it failed, or is parked.
            WorkflowEnded: it was cancelled.
            GraphMissing: its graph is not registered here.
        """
        found = done_only(self.get(workflow_id, tenant=tenant))
        registered = graph_of(self._desk, found.graph, found.graph_version)
        return registered.result(registered.state(workflow_key(workflow_id, tenant)))

    def deliver(
        self,
        event: str,
        /,
        *,
        tenant: str,
        workflow_id: str,
        event_id: str,
        payload: Any = None,
        subject: str | None = None,
        sequence: int | None = None,
    ) -> Delivered:
        """Keep an event for a workflow; when this returns, it is stored. The same one again changes nothing.

        It may come before the workflow is started, before anybody waits for it, and more than once. One that comes
        after the workflow's end is kept as too late, one that is older than another about its subject as superseded.

        Args:
            event: Its name.
            tenant: Whose workflow.
            workflow_id: Which one.
            event_id: The event's own id, from whoever sends it.
            payload: What it says.
            subject: What it is about.
            sequence: Its number among those about its subject: an older one does not overtake a newer one.

        Raises:
            EventConflict: an event of this id came before, with another content.
        """
        refuse_nested("workflows.deliver")
        refuse_on_loop("workflows.deliver", "await cf.workflows.deliver(...) with an AsyncCounterfoil")
        delivery = delivery_of(
            event,
            workflow_id=workflow_id,
            tenant=tenant,
            event_id=event_id,
            payload=payload,
            subject=subject,
            sequence=sequence,
        )
        answer = delivered(delivery, write(self._desk, lambda: waits.deliver(delivery), tenant=delivery.key.tenant))
        self._desk.bell.ring()
        return answer

    def cancel(
        self, workflow_id: str, *, tenant: str, by: str | Principal, reason: str, expect_version: int | None = None
    ) -> Workflow:
        """End a workflow for good: its run can store nothing more. What it enqueued before is sent all the same.

        Raises:
            WorkflowNotFound: this tenant has no such workflow.
            WorkflowHindered: it is done, or moved since it was seen.
            VerdictIncomplete: it does not say who cancels, or why.
        """
        refuse_nested("workflows.cancel")
        refuse_on_loop("workflows.cancel", "await cf.workflows.cancel(...) with an AsyncCounterfoil")
        key = workflow_key(workflow_id, tenant)
        who, why = who_acts(by, reason, key)
        answer = write(
            self._desk,
            lambda: workflows.cancel(key, by=who, reason=why, expected_version=expect_version),
            tenant=key.tenant,
        )
        return settled(key, "cancel", answer)

    def resume(
        self, workflow_id: str, *, tenant: str, by: str | Principal, reason: str, expect_version: int | None = None
    ) -> Workflow:
        """Let a workflow go on that failed or was parked, once its cause is mended.

        Raises:
            WorkflowNotFound: this tenant has no such workflow.
            WorkflowHindered: it is neither, or moved since it was seen.
            VerdictIncomplete: it does not say who resumes, or why.
        """
        refuse_nested("workflows.resume")
        refuse_on_loop("workflows.resume", "await cf.workflows.resume(...) with an AsyncCounterfoil")
        key = workflow_key(workflow_id, tenant)
        who, why = who_acts(by, reason, key)
        answer = write(
            self._desk,
            lambda: workflows.resume(key, by=who, reason=why, expected_version=expect_version),
            refuses=lambda found: isinstance(found, Hindered),
            tenant=key.tenant,
        )
        found = settled(key, "resume", answer)
        self._desk.bell.ring()
        return found

    def delete(
        self,
        workflow_id: str,
        *,
        tenant: str,
        by: str | Principal | None = None,
        reason: str = "",
        expect_version: int | None = None,
    ) -> bool:
        """Delete all that is kept of a workflow but for its operations; say whether there was anything.

        Checkpoints, waits, events and the input are gone. Operations and receipts stay as proof for as long as their
        retention says, and what was enqueued is sent; what its steps have asked people about is cancelled. A process
        that dies meanwhile has deleted all of it or nothing.
        It is noted as done by the operating-system user, unless it says by whom.

        Raises:
            WorkflowHindered: it is being run, or moved since it was seen.
        """
        refuse_nested("workflows.delete")
        refuse_on_loop("workflows.delete", "await cf.workflows.delete(...) with an AsyncCounterfoil")
        key, tried = workflow_key(workflow_id, tenant), Deleted()
        if (asking := who_deletes(by, reason, key)) is None:
            return False
        who, why = asking
        answer = write(
            self._desk,
            lambda: deleting.delete(key, by=who, reason=why, expected_version=expect_version, tried=tried),
            tenant=key.tenant,
        )
        return deleted(key, answer)

    def plan_resume(self, workflow_id: str, *, tenant: str) -> Resumption:
        """Return what entering a workflow again would do: which nodes run, and what is answered from receipts.

        Raises:
            WorkflowNotFound: this tenant has no such workflow.
        """
        key = workflow_key(workflow_id, tenant)
        found = met(key, self._desk.store.read(lambda: planning.look(key), tenant=key.tenant))
        graph = graph_for(self._desk, found)
        return planned(self._desk, found, None if graph is None else graph.state(key))
