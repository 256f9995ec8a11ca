"""One operation cannot go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.errors.root import CounterfoilError
from counterfoil.exits import Exit, Retry

if TYPE_CHECKING:
    from counterfoil.model import Receipt


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


class NoReceipt(OperationError):
    """The operation has no receipt, since it did not happen: it waits for a person, or was ended before it was sent."""

    code = "no-receipt"


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
