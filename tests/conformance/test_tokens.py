"""Tokens and tenants: what is issued is honoured until it ends, its secret is nowhere, and each change is noted."""

from dataclasses import replace
from inspect import getdoc, signature
from operator import attrgetter
from typing import Any

import pytest

from counterfoil import Principal
from counterfoil.aio.audit import AsyncAudit
from counterfoil.aio.tenants import AsyncTenants
from counterfoil.aio.tokens import AsyncTokens
from counterfoil.audit import Audit
from counterfoil.core.access import MAY, Act, Role
from counterfoil.core.tokens import digest, spell
from counterfoil.drivers.probes import Point
from counterfoil.errors import (
    CommitUnknown,
    InvalidArguments,
    InvalidDuration,
    InvalidId,
    NotAllowed,
    TenantExists,
    TenantMissing,
    TenantNotFound,
    TokenEnded,
    TokenNotFound,
    TokenRefused,
    VerdictIncomplete,
)
from counterfoil.tenants import Tenants
from counterfoil.tokens import Tokens
from tests.conformance.subject import Subject
from tests.stores import FILE, MEMORY, POSTGRES, on_each, stored

TENANT = "team-a"
ADMIN = Principal(tenant=TENANT, name="Root", role=Role.ADMIN, token_id="k-0")
WHY = {"by": "ops", "reason": "they asked for it"}


@pytest.fixture(params=(MEMORY, POSTGRES))
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=("sync", "async"))
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(subject: Subject, name: str, /, *given: Any, **more: Any) -> Any:
    return subject.settle(attrgetter(name)(subject.cf)(*given, **more))


def issue(subject: Subject, **given: Any) -> tuple[Any, str]:
    whole = {"tenant": TENANT, "name": "Mei", "role": "reviewer", "by": "ops", **given}
    token, secret = call(subject, "tokens.issue", **whole)
    return token, secret


def shown(subject: Subject, secret: str) -> Any:
    return call(subject, "tokens.authenticate", secret)


def is_honoured(subject: Subject, secret: str) -> bool:
    try:
        shown(subject, secret)
    except TokenRefused:
        return False
    return True


def deeds(subject: Subject) -> list[tuple[Any, ...]]:
    names = ("act", "kind", "subject", "who", "state_before", "state_after")
    return [
        tuple(row[name] for name in names) for row in sorted(subject.rows("audit"), key=lambda row: int(row["seq"]))
    ]


# --- issue and authenticate ------------------------------------------------------------------------------------------


def test_a_token_stands_for_its_principal(subject: Subject) -> None:
    token, secret = issue(subject, scopes=["read", "decide"], reason="for the console")
    now = subject.clock.now_ms()
    assert (token.tenant, token.name, token.role, token.scopes) == (TENANT, "Mei", "reviewer", ("decide", "read"))
    assert (token.created_by, token.created_at, token.expires_at) == ("ops", now, now + 90 * 86_400_000)
    assert shown(subject, secret) == Principal(
        tenant=TENANT,
        name="Mei",
        role=Role.REVIEWER,
        token_id=token.token_id,
        scopes=frozenset({Act.READ, Act.DECIDE}),
    )
    assert deeds(subject) == [
        ("token.issue", "token", token.token_id, "ops", None, "mei: reviewer (decide read)"),
    ]


def test_a_token_for_all_tenants_is_one_that_says_so(subject: Subject) -> None:
    token, secret = issue(subject, tenant=None, role="admin", expires_in=None)
    principal = shown(subject, secret)
    assert (token.tenant, token.expires_at, principal.tenant, principal.scopes) == (None, None, None, None)


def test_it_ends_by_the_databases_clock(subject: Subject) -> None:
    _, secret = issue(subject, expires_in="1h")
    subject.clock.advance("59m")
    assert is_honoured(subject, secret)
    subject.clock.advance("1m")
    assert not is_honoured(subject, secret)


