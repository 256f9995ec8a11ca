"""Rows to model objects, and the other way round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from counterfoil import codec
from counterfoil.core.arguments import LARGEST
from counterfoil.core.audit import Kind
from counterfoil.core.branches import branch_of, plain_id
from counterfoil.core.effects import Snapshot
from counterfoil.core.outbox import Tries
from counterfoil.core.states import OperationState, Sender
from counterfoil.core.unknown import still_holding
from counterfoil.errors import UnsupportedValue
from counterfoil.model import PURGED, Origin, Page, ProviderFacts, Receipt, Trusted
from counterfoil.records import AuditEntry, Tenant, Token
from counterfoil.shown import Approval, Attempt, Case, Evidence, Grant, Operation, Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.storage.script import Row

T = TypeVar("T")

NEWEST: Final = LARGEST
"""Larger than every seq: where paging begins."""

_CASE_PREFIX, _APPROVAL_PREFIX, _GRANT_PREFIX = "case-", "approval-", "grant-"
_ORIGIN = ("thread_id", "checkpoint_ns", "checkpoint_id", "node", "task_id", "run_id", "trace_id")
_TRUSTED = ("request_id", "workflow_id", "principal")
_SUMMARY = (
    *("seq", "tenant", "operation_id", "effect", "effect_version", "state", "sender", "attempt", "version"),
    *("claimed_at", "lease_until", "attempt_deadline", "first_attempt_at", "created_at", "updated_at", "settled_at"),
    *("settled_by", "error_class", "error_text", "now", "stream", "due_at", "expires_at", "max_attempts"),
)
_FACTS = {field.name: field.default for field in fields(ProviderFacts)}
"""Stored facts leave out what is as here, which is a third of a row: these defaults must stay what they are."""


@cache
def facts_text(facts: ProviderFacts) -> str:
    """Return a provider's declared facts as they are stored with an operation."""
    said = {name: value for name, value in asdict(facts).items() if value != _FACTS[name]}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=256)  # a program declares few, but a database may hold those of many releases
def facts_from(text: str) -> ProviderFacts:
    """Read stored facts; facts that a newer release added are left out."""
    return ProviderFacts(**{name: value for name, value in json.loads(text).items() if name in _FACTS})


def snapshot(row: Row, facts: ProviderFacts | None = None) -> Snapshot:
    """Return a row as the decide functions see it; `facts` is the declaration of now."""
    begun = facts_from(row["provider"])
    return Snapshot(
        effect=row["effect"],
        effect_version=row["effect_version"],
        sender=Sender(row["sender"]),
        state=OperationState(row["state"]),
        identity=row["identity_digest"],
        content=row["content_digest"],
        attempt=row["attempt"],
        fence=row["fence"],
        version=row["version"],
        holder=row["holder"],
        claimed_at=row["claimed_at"],
        lease_until=row["lease_until"],
        attempt_deadline=row["attempt_deadline"],
        first_attempt_at=row["first_attempt_at"],
        facts=still_holding(begun, facts) if facts else begun,
        now=row["now"],
        is_purged=row["receipt_marker"] == PURGED,
        decide_by=row["decide_by"],
        approved_until=row["approved_until"],
    )


def tries(row: Row) -> Tries:
    """Return how often an operation was tried and may be."""
    return Tries(sender=Sender(row["sender"]), attempt=row["attempt"], max_attempts=row["max_attempts"])


def operation(row: Row) -> Operation:
    """Return an operation as lists show it."""
    return Operation(
        **{name: row[name] for name in _SUMMARY},
        holder=None if row["settled_at"] else row["holder"],  # after that, it says who made the attempt that succeeded
        fingerprint=codec.text_digest(row["identity_digest"]),
        trusted=Trusted(**{name: row[name] for name in ("tenant", *_TRUSTED)}, branch=branch_of(row["operation_id"])),
        origin=Origin(**{name: row[name] for name in _ORIGIN}),
        facts=facts_from(row["provider"]),
        branch=branch_of(row["operation_id"]),
        plain_id=plain_id(row["operation_id"]),
        is_purged=row["receipt_marker"] == PURGED,
    )


def attempt(row: Row) -> Attempt:
    """Return a row of the attempt table."""
    return Attempt(**row)


def piece_of_evidence(row: Row) -> Evidence:
    """Return a row of the evidence table."""
    body = row["body"]
    known = {name: value for name, value in row.items() if name != "body"}
    return Evidence(**known, value=None if body is None else codec.decode(body))


def receipt(row: Row, answered_from: str) -> Receipt[Any]:
    """Return the receipt of a settled operation."""
    marker = row["receipt_marker"]
    return Receipt(
        tenant=row["tenant"],
        operation_id=row["operation_id"],
        effect=row["effect"],
        effect_version=row["effect_version"],
        fingerprint=codec.text_digest(row["identity_digest"]),
        attempt=row["attempt"],
        settled_at=row["settled_at"],
        answered_from=answered_from,
        evidence=evidence(row["evidence"]),
        marker=marker,
        stored=None if marker is not None else codec.decode(row["receipt"]),
    )


