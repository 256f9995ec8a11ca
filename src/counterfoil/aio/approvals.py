"""Approvals for callers on an event loop: the same names as the blocking twin. `cf.approvals`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil import approving
from counterfoil.active import refuse_nested
from counterfoil.core.approvals import Ruling
from counterfoil.core.arguments import CALLED
from counterfoil.core.trusting import trusted_context
from counterfoil.drivers.driving import adrive
from counterfoil.errors import CommitUnknown
from counterfoil.operations import PAGE, check_limit, check_tenant
from counterfoil.performing import Read, Write
from counterfoil.storage.scripts import approvals, deciding
from counterfoil.storage.scripts.deciding import Hindered
from counterfoil.writing import awrite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.approving import Deciding
    from counterfoil.core.access import Principal
    from counterfoil.core.proposals import Proposal
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.model import Page
    from counterfoil.performing import Job
    from counterfoil.shown import Approval, ApprovalDetail
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.claims import Seen


async def afind_or_ask(desk: Desk, job: Job) -> Seen:
    """Find what was asked about an operation, or ask; see `approving.find_or_ask`."""
    tenant = job.key.tenant

    async def do(step: Read | Write) -> Any:
        match step:
            case Read(maker):
                return await desk.async_store.read(maker, tenant=tenant)
            case Write(maker):
                return await awrite(desk, maker, tenant=tenant)

    return await adrive(approving.find_or_ask(job), do)


class AsyncApprovals:
    """What waits for a decision in one database, for callers on an event loop; each call is within one tenant."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def request(
        self,
        effect: Effect[Any],
        /,
        *,
        tenant: str | None = None,
        request_id: str | None = None,
        workflow_id: str | None = None,
        principal: str | None = None,
        **arguments: Any,
    ) -> Approval:
        """Ask whether an operation may be sent, or return what was asked; nothing is sent.

        Once it is approved, `perform` with the same arguments sends it. Where the effect declares no approval, its
        operations need one all the same from then on that it was asked for.

        Args:
            effect: A declared effect.
            tenant: Whose operation it is.
            request_id: The business request that asks for it; trusted.
            workflow_id: The workflow that it belongs to; trusted.
            principal: Who asks for it, as authenticated; trusted. The same principal cannot decide.
            **arguments: The effect's business arguments.

        Raises:
            FingerprintMismatch: the id was used with other arguments.
            UsageError: the caller's code is wrong.
        """
        refuse_nested("approvals.request")
        trusted = trusted_context(tenant=tenant, request_id=request_id, workflow_id=workflow_id, principal=principal)
        job = approving.asking(self._desk, effect, arguments, trusted)
        return approving.asked(job, await afind_or_ask(self._desk, job))

    async def list(
        self, *, tenant: str, state: str | None = "pending", after: int | None = None, limit: int = PAGE
    ) -> Page[Approval]:
        """Return one page of approvals, the oldest first; `state=None` also shows those that are decided."""
        checked, wanted, page = check_tenant(tenant), approving.wanted_state(state), check_limit(limit)
        start = 0 if after is None else CALLED.number("after", after)
        found = await self._desk.async_store.read(
            lambda: approvals.page(checked, state=wanted, after=start, limit=page + 1), tenant=checked
        )
        return approving.paged(found, page)

    async def show(self, approval_id: str, *, tenant: str) -> ApprovalDetail:
        """Return an approval with the arguments that will be sent, and what was sent already under the same intent.

        Raises:
            ApprovalNotFound: this tenant has no such approval.
        """
        checked = check_tenant(tenant)
        seq = approving.number(approval_id, checked)
        found = await self._desk.async_store.read(lambda: approvals.get(checked, seq), tenant=checked)
        if found is None:
            raise approving.not_found(approval_id, checked)
        return found

    async def approve(self, approval_id: str, *, tenant: str, by: str | Principal, reason: str = "") -> Approval:
        """Let an operation be sent, with exactly the arguments that the approval shows; the same again changes nothing.

        Args:
            approval_id: Such as `"approval-12"`.
            tenant: Whose approval.
            by: Who decides, as authenticated: a name, or a principal whose role must permit it.
            reason: Why, in words.

        Raises:
            ApprovalNotFound: this tenant has no such approval.
            NotAllowed: the principal's role does not permit it.
            OwnRequest: whoever asked for it cannot permit it.
            DecisionConflict: something else was decided first, or it is too late.
        """
        return await self._decide(Ruling.APPROVE, approval_id, tenant, by, reason)

    async def reject(self, approval_id: str, *, tenant: str, by: str | Principal, reason: str) -> Approval:
        """Say no, for good: nothing is sent. The same again changes nothing; see `approve`.

        Raises:
            ApprovalNotFound: this tenant has no such approval.
            NotAllowed: the principal's role does not permit it.
            OwnRequest: whoever asked for it cannot decide.
            DecisionConflict: something else was decided first, or it is too late.
            VerdictIncomplete: the reason is missing.
        """
        return await self._decide(Ruling.REJECT, approval_id, tenant, by, reason)

    async def cancel(self, approval_id: str, *, tenant: str, by: str | Principal, reason: str) -> Approval:
        """Withdraw what was asked, or approved and not sent yet: nothing is sent. Whoever asked may do it, too.

        Raises:
            ApprovalNotFound: this tenant has no such approval.
            NotAllowed: the principal's role does not permit it, whoever asked.
            DecisionConflict: it was decided otherwise, or sent.
            VerdictIncomplete: the reason is missing.
        """
        return await self._decide(Ruling.CANCEL, approval_id, tenant, by, reason)

    async def edit(
        self, approval_id: str, *, tenant: str, by: str | Principal, changes: Mapping[str, Any], reason: str = ""
    ) -> Approval:
        """Ask about other arguments in place of these, which are never sent, and return what is asked now.

        What is approved and not sent yet may be edited, too. The operation is closed, and another one follows it,
        `{id}~edit-n`, which waits for a decision of its own.
        Whoever performs the first is led to the second.

        Args:
            approval_id: Such as `"approval-12"`.
            tenant: Whose approval.
            by: Who edits it, as authenticated.
            changes: The arguments that differ, by name.
            reason: Why, in words.

        Raises:
            ApprovalNotFound: this tenant has no such approval.
            NotAllowed: the principal's role does not permit it.
            OwnRequest: whoever asked for it cannot edit it.
            DecisionConflict: something else was decided first, or it was sent.
            EffectVersionMissing: this process does not declare the effect.
            InvalidArguments: the changes do not fit the effect, or change nothing.
        """
        refuse_nested("approvals.edit")
        asked = approving.deciding(Ruling.EDIT, approval_id, tenant=tenant, by=by, reason=reason)
        return await self._record(approving.edited(asked, await self._stored(asked), changes))

    async def answer(self, answer: Any, *, to: Any, tenant: str, by: str | Principal) -> tuple[Approval, ...]:
        """Decide what a person answered in the shapes of LangChain's human in the loop, or of Agent Inbox.

        A resume value alone decides nothing; this is how the side that knows who answered makes decisions of it. An
        edit asks anew, about what was written.

        Args:
            answer: `{"decisions": [...]}`, a list of decisions or responses in the order of the questions, a single
                one, or a mapping of interrupt ids to any of these.
            to: The interrupts that this person was shown, or their values; one or several.
            tenant: Whose approvals.
            by: Who answered, as authenticated.

        Raises:
            InvalidArguments: the answer does not fit what was asked, or what was shown is not what is stored; then
                nothing is decided.
            ApprovalNotFound: this tenant has no such approval.
            NotAllowed: the principal's role does not permit it.
            OwnRequest: whoever asked for it cannot decide.
            DecisionConflict: something else was decided first, or it is too late.
        """
        refuse_nested("approvals.answer")
        ready = [await self._ready(one, tenant=tenant, by=by) for one in approving.proposed(answer, to)]
        return tuple([await self._record(one) for one in ready])

    async def _ready(self, one: Proposal, *, tenant: str, by: str | Principal) -> Deciding:
        asked = approving.deciding(one.ruling, one.approval_id, tenant=tenant, by=by, reason=one.reason)
        found = await self._stored(asked)
        seen = approving.as_shown(asked, one.shown, found)
        return approving.edited(seen, found, one.changes) if one.ruling is Ruling.EDIT else seen

    async def _stored(self, asked: Deciding) -> tuple[Row, Row] | None:
        tenant, seq = asked.tenant, asked.seq
        return await self._desk.async_store.read(lambda: approvals.stored(tenant, seq), tenant=tenant)

    async def _decide(
        self, ruling: Ruling, approval_id: str, tenant: str, by: str | Principal, reason: str
    ) -> Approval:
        refuse_nested(f"approvals.{ruling}")
        return await self._record(approving.deciding(ruling, approval_id, tenant=tenant, by=by, reason=reason))

    async def _record(self, asked: Deciding) -> Approval:
        """Record a decision, and return what is asked now, if it was edited.

        Whoever does not hear of its COMMIT finds that it is decided, by itself or somebody.
        """
        store, tenant, seq, made = self._desk.async_store, asked.tenant, asked.seq, asked.made
        try:
            answer = await store.write(lambda: deciding.decide(tenant, seq, made), tenant=tenant)
        except CommitUnknown as lost:
            with lost.outlasting():
                answer = await store.write(lambda: deciding.decide(tenant, seq, made), tenant=tenant)
                if isinstance(answer, Hindered):
                    own = await store.read(lambda: deciding.find_decision(tenant, seq, made), tenant=tenant)
                    answer = own or answer
        self._desk.bell.ring()
        decided = approving.decided(answer, asked)
        if made.ruling is not Ruling.EDIT:
            return decided
        return await store.read(lambda: approvals.follower_of(decided), tenant=tenant)
