"""The whole error tree and its code registry.

Every error has a stable kebab-case `code`, says whether trying again is sensible (`retry`) and has a page under
`docs/errors`. Messages say what happened to which operation, why and what to do next, and carry no payload content.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.exits import Exit as Exit  # noqa: PLC0414 - part of what an error says
from counterfoil.exits import Retry as Retry  # noqa: PLC0414

if TYPE_CHECKING:
    from collections.abc import Iterator

    from counterfoil.model import Receipt


REGISTRY: dict[str, type[CounterfoilError]] = {}


class CounterfoilError(RuntimeError):
    """Root of all errors of this package.

    It derives from `RuntimeError` because LangGraph's default retry policy repeats unknown exception classes but
    leaves `RuntimeError` alone: an unknown outcome must never be repeated by a generic retry.
    """

    code: ClassVar[str] = ""
    retry: Retry = Retry.NEVER
    exit: ClassVar[Exit] = Exit.FAILED

    def __init_subclass__(cls) -> None:
        """Enter the class into the registry; a code belongs to one class only."""
        if code := cls.__dict__.get("code"):
            if code in REGISTRY and REGISTRY[code].__qualname__ != cls.__qualname__:
                raise TypeError(f"error code {code!r} is used by two classes")
            REGISTRY[code] = cls

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def docs(self) -> str:
        """Path of this error's page in the documentation."""
        return f"errors/{self.code}.md"


# --- the caller's code or settings are wrong -------------------------------------------------------------------------


class UsageError(CounterfoilError):
    """The caller's code or settings are wrong; the same call can never succeed."""

    exit = Exit.USAGE


class TenantMissing(UsageError):
    """An effect was asked for without a tenant."""

    code = "tenant-missing"


class UnknownTemplateField(UsageError):
    """A key template names a field that is neither an argument nor a trusted field."""

    code = "unknown-template-field"


class TemplateFieldMissing(UsageError):
    """A trusted field that the key template needs is absent from the run's context."""

    code = "template-field-missing"


class UnstableId(UsageError):
    """A key template uses a field that changes from one try to the next."""

    code = "unstable-id"


class InvalidId(UsageError):
    """A tenant, operation id or thread id cannot be stored or told apart from others."""

    code = "invalid-id"


class TrustedFieldMismatch(UsageError):
    """An argument with the name of a trusted field differs from the trusted value."""

    code = "trusted-field-mismatch"


class InvalidDuration(UsageError):
    """A duration was given as a bare number or in an unknown form."""

    code = "invalid-duration"


class UnsupportedValue(UsageError):
    """A value has no canonical form; `path` says where it is."""

    code = "unsupported-value"
    path: str


class NonFiniteNumber(UnsupportedValue):
    """NaN or an infinity: JSON has no such numbers and NaN equals nothing, not even itself."""

    code = "non-finite-number"


class NulCharacter(UnsupportedValue):
    """A NUL character, which PostgreSQL text cannot hold."""

    code = "nul-character"


class LoneSurrogate(UnsupportedValue):
    """A lone surrogate, which has no UTF-8 form."""

    code = "lone-surrogate"


class InvalidMappingKey(UnsupportedValue):
    """A mapping whose key is not a string."""

    code = "invalid-mapping-key"


class ContradictoryDeclaration(UsageError):
    """An effect or provider declares two things that cannot both be true."""

    code = "contradictory-declaration"


class DuplicateEffect(UsageError):
    """One effect name and version is declared in two places."""

    code = "duplicate-effect"


class InvalidArguments(UsageError):
    """The arguments do not fit the effect's signature."""

    code = "invalid-arguments"


class NoActiveCounterfoil(UsageError):
    """An effect was performed where no Counterfoil is known."""

    code = "no-active-counterfoil"


class NestedEffect(UsageError):
    """A Counterfoil call was made inside an effect or inside an open transaction of ours."""

    code = "nested-effect"


class SyncOnEventLoop(UsageError):
    """A blocking call was made on a running event loop."""

    code = "sync-on-event-loop"


class AsyncEffectInSync(UsageError):
    """An async effect was performed through the blocking form."""

    code = "async-effect-in-sync"


class InvalidLookupAnswer(UsageError):
    """A look-up returned something else than Found, Absent or CannotTell."""

    code = "invalid-lookup-answer"


class GuardedTransaction(UsageError):
    """A transactional effect tried to commit, roll back or run a script of statements."""

    code = "guarded-transaction"


