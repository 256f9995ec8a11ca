"""Frozen value objects that cross the boundaries between rooms.

Times are integer milliseconds since the epoch, UTC; digests are 32 raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from counterfoil.errors import ReceiptUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

VALUE_NOT_GIVEN: Final = "it was settled by a person's verdict that gave no value"
"""The marker of a receipt whose value a person can still give: nothing was lost, it was never known."""
PURGED: Final = "its detail was purged, as it is kept no longer"
"""The marker of a settled operation of which only the outcome is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationKey:
    """The identity of one business operation: unique, and never shared between tenants."""

    tenant: str
    operation_id: str

    def __str__(self) -> str:
        return f"{self.operation_id} (tenant {self.tenant})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """What an operation's key may rely on: set where the run enters, never by state, arguments or a model.

    In a branch, `branch` names it (`what-if`, and `what-if~deeper` in a branch of that one), and `thread_id` is the
    thread that the branch came from: an id differs from that of the main line by the mark of the branch alone.
    """

    tenant: str = ""
    request_id: str | None = None
    workflow_id: str | None = None
    principal: str | None = None
    thread_id: str | None = None
    branch: str | None = None

    def fields(self) -> Mapping[str, str]:
        """Return the fields that are set, by the names under which keys and effects ask for them."""
        found = {"tenant": self.tenant} if self.tenant else {}
        if self.request_id is not None:
            found["request_id"] = self.request_id
        if self.workflow_id is not None:
            found["workflow_id"] = self.workflow_id
        if self.principal is not None:
            found["principal"] = self.principal
        if self.thread_id is not None:
            found["thread_id"] = self.thread_id
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where in a workflow an operation was asked for: for people who search, never part of its identity."""

    thread_id: str | None = None
    checkpoint_ns: str | None = None
    checkpoint_id: str | None = None
    node: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """What a provider declared, in the form that is stored with the operation; milliseconds."""

    transactional: bool = False
    key_lifetime: int | None = None
    key_length: int = 64
    queryable: bool = False
    lookup_lag: int | None = None
    retry_on_absent: bool = True
    time_limit: int = 30_000
    lease: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Generic[T]):
    """Durable proof that an operation's effect happened.

    `value` is the effect's return value as decoded from the stored bytes, the first time included. `answered_from`
    says how this copy came about: `effect` (this call ran it), `receipt` (it was settled before), `lookup` (the
    provider was asked) or `verdict` (a person said so).
    """

    tenant: str
    operation_id: str
    effect: str
    effect_version: int
    fingerprint: str
    attempt: int
    settled_at: int
    answered_from: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    marker: str | None = None
    stored: T | None = None

    @property
    def value(self) -> T:
        """Return the stored result.

        Raises:
            ReceiptUnreadable: the effect happened, but its return value could not be stored, or a verdict gave none.
        """
        if self.marker is not None:
            raise ReceiptUnreadable(
                f"Operation {self.operation_id} happened (attempt {self.attempt}), but {self._why_unreadable()}",
                tenant=self.tenant,
                operation_id=self.operation_id,
            )
        return self.stored  # type: ignore[return-value]

    def _why_unreadable(self) -> str:
        if self.marker == VALUE_NOT_GIVEN:
            return (
                f"{self.marker}. The receipt stands and nothing is sent again; give what the effect would have"
                " returned with: counterfoil review resolve CASE --happened --value JSON --expect-version N. The whole"
                f" command is printed by: counterfoil explain {self.operation_id} --tenant {self.tenant}"
            )
        if self.marker == PURGED:
            return f"{self.marker}. Nothing is sent again."
        return (
            f"its return value could not be stored: {self.marker}. The receipt stands and nothing is sent again; return"
            " plain data from the effect to be able to read it back."
        )

    @property
    def already_happened(self) -> bool:
        """Say whether the effect had happened before this call, which then ran nothing."""
        return self.answered_from != "effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What `enqueue` recorded: a dispatcher sends it once the transaction is committed.

    `is_new` is False where the operation had been asked for before; `state` is what was known of it then.
    """

    tenant: str
    operation_id: str
    effect: str
    state: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list; `next` is what to ask for the following one, or None at the end."""

    items: tuple[T, ...]
    next: int | None


@dataclass(frozen=True, slots=True, init=False)
class Statement(Generic[T]):
    """The one SQL statement that an effect is, and what stands for its `:names`; it returns exactly one row.

    `Statement("insert into seat (number) values (:number) returning number", number="12A")`
    """

    sql: str
    params: Mapping[str, Any]

    def __init__(self, sql: str, /, **params: Any) -> None:
        object.__setattr__(self, "sql", sql.strip().rstrip(";"))
        object.__setattr__(self, "params", params)


@dataclass(frozen=True, slots=True)
class Found:
    """A look-up's answer: the effect happened. `value` becomes the receipt's value."""

    value: Any = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Absent:
    """A look-up's answer: the provider holds no such effect."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """A look-up's answer: the provider could not be asked, or its answer settles nothing."""

    reason: str = ""


LookupAnswer = Found | Absent | CannotTell


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """Return it from an effect to keep evidence beside the value; `unreadable` says why there is no value.

    The receipt's value is `value`; with `unreadable`, the receipt stands all the same and reading its value raises.
    """

    value: T
    evidence: Mapping[str, Any] = field(default_factory=dict)
    unreadable: str | None = None


class NotSent(Exception):
    """Raise in an effect: it provably did not happen, and may be tried again.

    `retry_after` is for how many seconds the provider asked to be left alone, if it did.
    """

    def __init__(self, *words: object, retry_after: float | None = None) -> None:
        super().__init__(*words)
        self.retry_after = retry_after


class Refused(Exception):
    """Raise in an effect: the provider refused it for good, and it did not happen.

    `covers_earlier=False` says that the refusal tells nothing of an earlier attempt whose outcome was lost: whoever is
    turned away at the door has not learnt what became of his last visit. The operation then stays unknown.
    """

    def __init__(self, *words: object, covers_earlier: bool = True) -> None:
        super().__init__(*words)
        self.covers_earlier = covers_earlier
