"""The caller's code or settings are wrong: the same call can never succeed."""

from __future__ import annotations

from counterfoil.errors.root import CounterfoilError
from counterfoil.exits import Exit


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


class GraphMissing(UsageError):
    """No graph of this name and version is registered in this process."""

    code = "graph-missing"


class GraphMismatch(UsageError):
    """A workflow began in another graph than the one registered under its version; the message names what differs."""

    code = "graph-mismatch"


class NotInWorkflow(UsageError):
    """A step waits whose thread is no workflow, so that nobody would wake it."""

    code = "not-in-workflow"