def contradicts(row: Row, told: bytes | None, marker: str | None) -> bool:
    """Say whether a result that was told later differs in content from an operation's receipt.

    What cannot be read, or only says that it happened, contradicts nothing.
    """
    if told is None or marker is not None or row["receipt_marker"] is not None:
        return False
    ours, theirs = codec.decode(row["receipt"]), codec.decode(told)
    if ours is None or theirs is None:
        return False
    try:
        return codec.canonical(ours) != codec.canonical(theirs)
    except UnsupportedValue:
        return bool(ours != theirs)


def evidence(body: bytes | None) -> Mapping[str, Any]:
    """Return stored evidence as a mapping."""
    if body is None:
        return {}
    value = codec.decode(body)
    return value if isinstance(value, Mapping) else {"value": value}


def case_id(seq: int) -> str:
    """Return a case's public id."""
    return f"{_CASE_PREFIX}{seq}"


def case_seq(text: str) -> int | None:
    """Return the number behind a case's public id, or None if it is not one."""
    return _number(text, _CASE_PREFIX)


def _number(text: str, prefix: str) -> int | None:
    number = text.removeprefix(prefix)
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None  # noqa: PLR2004 - 2^63


def grant_id(seq: int) -> str:
    """Return a grant's public id."""
    return f"{_GRANT_PREFIX}{seq}"


def grant_seq(text: str) -> int | None:
    """Return the number behind a grant's public id, or None if it is not one."""
    return _number(text, _GRANT_PREFIX)


def grant(row: Row) -> Grant:
    """Return a row of the grant table."""
    names = ("tenant", "operation_id", "effect", "granted_by", "granted_at", "expires_at", "revoked_by", "revoked_at")
    return Grant(
        grant_id=grant_id(row["seq"]),
        fingerprint=codec.text_digest(row["identity_digest"]),
        now=row["now"],
        **{name: row[name] for name in names},
    )


def approval_id(seq: int) -> str:
    """Return an approval's public id."""
    return f"{_APPROVAL_PREFIX}{seq}"


def approval_seq(text: str) -> int | None:
    """Return the number behind an approval's public id, or None if it is not one."""
    return _number(text, _APPROVAL_PREFIX)


def approval(row: Row) -> Approval:
    """Return a row of the approval table."""
    names = ("tenant", "operation_id", "effect", "effect_version", "state", "requested_by", "requested_at", "decide_by")
    more = (
        "edited_by",
        "follows",
        "followed_by",
        "decided_by",
        "reason",
        "decided_at",
        "valid_until",
        "spent_at",
        "now",
    )
    return Approval(
        approval_id=approval_id(row["seq"]),
        fingerprint=codec.text_digest(row["content_digest"]),
        **{name: row[name] for name in (*names, *more)},
    )


def case(row: Row) -> Case:
    """Return a row of the case table."""
    names = ("tenant", "operation_id", "kind", "state", "version", "opened_at", "reason")
    more = ("verdict", "verdict_by", "verdict_reason", "verdict_at")
    return Case(case_id=case_id(row["seq"]), **{name: row[name] for name in (*names, *more)})


def pause(row: Row) -> Pause:
    """Return a row of the pause table."""
    names = ("tenant", "effect", "stream")
    named = {name: row[name] or None for name in names}
    return Pause(**named, paused_by=row["paused_by"], reason=row["reason"], at=row["at"])


def paged(found: Sequence[Row], limit: int, make: Callable[[Row], T]) -> Page[T]:
    """Return a page of rows, of which one more than the limit says that another page follows."""
    items = tuple(make(row) for row in found[:limit])
    return Page(items=items, next=found[limit - 1]["seq"] if len(found) > limit else None)


def audit_entry(row: Row) -> AuditEntry:
    """Return a row of the audit table."""
    found = {"tenant": row["tenant"] or None, "before": row["state_before"], "after": row["state_after"]}
    names = ("seq", "at", "who", "shown", "role", "token_id", "act", "kind", "subject", "reason", "request_id")
    operation_id = row["subject"] if row["kind"] == Kind.OPERATION else row["operation_id"]
    return AuditEntry(**found, **{name: row[name] for name in names}, operation_id=operation_id)


def token(row: Row) -> Token:
    """Return a row of the token table as it is shown."""
    names = ("seq", "token_id", "role", "created_by", "created_at", "expires_at", "replaced_by", "revoked_by")
    return Token(
        **{name: row[name] for name in (*names, "revoked_at", "now")},
        tenant=row["tenant"] or None,
        name=row["shown"],
        scopes=scopes(row),
    )


def scopes(row: Row) -> tuple[str, ...] | None:
    """Return what a token's role is narrowed to; None is all of it."""
    return None if row["scopes"] is None else tuple(row["scopes"].split())


def tenant(row: Row) -> Tenant:
    """Return a row of the tenant table."""
    return Tenant(**row)
