"""The outbox for blocking callers: what waits to be sent, and what people do about it. `cf.outbox`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.active import refuse_nested, refuse_on_loop
from counterfoil.core.arguments import CALLED
from counterfoil.core.outbox import Act
from counterfoil.errors import CommitUnknown
from counterfoil.model import OperationKey
from counterfoil.operations import PAGE, check_tenant
from counterfoil.outboxing import Scope, done, lifted, lifter, listed, only_intent, who_and_why, wish
from counterfoil.storage.scripts import holding, reads
from counterfoil.storage.tenants import whose

if TYPE_CHECKING:
    from counterfoil.core.access import Principal
    from counterfoil.model import Page
    from counterfoil.shown import Message, Operation, Pause
    from counterfoil.storage.store import Store


class Outbox:
    """The outbox of one database, for blocking callers; every read and act is within one tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(
        self,
        *,
        tenant: str,
        state: str | None = "open",
        effect: str | None = None,
        stream: str | None = None,
        before: int | None = None,
        limit: int = PAGE,
    ) -> Page[Operation]:
        """Return one page of the intents that are not settled, the newest first.

        Args:
            tenant: Whose intents.
            state: `"open"` for all that are not settled, a state such as `"parked"` or `"failed"`, or None for all.
            effect: Only those of this effect.
            stream: Only those of this stream that are not settled.
            before: The `next` of the page before.
            limit: Rows of the page, at most 1,000.

        Raises:
            InvalidArguments: there is no such state, or the limit is out of range.
        """
        checked = check_tenant(tenant)
        asked = listed(state=state, effect=effect, stream=stream, before=before, limit=limit)
        return self._store.read(lambda: reads.list_intents(checked, **asked), tenant=checked)

    def get(self, operation_id: str, *, tenant: str) -> Message:
        """Return one intent with its attempts, evidence and cases, and what holds it back.

        Raises:
            OperationNotFound: this tenant's outbox holds no such operation.
        """
        checked, wanted = check_tenant(tenant), CALLED.text("operation_id", operation_id)
        return only_intent(self._store.read(lambda: reads.get_intent(checked, wanted), tenant=checked), wanted, checked)

    # --- pauses ------------------------------------------------------------------------------------------------------

    def pauses(self, *, tenant: str | None = None) -> tuple[Pause, ...]:
        """Return what is paused: what holds a tenant's intents, or without one all."""
        checked = None if tenant is None else check_tenant(tenant)
        return self._store.read(lambda: holding.pauses(checked), tenant=whose(checked))

    def pause(
        self,
        *,
        by: str | Principal,
        reason: str,
        tenant: str | None = None,
        effect: str | None = None,
        stream: str | None = None,
    ) -> Pause:
        """Keep intents from being sent: of an effect, of a tenant, of a tenant's stream; what is under way goes on.

        Raises:
            InvalidArguments: nothing is named, or a stream without its tenant.
            VerdictIncomplete: it does not say who pauses, or why.
        """
        refuse_nested("outbox.pause")
        refuse_on_loop("outbox.pause", "await cf.outbox.pause(...) with an AsyncCounterfoil")
        scope = Scope.of(tenant=tenant, effect=effect, stream=stream)
        who, why = who_and_why(by, reason, scope.tenant)
        try:
            return self._store.write(lambda: holding.pause(*scope, by=who, reason=why), tenant=scope.whose)
        except CommitUnknown as lost:
            with lost.outlasting():
                found = self._store.read(lambda: holding.find_pause(*scope, by=who, reason=why), tenant=scope.whose)
            if found is None:
                raise
            return found

    def resume(
        self,
        *,
        tenant: str | None = None,
        effect: str | None = None,
        stream: str | None = None,
        by: str | Principal | None = None,
        reason: str = "",
    ) -> Pause:
        """Lift the pause of exactly this name, and return it; by the operating-system user, unless it says by whom.

        Raises:
            PauseNotFound: there is none.
            InvalidArguments: nothing is named, or a stream without its tenant.
        """
        refuse_nested("outbox.resume")
        refuse_on_loop("outbox.resume", "await cf.outbox.resume(...) with an AsyncCounterfoil")
        scope = Scope.of(tenant=tenant, effect=effect, stream=stream)
        who, why = lifter(by, reason, scope)
        tried = holding.Lifting()
        try:
            found = self._store.write(
                lambda: holding.resume(*scope, by=who, reason=why, tried=tried), tenant=scope.whose
            )
        except CommitUnknown as lost:
            with lost.outlasting():  # if it took effect, the pause is gone that the first try has lifted
                again = self._store.write(
                    lambda: holding.resume(*scope, by=who, reason=why, tried=tried), tenant=scope.whose
                )
            found = again or tried.pause
        return lifted(found, scope)

    # --- one intent --------------------------------------------------------------------------------------------------

    def requeue(
        self,
        operation_id: str,
        *,
        tenant: str,
        by: str | Principal,
        reason: str,
        attempts: int | None = None,
        expect_version: int | None = None,
    ) -> Operation:
        """Let a dead letter be tried again, at once and so many times; its case is resolved by that.

        Args:
            operation_id: An operation that is parked.
            tenant: Whose.
            by: Who does it.
            reason: Why.
            attempts: How many new tries it has, 20 unless given.
            expect_version: The operation's version that this person saw; if it moved since, nothing is done.

        Raises:
            OperationNotFound: this tenant has no such operation.
            VerdictConflict: it is not parked, or moved since it was seen; the message names who was first.
            VerdictIncomplete: it does not say who does it, or why.
        """
        return self._act(Act.REQUEUE, operation_id, tenant, by, reason, expect_version, attempts)

    def skip(
        self,
        operation_id: str,
        *,
        tenant: str,
        by: str | Principal,
        reason: str,
        expect_version: int | None = None,
    ) -> Operation:
        """Give a dead letter up: it is failed, its case is resolved, and its stream goes on.

        Raises:
            OperationNotFound: this tenant has no such operation.
            VerdictConflict: it is not parked, or moved since it was seen; the message names who was first.
            VerdictIncomplete: it does not say who does it, or why.
        """
        return self._act(Act.SKIP, operation_id, tenant, by, reason, expect_version, None)

    def cancel(
        self,
        operation_id: str,
        *,
        tenant: str,
        by: str | Principal,
        reason: str,
        expect_version: int | None = None,
    ) -> Operation:
        """End an operation that provably was not sent: it never will be.

        Raises:
            OperationNotFound: this tenant has no such operation.
            OutcomeUnknown: an attempt may have reached the provider.
            OperationInProgress: an attempt is under way.
            VerdictConflict: it is settled, or parked, or moved since it was seen.
            VerdictIncomplete: it does not say who does it, or why.
        """
        return self._act(Act.CANCEL, operation_id, tenant, by, reason, expect_version, None)

    def retry(
        self,
        operation_id: str,
        *,
        tenant: str,
        by: str | Principal,
        reason: str,
        expect_version: int | None = None,
    ) -> Operation:
        """Let an intent that waits for its next attempt be due now.

        Raises:
            OperationNotFound: this tenant has no such operation.
            VerdictConflict: it does not wait for another attempt, or moved since it was seen.
            VerdictIncomplete: it does not say who does it, or why.
        """
        return self._act(Act.RETRY, operation_id, tenant, by, reason, expect_version, None)

    def _act(
        self,
        act: Act,
        operation_id: str,
        tenant: str,
        by: str | Principal,
        reason: str,
        expect_version: int | None,
        more: int | None,
    ) -> Operation:
        refuse_nested(f"outbox.{act}")
        refuse_on_loop(f"outbox.{act}", f"await cf.outbox.{act}(...) with an AsyncCounterfoil")
        key = OperationKey(tenant=check_tenant(tenant), operation_id=CALLED.text("operation_id", operation_id))
        given = wish(act, key, by=by, reason=reason, expect_version=expect_version, more=more)
        try:
            answer = self._store.write(lambda: holding.act(key, given), tenant=key.tenant)
        except CommitUnknown as lost:
            with lost.outlasting():
                found = self._store.read(lambda: holding.find_act(key, given), tenant=key.tenant)
            if found is None:
                raise
            answer = found
        return done(key, given, answer)
