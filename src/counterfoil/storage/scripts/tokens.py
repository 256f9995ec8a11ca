"""Scripts of tokens: issue one, look one up that was shown, let another take its place, revoke it. Never a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil.core.audit import Deed, Kind, Subject
from counterfoil.storage.script import Row, Script, all_rows, held_row, one_row
from counterfoil.storage.scripts.audit import note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.core.access import Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A token that is to be recorded; `lifetime` in milliseconds, None without end; an empty tenant is all of them."""

    token_id: str
    tenant: str
    principal: str
    shown: str
    role: str
    scopes: str | None
    secret_digest: bytes = field(repr=False)
    lifetime: int | None


def issue(new: New, by: Actor, reason: str) -> Script[Row]:
    """Record a token."""
    row = yield from _insert(new, by)
    yield from _note(by, Deed.ISSUE_TOKEN, row, reason, after=_told(row))
    return row


def _insert(new: New, by: Actor) -> Script[Row]:
    columns = {name: getattr(new, name) for name in New.__dataclass_fields__}
    return (yield from held_row("insert_token", **columns, created_by=by.shown))


def look(token_id: str) -> Script[Row | None]:
    """Read what decides whether a token is honoured."""
    return (yield from one_row("look_at_token", token_id=token_id))


def find(token_id: str) -> Script[Row | None]:
    """Read one token: whether it was recorded, where nobody heard of the COMMIT."""
    return (yield from one_row("get_token", token_id=token_id))


def page(tenant: str | None, *, after: int, limit: int) -> Script[Sequence[Row]]:
    """Read a page of tokens, the oldest first: of a tenant, or of all and for all."""
    tenants = (
        [tenant]
        if tenant is not None
        else [row["tenant"] for row in (yield from all_rows("list_token_tenants_any_tenant"))]
    )
    found: list[Row] = []
    for each in tenants:
        found += yield from all_rows("list_tokens", tenant=each, after=after, limit=limit)
    return sorted(found, key=lambda row: int(row["seq"]))[:limit]


# --- one token -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Handing:
    """Who does something to one token, within which tenant (None: any), and why."""

    token_id: str
    by: Actor
    mine: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class NoToken:
    """There is no such token, or it is another tenant's."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The token is revoked, outlived, or another one has its place already."""

    row: Row


@dataclass(frozen=True, slots=True)
class Done:
    """It is done; the token after it."""

    row: Row


def rotate(held: Handing, make: Callable[[Row], New], *, overlap: int) -> Script[Done | NoToken | Ended]:
    """Record a token that takes the place of another, which is honoured for the overlap only."""
    old = yield from _of(held)
    if old is None:
        return NoToken()
    new = make(old)
    named = {"token_id": held.token_id, "replaced_by": new.token_id}
    replaced = yield from one_row("replace_token_if_live", **named, overlap=overlap)
    if replaced is None:
        return Ended((yield from held_row("get_token", token_id=held.token_id)))
    row = yield from _insert(new, held.by)
    states = {"before": _told(old), "after": f"replaced by {new.token_id}"}
    yield from _note(held.by, Deed.ROTATE_TOKEN, replaced, held.reason, **states)
    return Done(row)


def revoke(held: Handing) -> Script[Done | NoToken]:
    """End a token at once; one that is revoked stays as it is."""
    old = yield from _of(held)
    if old is None:
        return NoToken()
    revoked = yield from one_row("revoke_token_if_not", token_id=held.token_id, revoked_by=held.by.shown)
    if revoked is None:
        return Done((yield from held_row("get_token", token_id=held.token_id)))
    yield from _note(held.by, Deed.REVOKE_TOKEN, revoked, held.reason, before=_told(old), after="revoked")
    return Done(revoked)


def _of(held: Handing) -> Script[Row | None]:
    row = yield from one_row("get_token", token_id=held.token_id)
    return None if row is None or held.mine not in {None, row["tenant"]} else row


def _note(by: Actor, deed: Deed, row: Row, reason: str, **states: Any) -> Script[None]:
    yield from note(by, deed, Subject(Kind.TOKEN, row["token_id"]), tenant=row["tenant"], reason=reason, **states)


def _told(row: Row) -> str:
    """Say in short for whom a token stands."""
    scopes = f" ({row['scopes']})" if row["scopes"] else ""
    return f"{row['principal']}: {row['role']}{scopes}"