class HiddenRetries(UsageError):
    """A client would send again by itself, and the effect's provider honours no key; `sent` counts what had left."""

    code = "hidden-retries"
    sent: int


class ResourceMissing(UsageError):
    """An effect asked for a resource that nobody provided in this process."""

    code = "resource-missing"


class MissingExtra(UsageError):
    """An optional dependency is not installed."""

    code = "missing-extra"


class InvalidCommand(UsageError):
    """A command line that names an unknown command or option, or lacks one."""

    code = "invalid-command"


class NoDatabase(UsageError):
    """No database was named in any of the three places."""

    code = "no-database"


class InvalidUrl(UsageError):
    """The database URL cannot be read or names an unsupported database."""

    code = "invalid-url"


class NetworkFilesystem(UsageError):
    """The SQLite file lies on a network file system."""

    code = "network-filesystem"


class ForeignTransaction(UsageError):
    """The transaction to join is not open, is of another kind, or belongs to another database."""

    code = "foreign-transaction"


class ExitDurability(UsageError):
    """A graph with effects was run with `durability="exit"`."""

    code = "exit-durability"


class UnmanagedThread(UsageError):
    """A thread that Counterfoil manages was run without a claim."""

    code = "unmanaged-thread"


class ReservedConfig(UsageError):
    """State, metadata or config tries to set what only the run's trusted context may set."""

    code = "reserved-config"


class EffectInCachedNode(UsageError):
    """An effect would be performed in a node that a cache may answer for, and would then not happen."""

    code = "effect-in-cached-node"


class IntentWouldBeLost(UsageError):
    """An effect was enqueued in a node where no checkpoint would carry the intent."""

    code = "intent-would-be-lost"


class MintedHere(UsageError):
    """An id is used in the same step that minted it."""

    code = "minted-here"


class BranchRequired(UsageError):
    """Going back before a mint would give the same business action a second id."""

    code = "branch-required"


class StateNotStorable(UsageError):
    """A value in the graph's state would not come back equal from a checkpoint; `path` says where it is."""

    code = "state-not-storable"
    path: str


class SecretInState(UsageError):
    """A credential would have been written into a checkpoint; `path` says where it is."""

    code = "secret-in-state"
    path: str


# --- one operation cannot go on --------------------------------------------------------------------------------------


class OperationError(CounterfoilError):
    """Something happened to one operation; `tenant` and `operation_id` say which."""

    tenant: str
    operation_id: str


class OperationNotFound(OperationError):
    """No operation with this id exists for this tenant."""

    code = "operation-not-found"
    exit = Exit.NOT_FOUND


class FingerprintMismatch(OperationError):
    """The same operation id was used with other arguments; `fields` names those that differ."""

    code = "fingerprint-mismatch"
    exit = Exit.CONFLICT
    fields: tuple[str, ...]


class DifferentEffect(OperationError):
    """The same operation id belongs to another effect."""

    code = "different-effect"
    exit = Exit.CONFLICT


class EffectVersionMissing(OperationError):
    """An unsettled operation was begun under another version of its effect."""

    code = "effect-version-missing"
    exit = Exit.CONFLICT


class OperationInProgress(OperationError):
    """Another caller holds the operation; `age_ms`, `holder` and `until` say for how long and who."""

    code = "operation-in-progress"
    retry = Retry.SAFE
    exit = Exit.TIMED_OUT
    age_ms: int
    holder: str
    until: int


class OutcomeUnknown(OperationError):
    """The effect may or may not have happened; it is not sent again before that is settled."""

    code = "outcome-unknown"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.OUTCOME_UNKNOWN
    case_id: str | None


class OutcomeNotStored(OperationError):
    """The effect ended, and the database is not known to have taken its outcome; `result` holds what it returned."""

    code = "outcome-not-stored"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.OUTCOME_UNKNOWN
    result: Any


class EffectNotSent(OperationError):
    """The effect provably did not happen; the same call may be made again, in `retry_after` seconds if that is set."""

    code = "effect-not-sent"
    retry = Retry.SAFE
    retry_after: float | None


class EffectRefused(OperationError):
    """The provider refused the effect for good; the answer is stored and repeated."""

    code = "effect-refused"


class NotOneRow(OperationError):
    """An effect's one statement returned no row, or several; nothing was written."""

    code = "not-one-row"


class OperationClosed(OperationError):
    """The operation was rejected, cancelled or expired before it was sent."""

    code = "operation-closed"
    exit = Exit.CONFLICT


