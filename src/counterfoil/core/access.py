"""Who may do what: roles and the acts that each permits as one table, principals, and whether an act is permitted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from counterfoil.core.arguments import CALLED
from counterfoil.core.templates import validate_id
from counterfoil.core.unseen import is_unseen
from counterfoil.errors import InvalidArguments, InvalidId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Act(StrEnum):
    """A kind of act that a role permits or does not."""

    READ = "read"
    DECIDE = "decide"
    VERDICT = "verdict"
    OPERATE = "operate"
    GRANT = "grant"
    EXPORT = "export"
    ADMINISTER = "administer"


class Role(StrEnum):
    """What somebody is here for; each role may do what the one before it may, and more."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_VIEWER: Final = frozenset({Act.READ})
_REVIEWER: Final = _VIEWER | {Act.DECIDE, Act.VERDICT}
_OPERATOR: Final = _REVIEWER | {Act.OPERATE, Act.GRANT}
MAY: Final[Mapping[Role, frozenset[Act]]] = {
    Role.VIEWER: _VIEWER,
    Role.REVIEWER: _REVIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: _OPERATOR | {Act.EXPORT, Act.ADMINISTER},
}
"""Which role may do what: to read; to decide on approvals; to give verdicts; to requeue, skip, cancel, pause, resume,
delete and purge; to grant operations; to export the audit trail; to manage tokens and tenants."""


# --- principals ------------------------------------------------------------------------------------------------------


def canonical(name: str) -> str:
    """Return the form of a name in which principals are compared and stored: `" Ann "` is `"ann"`.

    Compatible characters are made one, and white space is one space; case and what surrounds the name are dropped, and
    so are characters that nobody sees, such as a zero-width space, a variation selector or a control character.

    Raises:
        InvalidId: not a text, empty, too long to be looked up by, or with NUL or a lone surrogate in it.
    """
    given = " ".join(CALLED.words("the name of a principal", name).split())
    folded = unicodedata.normalize("NFD", "".join(char for char in given if not is_unseen(char)))
    for _ in range(2):  # as Unicode defines it: folding may make what can be composed, and composing what can be folded
        folded = unicodedata.normalize("NFKC", folded.casefold())
    return validate_id("the name of a principal", " ".join(folded.split()))


def compared(name: str) -> str:
    """Return the form in which a stored name is compared; one that is nobody's canonical name stays as it is."""
    try:
        return canonical(name)
    except InvalidId:
        return name


def is_same_principal(a: str, b: str) -> bool:
    """Say whether two names are those of one principal."""
    return canonical(a) == canonical(b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who acts, as authentication says it: never a name from a message's body.

    Args:
        tenant: The one tenant for which it acts; None for all, as for the operator of the database.
        name: Its name; compared in its canonical form, shown as it is.
        role: What it may do: `"viewer"`, `"reviewer"`, `"operator"` or `"admin"`.
        token_id: The token that it came with, if it came with one.
        scopes: What it may do of that; None for all of it.

    Raises:
        InvalidArguments: there is no such role, or no such scope.
        InvalidId: the tenant or the name cannot be stored.
    """

    tenant: str | None
    name: str
    role: Role
    token_id: str | None = None
    scopes: frozenset[Act] | None = None

    def __post_init__(self) -> None:
        """Check what it is made of."""
        if self.tenant is not None:
            validate_id("tenant", self.tenant)
        canonical(self.name)
        object.__setattr__(self, "role", role_named(self.role))
        if self.scopes is not None:
            object.__setattr__(self, "scopes", scopes_named(self.scopes))

    def may(self, act: Act) -> bool:
        """Say whether its role, narrowed by its scopes, permits an act."""
        return act in MAY[self.role] and (self.scopes is None or act in self.scopes)


def role_named(role: Role | str) -> Role:
    """Return the role of this name.

    Raises:
        InvalidArguments: there is none.
    """
    try:
        return Role(role)
    except ValueError:
        raise InvalidArguments(f"There is no role {role!r}. Write one of: {', '.join(Role)}.") from None


def scopes_named(scopes: Iterable[Act | str]) -> frozenset[Act]:
    """Return the acts of these names.

    Raises:
        InvalidArguments: there is no such act, or none is named.
    """
    try:
        listed = tuple(scopes) if isinstance(scopes, Iterator) else scopes
        found = frozenset(Act(each) for each in CALLED.texts("scopes", listed))
    except ValueError:
        raise InvalidArguments(f"A scope is not known. Write some of: {', '.join(Act)}.") from None
    if not found:
        raise InvalidArguments("No scope is named, so that nothing would be permitted. Leave scopes out for all.")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts, as it is stored: `who` to compare names by, `shown` as the name was given; a role only if one is known.

    A name that code passes has no role: whoever opened the database may do everything with it.
    """

    who: str
    shown: str
    role: Role | None = None
    token_id: str | None = None


# --- decisions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permitted:
    """It may act."""


@dataclass(frozen=True, slots=True)
class AnotherTenants:
    """It acts for another tenant, of which it must not learn anything."""


@dataclass(frozen=True, slots=True)
class OneTenantsOnly:
    """It acts for one tenant, and the act is about all of them."""


@dataclass(frozen=True, slots=True)
class NotInRole:
    """Its role, or what its scopes leave of it, does not permit the act."""


AccessDecision = Permitted | AnotherTenants | OneTenantsOnly | NotInRole


def decide_access(principal: Principal, act: Act, tenant: str | None) -> AccessDecision:
    """Decide whether a principal may act within a tenant; None stands for all of them.

    The tenant comes first: what is said of another tenant's things does not depend on what they are.
    """
    if principal.tenant is not None and tenant is not None and tenant != principal.tenant:
        return AnotherTenants()
    if principal.tenant is not None and tenant is None:
        return OneTenantsOnly()
    return Permitted() if principal.may(act) else NotInRole()
