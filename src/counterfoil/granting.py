"""What is permitted beforehand, made ready to be stored, and what is told of it; the same for both colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.access import acting
from counterfoil.core.access import Act
from counterfoil.core.arguments import CALLED
from counterfoil.core.durations import milliseconds
from counterfoil.desk import NOWHERE
from counterfoil.errors import GrantNotFound
from counterfoil.outboxing import who_and_why
from counterfoil.storage import rows
from counterfoil.storage.scripts.grants import NoGrant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from counterfoil.core.access import Actor, Principal
    from counterfoil.core.durations import Duration
    from counterfoil.desk import Desk
    from counterfoil.effects import Effect
    from counterfoil.model import Page, Trusted
    from counterfoil.shown import Grant
    from counterfoil.storage.script import Row
    from counterfoil.storage.scripts.claims import Request


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be permitted, by whom, and for how long."""

    request: Request
    actor: Actor
    valid_for: int | None


def wish(
    desk: Desk,
    effect: Effect[Any],
    arguments: Mapping[str, Any],
    trusted: Trusted,
    by: str | Principal,
    expires_in: Duration | None,
) -> Wish:
    """Make a grant ready to be stored.

    Raises:
        NotAllowed: the principal's role does not permit it.
        UsageError: the caller's code is wrong; the class says how.
    """
    request = desk.job(effect, arguments, trusted, NOWHERE).request
    actor = acting(by, act=Act.GRANT, tenant=request.key.tenant)
    return Wish(request, actor, None if expires_in is None else milliseconds(expires_in, "expires_in"))


def number(grant_id: object, tenant: str) -> int:
    """Return the number behind a grant's id.

    Raises:
        GrantNotFound: it is not the id of a grant.
    """
    text = CALLED.text("grant_id", grant_id)
    if (seq := rows.grant_seq(text)) is None:
        raise not_found(text, tenant)
    return seq


def not_found(grant_id: str, tenant: str) -> GrantNotFound:
    """Say that a tenant has no such grant."""
    return GrantNotFound(
        f"There is no grant {grant_id} of tenant {tenant}. Nothing was changed. See what there is with"
        f" cf.grants.list(tenant={tenant!r}).",
        tenant=tenant,
        operation_id="",
        grant_id=grant_id,
    )


def revoker(by: str | Principal, reason: str, tenant: str, grant_id: str) -> tuple[Actor, str]:
    """Return who revokes a grant and why, as they are stored.

    Raises:
        NotAllowed: the principal's role does not permit it.
        GrantNotFound: the principal is another tenant's.
        VerdictIncomplete: the reason is missing.
    """
    return who_and_why(by, reason, tenant, unknown=lambda: not_found(grant_id, tenant), act=Act.GRANT)


def revoked(answer: Row | NoGrant, grant_id: str, tenant: str) -> Grant:
    """Return the grant as it is now.

    Raises:
        GrantNotFound: there is none.
    """
    if isinstance(answer, NoGrant):
        raise not_found(grant_id, tenant)
    return rows.grant(answer)


def start(before: int | None) -> int:
    """Return where a page begins: before this grant's number, or with the newest."""
    return rows.NEWEST if before is None else CALLED.number("before", before)


def paged(found: Sequence[Row], limit: int) -> Page[Grant]:
    """Return a page of grants."""
    return rows.paged(found, limit, rows.grant)