def test_a_revoked_token_is_not_honoured_and_stays_revoked_by_whom_it_was(subject: Subject) -> None:
    token, secret = issue(subject)
    first = call(subject, "tokens.revoke", token.token_id, **WHY)
    subject.clock.advance("1m")
    again = call(subject, "tokens.revoke", token.token_id, by="bo", reason="again")
    assert not is_honoured(subject, secret)
    assert (first.status, first.revoked_by, again.revoked_by, again.revoked_at) == (
        "revoked", "ops", "ops", first.revoked_at,
    )  # fmt: skip
    assert deeds(subject)[1:] == [("token.revoke", "token", token.token_id, "ops", "mei: reviewer", "revoked")]


def refusals(subject: Subject) -> dict[str, str]:
    """Return tokens that are not honoured, each for a reason of its own."""
    (_, good), (expired, past), (revoked, gone), (_, away) = (
        issue(subject),
        issue(subject, expires_in="1ms"),
        issue(subject),
        issue(subject, tenant="team-s"),
    )
    subject.clock.advance("1m")
    call(subject, "tokens.revoke", revoked.token_id, **WHY)
    call(subject, "tenants.create", "team-s")
    call(subject, "tenants.suspend", "team-s", **WHY)
    unknown = spell(bytes(9), bytes(32)).secret
    forged = spell(bytes(9), bytes(32)).secret.replace("0000000000000", expired.token_id, 1)
    return {
        "expired": past, "revoked": gone, "suspended": away, "unknown": unknown, "forged": forged,
        "mistyped": good[:-1] + ("a" if good[-1] != "a" else "b"), "empty": "", "odd": "\ud800\0" * 40,
    }  # fmt: skip


def test_whatever_is_wrong_with_a_token_is_refused_in_the_same_words_after_the_same_look(subject: Subject) -> None:
    told, looks = set(), set()
    for secret in refusals(subject).values():
        asked: list[str] = []

        def note(point: Point, name: str, asked: list[str] = asked) -> None:
            if point is Point.BEFORE_STATEMENT:
                asked.append(name)

        with subject.probe.during(note), pytest.raises(TokenRefused) as caught:
            shown(subject, secret)
        told.add((str(caught.value), repr(caught.value.facts), caught.value.__cause__))
        looks.add(tuple(asked))
    assert len(told) == 1
    assert looks == {("look_at_token",)}


# --- rotate ----------------------------------------------------------------------------------------------------------


def test_a_rotated_token_is_honoured_for_the_overlap_alone(subject: Subject) -> None:
    old, before = issue(subject, expires_in="30d", scopes=["read"])
    subject.clock.advance("1d")
    new, after = call(subject, "tokens.rotate", old.token_id, overlap="2h", **WHY)
    assert (new.name, new.role, new.scopes, new.expires_at - new.created_at) == (
        "Mei", "reviewer", ("read",), 30 * 86_400_000,
    )  # fmt: skip
    assert is_honoured(subject, before)
    assert is_honoured(subject, after)
    subject.clock.advance("2h")
    assert not is_honoured(subject, before)
    assert is_honoured(subject, after)
    listed = {token.token_id: token for token in call(subject, "tokens.list", tenant=TENANT).items}
    assert (listed[old.token_id].status, listed[old.token_id].replaced_by) == ("expired", new.token_id)
    assert deeds(subject)[1:] == [
        ("token.rotate", "token", old.token_id, "ops", "mei: reviewer (read)", f"replaced by {new.token_id}"),
    ]


def test_an_overlap_makes_no_token_live_longer(subject: Subject) -> None:
    old, _ = issue(subject, expires_in="1h")
    call(subject, "tokens.rotate", old.token_id, overlap="24h", **WHY)
    (row, _new) = sorted(subject.rows("token"), key=lambda each: int(each["seq"]))
    assert row["expires_at"] == old.expires_at


def test_no_token_comes_in_the_place_of_another_that_would_be_over_at_once(subject: Subject) -> None:
    old, _ = issue(subject)
    with pytest.raises(InvalidDuration, match="over at once"):
        call(subject, "tokens.rotate", old.token_id, expires_in="0s", **WHY)
    assert [row["replaced_by"] for row in subject.rows("token")] == [None]


