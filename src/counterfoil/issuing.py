"""What both colours of `cf.tokens`, `cf.tenants` and `cf.audit` share: what is asked for is checked, and told."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from counterfoil.access import acting, not_allowed, system_user, tenant_not_found
from counterfoil.core import access
from counterfoil.core.access import MAY, Act, Actor, Principal, Role, canonical, role_named, scopes_named
from counterfoil.core.arguments import CALLED, plain
from counterfoil.core.durations import milliseconds, utc_text
from counterfoil.core.states import TenantEvent, TenantStatus
from counterfoil.core.tokens import PUBLIC_BYTES, SECRET_BYTES, Known, digest, is_honoured, spell
from counterfoil.errors import InvalidArguments, InvalidDuration, TenantExists, TokenEnded, TokenNotFound, TokenRefused
from counterfoil.operations import check_limit, check_tenant
from counterfoil.outboxing import who_and_why
from counterfoil.storage import rows
from counterfoil.storage.scripts import audit, tenants, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from counterfoil.core.durations import Duration
    from counterfoil.records import AuditEntry, Tenant, Token
    from counterfoil.storage.script import Row

LIFETIME: Final = "90d"
"""How long a token is honoured unless something else is said: one that is forgotten ends by itself."""
OVERLAP: Final = "24h"
"""How long a token is honoured beside the one that takes its place: for a day of rollouts."""
_EVERYONE: Final = audit.EVERYONE


# --- tokens ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A token that is to be recorded, its secret, who issues it and why."""

    new: tokens.New
    secret: str = field(repr=False)
    by: Actor
    reason: str


def issue_of(
    *,
    tenant: str | None,
    name: str,
    role: Role | str,
    scopes: Iterable[Act | str] | None,
    expires_in: Duration | None,
    by: str | Principal | None,
    reason: str,
) -> Issue:
    """Make a token.

    Raises:
        InvalidArguments: there is no such role, no such scope, or the role does not permit one.
        InvalidId: the tenant or the name cannot be stored.
        InvalidDuration: it would be over at once, or is no duration.
        NotAllowed: who issues it may not, or may do less than the token would.
        TenantNotFound: who issues it is here for another tenant.
    """
    checked = None if tenant is None else check_tenant(tenant)
    chosen, narrowed = role_named(role), None if scopes is None else scopes_named(scopes)
    _refuse_unpermitted(chosen, narrowed or frozenset())
    who = canonical(name)
    lifetime = _lifetime(expires_in)
    whose = system_user() if by is None else by
    actor = acting(whose, act=Act.ADMINISTER, tenant=checked)
    _refuse_more(whose, MAY[chosen] if narrowed is None else MAY[chosen] & narrowed)
    spelt = spell(secrets.token_bytes(PUBLIC_BYTES), secrets.token_bytes(SECRET_BYTES))
    new = tokens.New(
        token_id=spelt.token_id,
        tenant=checked or _EVERYONE,
        principal=who,
        shown=plain(name),
        role=str(chosen),
        scopes=None if narrowed is None else " ".join(sorted(narrowed)),
        secret_digest=digest(spelt.secret),
        lifetime=lifetime,
    )
    return Issue(new=new, secret=spelt.secret, by=actor, reason=plain(CALLED.words("reason", reason)))


def _refuse_unpermitted(role: Role, scopes: frozenset[Act]) -> None:
    """Refuse scopes that would permit nothing, as the role does not.

    Raises:
        InvalidArguments: there are some.
    """
    if beyond := sorted(scopes - MAY[role]):
        raise InvalidArguments(
            f"The role {role} does not permit to {', '.join(beyond)}, so no token of it may. Scopes leave less of what"
            f" a role permits, never more. It permits: {', '.join(sorted(MAY[role]))}. None was issued."
        )


def _lifetime(expires_in: Duration | None) -> int | None:
    """Return how long a token is honoured, in milliseconds; None is for ever, or what is usual.

    Raises:
        InvalidDuration: it would be over at once, or is no duration.
    """
    lifetime = None if expires_in is None else milliseconds(expires_in, "expires_in")
    if lifetime == 0:
        raise InvalidDuration("expires_in is 0: the token would be over at once. Leave it out for the usual time.")
    return lifetime