class OperationExpired(OperationError):
    """The operation is settled, and its receipt is kept no longer; `settled_at` and `outcome` say when and how."""

    code = "operation-expired"
    exit = Exit.CONFLICT
    settled_at: int
    outcome: str


class OperationQueued(OperationError):
    """The operation belongs to the dispatcher; a caller must not send it."""

    code = "operation-queued"
    exit = Exit.CONFLICT


class OperationParked(OperationError):
    """The operation used up its tries and waits for a person."""

    code = "operation-parked"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.CONFLICT


class FenceLost(OperationError):
    """The caller lost its claim while its effect ran; `receipt` is the winner's, if there is one."""

    code = "fence-lost"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.CONFLICT
    receipt: Receipt[Any] | None


class ReceiptUnreadable(OperationError):
    """The effect happened, but its return value could not be stored."""

    code = "receipt-unreadable"


class CaseNotFound(OperationError):
    """No case with this id exists for this tenant."""

    code = "case-not-found"
    exit = Exit.NOT_FOUND


class PauseNotFound(OperationError):
    """Nothing is paused under this name."""

    code = "pause-not-found"
    exit = Exit.NOT_FOUND


class VerdictConflict(OperationError):
    """The case was decided, or its operation moved, since it was read."""

    code = "verdict-conflict"
    exit = Exit.CONFLICT


class VerdictIncomplete(OperationError):
    """A verdict without the evidence or the reason that it needs."""

    code = "verdict-incomplete"
    exit = Exit.USAGE


class ThreadBusy(OperationError):
    """Another run owns the thread; refused before any node ran."""

    code = "thread-busy"
    retry = Retry.SAFE
    exit = Exit.CONFLICT


class ThreadExists(OperationError):
    """A thread was to be copied onto one that has a history of its own."""

    code = "thread-exists"
    exit = Exit.CONFLICT


class BranchTaken(OperationError):
    """The name of a branch belongs to one that begins at another checkpoint."""

    code = "branch-taken"
    exit = Exit.CONFLICT


class CheckpointNotFound(OperationError):
    """The thread has no such checkpoint."""

    code = "checkpoint-not-found"
    exit = Exit.NOT_FOUND


class VersionConflict(OperationError):
    """The run no longer owns its thread; its write was refused."""

    code = "version-conflict"
    exit = Exit.CONFLICT


class ThreadParked(OperationError):
    """The thread waits for an unknown outcome; a resume value cannot answer that."""

    code = "thread-parked"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.OUTCOME_UNKNOWN


# --- the database ----------------------------------------------------------------------------------------------------


class StoreError(CounterfoilError):
    """The database could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be opened or reached."""

    code = "store-unavailable"
    retry = Retry.SAFE


class Busy(StoreError):
    """The database stayed locked for longer than the time-out; nothing was written."""

    code = "store-busy"
    retry = Retry.SAFE
    exit = Exit.TIMED_OUT


class PoolExhausted(Busy):
    """All connections to the database were in use for longer than the wait; nothing was written."""

    code = "pool-exhausted"


class CommitUnknown(StoreError):
    """The connection was lost during COMMIT; whether it took effect must be looked up."""

    code = "commit-unknown"
    retry = Retry.AFTER_RECONCILE
    exit = Exit.OUTCOME_UNKNOWN

    @contextmanager
    def outlasting(self) -> Iterator[None]:
        """Raise this error where what follows it fails, too: that nothing was written is true of the latter alone."""
        try:
            yield
        except StoreError as error:
            raise self from error


class StoreClosed(StoreError):
    """A Counterfoil that was closed, or was inherited through a fork."""

    code = "store-closed"


class ConstraintViolated(StoreError):
    """A business constraint of the database refused the transaction; nothing was written."""

    code = "constraint-violated"


class StoredValueDamaged(StoreError):
    """A stored value cannot be decoded, or needs something that this machine lacks."""

    code = "stored-value-damaged"


class RightsMissing(StoreError):
    """The database role may not do what is needed; nothing was written."""

    code = "rights-missing"
    exit = Exit.NOT_ALLOWED


class SchemaMismatch(StoreError):
    """The database's schema does not fit this code."""

    exit = Exit.CONFLICT


class SchemaOutdated(SchemaMismatch):
    """The database is older than this code."""

    code = "schema-outdated"


class SchemaNewer(SchemaMismatch):
    """The database is newer than this code."""

    code = "schema-newer"


class SchemaAltered(SchemaMismatch):
    """The tables differ from what the recorded migrations make."""

    code = "schema-altered"