@on_each(MEMORY)
def test_a_token_that_ended_is_not_rotated(subject: Subject) -> None:
    once, _ = issue(subject)
    call(subject, "tokens.rotate", once.token_id, overlap="1h", **WHY)
    with pytest.raises(TokenEnded, match="in its place already"):
        call(subject, "tokens.rotate", once.token_id, **WHY)
    subject.clock.advance("1h")
    past, _ = issue(subject, expires_in="1ms")
    revoked, _ = issue(subject)
    call(subject, "tokens.revoke", revoked.token_id, **WHY)
    subject.clock.advance("1m")
    for token, why in ((past, "was over at"), (revoked, "was revoked by ops")):
        with pytest.raises(TokenEnded, match=why):
            call(subject, "tokens.rotate", token.token_id, **WHY)


def test_one_of_several_who_rotate_a_token_does(subject: Subject) -> None:
    old, _ = issue(subject)
    results = subject.at_once(lambda: call(subject, "tokens.rotate", old.token_id, **WHY), 5)
    assert sum(isinstance(one, TokenEnded) for one in results) == 4
    assert len(subject.rows("token")) == 2


# --- secrets ---------------------------------------------------------------------------------------------------------


@on_each(FILE, POSTGRES)
def test_no_secret_is_in_the_database_and_none_is_shown(subject: Subject) -> None:
    old, one = issue(subject, reason="its secret is in no log")
    new, two = call(subject, "tokens.rotate", old.token_id, **WHY)
    for secret in (one, two):
        is_honoured(subject, secret)
    told = [repr(each) for each in (old, new, shown(subject, two), call(subject, "tokens.list", tenant=None))]
    told += [repr([dict(row) for row in subject.rows("audit")])]
    raw = stored(subject.url)
    for secret in (one, two):
        core = secret.split("_")[2]
        assert old.token_id.encode() in raw
        assert core.encode() not in raw
        for text in told:
            assert core not in text
            assert repr(digest(secret)) not in text


# --- who may ---------------------------------------------------------------------------------------------------------


@on_each(MEMORY)
@pytest.mark.parametrize("role", [Role.VIEWER, Role.REVIEWER, Role.OPERATOR])
def test_tokens_and_tenants_are_for_admins(subject: Subject, role: Role) -> None:
    token, _ = issue(subject)
    call(subject, "tenants.create", TENANT)
    by = replace(ADMIN, role=role)
    before = [subject.rows(table) for table in ("token", "tenant", "audit")]
    for name, given, more in (
        ("tokens.issue", (), {"tenant": TENANT, "name": "bo", "role": "viewer"}),
        ("tokens.rotate", (token.token_id,), {}),
        ("tokens.revoke", (token.token_id,), {}),
        ("tenants.create", (TENANT,), {}),
        ("tenants.suspend", (TENANT,), {"reason": "why"}),
        ("tenants.resume", (TENANT,), {"reason": "why"}),
    ):
        with pytest.raises(NotAllowed, match="does not permit to administer"):
            call(subject, name, *given, by=by, **more)
    assert [subject.rows(table) for table in ("token", "tenant", "audit")] == before


@on_each(MEMORY)
def test_nobody_issues_or_rotates_what_may_do_more_than_they(subject: Subject) -> None:
    narrow = replace(ADMIN, scopes=frozenset({Act.READ, Act.ADMINISTER}))
    issue(subject, by=narrow, role="viewer")
    issue(subject, by=narrow, role="admin", scopes=["read"])
    with pytest.raises(NotAllowed, match="may not decide, verdict"):
        issue(subject, by=narrow, role="reviewer")
    strong, _ = issue(subject, role="operator")
    with pytest.raises(NotAllowed, match="may not decide, grant, operate, verdict"):
        call(subject, "tokens.rotate", strong.token_id, by=narrow)
    with pytest.raises(NotAllowed, match="about all tenants"):
        issue(subject, by=ADMIN, tenant=None)


