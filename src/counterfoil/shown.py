"""What is shown of operations: in lists, with all that is kept about them, and what people are asked about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.model import Origin, ProviderFacts, Receipt, Trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many operations lost something: their payload alone, their receipt's detail, or all of it.

    `held` counts those that were due and stay: a case about them is open, or a run waits that may ask for them.
    `events` and `waits` are those of workflows that have ended.
    """

    payloads: int = 0
    receipts: int = 0
    tombstones: int = 0
    held: int = 0
    events: int = 0
    waits: int = 0

    def __add__(self, other: Purged) -> Purged:
        """Return both together."""
        return Purged(
            payloads=self.payloads + other.payloads,
            receipts=self.receipts + other.receipts,
            tombstones=self.tombstones + other.tombstones,
            held=self.held + other.held,
            events=self.events + other.events,
            waits=self.waits + other.waits,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something that a person must look at."""

    case_id: str
    tenant: str
    operation_id: str
    kind: str
    state: str
    version: int
    opened_at: int
    reason: str
    verdict: str | None = None
    verdict_by: str | None = None
    verdict_reason: str | None = None
    verdict_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What a person is asked: whether an operation may be sent, with exactly the content of this `fingerprint`.

    Times are milliseconds since the epoch by the database's clock; `now` is when it was read. A decision holds until
    `valid_until`; `spent_at` is when the first attempt under it began, and None as long as each provably sent nothing.
    One that was edited is `followed_by` another operation, which is asked about anew.
    """

    approval_id: str
    tenant: str
    operation_id: str
    effect: str
    effect_version: int
    state: str
    fingerprint: str
    requested_by: str | None
    requested_at: int
    decide_by: int
    now: int
    edited_by: str | None = None
    follows: str | None = None
    followed_by: str | None = None
    decided_by: str | None = None
    reason: str | None = None
    decided_at: int | None = None
    valid_until: int | None = None
    spent_at: int | None = None

    @property
    def approved(self) -> bool:
        """Say whether a person said yes, and that it held at `now`, or was used while it did."""
        return self.state == "approved" and not self.ran_out

    @property
    def ran_out(self) -> bool:
        """Say whether it was over at `now` with nothing done: nobody decided in time, or nothing was sent in time.

        What was not sent is asked about again, as another approval, once somebody or a worker wants to send it.
        """
        if self.spent_at is not None:
            return False
        until = {"pending": self.decide_by, "approved": self.valid_until}.get(self.state)
        return until is not None and until <= self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What trusted code permitted beforehand: an operation with exactly the arguments of this `fingerprint`.

    Times are milliseconds since the epoch by the database's clock; `now` is when it was read.
    """

    grant_id: str
    tenant: str
    operation_id: str
    effect: str
    fingerprint: str
    granted_by: str
    granted_at: int
    now: int
    expires_at: int | None = None
    revoked_by: str | None = None
    revoked_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDetail:
    """An approval with what it permits: the operation, the arguments that will be sent, and what goes with it.

    `arguments` is None once they are kept no longer. `others` are the other operations of the same intent, those that
    it follows or that follow it, so that it can be seen what was sent already.
    """

    approval: Approval
    operation: Operation
    arguments: Mapping[str, Any] | None
    others: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as lists show it: what is known of it, never its payload or its receipt's value.

    `version` counts its moves, `now` is the database's time of reading, `facts` is what its provider declared.
    `plain_id` is the id that the same business action has on the main line, from which `branch` leads away. `stream`
    and what follows are on which terms a dispatcher sends it; a caller's has none. Of one that `is_purged` only the
    outcome is left.
    """

    seq: int
    tenant: str
    operation_id: str
    effect: str
    effect_version: int
    state: str
    sender: str
    fingerprint: str
    attempt: int
    version: int
    holder: str | None
    claimed_at: int
    lease_until: int
    attempt_deadline: int
    first_attempt_at: int
    created_at: int
    updated_at: int
    settled_at: int | None
    settled_by: str | None
    error_class: str | None
    error_text: str | None
    trusted: Trusted
    origin: Origin
    facts: ProviderFacts
    now: int
    branch: str | None = None
    plain_id: str = ""
    stream: str | None = None
    due_at: int = 0
    expires_at: int | None = None
    max_attempts: int | None = None
    is_purged: bool = False

    @property
    def age(self) -> int:
        """Return the milliseconds since it was first asked for."""
        return max(0, self.now - self.created_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of an effect."""

    attempt: int
    fence: int
    holder: str
    started_at: int
    deadline: int
    outcome: str
    ended_at: int | None
    error_class: str | None
    error_text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that was learnt about an operation, and from whom."""

    attempt: int
    kind: str
    answer: str
    value: Any
    given_by: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDetail:
    """One operation with all that is kept about it; `receipt` is None unless it succeeded.

    `lineage` are the operations of the same business action on the main line and in branches, this one left out;
    `approvals` is what was asked about it before it could be sent, the last one last.
    """

    operation: Operation
    attempts: tuple[Attempt, ...]
    evidence: tuple[Evidence, ...]
    cases: tuple[Case, ...]
    receipt: Receipt[Any] | None
    lineage: tuple[Operation, ...] = ()
    approvals: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """What a person keeps from being sent: an effect, a stream, a tenant's intents; None stands for any."""

    tenant: str | None
    effect: str | None
    stream: str | None
    paused_by: str
    reason: str
    at: int

    def holds(self, operation: Operation) -> bool:
        """Say whether it keeps this intent from being sent."""
        names = (self.tenant, operation.tenant), (self.effect, operation.effect), (self.stream, operation.stream)
        return all(mine is None or mine == theirs for mine, theirs in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An intent of the outbox with what is kept about it, and what holds it back.

    `pauses` are those that hold it; `behind` is the operation of its stream that is sent before it.
    """

    detail: OperationDetail
    pauses: tuple[Pause, ...]
    behind: str | None

    @property
    def operation(self) -> Operation:
        """Return the operation itself."""
        return self.detail.operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A named line of history: a thread of its own that goes on from another one's checkpoint.

    Run it as any thread, by its tenant and `thread_id`. `branch` is the path of names by which its operations' ids are
    marked.
    """

    tenant: str
    thread_id: str
    branch: str
    branched_from: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An operation that an id led to; `found_by` says which kind of id it was."""

    found_by: str
    operation: Operation
