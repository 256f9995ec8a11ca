"""B79: a key space across all callers let one tenant read the stored answer of another, or block its key.

Sources: https://github.com/C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend/issues/379,
https://github.com/arun0009/idempotent/pull/217, https://github.com/NousResearch/hermes-agent/pull/24200
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from counterfoil import Counterfoil, CounterfoilError, Policy, effect
from counterfoil.errors import (
    ApprovalRejected,
    ApprovalRequired,
    EventConflict,
    FingerprintMismatch,
    GrantNotFound,
    OperationInProgress,
    WorkflowConflict,
)
from tests.colours import COLOURS, Coloured
from tests.langgraph.shop import chain

ONE, TWO = "acme-secret-name", "globex"


@pytest.mark.parametrize("theirs", [10, 99])
def test_the_same_id_is_two_independent_operations(url: str, theirs: int) -> None:
    keys: list[str] = []

    @effect("cases.tenant-pay", key="{payment}")
    def pay(call: Any, *, payment: str, amount: int) -> dict[str, Any]:
        keys.append(call.provider_key)
        return {"paid": amount, "by": call.tenant}

    with Counterfoil.open(url) as cf:
        first = cf.perform(pay, tenant=ONE, payment="pay-1", amount=10)
        second = cf.perform(pay, tenant=TWO, payment="pay-1", amount=theirs)
        assert (first.value["by"], second.value["by"]) == (ONE, TWO)
        assert (first.already_happened, second.already_happened) == (False, False)
        with pytest.raises(FingerprintMismatch) as caught:
            cf.perform(pay, tenant=TWO, payment="pay-1", amount=55)
        told = f"{caught.value} {caught.value.facts}"
        assert ONE not in told
        assert first.fingerprint not in told or first.fingerprint == second.fingerprint
    assert len(set(keys)) == 2


def test_one_tenants_running_operation_does_not_hold_up_the_others(url: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @effect("cases.tenant-slow", key="{payment}")
    def pay(call: Any, *, payment: str) -> str:
        if call.tenant == ONE:
            inside.set()
            assert go_on.wait(30)
        return str(call.tenant)

    with Counterfoil.open(url, wait="0s") as cf:
        slow = threading.Thread(target=lambda: cf.perform(pay, tenant=ONE, payment="pay-1"))
        slow.start()
        assert inside.wait(30)
        assert cf.perform(pay, tenant=TWO, payment="pay-1").value == TWO
        with pytest.raises(OperationInProgress):
            cf.perform(pay, tenant=ONE, payment="pay-1")
        go_on.set()
        slow.join()


@pytest.mark.parametrize(("one", "other"), [(("a", "b/c"), ("a/b", "c")), (("a:1", "x"), ("a", "1:x"))])
def test_no_tenant_and_id_spell_those_of_another(url: str, one: tuple[str, str], other: tuple[str, str]) -> None:
    keys: list[str] = []

    @effect("cases.tenant-spelling", key="{payment}")
    def pay(call: Any, *, payment: str) -> int:
        keys.append(call.provider_key)
        return len(keys)

    with Counterfoil.open(url) as cf:
        values = [cf.perform(pay, tenant=tenant, payment=payment).value for tenant, payment in (one, other)]
    assert values == [1, 2]
    assert len(set(keys)) == 2


@effect("cases.tenant-letter", key="{request_id}/letter", approval=Policy())
def letter(call: Any, *, to: str) -> str:
    return f"{call.tenant}: {to}"


@pytest.fixture(params=COLOURS)
def made(url: str, request: pytest.FixtureRequest) -> Iterator[Coloured]:
    """A Counterfoil of either colour."""
    one = Coloured(request.param, url)
    yield one
    one.close()


def assert_no_trace(error: pytest.ExceptionInfo[CounterfoilError]) -> None:
    assert ONE not in f"{error.value} {error.value.facts}"


def test_approvals_of_one_id_are_decided_apart(made: Coloured) -> None:
    ask = {"request_id": "r-1", "to": "ann"}
    first, second = (made.call("approvals.request", letter, tenant=tenant, **ask) for tenant in (ONE, TWO))
    assert first.operation_id == second.operation_id
    made.call("approvals.approve", first.approval_id, tenant=ONE, by="bo")
    with pytest.raises(ApprovalRequired) as waits:
        made.call("perform", letter, tenant=TWO, **ask)
    assert_no_trace(waits)
    assert made.call("perform", letter, tenant=ONE, **ask).value == f"{ONE}: ann"
    made.call("approvals.reject", second.approval_id, tenant=TWO, by="cy", reason="no")
    with pytest.raises(ApprovalRejected) as refused:
        made.call("perform", letter, tenant=TWO, **ask)
    assert_no_trace(refused)
    with pytest.raises(FingerprintMismatch) as other:
        made.call("perform", letter, tenant=TWO, request_id="r-1", to="eve")
    assert_no_trace(other)


def test_grants_of_one_id_are_given_and_taken_apart(made: Coloured) -> None:
    ask = {"request_id": "r-1", "to": "ann"}
    first, second = (made.call("grants.issue", letter, tenant=tenant, by="bo", **ask) for tenant in (ONE, TWO))
    made.call("grants.revoke", first.grant_id, tenant=ONE, by="bo", reason="no")
    (left,) = made.call("grants.list", tenant=TWO).items
    assert (left.grant_id, left.revoked_at) == (second.grant_id, None)
    with pytest.raises(GrantNotFound) as unknown:
        made.call("grants.revoke", first.grant_id, tenant=TWO, by="bo", reason="no")
    assert_no_trace(unknown)


def test_events_and_workflows_of_one_id_are_apart(made: Coloured) -> None:
    made.call("workflows.register", chain(("n", lambda state: {"number": len(state["order"])})), name="g")
    event = {"workflow_id": "w", "event_id": "e"}
    for tenant, order in ((ONE, "1"), (TWO, "22")):
        made.call("workflows.start", "g", {"order": order}, tenant=tenant, workflow_id="w")
        made.call("workflows.deliver", "paid", tenant=tenant, payload=order, **event)
    with pytest.raises(EventConflict) as other_event:
        made.call("workflows.deliver", "paid", tenant=TWO, payload="1", **event)
    assert_no_trace(other_event)
    with pytest.raises(WorkflowConflict) as other_input:
        made.call("workflows.start", "g", {"order": "1"}, tenant=TWO, workflow_id="w")
    assert_no_trace(other_input)
    made.call("workflows.cancel", "w", tenant=ONE, by="bo", reason="no")
    made.call("drain")
    assert made.call("workflows.get", "w", tenant=ONE).status == "cancelled"
    assert made.call("workflows.result", "w", tenant=TWO)["number"] == 2


def test_receipts_of_awaiting_callers_are_apart(made: Coloured) -> None:
    @effect("cases.tenant-note", key="{request_id}/note")
    def note(call: Any, *, text: str) -> str:
        return f"{call.tenant}: {text}"

    for tenant, text in ((ONE, "a"), (TWO, "b")):
        assert made.call("perform", note, tenant=tenant, request_id="r-1", text=text).value == f"{tenant}: {text}"
    for tenant, text in ((ONE, "a"), (TWO, "b")):
        found = made.call("operations.get", "r-1/note", tenant=tenant)
        assert found.receipt.value == f"{tenant}: {text}"
    with pytest.raises(FingerprintMismatch) as other:
        made.call("perform", note, tenant=TWO, request_id="r-1", text="a")
    assert_no_trace(other)
    made.abandon(note, tenant=ONE, request_id="r-2", text="a")
    assert made.call("perform", note, tenant=TWO, request_id="r-2", text="b").value == f"{TWO}: b"