@on_each(MEMORY)
def test_another_tenants_token_looks_like_an_unknown_one(subject: Subject) -> None:
    token, _ = issue(subject, tenant="team-b")
    everyones, _ = issue(subject, tenant=None)
    nobodys = spell(bytes(9), bytes(32)).token_id
    told = set()
    for name in ("tokens.rotate", "tokens.revoke"):
        for token_id in (token.token_id, everyones.token_id, nobodys):
            with pytest.raises(TokenNotFound) as caught:
                call(subject, name, token_id, by=ADMIN)
            told.add(str(caught.value).replace(token_id, "..."))
    with pytest.raises(TenantNotFound):
        issue(subject, tenant="team-b", by=ADMIN)
    assert len(told) == 1
    assert len(subject.rows("token")) == 2


def test_a_secret_in_the_place_of_an_id_is_not_told_again(subject: Subject) -> None:
    _, secret = issue(subject)
    with pytest.raises(TokenNotFound) as caught:
        call(subject, "tokens.revoke", secret)
    assert secret.split("_")[2] not in f"{caught.value} {caught.value.facts}"


@on_each(MEMORY)
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"role": "owner"}, InvalidArguments),
        ({"scopes": ["fly"]}, InvalidArguments),
        ({"scopes": 5}, InvalidArguments),
        ({"scopes": []}, InvalidArguments),
        ({"name": " "}, InvalidId),
        ({"tenant": ""}, TenantMissing),
        ({"expires_in": 5}, InvalidDuration),
        ({"expires_in": "0s"}, InvalidDuration),
        ({"reason": None}, InvalidArguments),
    ],
)
def test_a_token_is_made_of_what_exists(subject: Subject, given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        issue(subject, **given)
    assert subject.rows("token") == []


@pytest.mark.parametrize("role", Role)
def test_scopes_that_a_role_does_not_permit_are_refused_by_name(subject: Subject, role: Role) -> None:
    beyond = sorted(set(Act) - MAY[role])
    for scopes in ([each] for each in beyond):
        with pytest.raises(InvalidArguments, match=f"{role} does not permit to {scopes[0]}, so"):
            issue(subject, role=role, scopes=[Act.READ, *scopes])
    if beyond:
        with pytest.raises(InvalidArguments, match=f"does not permit to {', '.join(beyond)}, so"):
            issue(subject, role=role, scopes=Act)
    assert subject.rows("token") == []
    issue(subject, role=role, scopes=MAY[role])
    assert len(subject.rows("token")) == 1


def test_tokens_are_listed_by_pages(subject: Subject) -> None:
    made = [issue(subject, name=f"p{number}")[0] for number in range(3)]
    issue(subject, tenant="team-b")
    page = call(subject, "tokens.list", tenant=TENANT, limit=2)
    rest = call(subject, "tokens.list", tenant=TENANT, after=page.next)
    assert ([*page.items, *rest.items], rest.next) == (made, None)
    assert len(call(subject, "tokens.list", tenant=None).items) == 4


class Losing:
    """Lets a COMMIT take effect and its answer be lost."""

    def __init__(self) -> None:
        self.is_done = False

    def __call__(self, point: Point, _name: str) -> None:
        if point is Point.AFTER_COMMIT and not self.is_done:
            self.is_done = True
            raise CommitUnknown("the connection was lost")


def test_what_nobody_heard_of_is_looked_up_and_noted_once(subject: Subject) -> None:
    with subject.probe.during(Losing()):
        token, secret = issue(subject)
    assert is_honoured(subject, secret)
    with subject.probe.during(Losing()):
        new, after = call(subject, "tokens.rotate", token.token_id, **WHY)
    assert shown(subject, after).token_id == new.token_id
    for name, given in (
        ("tokens.revoke", (new.token_id,)),
        ("tenants.create", (TENANT,)),
        ("tenants.suspend", (TENANT,)),
        ("tenants.resume", (TENANT,)),
    ):
        with subject.probe.during(Losing()):
            call(subject, name, *given, **WHY)
    acts = [deed[0] for deed in deeds(subject)]
    assert acts == ["token.issue", "token.rotate", "token.revoke", "tenant.create", "tenant.suspend", "tenant.resume"]


# --- tenants ---------------------------------------------------------------------------------------------------------


def test_a_suspended_tenants_tokens_are_refused_and_what_it_enqueued_waits(subject: Subject) -> None:
    create = subject.ticket()
    _, secret = issue(subject)
    _, everyones = issue(subject, tenant=None)
    made = call(subject, "tenants.create", TENANT, "Team A", by="ops")
    subject.enqueue(create, title="a")
    suspended = call(subject, "tenants.suspend", TENANT, **WHY)
    subject.drain(create)
    assert (len(subject.sent), is_honoured(subject, secret), is_honoured(subject, everyones)) == (0, False, True)
    assert (made.status, suspended.status, suspended.changed_by, suspended.name) == (
        "active", "suspended", "ops", "Team A",
    )  # fmt: skip
    (pause,) = call(subject, "outbox.pauses")
    assert (pause.tenant, pause.reason) == (TENANT, "the tenant is suspended: they asked for it")
    assert call(subject, "tenants.suspend", TENANT, by="bo", reason="again") == suspended
    assert call(subject, "tenants.resume", TENANT, **WHY).status == "active"
    subject.drain(create)
    assert (len(subject.sent), is_honoured(subject, secret)) == (1, True)
    assert deeds(subject)[2:] == [
        ("tenant.create", "tenant", TENANT, "ops", None, "active"),
        ("tenant.suspend", "tenant", TENANT, "ops", "active", "suspended"),
        ("tenant.resume", "tenant", TENANT, "ops", "suspended", "active"),
    ]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_pause_that_somebody_made_outlasts_a_suspension(subject: Subject, when: str) -> None:
    def pause() -> None:
        call(subject, "outbox.pause", tenant=TENANT, by="ann", reason="maintenance")

    call(subject, "tenants.create", TENANT)
    if when == "before":
        pause()
    call(subject, "tenants.suspend", TENANT, **WHY)
    if when == "meanwhile":
        pause()
    call(subject, "tenants.resume", TENANT, **WHY)
    assert [(each.paused_by, each.reason) for each in call(subject, "outbox.pauses")] == [("ann", "maintenance")]


def test_a_tenant_is_created_once(subject: Subject) -> None:
    made = call(subject, "tenants.create", TENANT, "Team A", by="ops")
    assert call(subject, "tenants.create", TENANT, "Team A", by="bo") == made
    with pytest.raises(TenantExists, match="as Team A"):
        call(subject, "tenants.create", TENANT, "Team B")
    for tenant in ("c", "b"):
        call(subject, "tenants.create", tenant)
    assert [each.tenant for each in call(subject, "tenants.list")] == ["b", "c", TENANT]
    assert [each.name for each in call(subject, "tenants.list", after="b", limit=1)] == ["c"]
    assert len(deeds(subject)) == 3


@on_each(MEMORY)
def test_only_a_tenant_that_was_created_is_suspended_with_who_and_why(subject: Subject) -> None:
    for name in ("tenants.suspend", "tenants.resume"):
        with pytest.raises(TenantNotFound, match="There is no tenant team-a here"):
            call(subject, name, TENANT, **WHY)
        with pytest.raises(TenantNotFound, match="There is no tenant team-a here"):
            call(subject, name, TENANT, by=replace(ADMIN, tenant="team-b"), reason="why")
        for lacking in ({"by": " "}, {"reason": ""}):
            with pytest.raises(VerdictIncomplete):
                call(subject, name, TENANT, **{**WHY, **lacking})


# --- both colours ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), [(Tokens, AsyncTokens), (Tenants, AsyncTenants), (Audit, AsyncAudit)])
def test_both_colours_have_the_same_methods(one: type, other: type) -> None:
    names = {name for name in vars(one) if not name.startswith("_")}
    assert names == {name for name in vars(other) if not name.startswith("_")}
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert str(signature(mine)) == str(signature(theirs)).replace("AsyncIterator", "Iterator"), name
        assert getdoc(mine) == getdoc(theirs), name