def _refuse_more(by: str | Principal | None, acts: frozenset[Act]) -> None:
    """Refuse a token that may do more than who issues it.

    Raises:
        NotAllowed: it may.
    """
    if isinstance(by, Principal) and (more := sorted(act for act in acts if not by.may(act))):
        raise not_allowed(by, more[0], f"may not {', '.join(more)}, and a token that may would do it for them")


def handing(token_id: str, by: str | Principal | None, reason: str) -> tokens.Handing:
    """Check who does something to a token.

    Raises:
        NotAllowed: the principal's role does not permit it.
    """
    mine = by.tenant if isinstance(by, Principal) else None
    return tokens.Handing(
        token_id=CALLED.text("token_id", token_id),
        by=acting(system_user() if by is None else by, act=Act.ADMINISTER, tenant=mine),
        mine=mine,
        reason=plain(CALLED.words("reason", reason)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """A token in the place of another one: for as long as that was to be honoured, unless another time is given.

    Its secret is made once, however often the transaction is run.
    """

    by: str | Principal | None
    overlap: int
    lifetime: int | None
    public: bytes
    random: bytes = field(repr=False)

    @classmethod
    def of(cls, by: str | Principal | None, overlap: Duration, expires_in: Duration | None) -> Rotation:
        """Check how long the old and the new token are honoured."""
        return cls(
            by=by,
            overlap=milliseconds(overlap, "overlap"),
            lifetime=_lifetime(expires_in),
            public=secrets.token_bytes(PUBLIC_BYTES),
            random=secrets.token_bytes(SECRET_BYTES),
        )

    def make(self, old: Row) -> tokens.New:
        """Make the new token, for the same principal.

        Raises:
            NotAllowed: it may do more than who rotates it.
        """
        kept = rows.scopes(old)
        acts = MAY[Role(old["role"])]
        _refuse_more(self.by, acts if kept is None else acts & scopes_named(kept))
        ends = old["expires_at"]
        usual = None if ends is None else ends - old["created_at"]
        return tokens.New(
            token_id=self.token_id,
            tenant=old["tenant"],
            principal=old["principal"],
            shown=old["shown"],
            role=old["role"],
            scopes=old["scopes"],
            secret_digest=digest(self.secret),
            lifetime=usual if self.lifetime is None else self.lifetime,
        )

    @property
    def token_id(self) -> str:
        """Return the public id of the new token."""
        return spell(self.public, self.random).token_id

    @property
    def secret(self) -> str:
        """Return the secret of the new token."""
        return spell(self.public, self.random).secret


def rotated(
    token_id: str, rotation: Rotation, answer: tokens.Done | tokens.NoToken | tokens.Ended
) -> tuple[Token, str]:
    """Return the new token and its secret.

    Raises:
        TokenNotFound: there is no such token.
        TokenEnded: it is not honoured any more, or another one has its place.
    """
    match answer:
        case tokens.Done(row):
            return rows.token(row), rotation.secret
        case tokens.NoToken():
            raise token_not_found(token_id)
        case tokens.Ended(row):
            raise _ended(rows.token(row))


def revoked(token_id: str, answer: tokens.Done | tokens.NoToken) -> Token:
    """Return the token as it was revoked.

    Raises:
        TokenNotFound: there is no such token.
    """
    if isinstance(answer, tokens.NoToken):
        raise token_not_found(token_id)
    return rows.token(answer.row)


def token_not_found(token_id: str) -> TokenNotFound:
    """Say that there is no such token; another tenant's is told in the same words, and never what may be a secret."""
    shown = token_id if len(token_id) == len(spell(b"", b"").token_id) else "of this id"
    return TokenNotFound(
        f"There is no token {shown}. Nothing was changed. Tokens are named by their public id, the part between the"
        " first two '_'; see them with: counterfoil tokens list",
        token_id=shown,
    )


def _ended(token: Token) -> TokenEnded:
    if token.revoked_at is not None:
        told = f"was revoked by {token.revoked_by} at {utc_text(token.revoked_at)}"
    elif token.replaced_by is not None:
        told = f"has {token.replaced_by} in its place already; if nobody knows that one's secret, rotate that one"
    else:
        told = f"was over at {utc_text(token.expires_at or 0)}"
    return TokenEnded(
        f"Token {token.token_id} {told}. Nothing was changed. Issue a new one with: counterfoil tokens issue --help",
        token_id=token.token_id,
    )


def honoured(row: Row | None, token_id: str, shown: bytes) -> Principal:
    """Return the principal of a token that was shown.

    Raises:
        TokenRefused: it is not honoured, for whichever reason.
    """
    known = (
        None
        if row is None
        else Known(
            digest=row["secret_digest"],
            expires_at=row["expires_at"],
            revoked_at=row["revoked_at"],
            is_suspended=row["tenant_status"] == TenantStatus.SUSPENDED,
            now=row["now"],
        )
    )
    if not is_honoured(known, shown) or row is None:
        raise TokenRefused(
            "The token is not honoured. Nothing was read or changed. It may be mistyped, expired or revoked; ask who"
            " issued it for a new one."
        )
    narrowed = rows.scopes(row)
    return Principal(
        tenant=row["tenant"] or None,
        name=row["shown"],
        role=Role(row["role"]),
        token_id=token_id,
        scopes=None if narrowed is None else scopes_named(narrowed),
    )


# --- tenants ---------------------------------------------------------------------------------------------------------


def creator(tenant: str, name: str | None, by: str | Principal | None, reason: str) -> tuple[str, str, Actor, str]:
    """Check who creates which tenant, under which name; without one, it is called as it is.

    Raises:
        InvalidId: the tenant cannot be stored.
        NotAllowed: the principal's role does not permit it.
        TenantNotFound: the principal is here for another tenant.
    """
    checked = check_tenant(tenant)
    shown = checked if name is None else plain(CALLED.text("name", name))
    actor = acting(system_user() if by is None else by, act=Act.ADMINISTER, tenant=checked)
    return checked, shown, actor, plain(CALLED.words("reason", reason))


def mover(tenant: str, by: str | Principal, reason: str) -> tuple[str, Actor, str]:
    """Check who suspends a tenant or lets it go on, and why.

    Raises:
        VerdictIncomplete: it does not say who, or why.
        NotAllowed: the principal's role does not permit it.
        TenantNotFound: the principal is here for another tenant.
    """
    checked = check_tenant(tenant)
    actor, why = who_and_why(by, reason, checked, act=access.Act.ADMINISTER)
    return checked, actor, why


def created(answer: tenants.Done | tenants.OtherName) -> Tenant:
    """Return the tenant that was created or found.

    Raises:
        TenantExists: it is there under another name.
    """
    if isinstance(answer, tenants.OtherName):
        there = answer.row
        raise TenantExists(
            f"The tenant {there['tenant']} is there, as {there['name']}. Nothing was changed. Use that one, or another"
            " id.",
            tenant=there["tenant"],
        )
    return rows.tenant(answer.row)


def moved(tenant: str, answer: tenants.Done | tenants.NoTenant) -> Tenant:
    """Return the tenant as it is now.

    Raises:
        TenantNotFound: no tenant of this name was created.
    """
    if isinstance(answer, tenants.NoTenant):
        raise tenant_not_found(tenant)
    return rows.tenant(answer.row)


SUSPENDED, RESUMED = TenantEvent.SUSPENDED, TenantEvent.RESUMED


# --- the audit trail -------------------------------------------------------------------------------------------------


def entries_of(subject: str | None, who: str | None, after: int | None, limit: int) -> audit.Wish:
    """Check what a list of entries is narrowed to.

    Raises:
        InvalidArguments: a number is out of range.
        InvalidId: no principal has such a name.
    """
    return audit.Wish(
        subject=CALLED.optional_text("subject", subject),
        who=None if who is None else canonical(who),
        after=0 if after is None else CALLED.number("after", after),
        limit=check_limit(limit),
    )


EXPORT_PAGE: Final = 500
"""Entries that are read at once while all are exported: no transaction is open while they are handed over."""


def following(wish: audit.Wish, after: int) -> audit.Wish:
    """Return the wish for the page that follows."""
    return replace(wish, after=after)


def line(entry: AuditEntry) -> str:
    """Return an entry as one line of JSON."""
    told: dict[str, Any] = asdict(entry)
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))
