"""Tokens for callers on an event loop: the same names as the blocking twin. `cf.tokens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.active import refuse_nested
from counterfoil.core.arguments import CALLED
from counterfoil.core.tokens import digest, public_id
from counterfoil.errors import CommitUnknown
from counterfoil.issuing import LIFETIME, OVERLAP, Rotation, handing, honoured, issue_of, revoked, rotated
from counterfoil.model import Page
from counterfoil.operations import PAGE, check_limit, check_tenant
from counterfoil.storage import rows
from counterfoil.storage.scripts import tokens
from counterfoil.storage.tenants import ALL_TENANTS, whose

if TYPE_CHECKING:
    from collections.abc import Iterable

    from counterfoil.core.access import Act, Principal, Role
    from counterfoil.core.durations import Duration
    from counterfoil.records import Token
    from counterfoil.storage.store import AsyncStore


class AsyncTokens:
    """The tokens of one database, for callers on an event loop; a secret is shown once and never stored."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def issue(
        self,
        *,
        tenant: str | None,
        name: str,
        role: Role | str,
        scopes: Iterable[Act | str] | None = None,
        expires_in: Duration | None = LIFETIME,
        by: str | Principal | None = None,
        reason: str = "",
    ) -> tuple[Token, str]:
        """Issue a token, and return it with its secret, which is shown here and never again.

        Args:
            tenant: The tenant for which it stands; None for all of them.
            name: The principal that it stands for.
            role: `"viewer"`, `"reviewer"`, `"operator"` or `"admin"`.
            scopes: What it may do of that, such as `["read"]`; None for all of it.
            expires_in: How long it is honoured; None for ever.
            by: Who issues it; the operating-system user unless it is said.
            reason: Why.

        Raises:
            InvalidArguments: there is no such role, or no such scope.
            NotAllowed: who issues it may not, or may do less than the token would.
            TenantNotFound: who issues it is here for another tenant.
        """
        refuse_nested("tokens.issue")
        asked = issue_of(
            tenant=tenant, name=name, role=role, scopes=scopes, expires_in=expires_in, by=by, reason=reason
        )
        try:
            row = await self._store.write(lambda: tokens.issue(asked.new, asked.by, asked.reason), tenant=whose(tenant))
        except CommitUnknown as lost:
            with lost.outlasting():
                found = await self._store.read(lambda: tokens.find(asked.new.token_id), tenant=whose(tenant))
            if found is None:
                raise
            row = found
        return rows.token(row), asked.secret

    async def authenticate(self, secret: str) -> Principal:
        """Return the principal for which a token stands.

        Raises:
            TokenRefused: it is not honoured: unknown, mistyped, expired, revoked, or of a suspended tenant.
        """
        text = CALLED.words("secret", secret)
        token_id, shown = public_id(text), digest(text)
        return honoured(await self._store.read(lambda: tokens.look(token_id), tenant=ALL_TENANTS), token_id, shown)

    async def list(self, *, tenant: str | None, after: int | None = None, limit: int = PAGE) -> Page[Token]:
        """Return one page of tokens, the oldest first: of a tenant, or with None of all and for all of them."""
        checked, most = None if tenant is None else check_tenant(tenant), check_limit(limit)
        start = 0 if after is None else CALLED.number("after", after)
        found = await self._store.read(lambda: tokens.page(checked, after=start, limit=most + 1), tenant=whose(checked))
        items = tuple(rows.token(row) for row in found[:most])
        return Page(items=items, next=items[-1].seq if len(found) > most else None)

    async def rotate(
        self,
        token_id: str,
        *,
        overlap: Duration = OVERLAP,
        expires_in: Duration | None = None,
        by: str | Principal | None = None,
        reason: str = "",
    ) -> tuple[Token, str]:
        """Issue a token in the place of another one, which is honoured for the overlap only.

        Args:
            token_id: The public id of the old one.
            overlap: How long both are honoured.
            expires_in: How long the new one is; as long as the old one was, unless it is said.
            by: Who does it; the operating-system user unless it is said.
            reason: Why.

        Raises:
            TokenNotFound: there is no such token, or it is another tenant's.
            TokenEnded: it is expired or revoked, or another one has its place.
            NotAllowed: who does it may not, or may do less than the token.
        """
        refuse_nested("tokens.rotate")
        held = handing(token_id, by, reason)
        wanted = Rotation.of(by, overlap, expires_in)
        answer: tokens.Done | tokens.NoToken | tokens.Ended
        try:
            answer = await self._store.write(
                lambda: tokens.rotate(held, wanted.make, overlap=wanted.overlap), tenant=whose(held.mine)
            )
        except CommitUnknown as lost:
            with lost.outlasting():
                found = await self._store.read(lambda: tokens.find(wanted.token_id), tenant=whose(held.mine))
            if found is None:
                raise
            answer = tokens.Done(found)
        return rotated(held.token_id, wanted, answer)

    async def revoke(self, token_id: str, *, by: str | Principal | None = None, reason: str = "") -> Token:
        """End a token at once; one that is revoked stays as it is.

        Raises:
            TokenNotFound: there is no such token, or it is another tenant's.
            NotAllowed: who does it may not.
        """
        refuse_nested("tokens.revoke")
        held = handing(token_id, by, reason)
        try:
            answer = await self._store.write(lambda: tokens.revoke(held), tenant=whose(held.mine))
        except CommitUnknown as lost:
            with lost.outlasting():  # done again, it is revoked already
                answer = await self._store.write(lambda: tokens.revoke(held), tenant=whose(held.mine))
        return revoked(held.token_id, answer)
