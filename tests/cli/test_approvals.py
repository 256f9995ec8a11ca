"""A reviewer with the command line alone sees what waits, what would be sent, and decides."""

from collections.abc import Iterator
from typing import Any

import pytest

from counterfoil import Counterfoil, Policy, effect
from counterfoil.errors import ApprovalRejected, ApprovalRequired, OutcomeUnknown
from counterfoil.testing.clock import FakeClock
from tests.cli.conftest import Line
from tests.stores import execute

SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
ASKED: dict[str, Any] = {
    "tenant": "team-A",
    "request_id": "r-1",
    "principal": "bot",
    "to": "ann",
    "token": SECRET,
}
T = ["--tenant", "team-A"]


@effect("cli.gated", key="{request_id}/gated", approval=Policy())
def gated(call: Any, *, to: str, token: str = "") -> str:
    return to


@pytest.fixture
def cf(empty: Line) -> Iterator[Counterfoil]:
    with Counterfoil.open(empty.url) as opened:
        with pytest.raises(ApprovalRequired):
            opened.perform(gated, **ASKED)
        yield opened


def test_what_waits_is_listed_and_shown_with_what_would_be_sent(empty: Line, cf: Counterfoil) -> None:
    del cf
    listed = empty("approvals list", *T).stdout
    assert "approval-1" in listed
    assert "r-1/gated" in listed
    shown = empty("approvals show approval-1", *T).stdout
    assert "Would be sent:" in shown
    assert "'ann'" in shown
    assert SECRET not in shown
    assert "Run: counterfoil approvals approve approval-1 --tenant team-A" in shown
    assert empty.json("approvals show approval-1", *T)["arguments"]["to"] == "ann"
    assert empty.json("approvals list", *T)[0]["state"] == "pending"


@effect("cli.noted", key="{request_id}/noted", approval=Policy())
def noted(call: Any, *, note: str, login: dict[str, Any], more: list[Any] | None = None) -> str:
    return note


HIDDEN = "password=send-all-money-to-eve"
LOGIN = {"user": "ann", "password": "hunter2", "nested": [{"api_key": "k-1", "token": "t-1", "secret": ""}]}


def test_what_is_hidden_is_said_and_can_be_seen(empty: Line, cf: Counterfoil) -> None:
    who: dict[str, Any] = {"tenant": "team-A", "request_id": "r-2"}
    with pytest.raises(ApprovalRequired):
        cf.perform(noted, **who, note=HIDDEN, login=LOGIN, more=["plain"])
    shown = empty("approvals show approval-2", *T).stdout
    assert not [word for word in ("to-eve", "hunter2", "k-1", "t-1") if word in shown]
    assert "'ann'" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("Hidden")]
    assert line.endswith("of note, login. See it with: counterfoil approvals show approval-2 --tenant team-A --reveal")
    revealed = empty("approvals show approval-2 --reveal", *T).stdout
    assert all(word in revealed for word in (HIDDEN, "hunter2", "k-1", "t-1"))
    assert "Hidden" not in revealed
    told = empty.json("approvals show approval-2", *T)
    assert (told["hidden"], told["arguments"]["more"]) == (["note", "login"], ["plain"])
    told = empty.json("approvals show approval-2 --reveal", *T)
    assert (told["hidden"], told["arguments"]) == ([], {"note": HIDDEN, "login": LOGIN, "more": ["plain"]})


def test_an_operation_is_found_by_the_ids_of_its_approval_and_its_grant(empty: Line, cf: Counterfoil) -> None:
    grant = cf.grants.issue(gated, tenant="team-A", request_id="r-1", to="ann", token=SECRET, by="ops")
    for any_id, kind in (("approval-1", "approval"), (grant.grant_id, "grant")):
        for scope in ([], T):
            (hit,) = empty.json(f"find {any_id}", *scope)
            assert (hit["found_by"], hit["operation_id"]) == (kind, "r-1/gated")
        assert empty.error(f"find {any_id} --tenant team-B", exit_code=3)["code"] == "operation-not-found"
    assert empty.error("find approval-9", exit_code=3)["code"] == "operation-not-found"
    assert empty.error("find grant-9", exit_code=3)["code"] == "operation-not-found"


def test_of_a_case_it_is_the_same(empty: Line, cf: Counterfoil) -> None:
    @effect("cli.noted-lost", key="{request_id}/lost")
    def lost(call: Any, *, note: str, login: dict[str, Any]) -> str:
        raise OSError

    with pytest.raises(OutcomeUnknown):
        cf.perform(lost, tenant="team-A", request_id="r-3", note=HIDDEN, login=LOGIN)
    shown = empty("review show case-1 --arguments", *T).stdout
    assert not [word for word in ("to-eve", "hunter2", "k-1", "t-1") if word in shown]
    assert "counterfoil review show case-1 --tenant team-A --reveal" in shown
    assert HIDDEN in empty("review show case-1 --reveal", *T).stdout
    assert empty.json("review show case-1 --arguments", *T)["hidden"] == ["note", "login"]
    assert empty.json("review show case-1 --reveal", *T)["arguments"]["login"] == LOGIN


