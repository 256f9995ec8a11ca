"""B31: the digest covered the whole message, whose id was new for each request, so that no retry could ever match.

Sources: https://github.com/Universal-Commerce-Protocol/ucp/pull/782, https://github.com/elastic/kibana/issues/77772
"""

from typing import Any
from uuid import uuid4

import pytest

from counterfoil import Counterfoil, effect
from counterfoil.errors import FingerprintMismatch

ENVELOPE = ("message_id", "trace_id", "sent_at")


def test_only_declared_business_fields_tell_operations_apart(url: str) -> None:
    sent: list[str] = []

    @effect("cases.checkout", key="checkout:{cart}", not_identity=ENVELOPE)
    def checkout(call: Any, *, cart: str, amount: int, message_id: str, trace_id: str, sent_at: float) -> str:
        sent.append(message_id)
        return message_id

    def envelope(moment: float) -> dict[str, Any]:
        return {"message_id": str(uuid4()), "trace_id": str(uuid4()), "sent_at": moment}

    with Counterfoil.open(url) as cf:
        first = cf.perform(checkout, tenant="t", cart="c-1", amount=10, **envelope(1.0))
        for moment in (2.0, 3.0):
            again = cf.perform(checkout, tenant="t", cart="c-1", amount=10, **envelope(moment))
            assert (again.value, again.already_happened) == (first.value, True)
        with pytest.raises(FingerprintMismatch) as caught:
            cf.perform(checkout, tenant="t", cart="c-1", amount=11, **envelope(4.0))
        assert caught.value.fields == ("amount",)
    assert len(sent) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_field_added_with_its_default_is_no_second_operation(url: str, store: str, version: int) -> None:
    """Written rule: an argument equal to its default is left out; changing a default needs a new version."""
    sent: list[str] = []

    @effect(f"cases.ticket-{store}-{version}", key="ticket:{request_id}")
    def old_client(call: Any, *, title: str) -> int:
        sent.append(title)
        return 1

    def grown(call: Any, *, title: str, priority: str = "low") -> int:
        sent.append(title)
        return 2

    with Counterfoil.open(url) as cf:
        cf.perform(old_client, tenant="t", request_id="r", title="a")
        from counterfoil.effects import REGISTRY

        REGISTRY.effects.pop((old_client.name, 1))
        new_client = effect(old_client.name, key="ticket:{request_id}", version=version)(grown)
        assert cf.perform(new_client, tenant="t", request_id="r", title="a").value == 1
        assert cf.perform(new_client, tenant="t", request_id="r", title="a", priority="low").value == 1
        with pytest.raises(FingerprintMismatch):
            cf.perform(new_client, tenant="t", request_id="r", title="a", priority="high")
    assert len(sent) == 1
