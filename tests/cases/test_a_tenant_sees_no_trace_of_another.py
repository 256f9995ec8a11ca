"""B79: a key space across all callers let one tenant read the stored answer of another, or block its key.

Sources: https://github.com/C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend/issues/379,
https://github.com/arun0009/idempotent/pull/217, https://github.com/NousResearch/hermes-agent/pull/24200
"""

import threading
from typing import Any

import pytest

from counterfoil import Counterfoil, effect
from counterfoil.errors import FingerprintMismatch, OperationInProgress

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