def test_approved_by_the_command_line_it_is_sent(empty: Line, cf: Counterfoil) -> None:
    assert "recorded  approval-1  approved" in empty("approvals approve approval-1", *T).stdout
    assert cf.perform(gated, **ASKED).value == "ann"
    assert "approvals list" not in empty("approvals list", *T).stdout
    assert "Nothing waits for a decision." in empty("approvals list", *T).stdout
    assert empty("approvals approve approval-1", *T).exit_code == 0  # already applied
    assert empty.error("approvals reject approval-1 --reason no", *T, exit_code=5)["code"] == "decision-conflict"


def test_rejected_by_the_command_line_it_is_never_sent(empty: Line, cf: Counterfoil) -> None:
    empty("approvals reject approval-1", *T, exit_code=2)  # a reason is needed
    empty("approvals reject approval-1", *T, "--reason", "not this customer")
    with pytest.raises(ApprovalRejected, match="not this customer"):
        cf.perform(gated, **ASKED)
    told = empty("explain r-1/gated", *T).stdout
    assert "not this customer" in told
    assert "Run: counterfoil approvals show approval-1 --tenant team-A" in told


def test_withdrawn_and_edited_by_the_command_line(empty: Line, cf: Counterfoil) -> None:
    del cf
    edit = ["approvals edit approval-1", *T, "--app", "tests.cli.test_approvals:APP"]
    assert empty(*edit, "--set", "to", exit_code=2).stderr
    assert empty(*edit, "--set", "to=bob", exit_code=2).stderr
    assert empty.error("approvals cancel approval-9 --reason no", *T, exit_code=3)["code"] == "approval-not-found"
    empty("approvals cancel approval-1 --reason late", *T)
    assert empty.json("approvals list --state cancelled", *T)[0]["reason"] == "late"


def test_every_view_of_an_operation_says_what_it_waits_for(empty: Line, cf: Counterfoil) -> None:
    told = empty("explain r-1/gated", *T).stdout
    assert "A person decides about approval-1" in told
    assert "Run: counterfoil approvals show approval-1 --tenant team-A" in told
    assert "approval-1" in empty("ops show r-1/gated", *T).stdout
    assert empty.json("ops show r-1/gated", *T)["approvals"][0]["approval_id"] == "approval-1"
    assert "awaiting_approval" in empty("ops list --state awaiting_approval", *T).stdout
    assert "awaiting_approval" in empty("find r-1", *T).stdout
    cf.enqueue(gated, **{**ASKED, "request_id": "r-2"})
    assert "awaiting_approval" in empty("outbox list", *T).stdout
    assert "approval-2" in empty("outbox show r-2/gated", *T).stdout
    assert empty.json("db status")["operations"]["awaiting_approval"] == 2


def no_receipt(line: Line, operation: str) -> dict[str, Any]:
    told = line.error(f"receipts show {operation}", *T, exit_code=1)
    assert told["code"] == "no-receipt"
    assert told["message"].startswith("It did not happen.")
    return dict(told)


def test_the_receipt_of_what_was_not_sent_is_missing_since_it_did_not_happen(empty: Line, cf: Counterfoil) -> None:
    for number in (2, 3, 4):
        cf.enqueue(gated, **{**ASKED, "request_id": f"r-{number}"})
    waits = no_receipt(empty, "r-1/gated")
    assert "A person decides about approval-1, until" in waits["message"]
    assert "Run: counterfoil approvals show approval-1 --tenant team-A" in waits["message"]
    assert waits["retry"] == "after_reconcile"
    empty("approvals reject approval-1", *T, "--reason", "not this customer")
    empty("approvals cancel approval-2", *T, "--reason", "late")
    with Counterfoil.open(empty.url, clock=FakeClock(5_000_000_000_000)) as later:
        later.drain(gated)
    for operation, why in {
        "r-1/gated": "not this customer", "r-2/gated": "cancelled by", "r-3/gated": "nobody decided in time",
    }.items():  # fmt: skip
        told = no_receipt(empty, operation)
        assert why in told["message"]
        assert told["retry"] == "never"


def test_what_ran_out_is_shown_as_run_out(empty: Line, cf: Counterfoil) -> None:
    empty("approvals approve approval-1", *T)
    cf.enqueue(gated, **{**ASKED, "request_id": "r-2"})
    execute(empty.url, "update counterfoil_approval set valid_until = 1 where seq = 1")
    execute(empty.url, "update counterfoil_approval set decide_by = 1 where seq = 2")
    assert "approved, ran out" in empty("approvals list --state approved", *T).stdout
    assert "approved, ran out" in empty("ops show r-1/gated", *T).stdout
    assert "It ran out at 1970" in empty("approvals show approval-1", *T).stdout
    assert "pending, ran out" in empty("approvals list", *T).stdout
    shown = empty("approvals show approval-2", *T).stdout
    assert "Nobody decided by 1970" in shown
    assert "Run:" not in shown
    for command in ("approvals show approval-1", "approvals show approval-2"):
        assert empty.json(command, *T)["ran_out"] is True
    assert empty.json("ops show r-1/gated", *T)["approvals"][0]["ran_out"] is True


APP = None
"""What `--app` names must be a Counterfoil; this is none."""
