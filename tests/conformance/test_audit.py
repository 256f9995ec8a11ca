"""The audit trail: what people do is noted with who and why, in the transaction that does it, and stays as it is."""

from typing import Any

import pytest

from counterfoil.core import audit as words
from counterfoil.core.access import Actor, Role
from counterfoil.core.audit import Deed, Kind
from counterfoil.errors import ConstraintViolated
from counterfoil.storage.script import Ddl, Script
from counterfoil.storage.scripts import audit
from tests.conformance.subject import Subject

MEI = Actor(who="mei", shown="Mei", role=Role.OPERATOR, token_id="k-1")
INTENT = words.Subject(Kind.OPERATION, "o-1")


@pytest.fixture(params=("sync", "async"))
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def note(subject: Subject, actor: Actor = MEI, **more: Any) -> None:
    given = {"tenant": "team-a", "reason": "it works again", **more}
    subject.settle(subject.write(lambda: audit.note(actor, Deed.REQUEUE, INTENT, **given)))


def test_an_entry_says_who_did_what_to_what_and_why(subject: Subject) -> None:
    note(subject, before="parked", after="pending", request_id="r-1")
    (row,) = subject.rows("audit")
    assert dict(row) == {
        "seq": 1, "tenant": "team-a", "at": subject.clock.now_ms(), "who": "mei", "shown": "Mei", "role": "operator",
        "token_id": "k-1", "act": "requeue", "kind": "operation", "subject": "o-1", "state_before": "parked",
        "state_after": "pending", "reason": "it works again", "request_id": "r-1",
    }  # fmt: skip


def test_a_credential_in_a_reason_is_not_kept(subject: Subject) -> None:
    note(subject, reason="the key was AKIA" + "IOSFODNN7EXAMPLE")
    assert [row["reason"] for row in subject.rows("audit")] == ["the key was [redacted]"]


@pytest.mark.parametrize("statement", ["update counterfoil_audit set who = 'bo'", "delete from counterfoil_audit"])
def test_the_database_itself_refuses_to_change_or_remove_an_entry(subject: Subject, statement: str) -> None:
    def by_hand() -> Script[Any]:
        return (yield Ddl(statement))

    note(subject)
    with pytest.raises(ConstraintViolated):
        subject.settle(subject.write(by_hand))
    assert [row["who"] for row in subject.rows("audit")] == ["mei"]
