"""A strict program sends what trusted code granted for exactly these arguments, or a person approved; nothing else."""

from operator import attrgetter
from typing import Any

import pytest

from counterfoil import Policy, Principal, Provider
from counterfoil.errors import (
    ApprovalRequired,
    DifferentEffect,
    EffectNotSent,
    FingerprintMismatch,
    GrantNotFound,
    NotAllowed,
    NotGranted,
    OutcomeUnknown,
    VerdictIncomplete,
)
from counterfoil.model import Origin, Trusted
from counterfoil.storage.scripts import claims
from tests.conformance.subject import Subject
from tests.conformance.test_outbox import MINUTE, Turning, lose, not_sent, pass_by

ASKED = {"tenant": "team-a", "request_id": "r-1"}


@pytest.fixture
def strict(subject: Subject) -> Any:
    subject.cf = subject.open(strict=True)
    return subject.cf


def test_what_nobody_granted_is_refused_sends_nothing_and_is_noted(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    with pytest.raises(NotGranted, match="not granted"):
        subject.perform(made, cf=strict, title="a", principal="Model")
    assert len(subject.sent) == 0
    (entry,) = subject.rows("audit")
    assert (entry["act"], entry["who"], entry["subject"]) == ("grant.refuse", "model", "ticket:r-1")


def test_it_is_noted_of_a_principal_whom_nobody_can_name(subject: Subject, strict: Any) -> None:
    with pytest.raises(NotGranted):
        subject.perform(subject.ticket(), cf=strict, title="a", principal="\u200b")
    (entry,) = subject.rows("audit")
    assert (entry["act"], entry["who"]) == ("grant.refuse", "\u200b")


def test_what_is_granted_is_sent_once_and_nothing_beside_it(subject: Subject, strict: Any) -> None:
    made, other = subject.ticket(), subject.ticket()
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    assert (grant.operation_id, grant.granted_by, grant.expires_at) == ("ticket:r-1", "gateway", None)
    for invented in ({"title": "b"}, {"title": "a", "request_id": "r-2"}):
        with pytest.raises(NotGranted):
            subject.perform(made, cf=strict, **invented)
    with pytest.raises(NotGranted):
        subject.perform(other, cf=strict, title="a")
    assert subject.perform(made, cf=strict, title="a").answered_from == "effect"
    assert subject.perform(made, cf=strict, title="a").answered_from == "receipt"
    with pytest.raises(FingerprintMismatch):
        subject.perform(made, cf=strict, title="b")
    assert len(subject.sent) == 1


def test_what_is_granted_is_its_meaning_of_then(subject: Subject, strict: Any) -> None:
    def declare(default: str) -> Any:
        def mail(call: Any, *, text: str, to: str = default) -> Any:
            subject.sent.tally.accept("mail", call.provider_key, {"to": to, "text": text})

        return subject.effect(mail, name="grants.mail", key="{request_id}/mail")

    subject.settle(strict.grants.issue(declare("bob"), by="gateway", text="a", **ASKED))
    after = declare("eve")
    with pytest.raises(NotGranted):
        subject.perform(after, cf=strict, text="a")
    assert len(subject.sent) == 0
    subject.perform(after, cf=strict, text="a", to="bob")
    assert subject.sent.bodies == [{"to": "bob", "text": "a"}]


def refusals(subject: Subject) -> list[tuple[Any, ...]]:
    noted = sorted((row for row in subject.rows("audit") if row["act"] == "grant.refuse"), key=lambda row: row["seq"])
    return [(row["who"], row["subject"], row["request_id"], row["state_before"], row["state_after"]) for row in noted]


OTHERS = {"another payload": (False, "b"), "another effect": (True, "a")}


@pytest.mark.parametrize("invention", OTHERS)
@pytest.mark.parametrize("how", ["perform", "enqueue", "enqueue_all", "approvals.request"])
@pytest.mark.parametrize("begun", ["performed", "approved", "waiting"])
def test_each_invention_under_an_id_in_use_is_noted_once(
    subject: Subject, strict: Any, begun: str, how: str, invention: str
) -> None:
    """In an id that is in use, whatever became of it, as under a new one."""
    gated = Policy() if begun != "performed" else None
    made, other = subject.ticket(approval=gated), subject.ticket(approval=gated)
    if gated is None:
        subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
        subject.perform(made, cf=strict, title="a")
    else:
        asked = subject.settle(strict.approvals.request(made, title="a", **ASKED))
        if begun == "approved":
            subject.settle(strict.approvals.approve(asked.approval_id, tenant="team-a", by="mei"))
            subject.perform(made, cf=strict, title="a")
    before = len(subject.sent)
    is_other, title = OTHERS[invention]
    given: tuple[Any, ...] = ([{"title": title}],) if how == "enqueue_all" else ()
    named = ASKED if given else {**ASKED, "title": title}
    for _ in range(2):
        with pytest.raises((FingerprintMismatch, DifferentEffect, NotGranted)):
            subject.settle(attrgetter(how)(strict)(other if is_other else made, *given, principal="Model", **named))
    found = refusals(subject)
    assert len(found) == 2
    assert {each[:3] for each in found} == {("model", "ticket:r-1", "r-1")}
    assert all(each[3].startswith("jcs1:") and each[4].startswith("jcs1:") for each in found)
    assert len(subject.sent) == before


def test_what_was_granted_beside_what_stands_there_is_a_mismatch_and_nothing_invented(
    subject: Subject, strict: Any
) -> None:
    made = subject.ticket()
    for title in ("a", "b"):
        subject.settle(strict.grants.issue(made, by="gateway", title=title, **ASKED))
    subject.perform(made, cf=strict, title="a")
    with pytest.raises(FingerprintMismatch):
        subject.perform(made, cf=strict, title="b")
    assert refusals(subject) == []


def test_a_program_that_is_not_strict_notes_no_mismatch(subject: Subject) -> None:
    made = subject.ticket()
    subject.perform(made, title="a")
    with pytest.raises(FingerprintMismatch):
        subject.perform(made, title="b")
    assert refusals(subject) == []


def test_a_grant_that_ran_out_or_was_revoked_permits_nothing(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", expires_in="1m", **ASKED))
    subject.clock.advance("1m")
    with pytest.raises(NotGranted):
        subject.perform(made, cf=strict, title="a")
    renewed = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    assert renewed.grant_id == grant.grant_id
    revoked = subject.settle(strict.grants.revoke(grant.grant_id, tenant="team-a", by="ops", reason="too early"))
    again = subject.settle(strict.grants.revoke(grant.grant_id, tenant="team-a", by="else", reason="later"))
    assert revoked.revoked_by == again.revoked_by == "ops"
    with pytest.raises(NotGranted):
        subject.perform(made, cf=strict, title="a")
    assert len(subject.sent) == 0


@pytest.mark.parametrize("kind", ["opaque", "keyed"])
def test_what_was_begun_under_a_grant_is_told_of_when_that_is_taken_back(
    subject: Subject, strict: Any, kind: str
) -> None:
    """Its worker died: that is an unknown outcome, and nothing of which could be said that nothing was sent."""
    made = subject.ticket(provider=Provider(key_lifetime="24h" if kind == "keyed" else None))
    begin(subject, strict, made)
    pass_by(subject, 60 * MINUTE)
    if kind == "keyed":
        assert subject.perform(made, cf=strict, title="a").attempt == 2
    else:
        with pytest.raises(OutcomeUnknown):
            subject.perform(made, cf=strict, title="a")
        assert subject.cases() == ["unknown_outcome"]
    assert "grant.refuse" not in [entry["act"] for entry in subject.rows("audit")]


def begin(subject: Subject, strict: Any, made: Any) -> None:
    """Claim an operation under a grant, be heard of no more, and let the grant be taken back."""
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    job = strict.desk.job(made, {"title": "a"}, Trusted(**ASKED), Origin())
    subject.cf.desk.store.write(lambda: claims.claim(job.request))
    revoke(subject, strict, grant)


def revoke(subject: Subject, strict: Any, grant: Any) -> None:
    subject.settle(strict.grants.revoke(grant.grant_id, tenant="team-a", by="ops", reason="too early"))


def test_a_lost_reply_is_sent_again_under_its_key_when_its_grant_is_taken_back(subject: Subject, strict: Any) -> None:
    made = subject.ticket(Turning(lose, None), provider=Provider(key_lifetime="24h"))
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    with pytest.raises(OutcomeUnknown):
        subject.perform(made, cf=strict, title="a")
    revoke(subject, strict, grant)
    pass_by(subject, MINUTE)
    assert subject.perform(made, cf=strict, title="a").attempt == 2
    assert len(set(subject.sent.keys)) == 1


def test_what_was_not_sent_needs_a_grant_for_its_next_attempt(subject: Subject, strict: Any) -> None:
    made = subject.ticket(Turning(not_sent, None))
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    with pytest.raises(EffectNotSent):
        subject.perform(made, cf=strict, title="a")
    revoke(subject, strict, grant)
    with pytest.raises(NotGranted):
        subject.perform(made, cf=strict, title="a")
    assert len(subject.sent) == 1


def test_what_was_enqueued_under_a_grant_is_known_when_that_is_taken_back(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    subject.settle(strict.enqueue(made, title="a", **ASKED))
    revoke(subject, strict, grant)
    assert not subject.settle(strict.enqueue(made, title="a", **ASKED)).is_new
    with pytest.raises(NotGranted):
        subject.settle(strict.enqueue(made, title="b", **ASKED))
    subject.drain(made)
    assert len(subject.sent) == 1


def test_what_is_enqueued_must_be_granted_too(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    with pytest.raises(NotGranted):
        subject.settle(strict.enqueue(made, title="a", **ASKED))
    subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    with pytest.raises(NotGranted):
        subject.settle(strict.enqueue_all(made, [{"title": "a"}, {"title": "b"}], **ASKED))
    subject.drain(made)
    assert len(subject.sent) == 0
    assert subject.settle(strict.enqueue(made, title="a", **ASKED)).is_new
    subject.drain(made)
    assert len(subject.sent) == 1
    assert [entry["act"] for entry in subject.rows("audit")] == ["grant.refuse", "grant.issue", "grant.refuse"]


def test_an_approval_permits_it_as_a_grant_does(subject: Subject, strict: Any) -> None:
    gated, plain = subject.ticket(approval=Policy()), subject.ticket()
    with pytest.raises(ApprovalRequired):
        subject.perform(gated, cf=strict, title="a")
    asked = subject.settle(strict.approvals.request(plain, tenant="team-a", request_id="r-2", title="b"))
    with pytest.raises(ApprovalRequired):
        subject.perform(plain, cf=strict, title="b", request_id="r-2")
    for one in subject.settle(strict.approvals.list(tenant="team-a")).items:
        subject.settle(strict.approvals.approve(one.approval_id, tenant="team-a", by="mei"))
    assert asked.operation_id == "ticket:r-2"
    subject.perform(gated, cf=strict, title="a")
    subject.perform(plain, cf=strict, title="b", request_id="r-2")
    assert len(subject.sent) == 2


def test_where_the_policy_asks_for_no_approval_a_grant_is_needed(subject: Subject, strict: Any) -> None:
    made = subject.ticket(approval=Policy(when=lambda title: title == "large"))
    with pytest.raises(NotGranted):
        subject.perform(made, cf=strict, title="small")
    assert len(subject.sent) == 0


def test_a_transactional_effect_must_be_granted_too(subject: Subject, strict: Any) -> None:
    def book(tx: Any, *, title: str) -> str:
        subject.sent.tally.accept("ticket", title)
        return title

    made = subject.effect(book, provider=Provider.transactional())
    with pytest.raises(NotGranted):
        subject.perform(made, cf=strict, title="a")
    assert len(subject.sent) == 0
    subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    assert subject.perform(made, cf=strict, title="a").value == "a"


def test_who_may_grant_and_who_may_not(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    viewer = Principal(tenant="team-a", name="vic", role="viewer")  # type: ignore[arg-type]  # a role by its name
    with pytest.raises(NotAllowed):
        subject.settle(strict.grants.issue(made, by=viewer, title="a", **ASKED))
    operator = Principal(tenant="team-a", name="Olga", role="operator")  # type: ignore[arg-type]
    grant = subject.settle(strict.grants.issue(made, by=operator, title="a", **ASKED))
    assert grant.granted_by == "Olga"
    with pytest.raises(VerdictIncomplete):
        subject.settle(strict.grants.revoke(grant.grant_id, tenant="team-a", by="ops", reason=" "))


def test_another_tenants_grant_is_an_unknown_one_and_permits_nothing(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    grant = subject.settle(strict.grants.issue(made, by="gateway", title="a", **ASKED))
    with pytest.raises(NotGranted):
        subject.perform(made, cf=strict, tenant="team-b", title="a")
    for unknown in (grant.grant_id, "grant-999", "case-1", "x"):
        with pytest.raises(GrantNotFound, match="There is no grant"):
            subject.settle(strict.grants.revoke(unknown, tenant="team-b", by="ops", reason="why"))
    assert subject.settle(strict.grants.list(tenant="team-b")).items == ()


def test_grants_are_listed_in_pages_the_newest_first(subject: Subject, strict: Any) -> None:
    made = subject.ticket()
    for number in range(3):
        asked = {"tenant": "team-a", "request_id": f"r-{number}", "title": "a"}
        subject.settle(strict.grants.issue(made, by="gateway", **asked))
    first = subject.settle(strict.grants.list(tenant="team-a", limit=2))
    rest = subject.settle(strict.grants.list(tenant="team-a", limit=2, before=first.next))
    assert [one.operation_id for one in (*first.items, *rest.items)] == ["ticket:r-2", "ticket:r-1", "ticket:r-0"]
    assert rest.next is None
    whole = subject.settle(strict.grants.list(tenant="team-a", limit=3))
    assert (len(whole.items), whole.next) == (3, None)
